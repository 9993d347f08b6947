"""The API servers that stand in for tenant clusters, and which release has which. Safe for threads."""

from __future__ import annotations

import base64
import contextlib
import threading
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from controlplane.api import Api, ApiError, Obj

CORE = ("default", "kube-node-lease", "kube-public", "kube-system")
RBAC = "/apis/rbac.authorization.k8s.io/v1"
LEFT = (
    "/apis/apps/v1/namespaces/{}/deployments",
    "/apis/apps/v1/namespaces/{}/replicasets",
    "/apis/apps/v1/namespaces/{}/statefulsets",
    "/apis/batch/v1/namespaces/{}/jobs",
    "/api/v1/namespaces/{}/serviceaccounts",
    "/api/v1/namespaces/{}/events",
)
"""What tenants leave in the namespaces that can't be deleted."""


@dataclass
class Tenant:
    """One API server of the pool."""

    name: str
    api: Api
    secret: Obj
    """The kubeconfig that goes into the Secret `vc-NAME`."""
    authentication: Path | None = None
    """What it was started with as authentication configuration, and reads again."""
    taken_by: tuple[str, str, str] | None = None
    """Host, namespace and name of the release that has it."""

    def secret_data(self, server: str) -> dict[str, str]:
        """The Secret's `data`; `server`: the address in its kubeconfig, or empty for the server's own."""
        config: Obj = yaml.safe_load(yaml.safe_dump(self.secret))  # a copy
        cluster, user = config["clusters"][0]["cluster"], config["users"][0]["user"]
        cluster["server"] = server or cluster["server"]
        return {
            "config": base64.b64encode(yaml.safe_dump(config).encode()).decode(),
            "certificate-authority": cluster["certificate-authority-data"],
            "client-certificate": user.get("client-certificate-data", ""),
            "client-key": user.get("client-key-data", ""),
            "token": base64.b64encode(user.get("token", "").encode()).decode(),
        }

    def authenticate(self, text: str) -> None:
        """Let it work by this authentication configuration from now on; nothing where it was started without one."""
        if self.authentication is not None and self.authentication.read_text() != text:
            unfinished = self.authentication.with_suffix(".part")
            unfinished.write_text(text)
            unfinished.replace(self.authentication)

    def upgrade(self, version: str) -> None:
        """Say from now on that Kubernetes is of this version; the simulator can, a real server is what it is."""
        if self.api.call("GET", "/version").get("gitVersion") != version:
            with contextlib.suppress(ApiError):
                self.api.call("POST", "/sim/version", {"version": version})

    def wipe(self) -> bool:
        """Take away what a tenant made; whether nothing is left."""
        left = 0
        for pod in self.api.items("/api/v1/pods"):  # no kubelet would ever say that they ended
            where = pod["metadata"]
            path = f"/api/v1/namespaces/{where['namespace']}/pods/{where['name']}"
            with contextlib.suppress(ApiError):
                self.api.call("DELETE", path, {"gracePeriodSeconds": 0})
        for obj in self.api.items("/api/v1/namespaces"):
            if obj["metadata"]["name"] not in CORE:
                left += 1
                self.api.delete(f"/api/v1/namespaces/{obj['metadata']['name']}")
        for path in (f"{RBAC}/clusterrolebindings", f"{RBAC}/clusterroles", "/api/v1/nodes"):
            for obj in self.api.items(path):
                labels = obj["metadata"].get("labels") or {}
                if labels.get("kubernetes.io/bootstrapping") != "rbac-defaults":
                    self.api.delete(f"{path}/{obj['metadata']['name']}")
        for template in LEFT:
            for namespace in CORE:
                path = template.format(namespace)
                for obj in self.api.items(path):
                    if obj["metadata"]["name"] != "default":
                        self.api.call("DELETE", f"{path}/{obj['metadata']['name']}", {"gracePeriodSeconds": 0})
        return left == 0


@dataclass
class Pool:
    """All of them."""

    tenants: list[Tenant] = field(default_factory=list)
    lock: threading.Lock = field(default_factory=threading.Lock)

    def of(self, release: tuple[str, str, str]) -> Tenant | None:
        """The one that a release (host, namespace, name) has."""
        return next((one for one in self.tenants if one.taken_by == release), None)

    def take(self, release: tuple[str, str, str], server: str) -> Tenant | None:
        """One for the release: what it has; else the one at the address `server`, or of the release's name, or the
        first that is free. None while all are taken."""
        with self.lock:
            found = self.of(release)
            if found is not None:
                return found
            free = [one for one in self.tenants if one.taken_by is None]
            free.sort(key=lambda one: (one.api.server != server, one.name != release[2]))
            if free and free[0].wipe():
                free[0].taken_by = release
                return free[0]
            return None

    def learn(self, host: str, api: Api) -> None:
        """Which releases of a host have which server, from the Secrets that are there: after a start."""
        for secret in api.items("/api/v1/secrets?labelSelector=app%3Dvcluster%2Cvcluster-name"):
            name = secret["metadata"]["labels"]["vcluster-name"]
            if secret["metadata"]["name"] != f"vc-{name}":
                continue
            authority = (secret.get("data") or {}).get("certificate-authority")
            for tenant in self.tenants:
                if tenant.secret["clusters"][0]["cluster"]["certificate-authority-data"] == authority:
                    tenant.taken_by = (host, secret["metadata"]["namespace"], name)

    def give_back(self, release: tuple[str, str, str]) -> bool:
        """Empty the release's server and free it; whether it is done. Raises ApiError (try again later)."""
        with self.lock:
            tenant = self.of(release)
            if tenant is None:
                return True
            if not tenant.wipe():
                return False
            tenant.taken_by = None
            return True


def tenant(text: str) -> Tenant:
    """`NAME=KUBECONFIG[,secret=KUBECONFIG][,authentication=FILE]`. Raises ValueError with what is wrong."""
    name, _, rest = text.partition("=")
    path, *more = rest.split(",")
    given: dict[str, Any] = dict(part.split("=", 1) for part in more if "=" in part)
    if not name or not path or set(given) - {"secret", "authentication"}:
        raise ValueError(f"{text!r}: must be NAME=KUBECONFIG[,secret=KUBECONFIG][,authentication=FILE]")
    secret = yaml.safe_load(Path(given.get("secret", path)).read_text())
    file = Path(given["authentication"]) if "authentication" in given else None
    return Tenant(name, Api(Path(path), manager="vcluster"), secret, file)
