"""The control planes that the contract suite runs against: a simulated one and a real one, which leads."""

from __future__ import annotations

from abc import ABC, abstractmethod
from pathlib import Path

from infra.kube.client import KubeClient
from infra.kube.kubeconfig import Credentials, parse_kubeconfig
from infra.models import Cluster, Site
from portal.kernel import crypto
from portal.kernel.clock import utcnow
from tests.support.controlplane import RealCluster
from tests.support.simulator import SimulatedCluster


class Backend(ABC):
    """An API server with an administrator and somebody who may only read, and what tests do behind its back."""

    name: str
    exporter: tuple[str, str, int] | None = None
    """Namespace, service and port of a dcgm-exporter, where pods really run."""
    observe_kubeconfig: Path
    kubeconfig: Path

    @abstractmethod
    def forget_history(self) -> None:
        """Old resourceVersions and continue tokens are gone from now on."""

    @abstractmethod
    def count_anew(self) -> None:
        """Begin to count requests."""

    @abstractmethod
    def requests(self) -> int:
        """Requests on resources since :meth:`count_anew`."""

    @abstractmethod
    def writes(self) -> int:
        """Those of them that ask for a change."""

    @abstractmethod
    def changes(self) -> int:
        """Those of them that changed an object."""

    def credentials(self, *, observe: bool = False) -> Credentials:
        """Read from the kubeconfig, by the product's own strict reader."""
        path = self.observe_kubeconfig if observe else self.kubeconfig
        return parse_kubeconfig(path.read_text(), now=utcnow())

    def connect(self, mode: str = "manage", *, identity: str = "") -> Cluster:
        """A row for this cluster, as if it had been connected."""
        site, _ = Site.objects.get_or_create(slug="site-a", defaults={"name": "Site A"})
        credentials = self.credentials()
        return Cluster.objects.create(
            slug="sut",
            name="under test",
            site=site,
            mode=mode,
            api_server=credentials.server,
            kubeconfig_ciphertext=crypto.encrypt(credentials.dumps()),
            identity=identity or KubeClient(credentials, name="sut").identity(),
        )


class SimulatorBackend(Backend):
    """The simulated fleet's first cluster."""

    name = "simulator"
    exporter = ("gpu-operator", "nvidia-dcgm-exporter", 9400)

    def __init__(self, simulated: SimulatedCluster) -> None:
        self._simulated = simulated
        self.kubeconfig = simulated.kubeconfig
        self.observe_kubeconfig = simulated.observe_kubeconfig

    def forget_history(self) -> None:
        self._simulated.sim("POST", "history/compact")

    def count_anew(self) -> None:
        self._simulated.sim("DELETE", "requests")

    def requests(self) -> int:
        return int(self._simulated.sim("GET", "requests")["total"])

    def writes(self) -> int:
        return int(self._simulated.sim("GET", "requests")["writes"])

    def changes(self) -> int:
        return int(self._simulated.sim("GET", "requests")["changes"])

    def fault(self, **values: object) -> None:
        """Let the next matching request go wrong; see ``simulator/faults.py``."""
        self._simulated.sim("POST", "faults", values)


class RealBackend(Backend):
    """A real API server; its audit log tells what was asked of it."""

    name = "real"

    def __init__(self, real: RealCluster) -> None:
        self._real = real
        self._since = 0
        self.kubeconfig = real.kubeconfig
        self.observe_kubeconfig = real.observe_kubeconfig

    def forget_history(self) -> None:
        self._real.forget_history()

    def count_anew(self) -> None:
        self._since = self._real.audit.mark()

    def requests(self) -> int:
        return len(self._real.audit.asked(since=self._since))

    def writes(self) -> int:
        return len(self._real.audit.writes(since=self._since))

    def changes(self) -> int:
        return len(self._real.audit.changes(since=self._since))
