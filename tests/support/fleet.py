"""Small fleets as rows, for tests that need no cluster to answer."""

from __future__ import annotations

import uuid
from datetime import UTC, datetime
from typing import Any

from infra.evidence import ContainerEvidence, PodEvidence
from infra.hami_record import HAMI_ALLOCATED, HAMI_PHASE
from infra.holdings import dump_holds, held_by
from infra.isolation import Piece
from infra.models import Cluster, Device, GPUType, Node, NodePool, PodObservation, Site
from infra.pod_devices import GPU, HAMI_SCHEDULER, ContainerKind
from infra.pod_reading import dump_evidence
from infra.quantity import parse_quantity

ISOLATION = {
    "pieces": {
        piece.value: {"state": "yes", "sentence": "as tests have it"} for piece in Piece if piece is not Piece.NETWORK
    }
}
"""What a cluster tells that has all that keeps tenants apart; and what a platform-admin says of its network."""
ISOLATION_SAID = {
    "declared": {Piece.NETWORK.value: {"text": "tried by hand", "by": "tests", "at": "2026-11-01T00:00:00Z"}}
}
SEEN = datetime(2026, 11, 1, tzinfo=UTC)


def make_cluster(slug: str = "alpha", *, site: str = "site-a", mode: str = "manage", **values: Any) -> Cluster:
    """A connected cluster of which nothing can be asked."""
    place, _ = Site.objects.get_or_create(slug=site, defaults={"name": site})
    if mode == "manage":
        values = {"isolation": ISOLATION, "isolation_said": ISOLATION_SAID} | values
    return Cluster.objects.create(
        slug=slug, name=slug, site=place, mode=mode, api_server="https://127.0.0.1:1", kubeconfig_ciphertext=b"none",
        identity=str(uuid.uuid4()), **values,
    )  # fmt: skip


def make_type(slug: str = "nvidia-h100-80gb-hbm3", *, memory_mib: int = 81559, compute_slices: int = 7) -> GPUType:
    """A GPU type; the same one for the same slug."""
    gpu_type, _ = GPUType.objects.get_or_create(
        slug=slug,
        defaults={
            "name": slug.upper().replace("-", " "),
            "memory_mib": memory_mib,
            "compute_slices": compute_slices,
            "attributes": {"architecture": {"string": "Hopper"}, "type": {"string": "gpu"}},
            "capacity": {"memory": {"value": f"{memory_mib}Mi"}},
        },
    )
    return gpu_type


def make_pool(
    sharing: str = "whole", *, cluster: Cluster | None = None, name: str = "", gpu_type: GPUType | None = None,
    **values: Any,
) -> NodePool:  # fmt: skip
    """A pool; on a new cluster where none is given."""
    return NodePool.objects.create(
        cluster=cluster or make_cluster(), name=name or f"pool-{sharing}", sharing=sharing,
        gpu_type=gpu_type or make_type(), **values,
    )  # fmt: skip


def make_node(
    pool: NodePool, *, cards: int = 8, name: str = "node-0", profile: str = "1g.10gb", slices: int | None = None,
    scale: float = 1.0, **values: Any,
) -> Node:  # fmt: skip
    """A ready node. MIG: all cards cut into ``profile``, ``slices`` of them (default 7 a card). HAMi: a register of
    ``cards`` cards, their memory times ``scale``."""
    assert pool.gpu_type is not None
    allocatable = {"cpu": "192", "memory": "2Ti"}
    if pool.sharing == "mig":
        allocatable |= {GPU: "0", f"nvidia.com/mig-{profile}": str(cards * 7 if slices is None else slices)}
    else:
        allocatable[GPU] = str(cards * 10 if pool.sharing == "hami" else cards)
    defaults: dict[str, Any] = {"ready": True, "first_seen_at": SEEN, "allocatable": allocatable}
    node = Node.objects.create(
        cluster=pool.cluster, pool=pool, name=name, uid=str(uuid.uuid4()), cards=cards, **{**defaults, **values}
    )
    if pool.sharing == "hami":
        memory = pool.gpu_type.memory_mib
        for index in range(cards):
            Device.objects.create(
                cluster=pool.cluster, node=node, uuid=f"GPU-{node.name}-{index}", index=index, memory_mib=memory,
                register_memory_mib=int(memory * scale), register_cores=100, register_slots=10, first_seen_at=SEEN,
            )  # fmt: skip
    return node


def make_pod(
    node: Node, *, name: str = "", namespace: str = "team-a", requests: dict[str, str] | None = None,
    hami: list[tuple[str, int, int]] | None = None, replica_id: uuid.UUID | None = None, **values: Any,
) -> PodObservation:  # fmt: skip
    """A running pod on a node. ``requests``: default one card; ``hami``: (UUID, MiB, cores) as HAMi wrote them."""
    quantities = tuple(sorted((k, parse_quantity(v)) for k, v in (requests or {GPU: "1"}).items()))
    text = "".join(f"{card},NVIDIA,{mib},{cores}:" for card, mib, cores in hami or ())
    pod = PodEvidence(
        uid=str(uuid.uuid4()),
        namespace=namespace,
        name=name or f"pod-{uuid.uuid4().hex[:8]}",
        resource_version=1,
        first_seen_at=SEEN,
        last_seen_at=SEEN,
        node=node.name,
        scheduler=HAMI_SCHEDULER if hami is not None else "default-scheduler",
        phase="Running",
        requests=quantities,
        annotations=((HAMI_PHASE, "success"), (HAMI_ALLOCATED, text + ";")) if text else (),
        containers=(
            ContainerEvidence("main", ContainerKind.MAIN, "Always", quantities, "running", first_started_at=SEEN),
        ),
        scheduled_at=SEEN,
    )
    return PodObservation.objects.create(
        cluster=node.cluster, uid=pod.uid, namespace=namespace, name=pod.name, node_name=node.name, phase="Running",
        evidence=dump_evidence(pod), holds=dump_holds(held_by(pod)), scheduled_at=SEEN, started_at=SEEN,
        first_seen_at=SEEN, replica_id=replica_id, **values,
    )  # fmt: skip
