"""Flux's part: HelmReleases of the chart vcluster become objects, their status tells how it went.

The order of things and the words are helm-controller's (internal/reconcile, api/v2). There is no chart archive and no
rollback: a failed action is tried again as often as its remediation says, and then the release is stalled.
"""

from __future__ import annotations

import datetime as dt
from pathlib import Path

from controlplane.api import Api, ApiError, Obj, path_of
from controlplane.standin.chart import cluster_name, render
from controlplane.standin.conditions import changed, condition, find, now
from controlplane.standin.release import ARTIFACT, FAIL, FINALIZER, GROUP, INSTALL, STUCK_DELETE, Release
from controlplane.standin.values import ValuesRefused, digest, merged

SOURCES = "/apis/source.toolkit.fluxcd.io/v1"
MANAGER = "helm-controller"
_SUCCEEDED = {"install": ("Install", "InstallSucceeded"), "upgrade": ("Upgrade", "UpgradeSucceeded")}
_FAILED = {"install": ("Install", "InstallFailed"), "upgrade": ("Upgrade", "UpgradeFailed")}


class Flux:
    """Of one host cluster."""

    def __init__(self, kubeconfig: Path) -> None:
        self._kubeconfig = kubeconfig
        self.host = Api(kubeconfig, manager=MANAGER)
        self._acting: dict[str, Api] = {}

    def releases(self) -> list[Release]:
        """All that are of the chart, those that are going too."""
        found = [Release(obj) for obj in self.host.items(f"{GROUP}/helmreleases")]
        return [one for one in found if self.chart(one)[0].endswith("vcluster")]

    def chart(self, release: Release) -> tuple[str, str]:
        """Name and version of the chart; ("", "") where a chartRef leads nowhere."""
        reference = release.spec.get("chartRef") or {}
        if reference.get("kind") != "OCIRepository":
            return release.chart, release.version
        namespace = reference.get("namespace") or release.own_namespace
        found = self.host.find(f"{SOURCES}/namespaces/{namespace}/ocirepositories/{reference.get('name')}")
        spec = (found or {}).get("spec") or {}
        version = (spec.get("ref") or {}).get("tag") or (spec.get("ref") or {}).get("semver") or ""
        return str(spec.get("url", "")).rsplit("/", 1)[-1], str(version)

    def sources(self) -> None:
        """Repositories are found to be well, unless their annotation orders that they are not."""
        for plural in ("helmrepositories", "ocirepositories"):
            for obj in self.host.items(f"{SOURCES}/{plural}"):
                metadata, status = obj["metadata"], obj.get("status") or {}
                broken = ARTIFACT in (metadata.get("annotations") or {}).get(FAIL, "").split(",")
                row = condition("Ready", "True", "Succeeded", f"stored artifact: revision '{digest(obj['spec'])}'")
                if broken:
                    text = f"failed to fetch {obj['spec'].get('url')}: dial tcp: lookup failed: no such host"
                    row = condition("Ready", "False", "Failed", text)
                known = find(status, "Ready")
                generation = metadata.get("generation", 1)
                if (known.get("status"), status.get("observedGeneration")) == (row["status"], generation):
                    continue
                rows = changed(status.get("conditions") or [], generation, [row])
                path = f"{path_of(obj)}/{metadata['name']}/status"
                self.host.merge(path, {"status": {"observedGeneration": generation, "conditions": rows}})

    def reconcile(self, release: Release) -> bool:
        """The next step of a release; whether it is uninstalled and done with. Raises ApiError (try again later)."""
        if release.deleting:
            return self._uninstall(release)
        if release.spec.get("suspend"):
            return False
        finalizers = release.metadata.get("finalizers") or []
        if FINALIZER not in finalizers:
            self.host.merge(release.path, {"metadata": {"finalizers": [*finalizers, FINALIZER]}})
            return False
        if release.ordered(ARTIFACT):
            _, version = self.chart(release)
            text = f"Could not load chart: failed to download archive of vcluster@{version}: no such host"
            if find(release.status, "Ready").get("reason") != "ArtifactFailed":
                self._tell(release, [condition("Ready", "False", "ArtifactFailed", text)], without=("Reconciling",))
            return False
        self._go_on(release)
        return False

    def _go_on(self, release: Release) -> None:
        status = release.status
        _, version = self.chart(release)
        wanted = digest({"version": version, "values": release.values})
        history = list(status.get("history") or [])
        deployed = next((row for row in history if row["status"] == "deployed"), None)
        action = "upgrade" if deployed else "install"
        requested = release.annotation("requestedAt")
        asked = requested != status.get("lastHandledReconcileAt", "")
        reset = asked and bool(requested) and release.annotation("resetAt") == requested
        handled: Obj = {"lastHandledReconcileAt": requested} if asked else {}
        if reset:
            handled["lastHandledResetAt"] = requested
        if deployed is history[0] if history else False:
            assert deployed is not None
            if deployed["configDigest"] == wanted:
                ready = find(status, "Ready").get("status") == "True"
                if not ready or handled or status.get("observedGeneration") != release.generation:
                    self._succeeded(release, _action_of(history), history, handled)
                return
        fresh = status.get("lastAttemptedConfigDigest") != wanted or reset
        fresh = fresh or status.get("lastAttemptedGeneration") != release.generation
        failures = 0 if fresh else int(status.get("failures") or 0)
        if failures > release.retries(action):
            if handled:
                self._tell(release, [], **handled)
            return
        attempt = {
            "lastAttemptedGeneration": release.generation,
            "lastAttemptedConfigDigest": wanted,
            "lastAttemptedRevision": version,
            "lastAttemptedReleaseAction": action,
            "storageNamespace": release.spec.get("storageNamespace") or release.own_namespace,
            **handled,
        }
        running = find(status, "Reconciling")
        if fresh or (running.get("status"), running.get("reason")) != ("True", "Progressing"):
            self._begin(release, action, version, failures, attempt)
        else:
            self._wait(release, action, version, failures, running)

    def _begin(self, release: Release, action: str, version: str, failures: int, attempt: Obj) -> None:
        """Write the objects; the next looks wait for them."""
        text = f"Running '{action}' action with timeout of {release.spec.get('timeout') or '5m0s'}"
        rows = [
            condition("Reconciling", "True", "Progressing", text),
            condition("Ready", "Unknown", "Progressing", text),
        ]
        count = {"failures": failures, f"{action}Failures": failures}
        self._tell(release, rows, without=("Stalled",), **attempt, **count)
        try:
            self._apply(release, version)
        except (ApiError, ValuesRefused) as error:
            told = error.told if isinstance(error, ApiError) else str(error)
            self._fail(release, action, version, failures + 1, told)

    def _apply(self, release: Release, version: str) -> None:
        values = merged(release.values)
        acting = self._acting_as(release.account)
        if (release.spec.get("install") or {}).get("createNamespace"):
            acting.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": release.namespace}})
        for obj in render(release.name, release.namespace, version, values):
            acting.apply(obj)

    def _wait(self, release: Release, action: str, version: str, failures: int, running: Obj) -> None:
        if release.ordered(INSTALL):
            self._fail(release, action, version, failures + 1, "failed pre-install: job failed: BackoffLimitExceeded")
            return
        found = self.host.find(f"/apis/apps/v1/namespaces/{release.namespace}/statefulsets/{release.name}")
        if found is not None and rolled_out(found):
            history = [
                {**row, "status": "superseded"} if row["status"] == "deployed" else row
                for row in release.status.get("history") or []
            ]
            number = max((row["version"] for row in history), default=0) + 1
            row = self._row(release, version, number, "deployed")
            self._succeeded(release, action, [row, *history][:5], {})
            return
        began = dt.datetime.fromisoformat(running["lastTransitionTime"])
        if (dt.datetime.now(dt.UTC) - began).total_seconds() > release.timeout:
            self._fail(release, action, version, failures + 1, "context deadline exceeded")

    def _row(self, release: Release, version: str, number: int, status: str) -> Obj:
        time = now()
        return {
            "name": release.name, "namespace": release.namespace, "version": number, "status": status,
            "chartName": "vcluster", "chartVersion": version, "appVersion": version,
            "configDigest": digest({"version": version, "values": release.values}),
            "digest": digest([release.name, release.namespace, number]),
            "firstDeployed": time, "lastDeployed": time,
        }  # fmt: skip

    def _succeeded(self, release: Release, action: str, history: list[Obj], more: Obj) -> None:
        word, reason = _SUCCEEDED[action]
        latest = history[0]
        where = f"{latest['namespace']}/{latest['name']}.v{latest['version']}"
        text = f"Helm {word.lower()} succeeded for release {where} with chart vcluster@{latest['chartVersion']}"
        rows = [condition("Ready", "True", reason, text), condition("Released", "True", reason, text)]
        self._tell(
            release, rows, without=("Reconciling", "Stalled"), observedGeneration=release.generation, history=history,
            failures=0, installFailures=0, upgradeFailures=0, **more,
        )  # fmt: skip

    def _fail(self, release: Release, action: str, version: str, failures: int, why: str) -> None:
        word, reason = _FAILED[action]
        where = f"{release.namespace}/{release.name} with chart vcluster@{version}"
        text = f"Helm {word.lower()} failed for release {where}: {why}"
        rows = [condition("Ready", "False", reason, text), condition("Released", "False", reason, text)]
        more: Obj = {"failures": failures, f"{action}Failures": failures}
        gone: tuple[str, ...] = ()
        if failures > release.retries(action):
            told = f"Failed to {action} after {failures} attempt(s)"
            rows.append(condition("Stalled", "True", "RetriesExceeded", told))
            gone, more = ("Reconciling",), {**more, "observedGeneration": release.generation}
        else:
            rows.append(condition("Reconciling", "True", "ProgressingWithRetry", text))
        self._tell(release, rows, without=gone, **more)

    def _tell(self, release: Release, rows: list[Obj], *, without: tuple[str, ...] = (), **fields: object) -> None:
        conditions = self.host.call("GET", release.path).get("status", {}).get("conditions") or []
        status = {**fields, "conditions": changed(conditions, release.generation, rows, without)}
        self.host.merge(f"{release.path}/status", {"status": status})

    def _uninstall(self, release: Release) -> bool:
        """Take the chart's objects away, then the finalizer; whether it is done."""
        finalizers = release.metadata.get("finalizers") or []
        if FINALIZER not in finalizers:
            return True
        if release.ordered(STUCK_DELETE):
            where = f"{release.namespace}/{release.name}"
            text = f"Helm uninstall failed for release {where}: timed out waiting for the condition"
            if find(release.status, "Ready").get("reason") != "UninstallFailed":
                self._tell(release, [condition("Ready", "False", "UninstallFailed", text)], without=("Reconciling",))
            return False
        if not release.spec.get("suspend") and not self._gone(release):
            return False
        rest = [one for one in finalizers if one != FINALIZER]
        self.host.merge(release.path, {"metadata": {"finalizers": rest or None}})
        return True

    def _gone(self, release: Release) -> bool:
        """Ask for the end of what the chart made; whether nothing of it is left."""
        how = str((release.spec.get("uninstall") or {}).get("deletionPropagation") or "background").capitalize()
        acting = self._acting_as(release.account)
        left = 0
        for path in chart_paths(release.name, release.namespace):
            found = self.host.find(path)
            if found is not None:
                left += 1
                if not found["metadata"].get("deletionTimestamp"):
                    acting.delete(path, how)
        return left == 0

    def _acting_as(self, user: str) -> Api:
        if user not in self._acting:
            self._acting[user] = Api(self._kubeconfig, acting_as=user, manager=MANAGER)
        return self._acting[user]


