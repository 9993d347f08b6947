"""Rows for billing tests: tenants, clusters, nodes, evidence of pods, and an issuer with prices."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from fractions import Fraction
from uuid import uuid4

from billing.models import BillingPeriod, Issuer, Rate, RateCard
from billing.services.periods import period_ensure
from infra.evidence import ContainerEvidence, PodEvidence
from infra.models import (
    CapacitySpan,
    Cluster,
    GPUType,
    NamespaceClaim,
    Node,
    NodePool,
    PodObservation,
    Site,
    WatchSpan,
    WatchTarget,
)
from infra.pod_devices import ContainerKind
from infra.pod_reading import dump_evidence
from infra.services.changes import lock_changes
from portal.kernel.actors import PLATFORM_FINANCE, Actor
from portal.kernel.scoping import system_scope
from tenants.models import Tenant, Zone

FINANCE = Actor(kind="user", name="finance", user_id=uuid4(), platform_role=PLATFORM_FINANCE)
T0 = datetime(2026, 11, 1, tzinfo=UTC)


def make_tenant(slug: str, zone: str = "shared") -> Tenant:
    """A tenant in a zone."""
    row, _ = Zone.objects.get_or_create(slug=zone, defaults={"name": zone})
    return Tenant.objects.create(slug=slug, name=slug, zone=row)


def claim_namespaces(
    cluster: Cluster, tenant: Tenant, namespaces: Iterable[str], start: datetime = datetime(2026, 1, 1, tzinfo=UTC)
) -> None:
    """The namespaces are the tenant's from ``start`` on."""
    with system_scope("test"):
        changes = lock_changes(cluster.pk)
        for namespace in namespaces:
            NamespaceClaim.objects.create(
                cluster=cluster, namespace=namespace, tenant_id=tenant.pk, valid_from=start, created_by="test",
                changed_seq=changes.draw(),
            )  # fmt: skip
        changes.save()


def make_cluster(slug: str = "east", since: datetime = T0, watermark: datetime | None = None) -> Cluster:
    """A watched cluster."""
    site, _ = Site.objects.get_or_create(slug="lab", defaults={"name": "Lab"})
    cluster = Cluster.objects.create(
        slug=slug, name=slug, site=site, api_server="https://127.0.0.1:1", kubeconfig_ciphertext=b"none",
        identity=f"identity-{slug}", system_namespaces=["kube-system"],
    )  # fmt: skip
    for resource in WatchTarget.Resource.values:
        target = WatchTarget.objects.create(cluster=cluster, resource=resource, watermark=watermark)
        WatchSpan.objects.create(target=target, started_at=since, proved_until=watermark or since)
    return cluster


def set_watermark(cluster: Cluster, at: datetime) -> None:
    """Everything before ``at`` is known."""
    WatchTarget.objects.filter(cluster=cluster).update(watermark=at)


def make_gpu_type(slug: str = "h100", memory_mib: int = 81_920, compute_slices: int = 7) -> GPUType:
    """A type of card."""
    row, _ = GPUType.objects.get_or_create(
        slug=slug, defaults={"name": slug, "memory_mib": memory_mib, "compute_slices": compute_slices}
    )
    return row


def make_node(
    cluster: Cluster, name: str = "node-0", *, gpu_type: GPUType | None = None, sharing: str = "whole", cards: int = 8,
    since: datetime = T0, zone_id: object = None,
) -> Node:  # fmt: skip
    """A node in service since ``since``."""
    gpu_type = gpu_type or make_gpu_type()
    pool, _ = NodePool.objects.get_or_create(
        cluster=cluster, name=f"{gpu_type.slug}-{sharing}", defaults={"gpu_type": gpu_type, "sharing": sharing}
    )
    node = Node.objects.create(
        cluster=cluster, pool=pool, name=name, uid=f"uid-{name}", ready=True, cards=cards, first_seen_at=since
    )
    with system_scope("test"):
        changes = lock_changes(cluster.pk)
        CapacitySpan.objects.create(
            cluster=cluster, node=node, gpu_type=gpu_type, sharing=sharing, cards=cards, started_at=since,
            zone_id=zone_id, changed_seq=changes.draw(),
        )  # fmt: skip
        changes.save()
    return node


