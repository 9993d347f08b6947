"""What is known of NVIDIA data-centre cards beside what a cluster says of them. Pure.

GPU feature discovery writes the product with dashes (``NVIDIA-H100-80GB-HBM3``); the driver itself, HAMi and manifests
with blanks. Memory is what the driver reports, MiB; it serves only where a cluster reports none, or reports that of a
MIG slice in place of the card's (strategy ``single``). MIG geometry: NVIDIA MIG User Guide, "Supported MIG Profiles".
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from infra.shares import parse_mig

NVIDIA_DRIVER = "gpu.nvidia.com"
"""NVIDIA's DRA driver: attributes without a domain are of its domain."""
_MIG_SUFFIX = re.compile(r"-MIG-(?P<profile>\d+g\.\d+gb(?:\.me)?)$", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class KnownCard:
    """A kind of card: architecture as NVIDIA's DRA driver names it, compute capability, MiB, MIG compute slices
    of a full card (0: no MIG) and memory slices."""

    pattern: re.Pattern[str]
    architecture: str
    capability: str
    memory_mib: int
    compute_slices: int = 0
    memory_slices: int = 0


def _known(pattern: str, *rest: str | int) -> KnownCard:
    return KnownCard(re.compile(pattern, re.IGNORECASE), *rest)  # type: ignore[arg-type]


_CARDS = (
    _known(r"\bB300\b", "Blackwell", "10.3.0", 275040, 7, 8),
    _known(r"\bG?B200\b", "Blackwell", "10.0.0", 183359, 7, 8),
    _known(r"\bH200\b", "Hopper", "9.0.0", 143771, 7, 8),
    _known(r"\bGH200\b", "Hopper", "9.0.0", 97871, 7, 8),
    _known(r"\bH100\b.*(94GB|NVL)", "Hopper", "9.0.0", 95830, 7, 8),
    _known(r"\bH(100|800)\b", "Hopper", "9.0.0", 81559, 7, 8),
    _known(r"\bH20\b", "Hopper", "9.0.0", 97871, 7, 8),
    _known(r"\bA(100|800)\b.*40GB", "Ampere", "8.0.0", 40960, 7, 8),
    _known(r"\bA(100|800)\b", "Ampere", "8.0.0", 81920, 7, 8),
    _known(r"\bA30\b", "Ampere", "8.0.0", 24576, 4, 4),
    _known(r"\bA40\b", "Ampere", "8.6.0", 46068),
    _known(r"\bA10G\b", "Ampere", "8.6.0", 23028),
    _known(r"\bA10\b", "Ampere", "8.6.0", 23028),
    _known(r"\bL40S?\b", "Ada Lovelace", "8.9.0", 46068),
    _known(r"\bL4\b", "Ada Lovelace", "8.9.0", 23034),
    _known(r"\bT4\b", "Turing", "7.5.0", 15360),
    _known(r"\bV100\b.*32GB", "Volta", "7.0.0", 32768),
    _known(r"\bV100\b", "Volta", "7.0.0", 16384),
)
_FAMILIES = {
    "ada-lovelace": "Ada Lovelace",
    "ampere": "Ampere",
    "blackwell": "Blackwell",
    "hopper": "Hopper",
    "turing": "Turing",
    "volta": "Volta",
    "pascal": "Pascal",
}


def known_card(product: str) -> KnownCard | None:
    """What the catalogue knows of a product, written with dashes or blanks; None where it knows nothing."""
    text = product.replace("-", " ").replace("_", " ")
    return next((card for card in _CARDS if card.pattern.search(text)), None)


def architecture_of(family: str, product: str) -> str:
    """NVIDIA's name of the architecture, from the label ``gpu.family`` or else from the product; "" = unknown."""
    if family:
        return _FAMILIES.get(family.lower(), family.title())
    card = known_card(product)
    return card.architecture if card else ""


def split_product(product: str) -> tuple[str, str]:
    """(the card's product, MIG profile) of a product label: strategy ``single`` appends ``-MIG-1g.18gb``,
    time-slicing ``-SHARED``."""
    product = product.removesuffix("-SHARED")
    match = _MIG_SUFFIX.search(product)
    return (product[: match.start()], match.group("profile")) if match else (product, "")


def display_name(product: str) -> str:
    """The product as the driver writes it, as far as the dashes of the label let us tell."""
    return product.replace("-", " ") if product.startswith("NVIDIA-") else product


def instances_per_card(profile: str, product: str, memory_mib: int = 0) -> int:
    """How many instances of one profile a card holds: bounded by its compute slices and its memory slices.

    Raises MigFormatError (a ValueError) where it is no profile.
    """
    instance = parse_mig(profile)
    card = known_card(product)
    memory = memory_mib or (card.memory_mib if card else 0)
    all_compute, all_memory = (card.compute_slices, card.memory_slices) if card and card.compute_slices else (7, 8)
    by_compute = all_compute // instance.instance_slices
    if not memory:
        return max(1, by_compute)
    # Names are rounded: 1g.10gb of 81,559 MiB is one of eight slices of 9.96 GiB; 1g.20gb is two of them.
    slice_gib = memory / 1024 / all_memory
    taken = max(1, round(instance.memory_gb / slice_gib))
    return max(1, min(by_compute, all_memory // taken))
