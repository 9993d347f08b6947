"""From what was seen to a phase and conditions. Pure: no clock, no database, no cluster."""

from __future__ import annotations

from dataclasses import dataclass

from infra.adapters.flux import ReleaseState
from portal.kernel.conditions import Condition, Status
from tenants.models import TenantCluster
from tenants.tenantclusters.inside import InsideView
from tenants.tenantclusters.provisioner import HostView

Phase = TenantCluster.Phase


@dataclass(frozen=True)
class Judged:
    """A phase and the conditions that explain it. ``settled``: nothing is on its way; look again when told."""

    phase: str
    conditions: tuple[Condition, ...]
    settled: bool

    @property
    def message(self) -> str:
        """The sentence of the summary."""
        return next((one.message for one in self.conditions if one.type == "Ready"), "")


@dataclass(frozen=True)
class Seen:
    """All that a run found out. ``inside`` is ``None`` where its API server was not asked, ``unreached`` says why."""

    host: HostView
    inside: InsideView | None = None
    unreached: tuple[str, str] = ("", "")
    """Reason and sentence."""
    moved: bool = True
    """Whether a pause or a resume has come to its end."""


def judge(seen: Seen, *, generation: int, was_ready: bool, paused: bool, upgrading: bool) -> Judged:
    """Judge what was seen of a tenant cluster that shall exist.

    Args:
        was_ready: it was Ready (or paused) before: what is missing now is a fault, not a beginning.
        paused: it shall be paused.
        upgrading: another version is wanted than the one that was seen to run.
    """
    release = _release(seen.host.release, generation)
    plane = _control_plane(seen.host, generation, paused)
    conditions = [release, plane]
    if paused:
        return _paused(seen, conditions, generation)
    reachable = _reachable(seen, generation)
    conditions += [reachable, _quota(seen.inside, generation)]
    missing = next((one for one in (release, plane, reachable) if one.status != "True"), None)
    if missing is None:
        ready = Condition("Ready", "True", "Ready", "", generation)
        return Judged(Phase.READY, (ready, *conditions), settled=True)
    failed = missing.status == "False"
    if upgrading and not failed:
        phase = Phase.UPGRADING
    elif failed or (was_ready and seen.host.release.ready):
        phase = Phase.DEGRADED
    else:
        phase = Phase.UPGRADING if was_ready else Phase.PROVISIONING
    summary = Condition("Ready", "False", missing.reason, missing.message, generation)
    return Judged(phase, (summary, *conditions), settled=False)


def _paused(seen: Seen, conditions: list[Condition], generation: int) -> Judged:
    if seen.moved:
        sentence = "Its API server and its pods are stopped; what is stored there is kept."
        return Judged(
            Phase.PAUSED, (Condition("Ready", "False", "Paused", sentence, generation), *conditions), settled=True
        )
    left = f"{seen.host.pods} pods are still ending." if seen.host.pods else "The control plane is still stopping."
    waits = Condition("Ready", "False", "Pausing", left, generation)
    return Judged(Phase.PAUSED, (waits, *conditions), settled=False)


def _release(release: ReleaseState, generation: int) -> Condition:
    status: Status = {"ready": "True", "working": "Unknown", "failed": "False"}[release.state]  # type: ignore[assignment]
    return Condition("ReleaseReady", status, release.reason or "Unknown", release.message, generation)


def _control_plane(host: HostView, generation: int, paused: bool) -> Condition:
    plane = host.control_plane
    if plane is None:
        message = host.trouble or "The control plane is not there yet."
        return Condition("ControlPlaneReady", "Unknown", "NotThere", message, generation)
    if plane.is_ready:
        return Condition("ControlPlaneReady", "True", "Ready", "", generation)
    if paused and not plane.wanted:
        return Condition("ControlPlaneReady", "False", "Paused", "It is paused.", generation)
    if host.trouble:
        return Condition("ControlPlaneReady", "False", "ControlPlaneStuck", host.trouble, generation)
    message = f"{plane.ready} of {plane.wanted} control plane pods are ready."
    return Condition("ControlPlaneReady", "Unknown", "Starting", message, generation)


def _reachable(seen: Seen, generation: int) -> Condition:
    if seen.inside is not None:
        return Condition("Reachable", "True", "Answers", "", generation)
    reason, message = seen.unreached
    if not reason:
        return Condition("Reachable", "Unknown", "NotAsked", "Its API server was not asked yet.", generation)
    # Without the Secret it is only not ready yet; with one that can't be used somebody must do something.
    status: Status = "Unknown" if reason in ("NoSecret", "NoKubeconfig") else "False"
    return Condition("Reachable", status, reason, message, generation)


def _quota(inside: InsideView | None, generation: int) -> Condition:
    if inside is None:
        return Condition("PodsTaken", "Unknown", "NotAsked", "What runs inside is not known now.", generation)
    if not inside.refused:
        return Condition("PodsTaken", "True", "AllTaken", "", generation)
    over = [one for one in inside.refused if one.over_quota]
    first = (over or list(inside.refused))[0]
    count = len(inside.refused)
    pods = "1 pod waits" if count == 1 else f"{count} pods wait"
    message = f"{pods} (first {first.namespace}/{first.name}). {first.sentence}"
    return Condition("PodsTaken", "False", "OverQuota" if over else "Refused", message, generation)
