"""Who issues bills, and the first prices. Idempotent, so that a seed can call it again."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from decimal import Decimal

from billing.models import BillingAccount, Issuer, Rate, RateCard
from billing.services.periods import period_ensure
from billing.services.rates import rate_set
from infra.models import GPUType
from portal.kernel import audit
from portal.kernel.actors import Actor
from portal.kernel.clock import utcnow, zone
from portal.kernel.money import minor_units
from portal.kernel.problems import Conflict, Invalid
from portal.kernel.scoping import system_scope
from tenants.models import Tenant
from tenants.permissions import Perm, require

PriceKey = tuple[str, str, str]
"""Slug of the GPU type, sharing mode, MIG profile ("" for the others)."""


def issuer_ensure(
    *,
    actor: Actor,
    slug: str = "platform",
    name: str = "Platform team",
    currency: str = "EUR",
    time_zone: str = "UTC",
    kind: str = Issuer.Kind.STATEMENT,
    grace_hours: int = 72,
    is_default: bool = True,
) -> Issuer:
    """The issuer of that slug; made with an empty rate card and its current period where it is new.

    An issuer that exists is left as it is: currency and time zone belong to the periods that it has.

    Raises:
        Forbidden: the actor may not manage rates. Invalid: no such currency or time zone.
        Conflict: there is another default issuer.
    """
    require(actor, Perm.RATE_MANAGE)
    errors = []
    for pointer, check, value in (("/currency", minor_units, currency), ("/time_zone", zone, time_zone)):
        try:
            check(value)
        except ValueError as error:
            errors.append({"pointer": pointer, "detail": f"{error}."})
    if errors:
        raise Invalid(errors=errors)
    with system_scope("issuer_ensure"):
        found = Issuer.objects.filter(slug=slug).first()
        if found is not None:
            return found
        if is_default and Issuer.objects.filter(is_default=True).exists():
            raise Conflict("There is a default issuer already. Make this one with is_default=False.")
        issuer = Issuer.objects.create(
            slug=slug, name=name, kind=kind, currency=currency, time_zone=time_zone, grace_hours=grace_hours,
            is_default=is_default,
        )  # fmt: skip
        RateCard.objects.create(issuer=issuer, name=f"Prices of {name}")
        period_ensure(issuer, utcnow())
        audit.record(
            "issuer_ensure", actor=actor, tenant_id=None, object_kind="issuer", object_id=issuer.pk,
            object_name=slug, after={"currency": currency, "time_zone": time_zone, "kind": kind},
        )  # fmt: skip
        return issuer


def rates_ensure(
    card: RateCard, prices: Mapping[PriceKey, Decimal], *, valid_from: datetime, actor: Actor
) -> list[Rate]:
    """Set the prices that the card has none for yet; the answer is what was set."""
    made = []
    for (slug, sharing, profile), price in sorted(prices.items()):
        gpu_type = GPUType.objects.get(slug=slug)
        if not Rate.objects.filter(card=card, gpu_type=gpu_type, sharing=sharing, profile=profile).exists():
            rate = rate_set(
                card=card, gpu_type=gpu_type, sharing=sharing, profile=profile, price=price, valid_from=valid_from,
                actor=actor,
            )  # fmt: skip
            made.append(rate)
    return made


def account_set(*, tenant: Tenant, issuer: Issuer, actor: Actor) -> BillingAccount:
    """Have the tenant billed by this issuer from its next close on."""
    require(actor, Perm.BILL_CLOSE)
    with system_scope("account_set"):
        account, _ = BillingAccount.objects.update_or_create(tenant=tenant, defaults={"issuer": issuer})
        audit.record(
            "account_set", actor=actor, tenant_id=tenant.pk, object_kind="billing_account",
            object_id=account.pk, object_name=tenant.slug, after={"issuer": issuer.slug},
        )  # fmt: skip
        return account
