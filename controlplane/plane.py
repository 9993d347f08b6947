"""The command lines of etcd and of one cluster's API server, controllers, scheduler and fake kubelets.

Everything listens on loopback. Flags that are ours alone: no fsync and no profiling (nothing here must survive a
power cut), long node leases (a thousand nodes that renew every ten seconds starve a small machine).
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import urllib3

from controlplane.api import Api, ApiError
from controlplane.children import Part
from controlplane.pki import FURNISHER, KWOK, SYSTEM_USERS, Pki

MANIFESTS = Path(__file__).parent / "manifests"
LEASE_SECONDS = 1200
ISSUER = "https://kubernetes.default.svc.cluster.local"
"""Of service accounts' tokens: the same wherever the server listens, so that tokens outlive a change of port."""
AUDITS = ("off", "metadata", "changes")


@dataclass(frozen=True)
class Ports:
    """Where a cluster's parts listen on 127.0.0.1."""

    server: int
    controllers: int
    scheduler: int
    kwok: int


class Etcd:
    """The one store of all clusters; each has a key prefix of its own. Whoever reaches its port may read all of it."""

    def __init__(self, program: Path, state: Path, port: int, peer_port: int) -> None:
        self.url = f"http://127.0.0.1:{port}"
        peer = f"http://127.0.0.1:{peer_port}"
        data = state / "etcd"
        data.mkdir(exist_ok=True, mode=0o700)
        command = [
            str(program), "--data-dir", str(data),
            "--listen-client-urls", self.url, "--advertise-client-urls", self.url,
            "--listen-peer-urls", peer, "--initial-advertise-peer-urls", peer, "--initial-cluster", f"default={peer}",
            "--unsafe-no-fsync", "--quota-backend-bytes", str(4 << 30), "--log-level", "warn",
        ]  # fmt: skip
        self.part = Part("etcd", command, lambda: http_ok(f"{self.url}/health"), patience=10)


