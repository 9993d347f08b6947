"""What a Node object says about its cards, as plain data. Pure: no Django, no Kubernetes client.

Sources: GPU feature discovery's labels (NVIDIA k8s-device-plugin, ``docs/gpu-feature-discovery``), the device plugin's
resources, HAMi's register. Labels lag behind reality, so the number of cards is compared with the resources.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from datetime import datetime
from fractions import Fraction
from typing import Any

from infra.card_catalogue import architecture_of, instances_per_card, known_card, split_product
from infra.hami_register import MOST_MIB, REGISTER, RegisteredCard, cordoned, parse_register
from infra.health import Finding, node_findings
from infra.pod_devices import GPU, GPU_SHARED, MIG_PREFIX, is_gpu, mig_profile
from infra.quantity import parse_quantity, whole
from portal.kernel.clock import parse_rfc3339

LABEL_PREFIXES = (
    "nvidia.com/",
    "amd.com/",
    "hami.io/",
    "modelplane.ai/",
    "aifactory.dev/",
    "kubernetes.io/",
    "node.kubernetes.io/",
    "topology.kubernetes.io/",
    "topology.k8s.aws/",
    "network.topology.nvidia.com/",
    "fabric.topograph.run/",
    "accelerator.topograph.run/",
    "cloud.google.com/",
    "eks.amazonaws.com/",
    "kubernetes.azure.com/",
    "feature.node.kubernetes.io/pci-",
)
_GFD = "nvidia.com/gpu."
_SHARES = re.compile(r"nvidia\.com/gpu(mem|mem-percentage|cores)")
MOST = 1_000_000
"""Cards of a node, or pods that share one. Labels and resources may say anything: a number that the
database's integers don't hold would keep the whole cluster's nodes from being stored, and its hours from summing."""


@dataclass(frozen=True)
class NodeFacts:
    """One node as its object says.

    ``cards`` are physical cards, ``unavailable`` how many of them can't be handed out now, and why; ``sharing`` is
    ``whole``, ``hami``, ``mig`` or ``timeslice``. ``memory_mib``: physical memory of a card, 0 = not known.
    ``ready``: None = Unknown. ``ready_since``: when the condition became what it is.
    ``mig_profile``: strategy single; then ``nvidia.com/gpu`` counts slices of it. ``timeslice_replicas``: pods that
    share a time-sliced card (label ``nvidia.com/gpu.replicas`` of GPU feature discovery; where slices are time-sliced,
    times the slices of a card).
    """

    uid: str
    name: str
    resource_version: str
    created_at: datetime | None
    ready: bool | None
    ready_since: datetime | None
    ready_message: str
    unschedulable: bool
    taints: tuple[Mapping[str, str], ...]
    labels: Mapping[str, str] = field(repr=False)
    allocatable: Mapping[str, str]
    capacity: Mapping[str, str]
    sharing: str = "whole"
    product: str = ""
    memory_mib: int = 0
    architecture: str = ""
    compute_capability: str = ""
    compute_slices: int = 0
    mig_profile: str = ""
    timeslice_replicas: int = 1
    cards: int = 0
    unavailable: int = 0
    reason: str = ""
    registered: tuple[RegisteredCard, ...] = ()
    boot_id: str = ""
    faults: tuple[Finding, ...] = ()

    @property
    def has_cards(self) -> bool:
        """Whether the node shows any accelerator."""
        return self.cards > 0

    @property
    def mig_layout(self) -> tuple[tuple[str, int], ...]:
        """How its cards are cut up, sorted; empty where they are not."""
        return tuple(sorted(mig_layout(self.capacity, self.mig_profile).items())) if self.sharing == "mig" else ()

    @property
    def nvidia(self) -> bool:
        """Whether the cards are NVIDIA's; those of other vendors are seen, not enforced and not priced."""
        return bool(self.product) or any(key.startswith("nvidia.com/") for key in self.capacity)

    @property
    def digest(self) -> str:
        """Of everything but the version: equal digests, equal facts."""
        said = asdict(replace(self, resource_version=""))
        return hashlib.sha256(json.dumps(said, sort_keys=True, default=str).encode()).hexdigest()

    def stored_labels(self, also: frozenset[str] = frozenset()) -> dict[str, str]:
        """The labels that are kept: those of the allow-list, and those that a pool's selector names."""
        return {k: v for k, v in self.labels.items() if k.startswith(LABEL_PREFIXES) or k in also}


