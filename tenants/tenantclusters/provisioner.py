"""How a tenant cluster is made on its host: the protocol, and what goes in and comes out of it.

A provisioner applies objects to the host cluster and reads what became of them. It opens no transaction and writes no
row but those of the inventory; what was seen is judged in :mod:`tenants.tenantclusters.phases`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol

from infra.adapters.flux import ReleaseState
from infra.adapters.oidc import SignIn
from infra.adapters.vcluster import ClusterFacts
from infra.adapters.vcluster_state import ControlPlane
from infra.kube.apply import Owner
from infra.kube.client import KubeClient
from infra.models import Cluster
from infra.services.inventory import ApplyReport
from portal.kernel.workqueue import Claimed

OWNER_KIND = "tenantcluster"


@dataclass(frozen=True)
class Wish:
    """A tenant cluster as it shall be, of one moment.

    Attributes:
        facts: what the chart's values are made of.
        chart: the chart's version.
        sign_in: the identity provider that its API server believes; ``None``: none.
        retry_at: when somebody asked for another try; "": nobody did.
        paused: no control plane runs, and no pod of the tenant.
    """

    owner: Owner
    cluster: Cluster
    facts: ClusterFacts
    chart: str
    sign_in: SignIn | None
    retry_at: str
    paused: bool

    @property
    def name(self) -> str:
        """Of the virtual cluster."""
        return self.facts.name

    @property
    def namespace(self) -> str:
        """On the host."""
        return self.facts.namespace


@dataclass(frozen=True)
class HostView:
    """What the host shows. ``control_plane`` and ``secret`` are ``None`` where they are not there (yet)."""

    release: ReleaseState
    control_plane: ControlPlane | None = None
    secret: Mapping[str, Any] | None = field(default=None, repr=False)
    trouble: str = ""
    """Why the control plane does not start, as a sentence; "" where nothing tells."""
    pods: int = 0
    """Pods of the tenant on the host, as the syncer labels them."""


@dataclass(frozen=True)
class Left:
    """Something that a deletion still finds. ``ours``: the portal deletes it; else somebody must."""

    what: str
    why: str
    ours: bool = True

    def __str__(self) -> str:
        return f"{self.what}: {self.why}"


Moved = Literal["done", "going"]


class Provisioner(Protocol):
    """A way to have tenant clusters made. Every method may raise ``KubeError``, and ``LeaseLost`` before a write."""

    def apply(self, item: Claimed, wish: Wish, *, suspect_drift: bool) -> ApplyReport:
        """Bring the host's objects to the wish; an identical apply writes nothing.

        Args:
            suspect_drift: compare also what was applied as it is before.
        """

    def observe(self, client: KubeClient, wish: Wish) -> HostView:
        """Read what became of it."""

    def pause(self, item: Claimed, client: KubeClient, wish: Wish) -> Moved:
        """Stop the control plane and the tenant's pods; what is stored stays."""

    def resume(self, item: Claimed, client: KubeClient, wish: Wish) -> Moved:
        """Start the control plane again; it brings the pods back."""

    def remove(self, item: Claimed, client: KubeClient, wish: Wish) -> list[Left]:
        """Have everything removed but the namespace; empty when the host answered 404 for all of it."""
