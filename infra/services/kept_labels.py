"""Which labels of namespaces are stored: those of the setting, and those that a rule looks at."""

from __future__ import annotations

from collections.abc import Collection
from uuid import UUID

from django.conf import settings
from django.db.models import F

from infra.models import ClaimRule, WatchTarget


def kept_labels() -> list[str]:
    """The keys, sorted."""
    keys = {*settings.AIF_NAMESPACE_LABELS, settings.AIF_COST_CODE_LABEL}
    for row in ClaimRule.objects.filter(ended_at__isnull=True).values_list("label_key", "cost_code_label"):
        keys |= set(row)
    return sorted(keys - {""})


def namespaces_relist(cluster_ids: Collection[UUID]) -> None:
    """Have the namespaces of these clusters listed again: a label is to be kept that was not kept so far.

    Whoever watches them loses the lease, so nothing that was read with the old keys is written any more.
    """
    WatchTarget.objects.filter(cluster_id__in=cluster_ids, resource=WatchTarget.Resource.NAMESPACES).update(
        resource_version="", lease_owner="", lease_until=None, lease_token=F("lease_token") + 1, not_before=None
    )