def read_node(node: Mapping[str, Any]) -> NodeFacts:
    """Facts from one Node object (JSON as the API server sends it).

    Raises ValueError naming the node and what can't be read. A HAMi register that can't be read does not raise: the
    node's cards then count as unavailable, with that reason.
    """
    meta, spec, status = node.get("metadata") or {}, node.get("spec") or {}, node.get("status") or {}
    name, uid = meta.get("name"), meta.get("uid")
    if not name or not uid:
        raise ValueError(f"node {name or '?'}: metadata.name or metadata.uid is missing")
    labels: dict[str, str] = {str(k): str(v) for k, v in (meta.get("labels") or {}).items()}
    ready: Mapping[str, Any] = next((c for c in status.get("conditions") or () if c.get("type") == "Ready"), {})
    since = ready.get("lastTransitionTime")
    created = meta.get("creationTimestamp")
    facts = NodeFacts(
        uid=str(uid),
        name=str(name),
        resource_version=str(meta.get("resourceVersion") or ""),
        created_at=parse_rfc3339(created) if created else None,
        ready={"True": True, "False": False}.get(str(ready.get("status"))),
        ready_since=parse_rfc3339(since) if since else None,
        ready_message=str(ready.get("message") or ready.get("reason") or ""),
        unschedulable=bool(spec.get("unschedulable")),
        taints=tuple(
            {key: str(taint[key]) for key in ("key", "value", "effect") if taint.get(key)}
            for taint in spec.get("taints") or ()
        ),
        labels=labels,
        allocatable=_resources(status.get("allocatable")),
        capacity=_resources(status.get("capacity")),
    )
    try:
        annotations = meta.get("annotations") or {}
        return _health(_availability(_possible(_cards(facts, annotations))), status, annotations)
    except ValueError as error:
        raise ValueError(f"node {name}: {error}") from error


def _possible(facts: NodeFacts) -> NodeFacts:
    """The facts, where such a node can be. Raises ValueError for one that can't."""
    for what, number, most in (
        ("cards", facts.cards, MOST),
        ("pods on a card", facts.timeslice_replicas, MOST),
        ("MiB of a card", facts.memory_mib, MOST_MIB),
    ):
        if number > most:
            raise ValueError(f"it says {number} {what}, which is more than any node has")
    return facts


def _health(facts: NodeFacts, status: Mapping[str, Any], annotations: Mapping[str, str]) -> NodeFacts:
    """What the node tells of faults; one without cards concerns nobody."""
    boot_id = str((status.get("nodeInfo") or {}).get("bootID") or "")[:64]
    if not facts.has_cards:
        return replace(facts, boot_id=boot_id)
    held_back = cordoned(annotations) if facts.sharing == "hami" else frozenset()
    unusable = [card.uuid for card in facts.registered if not card.healthy]
    missing = facts.reason if facts.reason.endswith("not allocatable") else ""
    found = node_findings(
        status.get("conditions") or (), unhealthy=[uuid for uuid in unusable if uuid not in held_back],
        held_back=[uuid for uuid in unusable if uuid in held_back], missing=missing, lost=facts.ready is None,
        lost_since=facts.ready_since,
    )  # fmt: skip
    return replace(facts, boot_id=boot_id, faults=found)


def _resources(values: Any) -> dict[str, str]:
    return {
        str(key): str(value)
        for key, value in (values or {}).items()
        if key in ("cpu", "memory", "pods") or is_gpu(key) or _SHARES.fullmatch(key)
    }


def count(values: Mapping[str, str], resource: str) -> int:
    """A resource of a node as a whole number; 0 where it is not there."""
    return whole(parse_quantity(values.get(resource, "0")))


def mig_layout(capacity: Mapping[str, str], single_profile: str = "") -> dict[str, int]:
    """MIG profile → how many instances of it a node has; "": cards that are not cut up. ``single_profile``: strategy
    single, what one ``nvidia.com/gpu`` of the node is."""
    found: dict[str, int] = {}
    for resource in capacity:
        profile = mig_profile(resource) or (single_profile if resource == GPU else "")
        number = count(capacity, resource) if profile or resource == GPU else 0
        if number:
            found[profile] = found.get(profile, 0) + number
    return found


def _number(labels: Mapping[str, str], name: str) -> int:
    text = labels.get(_GFD + name, "")
    return int(text) if text.isdecimal() else 0


