"""Evidence from a Kubernetes Pod object, and evidence as JSON for storage. Pure: no Django, no Kubernetes
client.

The object is read as the API server sends it (core/v1 Pod). Annotations and labels are kept by allow-list.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from fractions import Fraction
from typing import Any

from infra.evidence import TERMINAL_PHASES, ContainerEvidence, Owner, PodEvidence
from infra.hami_record import HAMI_ALLOCATED, HAMI_PHASE
from infra.names import LABEL_PREFIX
from infra.pod_devices import ContainerKind, reserved
from infra.quantity import parse_quantity
from infra.workloads import LABELS as WORKLOAD_LABELS
from portal.kernel.clock import as_utc, format_rfc3339, parse_rfc3339

# Annotations belong to the tenant and may hold secrets (vCluster keeps service account tokens in some): by name only.
ANNOTATIONS = frozenset(
    {
        HAMI_ALLOCATED,
        HAMI_PHASE,
        "hami.io/vgpu-node",
        "hami.io/vgpu-time",
        "hami.io/bind-time",
        "vcluster.loft.sh/object-name",
        "vcluster.loft.sh/object-namespace",
        "vcluster.loft.sh/object-uid",
    }
)
LABELS = frozenset(
    {
        "app",
        "app.kubernetes.io/name",
        "app.kubernetes.io/instance",
        "app.kubernetes.io/component",
        "app.kubernetes.io/managed-by",
        "batch.kubernetes.io/job-name",
        "vcluster.loft.sh/managed-by",
        "vcluster.loft.sh/namespace",
        *WORKLOAD_LABELS,
    }
)
LABEL_PREFIXES = (LABEL_PREFIX, "modelplane.ai/")

_NO_TIME = "0001-01-01"  # Go's zero time, which some writers leave in place of an unknown instant


def read_pod(
    pod: Mapping[str, Any],
    *,
    seen_at: datetime,
    deleted: bool = False,
    unwatched_since: datetime | None = None,
    more_labels: frozenset[str] = frozenset(),
) -> PodEvidence:
    """Evidence from one Pod object (JSON as the API server sends it), seen at `seen_at`.

    `deleted`: it came with a DELETED event. `unwatched_since`: that event was replayed after nobody had been
    listening since then, so the pod left at an unknown moment in between. `more_labels` are kept beside those of
    the allow-list. Raises ValueError naming the pod and what in it can't be read.
    """
    meta = _mapping(pod.get("metadata"))
    spec, status = _mapping(pod.get("spec")), _mapping(pod.get("status"))
    who = f"pod {meta.get('namespace', '?')}/{meta.get('name', '?')} ({meta.get('uid', 'no uid')})"
    seen = as_utc(seen_at)
    try:
        containers = _containers(spec, status)
        phase = str(status.get("phase") or "")
        scheduled = _condition(status, "PodScheduled")
        overhead = _quantities(spec.get("overhead"))
        keep = reserved((c.kind, dict(c.requests)) for c in containers)
        return PodEvidence(
            uid=_text(meta, "uid"),
            namespace=_text(meta, "namespace"),
            name=_text(meta, "name"),
            resource_version=int(meta.get("resourceVersion") or 0),
            first_seen_at=seen,
            last_seen_at=seen,
            node=str(spec.get("nodeName") or ""),
            scheduler=str(spec.get("schedulerName") or ""),
            phase=phase,
            ready=_condition(status, "Ready").get("status") == "True",
            waiting_reason="" if scheduled.get("status") == "True" else str(scheduled.get("reason") or ""),
            requests=_pairs({key: keep.get(key, Fraction(0)) + overhead.get(key, 0) for key in keep | overhead}),
            containers=containers,
            annotations=_allowed(meta.get("annotations"), ANNOTATIONS),
            labels=_allowed(meta.get("labels"), LABELS | more_labels, LABEL_PREFIXES),
            owner=_owner(meta),
            created_at=_time(meta.get("creationTimestamp")),
            scheduled_at=_time(scheduled.get("lastTransitionTime")) if scheduled.get("status") == "True" else None,
            terminal_seen_at=seen if phase in TERMINAL_PHASES else None,
            deletion_seen_at=seen if meta.get("deletionTimestamp") else None,
            gone_at=seen if deleted else None,
            gone_inferred_after=as_utc(unwatched_since) if deleted and unwatched_since else None,
        )
    except (TypeError, ValueError, AttributeError) as error:
        raise ValueError(f"{who} can't be read: {error}") from error


def _mapping(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}


def _text(meta: Mapping[str, Any], key: str) -> str:
    value = meta.get(key)
    if not isinstance(value, str) or not value:
        raise ValueError(f"metadata.{key} is missing")
    return value


def _time(value: Any) -> datetime | None:
    return None if value is None or str(value).startswith(_NO_TIME) else parse_rfc3339(str(value))


def _condition(status: Mapping[str, Any], kind: str) -> Mapping[str, Any]:
    return next((c for c in status.get("conditions") or () if c.get("type") == kind), {})


def _quantities(values: Any) -> dict[str, Fraction]:
    return {str(key): parse_quantity(value) for key, value in _mapping(values).items()}


def _pairs(values: Mapping[str, Fraction]) -> tuple[tuple[str, Fraction], ...]:
    return tuple(sorted((key, value) for key, value in values.items() if value))


def _allowed(values: Any, names: frozenset[str], prefixes: tuple[str, ...] = ()) -> tuple[tuple[str, str], ...]:
    return tuple(
        sorted((k, str(v)) for k, v in _mapping(values).items() if k in names or (prefixes and k.startswith(prefixes)))
    )


def _owner(meta: Mapping[str, Any]) -> Owner | None:
    for ref in meta.get("ownerReferences") or ():
        if ref.get("controller"):
            # Whoever makes a pod writes this, at any length; no object has a longer name or uid.
            return Owner(str(ref.get("kind", ""))[:63], str(ref.get("name", ""))[:253], str(ref.get("uid", ""))[:64])
    return None


def _containers(spec: Mapping[str, Any], status: Mapping[str, Any]) -> tuple[ContainerEvidence, ...]:
    states = {
        str(entry.get("name")): entry
        for key in ("initContainerStatuses", "containerStatuses")
        for entry in status.get(key) or ()
    }
    pod_policy = str(spec.get("restartPolicy") or "Always")
    found = []
    for key, is_init in (("initContainers", True), ("containers", False)):
        for container in spec.get(key) or ():
            policy = str(container.get("restartPolicy") or "")
            kind = ContainerKind.MAIN
            if is_init:
                kind = ContainerKind.SIDECAR if policy == "Always" else ContainerKind.INIT
            name = str(container.get("name"))
            found.append(_container(container, kind, policy or pod_policy, _mapping(states.get(name))))
    return tuple(found)


def _container(
    spec: Mapping[str, Any], kind: ContainerKind, policy: str, status: Mapping[str, Any]
) -> ContainerEvidence:
    resources = _mapping(spec.get("resources"))
    # The API server copies a limit into a missing request; an object that did not pass through it may lack them.
    requests = {**_quantities(resources.get("limits")), **_quantities(resources.get("requests"))}
    state = _mapping(status.get("state"))
    name = next((kind_ for kind_ in ("running", "terminated", "waiting") if state.get(kind_) is not None), "")
    now = _mapping(state.get(name))
    runs = [now, _mapping(_mapping(status.get("lastState")).get("terminated"))]
    finished = max((t for t in (_time(run.get("finishedAt")) for run in runs) if t), default=None)
    return ContainerEvidence(
        name=str(spec.get("name")),
        kind=kind,
        restart_policy=policy,
        requests=_pairs(requests),
        state=name,
        reason=str(now.get("reason") or ""),
        exit_code=now.get("exitCode"),
        end_unknown=name == "terminated" and _time(now.get("finishedAt")) is None,
        restarts=int(status.get("restartCount") or 0),
        first_started_at=min((t for t in (_time(run.get("startedAt")) for run in runs) if t), default=None),
        last_finished_at=finished,
        back_off_after=finished if name == "waiting" else None,
    )


# --- storage ---


def dump_evidence(pod: PodEvidence) -> dict[str, Any]:
    """Evidence as JSON: what is empty is left out, instants are RFC 3339, quantities exact (`1/4`)."""
    return {**_dump(pod, _POD_TIMES), **_dump_nested(pod)}


def load_evidence(data: Mapping[str, Any]) -> PodEvidence:
    """The inverse of `dump_evidence`. Raises ValueError naming the pod and what is wrong."""
    try:
        values = _load(data, _POD_TIMES)
        values["containers"] = tuple(_load_container(entry) for entry in data.get("containers", ()))
        values["annotations"] = tuple(sorted(data.get("annotations", {}).items()))
        values["labels"] = tuple(sorted(data.get("labels", {}).items()))
        values["owner"] = Owner(**data["owner"]) if data.get("owner") else None
        return PodEvidence(**values)
    except (KeyError, TypeError, ValueError) as error:
        raise ValueError(f"stored evidence of pod {data.get('uid', '?')} can't be read: {error}") from error


_POD_TIMES = frozenset(
    {
        "first_seen_at",
        "last_seen_at",
        "created_at",
        "scheduled_at",
        "terminal_seen_at",
        "deletion_seen_at",
        "gone_at",
        "gone_inferred_after",
    }
)
_CONTAINER_TIMES = frozenset({"first_started_at", "last_finished_at", "back_off_after"})
_NESTED = frozenset({"containers", "annotations", "labels", "owner", "requests"})


def _dump(record: PodEvidence | ContainerEvidence, times: frozenset[str]) -> dict[str, Any]:
    values: dict[str, Any] = {}
    for name in record.__slots__:
        value = getattr(record, name)
        if name in _NESTED or value is None or value == "" or value is False:
            continue
        values[name] = format_rfc3339(value) if name in times else value
    if record.requests:
        values["requests"] = {key: str(amount) for key, amount in record.requests}
    return values


def _dump_nested(pod: PodEvidence) -> dict[str, Any]:
    nested: dict[str, Any] = {
        "containers": [{**_dump(c, _CONTAINER_TIMES), "kind": c.kind.value} for c in pod.containers],
        "annotations": dict(pod.annotations),
        "labels": dict(pod.labels),
    }
    if pod.owner is not None:
        nested["owner"] = {"kind": pod.owner.kind, "name": pod.owner.name, "uid": pod.owner.uid}
    return {key: value for key, value in nested.items() if value}


def _load(data: Mapping[str, Any], times: frozenset[str]) -> dict[str, Any]:
    values = {
        name: parse_rfc3339(value) if name in times else value for name, value in data.items() if name not in _NESTED
    }
    values["requests"] = tuple(sorted((key, Fraction(text)) for key, text in data.get("requests", {}).items()))
    return values


def _load_container(data: Mapping[str, Any]) -> ContainerEvidence:
    return ContainerEvidence(**{**_load(data, _CONTAINER_TIMES), "kind": ContainerKind(data["kind"])})
