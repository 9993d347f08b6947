"""What the platform's page of a tenant shows of its parts of cards: shares, and MIG slices by profile."""

from __future__ import annotations

from typing import Any

from infra.shares import PARTS
from tenants.models import Tenant
from tenants.selectors.profiles import parts_rows
from tenants.web.platform_forms import ProfilesForm, SharingForm


def parts_context(row: Tenant) -> dict[str, Any]:
    """What is held, which profiles there are, and the two forms. Inside a scope."""
    shown = {"free_shares": row.free_shares, "namespace_limits": row.namespace_limits}
    return {
        "parts": parts_rows(row),
        "share_profiles": list(PARTS.values()),
        "sharing_form": SharingForm(initial=shown),
        "profiles_form": ProfilesForm(),
    }
