"""Quotas on MIG profiles: how many instances of each a tenant may hold, beside its cards."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from infra.models import GPUType
from infra.shares import MigFormatError, parse_mig
from portal.kernel import audit
from portal.kernel.actors import Actor
from portal.kernel.problems import Conflict, Invalid
from portal.kernel.scoping import system_scope
from tenants.models import GPUQuota, Tenant
from tenants.permissions import Perm, require
from tenants.selectors.profiles import parts_held
from tenants.services.allotments import QuotaExceeded, quota_locked
from tenants.services.waking import deployments_wake

MOST = 100_000
"""More instances than that are a typing error."""


@dataclass
class ProfileQuotaExceeded(QuotaExceeded):
    """A tenant asked for more instances of a MIG profile than are left of its quota. Figures are instances."""

    profile: str = ""

    def __str__(self) -> str:
        return (
            f"Quota of MIG slices {self.profile} of {self.gpu_type} is full: {self.admitted} of {self.limit} taken, "
            f"{self.asked} more asked for, {max(0, self.limit - self.admitted)} left."
        )


def profiles_admit(quota: GPUQuota, instances: Mapping[str, int]) -> None:
    """Check instances by profile against the quota, whose row the caller has locked.

    Raises:
        ProfileQuotaExceeded: more would be held than the quota names for the profile.
    """
    limited = {profile: count for profile, count in instances.items() if profile in quota.profiles}
    if not limited:
        return
    held = parts_held(quota.tenant_id).get(quota.gpu_type_id)
    for profile, count in sorted(limited.items()):
        before = held.profiles.get(profile, 0) if held else 0
        if before + count > quota.profiles[profile]:
            raise ProfileQuotaExceeded(
                gpu_type=quota.gpu_type.slug, limit=quota.profiles[profile], admitted=before, asked=count,
                profile=profile,
            )  # fmt: skip


def quota_profiles_set(*, tenant: Tenant, gpu_type: GPUType, profiles: Mapping[str, int], actor: Actor) -> GPUQuota:
    """Limit MIG instances by profile; what is given takes the place of what was there. Lowering evicts nothing.

    Args:
        profiles: ``{"1g.10gb": 8}``. 0 allows none of it; a profile that is not named is limited by the cards alone.

    Raises:
        Forbidden: not a platform-admin. Conflict: the tenant has no quota on the type.
        Invalid: no MIG profile, one that the card can't be cut into, or no count.
    """
    require(actor, Perm.TENANT_MANAGE)
    wanted = _checked(gpu_type, profiles)
    with system_scope("quota_profiles_set"):
        quota = quota_locked(tenant.pk, [gpu_type.pk]).get(gpu_type.pk)
        if quota is None:
            raise Conflict(f"Tenant {tenant.slug} has no quota on {gpu_type.slug}. Set its cards first.")
        before = quota.profiles
        if before == wanted:
            return quota
        quota.profiles = wanted
        quota.save(update_fields=["profiles"])
        audit.record(
            "quota_profiles_set",
            actor=actor,
            tenant_id=tenant.pk,
            object_kind="quota",
            object_id=quota.pk,
            object_name=gpu_type.slug,
            before={"profiles": before},
            after={"profiles": wanted},
        )
        deployments_wake(tenant_id=tenant.pk)
        return quota


def _checked(gpu_type: GPUType, profiles: Mapping[str, object]) -> dict[str, int]:
    errors: list[dict[str, str]] = []
    found: dict[str, int] = {}
    for name, count in sorted(profiles.items()):
        pointer = f"/profiles/{name}"
        try:
            profile = parse_mig(name)
        except MigFormatError as error:
            errors.append({"pointer": pointer, "detail": f"{error}."})
            continue
        if not gpu_type.compute_slices:
            errors.append({"pointer": pointer, "detail": f"Cards of {gpu_type.slug} can't be cut into MIG slices."})
        elif profile.compute_slices > gpu_type.compute_slices:
            detail = f"{profile} has more slices than a card of {gpu_type.slug}, which has {gpu_type.compute_slices}."
            errors.append({"pointer": pointer, "detail": detail})
        elif isinstance(count, bool) or not isinstance(count, int) or not 0 <= count <= MOST:
            errors.append({"pointer": pointer, "detail": f"Give a number of instances from 0 to {MOST:,}."})
        elif str(profile) in found:
            errors.append({"pointer": pointer, "detail": f"{profile} is named twice."})
        else:
            found[str(profile)] = count
    if errors:
        raise Invalid(errors=errors)
    return found
