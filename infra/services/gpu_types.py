"""Kinds of cards as they are discovered, and a node's pool. Called within the watcher's transaction."""

from __future__ import annotations

import re
from typing import Any
from uuid import UUID

from django.db.models import Q

from infra.card_catalogue import NVIDIA_DRIVER, display_name
from infra.models import Cluster, GPUType, NodePool, Reservation
from infra.node_reading import NodeFacts

# Two names for one card may differ by what the driver keeps for itself (ECC, firmware).
_MEMORY_TOLERANCE = 0.015


def slug_of(text: str) -> str:
    """``NVIDIA H100 80GB HBM3`` → ``nvidia-h100-80gb-hbm3``; at most 63 characters."""
    return re.sub(r"[^a-z0-9]+", "-", text.lower()).strip("-")[:63].rstrip("-")


def attribute(attributes: dict[str, Any], name: str) -> str:
    """A text attribute of a device in DRA's shape, bare or qualified by the driver's domain; "" = not given."""
    typed = attributes.get(name) or attributes.get(f"{NVIDIA_DRIVER}/{name}") or {}
    value = typed.get("string", typed.get("version", ""))
    return value if isinstance(value, str) else ""


def gpu_type_discover(facts: NodeFacts) -> GPUType | None:
    """The type of a node's cards: by product, else a declared one that it fits, else a new one. None: not NVIDIA's,
    or the node does not say what they are."""
    if not facts.product or not facts.nvidia:
        return None
    known = GPUType.objects.filter(product=facts.product).first()
    return known or _adopt(facts) or _create(facts)


def _adopt(facts: NodeFacts) -> GPUType | None:
    """A type from a manifest or made by hand that was never seen on a node, and whose figures are these."""
    name = display_name(facts.product)
    candidates = GPUType.objects.filter(product="", driver=NVIDIA_DRIVER).exclude(source=GPUType.Source.DISCOVERED)
    fitting = []
    for candidate in candidates.select_for_update():
        declared = attribute(candidate.attributes, "productName")
        if declared:
            if slug_of(declared) == slug_of(name):
                fitting.append((0, candidate.slug, candidate))
            continue
        if slug_of(candidate.name) == slug_of(name) or candidate.slug == slug_of(name):
            fitting.append((1, candidate.slug, candidate))
            continue
        architecture = attribute(candidate.attributes, "architecture")
        off = abs(candidate.memory_mib - facts.memory_mib)
        same_kind = not architecture or not facts.architecture or architecture == facts.architecture
        if facts.memory_mib and same_kind and off <= _MEMORY_TOLERANCE * facts.memory_mib:
            fitting.append((2 + off, candidate.slug, candidate))
    if not fitting:
        return None
    chosen = min(fitting, key=lambda entry: entry[:2])[2]
    chosen.product = facts.product
    chosen.name = name
    chosen.save(update_fields=["product", "name"])
    return chosen


def _create(facts: NodeFacts) -> GPUType:
    name = display_name(facts.product)
    attributes: dict[str, Any] = {"type": {"string": "gpu"}, "productName": {"string": name}}
    if facts.architecture:
        attributes["architecture"] = {"string": facts.architecture}
    if facts.compute_capability:
        attributes["cudaComputeCapability"] = {"version": facts.compute_capability}
    GPUType.objects.bulk_create(
        [
            GPUType(
                slug=slug_of(name),
                name=name,
                product=facts.product,
                driver=NVIDIA_DRIVER,
                memory_mib=facts.memory_mib,
                compute_slices=facts.compute_slices,
                attributes=attributes,
                capacity={"memory": {"value": f"{facts.memory_mib}Mi"}} if facts.memory_mib else {},
                source=GPUType.Source.DISCOVERED,
            )
        ],
        ignore_conflicts=True,  # another cluster's watcher may be making it now
    )
    found = GPUType.objects.filter(Q(product=facts.product) | Q(slug=slug_of(name))).order_by("-product").first()
    assert found is not None
    return found


def pool_for(cluster: Cluster, facts: NodeFacts, gpu_type: GPUType | None, current: NodePool | None) -> NodePool | None:
    """The pool of a node: a declared one whose selector it matches, else the automatic one of its type and mode.

    A declared pool takes on the mode and the type that its nodes show, as long as nothing in it is promised; a node
    that shows something else than its pool goes to an automatic pool, so that a pool never mixes kinds of cards.
    None: the node has no cards whose type is known.
    """
    if gpu_type is None or not facts.has_cards:
        return None
    declared = cluster.pools.exclude(node_selector={}).order_by("name")
    for pool in declared:
        if all(facts.labels.get(key) == value for key, value in pool.node_selector.items()):
            if _fits(pool, facts, gpu_type):
                return pool
            break
    if current is not None and not current.node_selector and _same(current, facts, gpu_type):
        return current
    name = f"{gpu_type.slug[: 62 - len(facts.sharing)]}-{facts.sharing}"
    NodePool.objects.bulk_create(
        [NodePool(cluster=cluster, name=name, gpu_type=gpu_type, sharing=facts.sharing)], ignore_conflicts=True
    )
    return NodePool.objects.get(cluster=cluster, name=name)


def _same(pool: NodePool, facts: NodeFacts, gpu_type: GPUType) -> bool:
    return pool.gpu_type_id == gpu_type.pk and pool.sharing == facts.sharing


def _fits(pool: NodePool, facts: NodeFacts, gpu_type: GPUType) -> bool:
    if _same(pool, facts, gpu_type):
        return True
    others = pool.nodes.filter(gone_at__isnull=True, cards__gt=0).exclude(uid=facts.uid).exists()
    if others or Reservation.objects.filter(pool=pool, released_at__isnull=True).exists():
        return False
    pool.gpu_type, pool.sharing = gpu_type, facts.sharing
    pool.save(update_fields=["gpu_type", "sharing"])
    return True


def selector_labels(cluster_id: UUID) -> frozenset[str]:
    """The labels that the cluster's declared pools look at: they are kept of its nodes, whatever the allow-list."""
    return frozenset(
        key
        for selector in NodePool.objects.filter(cluster_id=cluster_id).values_list("node_selector", flat=True)
        for key in selector
    )