def _cards(facts: NodeFacts, annotations: Mapping[str, str]) -> NodeFacts:
    labels = facts.labels
    product, single_profile = split_product(labels.get(_GFD + "product", ""))
    register_error = ""
    registered: tuple[RegisteredCard, ...] = ()
    if annotations.get(REGISTER, "").strip():
        try:
            registered = parse_register(annotations[REGISTER])
        except ValueError as error:
            register_error = f"HAMi's register can't be read: {error}"
    if registered and not product:
        product = registered[0].type.removeprefix("NVIDIA-").replace(" ", "-")
    known = known_card(product)
    memory = _number(labels, "memory")
    if single_profile or not memory:
        memory = known.memory_mib if known else 0
    major, minor = labels.get(_GFD + "compute.major", ""), labels.get(_GFD + "compute.minor", "")
    capability = f"{major}.{minor}.0" if major and minor else known.capability if known else ""
    facts = replace(
        facts,
        product=product,
        memory_mib=memory,
        architecture=architecture_of(labels.get(_GFD + "family", ""), product),
        compute_capability=capability,
        compute_slices=known.compute_slices if known else 0,
        mig_profile=single_profile,
        timeslice_replicas=max(1, _number(labels, "replicas")),
    )
    shown = count(facts.capacity, GPU) + count(facts.capacity, GPU_SHARED)
    labelled = _number(labels, "count")
    profiles = {key.removeprefix(MIG_PREFIX) for key in facts.capacity if key.startswith(MIG_PREFIX)}
    if registered or register_error:
        return _hami(replace(facts, sharing="hami"), registered, register_error, cordoned(annotations), labelled)
    if single_profile:
        per_card = instances_per_card(single_profile, product, memory)
        if facts.timeslice_replicas > 1:
            return _time_sliced(facts, shown, labelled, per_card)
        slices = max(shown, labelled)
        usable = count(facts.allocatable, GPU)
        return replace(facts, sharing="mig", cards=-(-slices // per_card), unavailable=(slices - usable) // per_card)
    if any(count(facts.capacity, MIG_PREFIX + profile) for profile in profiles):
        return _mixed(facts, profiles, labelled)
    if facts.timeslice_replicas > 1 or count(facts.capacity, GPU_SHARED):
        return _time_sliced(facts, shown, labelled)
    if GPU not in facts.capacity and labelled:
        # No device plugin speaks for the cards (they are handed out by DRA, or it has not started): not a fault.
        return replace(facts, cards=labelled)
    if GPU in facts.capacity or labelled:
        cards = max(shown, labelled)
        return replace(facts, cards=cards, unavailable=cards - min(cards, count(facts.allocatable, GPU)))
    others = [key for key in facts.capacity if is_gpu(key)]
    cards = sum(count(facts.capacity, key) for key in others)
    return replace(facts, cards=cards, unavailable=max(0, cards - sum(count(facts.allocatable, key) for key in others)))


def _time_sliced(facts: NodeFacts, shown: int, labelled: int, per_card: int = 1) -> NodeFacts:
    """Cards that pods share in turns. With several slices ``per_card`` (MIG strategy single) each slice is shared so,
    and what a pod holds is its part of a slice's part of a card."""
    replicas = facts.timeslice_replicas
    slices = labelled or -(-shown // replicas)
    usable = -(-(count(facts.allocatable, GPU) + count(facts.allocatable, GPU_SHARED)) // replicas)
    return replace(
        facts,
        sharing="timeslice",
        cards=-(-slices // per_card),
        unavailable=max(0, slices - usable) // per_card,
        mig_profile="",
        timeslice_replicas=replicas * per_card,
    )


def _mixed(facts: NodeFacts, profiles: set[str], labelled: int) -> NodeFacts:
    """MIG strategy mixed: slices under their own names, whole cards beside them as ``nvidia.com/gpu``."""

    def cut(values: Mapping[str, str]) -> Fraction:
        return sum(
            (
                Fraction(
                    count(values, MIG_PREFIX + profile),
                    instances_per_card(profile, facts.product, facts.memory_mib),
                )
                for profile in profiles
            ),
            Fraction(0),
        )

    whole_cards = count(facts.capacity, GPU)
    cards = max(labelled, whole_cards + whole(cut(facts.capacity)))
    missing = cut(facts.capacity) - cut(facts.allocatable)
    lost = whole_cards - min(whole_cards, count(facts.allocatable, GPU)) + whole(max(missing, Fraction(0)))
    return replace(facts, sharing="mig", cards=cards, unavailable=min(cards, lost))


def _hami(
    facts: NodeFacts,
    registered: tuple[RegisteredCard, ...],
    error: str,
    cordon: frozenset[str],
    labelled: int,
) -> NodeFacts:
    """HAMi: cards are those of the register; ``nvidia.com/gpu`` is cards times slots and says nothing of them."""
    cards = len(registered) or labelled
    broken = sum(1 for card in registered if not card.healthy)
    held_back = sum(1 for card in registered if card.healthy and card.uuid in cordon)
    reasons = [error] if error else []
    if broken:
        reasons.append(f"{broken} of {cards} cards unhealthy in HAMi's register")
    if held_back:
        reasons.append(f"{held_back} of {cards} cards cordoned in HAMi")
    registered = tuple(replace(card, healthy=card.healthy and card.uuid not in cordon) for card in registered)
    return replace(
        facts,
        registered=registered,
        cards=cards,
        unavailable=cards if error else broken + held_back,
        reason="; ".join(reasons),
    )


def _availability(facts: NodeFacts) -> NodeFacts:
    """What the node's state does to all of its cards. What pods hold stays theirs, unless the node is lost."""
    if not facts.cards:
        return replace(facts, unavailable=0, reason="")
    if facts.ready is None:
        return replace(facts, unavailable=facts.cards, reason="node lost: Ready is Unknown")
    if facts.ready is False:
        reason = f"node suspect: Ready is False: {facts.ready_message}".rstrip(": ")
        return replace(facts, unavailable=facts.cards, reason=reason[:200])
    if facts.unschedulable:
        return replace(facts, unavailable=facts.cards, reason="node cordoned")
    if facts.unavailable and not facts.reason:
        reason = f"{facts.unavailable} of {facts.cards} cards not allocatable"
        return replace(facts, unavailable=min(facts.cards, facts.unavailable), reason=reason)
    return replace(facts, unavailable=min(facts.cards, facts.unavailable), reason=facts.reason[:200])
