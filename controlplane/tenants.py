"""API servers that stand in for tenant clusters: on an etcd that runs, each under a prefix of its own.

One has no scheduler and no kubelets: as in a virtual cluster, its pods run somewhere else. It begins with an
authentication configuration that lets nobody in but by certificate and token; whoever plays the tenant cluster writes
another one into the file, and the server reads it again by itself.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from controlplane.children import Part
from controlplane.pki import FURNISHER
from controlplane.plane import MANIFESTS, Plane, Ports

CONTROLLERS = (
    "namespace-controller", "serviceaccount-controller", "root-ca-certificate-publisher-controller",
    "deployment-controller", "replicaset-controller", "statefulset-controller", "job-controller",
    "garbage-collector-controller", "clusterrole-aggregation-controller",
)  # fmt: skip
"""What vCluster runs inside, as far as tests and demonstration need it."""
SUPER_ADMIN, MASTERS = "kubernetes-super-admin", "system:masters"


class TenantServer:
    """One of them: an API server and a few controllers."""

    def __init__(
        self, name: str, state: Path, programs: Mapping[str, Path], server: int, controllers: int, etcd: str
    ) -> None:
        """`server`, `controllers`: ports on 127.0.0.1; `etcd`: the store's address."""
        ports = Ports(server, controllers, 0, 0)
        self.plane = Plane(
            name, state, programs, ports, etcd,
            authentication=MANIFESTS / "authentication-none.yaml", only=",".join(CONTROLLERS),
        )  # fmt: skip
        self.name = name
        self.secret_kubeconfig = self.plane.pki.write_certificate_kubeconfig(
            "super-admin", self.plane.url, SUPER_ADMIN, MASTERS
        )

    @property
    def server(self) -> Part:
        """Its API server."""
        return self.plane.server

    @property
    def controllers(self) -> Part:
        """Its controllers."""
        return self.plane.others[0]

    def facts(self) -> dict[str, str]:
        """Where it is and which files belong to it: as the ready line tells."""
        return {
            "server": self.plane.url,
            "kubeconfig": str(self.plane.kubeconfigs[FURNISHER]),
            "secret_kubeconfig": str(self.secret_kubeconfig),
            "authentication": str(self.plane.authentication),
        }