def pod_evidence(
    name: str, *, namespace: str, node: str, start: datetime, end: datetime | None = None,
    bound: datetime | None = None, uid: str = "", **requests: int | str,
) -> PodEvidence:  # fmt: skip
    """A pod with one container; ``requests`` by short name (gpu, gpumem, gpucores, cpu, memory_gib)."""
    names = {"gpu": "nvidia.com/gpu", "gpumem": "nvidia.com/gpumem", "gpucores": "nvidia.com/gpucores"}
    amounts: dict[str, Fraction] = {}
    for key, value in requests.items():
        if key == "memory_gib":
            amounts["memory"] = Fraction(value) * 1024**3
        elif key.startswith("mig_"):
            amounts["nvidia.com/mig-" + key[4:].replace("_", ".")] = Fraction(value)
        else:
            amounts[names.get(key, key)] = Fraction(value)
    pairs = tuple(sorted(amounts.items()))
    container = ContainerEvidence(
        "main", ContainerKind.MAIN, "Never", pairs, "terminated" if end else "running", exit_code=0 if end else None,
        first_started_at=start, last_finished_at=end,
    )  # fmt: skip
    return PodEvidence(
        uid=uid or f"uid-{name}", namespace=namespace, name=name, resource_version=1, first_seen_at=bound or start,
        last_seen_at=end or start, node=node, phase="Succeeded" if end else "Running", requests=pairs,
        containers=(container,), scheduled_at=bound or start, terminal_seen_at=end,
    )  # fmt: skip


def observe(cluster: Cluster, *pods: PodEvidence, deployment_id: object = None) -> None:
    """Evidence as the watcher stores it; an earlier sight of the same pod is replaced."""
    with system_scope("test"):
        changes = lock_changes(cluster.pk)
        for pod in pods:
            end = pod.end
            PodObservation.objects.update_or_create(
                cluster=cluster, uid=pod.uid,
                defaults={
                    "namespace": pod.namespace, "name": pod.name, "node_name": pod.node, "phase": pod.phase,
                    "evidence": dump_evidence(pod), "scheduled_at": pod.scheduled_at, "started_at": pod.started_at,
                    "ended_at": end.proved if end else None, "gone_at": pod.gone_at,
                    "gone_inferred_after": pod.gone_inferred_after, "first_seen_at": pod.first_seen_at,
                    "deployment_id": deployment_id, "changed_seq": changes.draw(),
                },
            )  # fmt: skip
        changes.save()


def make_issuer(slug: str = "house", *, currency: str = "EUR", time_zone: str = "UTC", **more: object) -> Issuer:
    """The default issuer with a rate card."""
    issuer = Issuer.objects.create(
        slug=slug, name=slug, currency=currency, time_zone=time_zone, is_default=True, **more
    )
    RateCard.objects.create(issuer=issuer, name=f"{slug} prices")
    return issuer


def make_rate(
    issuer: Issuer, price: str, *, gpu_type: GPUType | None = None, sharing: str = "whole", profile: str = "",
    valid_from: datetime = T0 - timedelta(days=400), resource: str = "gpu", **more: object,
) -> Rate:  # fmt: skip
    """A fixed price."""
    is_gpu = resource == "gpu"
    return Rate.objects.create(
        card=issuer.rate_card, resource=resource, gpu_type=(gpu_type or make_gpu_type()) if is_gpu else None,
        sharing=sharing if is_gpu else "", profile=profile, price=Decimal(price), valid_from=valid_from,
        created_by="test", **more,
    )  # fmt: skip


def month(issuer: Issuer, year: int = 2026, number: int = 11) -> BillingPeriod:
    """The issuer's stored month."""
    return period_ensure(issuer, datetime(year, number, 15, tzinfo=UTC))
