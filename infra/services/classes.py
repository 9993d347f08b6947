"""Hardware recipes and pools from manifests. Applying the same again changes nothing."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from django.db import transaction

from infra.card_catalogue import NVIDIA_DRIVER, known_card
from infra.concerned import concerned_by
from infra.manifests import POOL_LABEL, ClassManifest, ClusterManifest, PoolManifest, read_class, read_cluster
from infra.models import Cluster, GPUType, InferenceClass, Node, NodePool, Reservation
from infra.quantity import MIB, parse_quantity
from infra.services.gpu_types import attribute, slug_of
from portal.kernel import audit, workqueue
from portal.kernel.actors import PLATFORM_ADMIN, Actor
from portal.kernel.problems import Conflict, Forbidden, Invalid


@dataclass(frozen=True)
class ClusterApplied:
    """What applying an InferenceCluster did. ``notes``: sentences on what was read but is not the portal's to do."""

    cluster: Cluster
    pools: tuple[NodePool, ...]
    notes: tuple[str, ...]


def inference_class_apply(*, manifest: Mapping[str, Any], actor: Actor) -> InferenceClass:
    """Store a hardware recipe and the GPU type of its cards; pools of the class get its devices.

    The type is one that is known with these figures (driver, memory, architecture, product), else a new one: classes
    of several providers with the same card share their type, and so its quota and its rate.

    Raises:
        Forbidden: the actor is no platform-admin.
        Invalid: the manifest; each error with its JSON pointer.
    """
    _allow(actor, "inference_class_apply", manifest)
    read = read_class(manifest)
    with transaction.atomic():
        row, made = InferenceClass.objects.select_for_update().get_or_create(name=read.name)
        devices = [dict(device) for device in read.devices]
        gpu_type = _gpu_type(read)
        before = {"description": row.description, "devices": row.devices, "gpu_type": _slug(row.gpu_type)}
        after = {"description": read.description, "devices": devices, "gpu_type": _slug(gpu_type)}
        if before == after and not made:
            return row
        row.description, row.devices, row.gpu_type = read.description, devices, gpu_type
        row.generation = 1 if made else row.generation + 1
        row.save()
        pools = NodePool.objects.filter(inference_class=row)
        pools.update(devices=devices)
        marks = [mark for pk in set(pools.values_list("cluster_id", flat=True)) for mark in concerned_by(pk)]
        workqueue.mark_many(marks)
        audit.record(
            "inference_class_apply", actor=actor, tenant_id=None, object_kind="inference_class", object_id=row.pk,
            object_name=row.name, before=None if made else before, after=after,
        )  # fmt: skip
    return row


def _slug(gpu_type: GPUType | None) -> str:
    return gpu_type.slug if gpu_type else ""


def _gpu_type(read: ClassManifest) -> GPUType | None:
    """The type of a class's cards: None where it has none."""
    for device in read.devices:
        if device["driver"] == NVIDIA_DRIVER:
            return _find_type(device) or _make_type(device)
    return None


def _memory_mib(device: Mapping[str, Any]) -> int:
    memory = (device.get("capacity") or {}).get("memory") or {}
    return int(parse_quantity(memory["value"]) / MIB) if "value" in memory else 0


def _find_type(device: Mapping[str, Any]) -> GPUType | None:
    attributes, memory = device.get("attributes") or {}, _memory_mib(device)
    product, architecture = attribute(attributes, "productName"), attribute(attributes, "architecture")
    for known in GPUType.objects.filter(driver=device["driver"]).order_by("slug").select_for_update():
        theirs = attribute(known.attributes, "productName") or known.name
        if product:
            if slug_of(product) == slug_of(theirs):
                return known
            continue
        their_architecture = attribute(known.attributes, "architecture")
        if memory and known.memory_mib == memory and architecture in ("", their_architecture):
            return known
    return None


def _make_type(device: Mapping[str, Any]) -> GPUType:
    attributes, memory = device.get("attributes") or {}, _memory_mib(device)
    product, architecture = attribute(attributes, "productName"), attribute(attributes, "architecture")
    name = product or f"{architecture or 'GPU'} {memory} MiB"
    known = known_card(product) if product else None
    # Of a card that is only described by its memory, MIG is known by its architecture at best.
    slices = known.compute_slices if known else 7 if architecture in ("Hopper", "Blackwell") else 0
    gpu_type, _ = GPUType.objects.get_or_create(
        slug=slug_of(name),
        defaults={
            "name": name,
            "driver": device["driver"],
            "memory_mib": memory or (known.memory_mib if known else 0),
            "compute_slices": slices,
            "attributes": attributes,
            "capacity": device.get("capacity") or {},
            "source": GPUType.Source.MANIFEST,
        },
    )
    return gpu_type


