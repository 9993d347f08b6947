"""Which keys of a ResourceQuota do what they say. Pure.

The API server accepts any key, and enforces of extended resources only ``requests.<resource>``: a limit written as
``limits.nvidia.com/gpu`` or with a letter missing is stored and never counted. HAMi reads two keys of its own from
the same object. So every key that is written goes through :func:`key_fault` first.

Sources: kubernetes ``pkg/quota/v1/evaluator/core`` (what is counted), HAMi ``pkg/device/quota.go`` (``limits.`` and a
managed memory or core name).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from difflib import get_close_matches

from infra.pod_devices import GPU, GPU_CORES, GPU_MEMORY, GPU_MEMORY_PERCENT, GPU_SHARED, MIG_PREFIX
from infra.quantity import parse_quantity
from infra.shares import parse_mig

REQUESTS, LIMITS = "requests.", "limits."
HAMI_MEMORY, HAMI_CORES = f"{LIMITS}{GPU_MEMORY}", f"{LIMITS}{GPU_CORES}"
"""What HAMi reads: MiB and percent of cores, summed over the cards of all pods."""
MEMORY_FENCE = f"{REQUESTS}{GPU_MEMORY}"
"""What the API server counts of the same: MiB of each container, however many cards it has."""
CARDS = f"{REQUESTS}{GPU}"

GPU_KEYS = frozenset({CARDS, f"{REQUESTS}{GPU_SHARED}", HAMI_MEMORY, HAMI_CORES, MEMORY_FENCE})
PLAIN_KEYS = frozenset(
    {
        "pods", "services", "services.loadbalancers", "services.nodeports", "secrets", "configmaps",
        "persistentvolumeclaims", "replicationcontrollers", "resourcequotas", "cpu", "memory", "ephemeral-storage",
        "requests.cpu", "requests.memory", "requests.ephemeral-storage", "requests.storage",
        "limits.ephemeral-storage",
    }
)  # fmt: skip
_VENDOR = "nvidia.com/"
_NAME = r"[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?"
_DOMAIN = r"[a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?"
_EXTENDED = re.compile(rf"requests\.{_DOMAIN}/{_NAME}")
_COUNT = re.compile(rf"count/[a-z0-9]([-a-z0-9]{{0,61}}[a-z0-9])?(\.{_DOMAIN})?")
_STORAGE_CLASS = re.compile(
    rf"{_DOMAIN}\.storageclass\.storage\.k8s\.io/(requests\.storage|persistentvolumeclaims)"
)  # fmt: skip
_NEEDS_LIMITS = ("limits.cpu", "limits.memory")


class WrongQuotaKeys(ValueError):
    """Keys or figures that must not be written. ``faults``: key → a sentence."""

    def __init__(self, faults: Mapping[str, str]) -> None:
        super().__init__(" ".join(faults.values()))
        self.faults = dict(faults)


def key_fault(key: str) -> str | None:
    """Why a key must not be written to a ResourceQuota, in a sentence; None where it is enforced as it reads."""
    if key in GPU_KEYS or key in PLAIN_KEYS:
        return None
    if key in _NEEDS_LIMITS:
        return f"{key} refuses every pod that states no limit; use requests.{key.partition('.')[2]}."
    if "/" not in key:
        return f"{key} is no key of a ResourceQuota.{_near(key)}"
    if _VENDOR in key:
        return _vendor_fault(key)
    if _COUNT.fullmatch(key) or _STORAGE_CLASS.fullmatch(key) or _EXTENDED.fullmatch(key):
        return None
    if key.startswith("count/"):
        return f"{key} counts nothing: write count/<resource> or count/<resource>.<group>, such as count/jobs.batch."
    resource = key.removeprefix(LIMITS)
    return f"{key} is stored and never enforced: of extended resources only requests.{resource} is counted."


def _vendor_fault(key: str) -> str | None:
    prefix, _, name = key.partition(_VENDOR)
    resource = f"{_VENDOR}{name}"
    if resource in (GPU, GPU_SHARED):
        return f"{key} is stored and never enforced; the API server counts {REQUESTS}{resource} alone."
    if resource == GPU_MEMORY:
        return f"{key} is counted by nobody: HAMi reads {HAMI_MEMORY}, the API server {MEMORY_FENCE}."
    if resource == GPU_CORES:
        return f"{key} is not read by HAMi, which sums cores over cards; write {HAMI_CORES}."
    if resource == GPU_MEMORY_PERCENT:
        return f"{key}: HAMi's quota does not count percentages; limit {HAMI_MEMORY} in MiB."
    if resource.startswith(MIG_PREFIX):
        try:
            parse_mig(resource)
        except ValueError as error:
            return f"{key} names no MIG profile: {error}."
        if prefix == REQUESTS:
            return None
        return f"{key} is stored and never enforced; the API server counts {REQUESTS}{resource} alone."
    return f"{key} names no resource of a GPU, so it would be stored and never enforced.{_near(key)}"


def _near(key: str) -> str:
    close = get_close_matches(key, sorted(GPU_KEYS | PLAIN_KEYS), n=1, cutoff=0.75)
    return f" Did you mean {close[0]}?" if close else ""


def given_faults(limits: Mapping[str, object], reserved: Iterable[str] = ()) -> dict[str, str]:
    """Key → what is wrong with it or its figure, for keys that a person gives.

    Keys of GPUs are refused too: they follow from the tenant's quota. ``reserved``: keys that are set already.
    """
    faults: dict[str, str] = {}
    for key, value in limits.items():
        fault = key_fault(key)
        if fault is None and (_VENDOR in key or key in set(reserved)):
            fault = f"{key} is written by the portal from the tenant's quota and reservations; leave it out."
        if fault is None:
            fault = _figure_fault(key, value)
        if fault is not None:
            faults[key] = fault
    return faults


def _figure_fault(key: str, value: object) -> str | None:
    text = str(value) if isinstance(value, str | int) and not isinstance(value, bool) else ""
    try:
        amount = parse_quantity(text)
    except ValueError:
        return f"{key}: {value!r} is no quantity; write it like 200 or 1Ti."
    return f"{key}: {text} is less than zero." if amount < 0 else None


def checked(hard: Mapping[str, str]) -> dict[str, str]:
    """The same keys, sorted, if each is enforced as it reads.

    Raises:
        WrongQuotaKeys: with a sentence for each that is not.
    """
    faults = {key: fault for key in hard if (fault := key_fault(key)) is not None}
    faults |= {key: fault for key, value in hard.items() if (fault := _figure_fault(key, value)) is not None}
    if faults:
        raise WrongQuotaKeys(faults)
    return dict(sorted(hard.items()))
