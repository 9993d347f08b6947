"""What a rule would change, with the card-hours that change hands by it."""

from __future__ import annotations

from dataclasses import dataclass
from decimal import Decimal

from billing.selectors.adoption import held_since
from infra.services.following import Effect
from portal.kernel.clock import Interval, utcnow
from tenants.models import Tenant


@dataclass(frozen=True, slots=True)
class Change:
    """An effect of a rule with the card-hours that change hands by it. ``tenant``: who gets, or who loses it."""

    effect: Effect
    tenant: str
    hours: Decimal

    @property
    def gains(self) -> bool:
        """Whether the tenant gets the namespace."""
        return self.effect.becomes is not None


def changes_of(effects: list[Effect]) -> list[Change]:
    """Effects with hours and short names. Needs a system scope."""
    slugs = dict(Tenant.objects.values_list("pk", "slug"))
    now = utcnow()
    found = []
    for one in effects:
        end = min(one.end or now, now)
        span = Interval(min(one.start, end), end)
        hours = held_since(one.cluster_id, one.namespace, one.was, span)
        who = one.becomes or one.was
        found.append(Change(one, slugs.get(who, "–") if who else "–", hours))
    return found