def inference_cluster_apply(*, manifest: Mapping[str, Any], actor: Actor) -> ClusterApplied:
    """Give a connected cluster the labels, taints and pools of its manifest.

    The portal connects clusters, it makes none: the cluster is found by its name (slug). Whatever the source says,
    the block that would provision it is not acted on.

    Raises:
        Forbidden: the actor is no platform-admin.
        Invalid: the manifest; a cluster that is not connected; a class that is not known.
        Conflict: a pool that the manifest lacks, or gives another type, has reservations.
    """
    _allow(actor, "inference_cluster_apply", manifest)
    read = read_cluster(manifest)
    with transaction.atomic():
        cluster = (
            Cluster.objects.select_for_update(of=("self",), no_key=True)
            .filter(slug=read.name, abandoned_at__isnull=True)
            .first()
        )
        if cluster is None:
            detail = f"no cluster {read.name} is connected; connect it with its kubeconfig first, under this name"
            raise Invalid(errors=[{"pointer": "/metadata/name", "detail": detail}])
        classes = _classes(read)
        before = _told(cluster)
        cluster.labels, cluster.taints = dict(read.labels), list(read.taints)
        pools = tuple(_set_pool(cluster, pool, classes[pool.class_name]) for pool in read.pools)
        _drop_others(cluster, {pool.name for pool in read.pools})
        after = _told(cluster)
        if before != after:
            cluster.generation += 1
            cluster.save(update_fields=["labels", "taints", "generation"])
            _match_nodes(cluster)
            workqueue.mark_many(concerned_by(cluster.pk))
            audit.record(
                "inference_cluster_apply", actor=actor, tenant_id=None, object_kind="cluster", object_id=cluster.pk,
                object_name=cluster.slug, before=before, after=after,
            )  # fmt: skip
    notes = () if read.source == "Existing" else (
        f"The cluster is connected as it is; the portal provisions nothing, so source {read.source} was not acted on.",
    )  # fmt: skip
    return ClusterApplied(cluster, pools, notes)


def _classes(read: ClusterManifest) -> dict[str, InferenceClass]:
    names = {pool.class_name for pool in read.pools}
    found = {row.name: row for row in InferenceClass.objects.filter(name__in=names).select_related("gpu_type")}
    errors = [
        {
            "pointer": f"/spec/nodePools/{number}/className",
            "detail": f"no InferenceClass {pool.class_name!r} is known; apply it first",
        }
        for number, pool in enumerate(read.pools)
        if pool.class_name not in found
    ]
    if errors:
        raise Invalid(errors=errors)
    return found


def _told(cluster: Cluster) -> dict[str, Any]:
    rows = cluster.pools.filter(inference_class__isnull=False).select_related("inference_class").order_by("name")
    return {
        "labels": cluster.labels,
        "taints": cluster.taints,
        "pools": {p.name: [p.inference_class.name, p.declared_nodes] for p in rows if p.inference_class},
    }


def _set_pool(cluster: Cluster, read: PoolManifest, recipe: InferenceClass) -> NodePool:
    pool = NodePool.objects.select_for_update(of=("self",), no_key=True).filter(cluster=cluster, name=read.name).first()
    if pool is None:
        pool = NodePool(cluster=cluster, name=read.name, gpu_type=recipe.gpu_type)
    elif pool.inference_class_id != recipe.pk:
        if pool.gpu_type_id != (recipe.gpu_type_id or pool.gpu_type_id):
            _require_free(pool, f"gets cards of another type ({recipe.name})")
        pool.gpu_type = recipe.gpu_type or pool.gpu_type
    pool.inference_class, pool.devices = recipe, recipe.devices
    pool.declared_nodes, pool.node_selector = read.nodes, {POOL_LABEL: read.name}
    pool.save()
    return pool


def _drop_others(cluster: Cluster, names: set[str]) -> None:
    """Pools of an earlier manifest that this one lacks: gone, or automatic ones where they have a past."""
    for pool in cluster.pools.filter(inference_class__isnull=False).exclude(name__in=names).order_by("name"):
        _require_free(pool, "is not in the manifest any more")
        pool.nodes.update(pool=None, digest="")
        if Reservation.objects.filter(pool=pool).exists():
            pool.inference_class, pool.node_selector, pool.declared_nodes, pool.devices = None, {}, None, []
            pool.save()
        else:
            pool.delete()


def _require_free(pool: NodePool, why: str) -> None:
    held = Reservation.objects.filter(pool=pool, released_at__isnull=True).count()
    if held:
        raise Conflict(
            f"Pool {pool.name} of cluster {pool.cluster.slug} {why}, but {held} reservations hold devices in it. "
            "Move those replicas first."
        )


def _match_nodes(cluster: Cluster) -> None:
    """Nodes that a declared pool's selector matches belong to it; the watcher looks at all of them anew."""
    nodes = Node.objects.filter(cluster=cluster, gone_at__isnull=True)
    for pool in cluster.pools.exclude(node_selector={}).order_by("name"):
        for node in nodes.filter(labels__contains=pool.node_selector).select_related("pool").order_by("pk"):
            same = node.pool and (node.pool.gpu_type_id, node.pool.sharing) == (pool.gpu_type_id, pool.sharing)
            busy = Reservation.objects.filter(node=node, released_at__isnull=True).exists()
            if same and not busy:
                Node.objects.filter(pk=node.pk).update(pool=pool)
    nodes.update(digest="")


def _allow(actor: Actor, verb: str, manifest: Mapping[str, Any]) -> None:
    if actor.is_platform(PLATFORM_ADMIN):
        return
    reason = "Only a platform-admin applies hardware manifests."
    metadata = manifest.get("metadata")
    name = str(metadata.get("name", "")) if isinstance(metadata, Mapping) else ""
    audit.refused(
        verb, actor=actor, tenant_id=None, object_kind="manifest", object_id=None, object_name=name, reason=reason
    )
    raise Forbidden(reason)