class Plane:
    """One cluster: its files, its address, and its parts."""

    def __init__(
        self, name: str, state: Path, programs: Mapping[str, Path], ports: Ports, etcd: str, *,
        audit: str = "off", authentication: Path | None = None, only: str = "*",
    ) -> None:  # fmt: skip
        """`only`: the controllers that run, as the controller manager's flag `--controllers` names them."""
        self.name, self.ports = name, ports
        self.pki = Pki(state, name)
        self.url = f"https://127.0.0.1:{ports.server}"
        self.audit_log = state / "log" / f"{name}-audit.log" if audit != "off" else None
        self.kubeconfigs = {
            user: self.pki.write_kubeconfig(user.removeprefix("system:"), self.url, user, token)
            for user, token in self.pki.tokens.items()
        }
        self.authentication = self.pki.file("authentication.yaml")
        """What the server reads again whenever it changes, where an authentication configuration was given."""
        self.api = Api(self.kubeconfigs[FURNISHER])
        self.server = self._server(programs["kube-apiserver"], etcd, audit, authentication)
        self.others = [
            self._controllers(programs["kube-controller-manager"], only),
            self._scheduler(programs["kube-scheduler"]),
            self._kwok(programs["kwok"]),
        ]

    def _file(self, name: str) -> str:
        return str(self.pki.file(name))

    def _server(self, program: Path, etcd: str, audit: str, authentication: Path | None) -> Part:
        command = [
            str(program), "--etcd-servers", etcd, "--etcd-prefix", f"/{self.name}",
            "--bind-address", "127.0.0.1", "--advertise-address", "127.0.0.1", "--secure-port", str(self.ports.server),
            "--endpoint-reconciler-type", "none", "--service-cluster-ip-range", "10.96.0.0/16",
            "--tls-cert-file", self._file("server.crt"), "--tls-private-key-file", self._file("server.key"),
            "--client-ca-file", self._file("ca.crt"), "--token-auth-file", self._file("tokens.csv"),
            "--requestheader-client-ca-file", self._file("ca.crt"),
            "--requestheader-allowed-names", "front-proxy-client",
            "--requestheader-username-headers", "X-Remote-User",
            "--service-account-issuer", ISSUER,
            "--service-account-key-file", self._file("sa.pub"),
            "--service-account-signing-key-file", self._file("sa.key"),
            "--authorization-mode", "Node,RBAC", "--enable-admission-plugins", "NodeRestriction",
            "--allow-privileged=true", "--profiling=false", "--shutdown-delay-duration=0s", "--v=0",
        ]  # fmt: skip
        if self.audit_log is not None:
            command += [
                "--audit-policy-file", str(MANIFESTS / f"audit-{audit}.yaml"), "--audit-log-path", str(self.audit_log),
                "--audit-log-mode", "blocking", "--audit-log-maxsize", "4000",
            ]  # fmt: skip
        if authentication is not None:
            filled = self.authentication
            filled.write_text(authentication.read_text().replace("@CA@", self._indented_ca()))
            command += ["--authentication-config", str(filled)]
        # It waits for its watches to end, and they do not: it is killed after a moment (etcd holds the data).
        return Part(f"{self.name}-apiserver", command, lambda: self.api.answers("/readyz"), patience=3)

    def _indented_ca(self) -> str:
        """The authority's certificate as the file's block scalar holds it: its marker stands at six spaces."""
        return self.pki.file("ca.crt").read_text().strip().replace("\n", "\n      ")

    def _controllers(self, program: Path, only: str) -> Part:
        kubeconfig = str(self.kubeconfigs[SYSTEM_USERS[0]])
        port = self.ports.controllers
        command = [
            str(program), "--kubeconfig", kubeconfig, "--authentication-kubeconfig", kubeconfig,
            "--authorization-kubeconfig", kubeconfig, "--bind-address", "127.0.0.1", "--secure-port", str(port),
            "--service-account-private-key-file", self._file("sa.key"), "--root-ca-file", self._file("ca.crt"),
            "--use-service-account-credentials", "--leader-elect=false",
            "--node-monitor-grace-period", "60m", "--node-monitor-period", "30s",
            "--kube-api-qps", "500", "--kube-api-burst", "1000", "--concurrent-resource-quota-syncs", "10",
            "--concurrent-deployment-syncs", "10", "--concurrent-replicaset-syncs", "10", "--profiling=false", "--v=0",
            "--controllers", only,
        ]  # fmt: skip
        return Part(f"{self.name}-controllers", command, lambda: http_ok(f"https://127.0.0.1:{port}/healthz"))

    def _scheduler(self, program: Path) -> Part:
        kubeconfig = str(self.kubeconfigs[SYSTEM_USERS[1]])
        port = self.ports.scheduler
        command = [
            str(program), "--kubeconfig", kubeconfig, "--authentication-kubeconfig", kubeconfig,
            "--authorization-kubeconfig", kubeconfig, "--bind-address", "127.0.0.1", "--secure-port", str(port),
            "--leader-elect=false", "--kube-api-qps", "1000", "--kube-api-burst", "2000", "--profiling=false", "--v=0",
        ]  # fmt: skip
        return Part(f"{self.name}-scheduler", command, lambda: http_ok(f"https://127.0.0.1:{port}/healthz"))

    def _kwok(self, program: Path) -> Part:
        port = self.ports.kwok
        command = [
            str(program), "--kubeconfig", str(self.kubeconfigs[KWOK]), "--config", str(MANIFESTS / "kwok-stages.yaml"),
            "--manage-all-nodes=false", "--manage-nodes-with-annotation-selector=kwok.x-k8s.io/node=fake",
            "--cidr", "10.244.0.0/16", "--node-ip", "127.0.0.1", "--node-port", str(port),
            "--node-lease-duration-seconds", str(LEASE_SECONDS), "--server-address", f"127.0.0.1:{port}",
        ]  # fmt: skip
        ready = f"http://127.0.0.1:{port}/healthz"
        return Part(f"{self.name}-kwok", command, lambda: http_ok(ready), before=self._free_leases)

    def exporter(self, fleet: Path, port: int) -> Part:
        """What dcgm-exporter and kube-state-metrics would tell of it: a process on `port`."""
        command = [
            sys.executable, "-m", "controlplane.exporter", "--kubeconfig", str(self.kubeconfigs[FURNISHER]),
            "--cluster", self.name, "--fleet", str(fleet.resolve()), "--port", str(port),
        ]  # fmt: skip
        return Part(f"{self.name}-exporter", command, lambda: http_ok(f"http://127.0.0.1:{port}/healthz"))

    def _free_leases(self) -> None:
        """A kwok owns a node through its Lease: a new one would wait for the end of its predecessor's."""
        try:
            self.api.call("DELETE", "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases")
        except (ApiError, urllib3.exceptions.HTTPError):
            return


# The parts' own health pages: on loopback, with certificates that they make up.
_POOL = urllib3.PoolManager(cert_reqs="CERT_NONE")
urllib3.disable_warnings(urllib3.exceptions.InsecureRequestWarning)


def http_ok(url: str) -> bool:
    """Whether a GET on loopback is answered with 200."""
    try:
        return bool(_POOL.request("GET", url, timeout=2, retries=False).status == 200)
    except urllib3.exceptions.HTTPError:
        return False