def rolled_out(found: Obj) -> bool:
    """Whether a StatefulSet has all of its replicas, of its newest template."""
    status, wanted = found.get("status") or {}, found["spec"].get("replicas", 1)
    seen = status.get("observedGeneration") == found["metadata"].get("generation")
    return seen and status.get("readyReplicas", 0) >= wanted and (
        status.get("updatedReplicas", 0) >= wanted or status.get("currentRevision") == status.get("updateRevision")
    )  # fmt: skip


def chart_paths(name: str, namespace: str) -> list[str]:
    """The addresses of everything that the chart may have made, in the order in which it is taken away."""
    core, rbac = f"/api/v1/namespaces/{namespace}", "/apis/rbac.authorization.k8s.io/v1"
    policies = f"/apis/networking.k8s.io/v1/namespaces/{namespace}/networkpolicies"
    return [
        f"/apis/apps/v1/namespaces/{namespace}/statefulsets/{name}",
        f"{core}/services/{name}", f"{core}/services/{name}-headless",
        f"{core}/secrets/vc-config-{name}", f"{core}/resourcequotas/vc-{name}", f"{core}/limitranges/vc-{name}",
        f"{policies}/vc-work-{name}", f"{policies}/vc-cp-{name}",
        f"{rbac}/namespaces/{namespace}/rolebindings/vc-{name}", f"{rbac}/namespaces/{namespace}/roles/vc-{name}",
        f"{rbac}/clusterrolebindings/{cluster_name(name, namespace)}",
        f"{rbac}/clusterroles/{cluster_name(name, namespace)}",
        f"{core}/serviceaccounts/vc-workload-{name}", f"{core}/serviceaccounts/vc-{name}",
    ]  # fmt: skip


def _action_of(history: list[Obj]) -> str:
    return "install" if len(history) == 1 else "upgrade"
