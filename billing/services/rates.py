"""Setting prices. What a closed period was priced with never changes; everything else is dated."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime
from decimal import Decimal, InvalidOperation

from django.db.models import Max, Q

from billing.models import BillingPeriod, Issuer, Rate, RateCard
from infra.models import Cluster, GPUType
from infra.models.hardware import SharingMode
from infra.pod_devices import mig_profile, mig_resource
from infra.shares import OVERCOMMIT, MigFormatError, parse_mig
from portal.kernel import audit, workqueue
from portal.kernel.actors import Actor
from portal.kernel.clock import as_utc, format_rfc3339
from portal.kernel.problems import Conflict, Invalid
from portal.kernel.scoping import system_scope
from portal.kernel.workqueue import Mark
from tenants.permissions import Perm, require

_PRICE_LIMIT = Decimal(10) ** 10
_MARGIN_LIMIT = Decimal(1000)
MOST_INCLUDED = 10**12
_ESTIMATED = (Rate.Resource.STORAGE, Rate.Resource.NETWORK)


def rate_set(
    *,
    card: RateCard,
    valid_from: datetime,
    actor: Actor,
    resource: str = Rate.Resource.GPU,
    gpu_type: GPUType | None = None,
    sharing: str = "",
    profile: str = "",
    price: Decimal | None = None,
    source: str = Rate.Source.FIXED,
    margin: Decimal = Decimal(0),
    included_cpu_millicores: int | None = None,
    included_memory_mib: int | None = None,
) -> Rate:
    """Set a price from ``valid_from`` on, until the next one that is already entered for the same key.

    The rate that was in force ends where the new one begins; one that began at the same instant, and is on no bill
    yet, is replaced.

    Args:
        price: per unit-hour in the issuer's currency (see :class:`billing.models.Rate`); None with source opencost,
            where OpenCost's unit cost of each cluster and hour is the price. Storage and network have no other source.
        margin: 0.15 adds 15 %.

    Raises:
        Forbidden: the actor may not manage rates. Invalid: a value is wrong.
        Conflict: it would price time again that lies in a closed period.
    """
    require(actor, Perm.RATE_MANAGE)
    if sharing == SharingMode.MIG:
        # As resources spell it, and usage with them: 1g.10gb.me for 1g.10gb+me.
        profile = mig_profile(mig_resource(profile.strip().lower())) if profile else ""
    rate = Rate(
        card=card, resource=resource, gpu_type=gpu_type, sharing=sharing, profile=profile, source=source, price=price,
        margin=margin, included_cpu_millicores=included_cpu_millicores, included_memory_mib=included_memory_mib,
        valid_from=as_utc(valid_from), created_by=actor.label,
    )  # fmt: skip
    _check(rate)
    with system_scope("rate_set"):
        issuer = RateCard.objects.select_for_update().select_related("issuer").get(pk=card.pk).issuer
        same = Rate.objects.filter(
            card=card, resource=resource, gpu_type=gpu_type, sharing=sharing, profile=profile
        ).order_by("valid_from")
        following = same.filter(valid_from__gt=rate.valid_from).first()
        rate.valid_to = following.valid_from if following else None
        _refuse_in_closed(rate, issuer, list(same))
        before = _make_room(rate, list(same))
        rate.save()
        _tell("rate_set", rate, before, actor)
        return rate


def rate_end(*, rate: Rate, valid_to: datetime, actor: Actor) -> Rate:
    """Let a rate end without another: what is used afterwards is unpriced, and blocks the close.

    Raises:
        Forbidden: the actor may not manage rates. Invalid: the end is not after the start.
        Conflict: the end lies in a closed period, or after the end that the rate has.
    """
    require(actor, Perm.RATE_MANAGE)
    with system_scope("rate_end"):
        issuer = RateCard.objects.select_for_update().select_related("issuer").get(pk=rate.card_id).issuer
        row = Rate.objects.get(pk=rate.pk)
        end = as_utc(valid_to)
        closed = closed_until(issuer)
        if end.microsecond:
            raise Invalid.field("/valid_to", "Give whole seconds.")
        if end <= row.valid_from:
            raise Invalid.field("/valid_to", "A rate ends after it begins. Replace it instead with a new rate.")
        if closed is not None and end < closed:
            raise Conflict(f"Periods until {format_rfc3339(closed)} are closed: give an end that is not before.")
        if row.valid_to is not None and end > row.valid_to:
            raise Conflict(f"The rate ends at {format_rfc3339(row.valid_to)} already. Set a new rate from there.")
        before = _facts(row)
        row.valid_to = end
        row.save(update_fields=["valid_to"])
        _tell("rate_end", row, before, actor)
        return row


def closed_until(issuer: Issuer) -> datetime | None:
    """The end of the issuer's last period that is closed, or being closed."""
    shut = [BillingPeriod.State.CLOSED, BillingPeriod.State.CLOSING]
    periods = BillingPeriod.objects.filter(issuer=issuer, state__in=shut)
    end: datetime | None = periods.aggregate(end=Max("ends_at"))["end"]
    return end


def _check(rate: Rate) -> None:
    """Raise Invalid with every wrong value."""
    errors = [
        {"pointer": pointer, "detail": detail}
        for pointer, detail in (*_wrong_key(rate), *_wrong_price(rate), *_wrong_rest(rate))
    ]
    if errors:
        raise Invalid(errors=errors)


def _wrong_key(rate: Rate) -> Iterator[tuple[str, str]]:
    if rate.resource not in Rate.Resource.values:
        yield "/resource", f"Use one of {', '.join(Rate.Resource.values)}."
    elif rate.resource != Rate.Resource.GPU:
        if rate.gpu_type is not None or rate.sharing or rate.profile:
            yield "/gpu_type", f"A rate for {rate.resource} names no card."
    else:
        if rate.gpu_type is None:
            yield "/gpu_type", "A GPU rate names the type of card."
        if rate.sharing not in SharingMode.values:
            yield "/sharing", f"A GPU rate names how the card is shared: {', '.join(SharingMode.values)}."
        if rate.sharing == SharingMode.HAMI:
            if rate.profile not in ("", OVERCOMMIT):
                yield "/profile", f"A HAMi rate has no profile, or {OVERCOMMIT}: that of pools that promise too much."
        elif bool(rate.profile) != (rate.sharing == SharingMode.MIG):
            yield "/profile", "A MIG rate names its profile, such as 1g.10gb; other rates have none."
        elif rate.profile and (fault := _wrong_profile(rate)):
            yield "/profile", fault


def _wrong_profile(rate: Rate) -> str:
    """A slice that no card can be cut into is never used: the price would be that of nothing."""
    try:
        profile = parse_mig(rate.profile)
    except MigFormatError as error:
        return f"{error}."
    slices = rate.gpu_type.compute_slices if rate.gpu_type is not None else 0
    if slices and profile.compute_slices > slices:
        return f"{profile} has more slices than a card of that type, which has {slices}."
    return ""


def _wrong_price(rate: Rate) -> Iterator[tuple[str, str]]:
    if rate.source not in Rate.Source.values:
        yield "/source", f"Use one of {', '.join(Rate.Source.values)}."
    elif rate.resource in _ESTIMATED and rate.source != Rate.Source.OPENCOST:
        yield "/source", f"We do not meter {rate.resource}: use opencost, and set a margin."
    elif rate.source == Rate.Source.OPENCOST and rate.price is not None:
        yield "/price", "With source opencost the price comes from OpenCost: leave it out, and set a margin."
    elif rate.source == Rate.Source.FIXED and not _is_between(rate.price, _PRICE_LIMIT, places=10):
        yield "/price", "Give a price of 0 or more with at most 10 decimals."
    if not _is_between(rate.margin, _MARGIN_LIMIT, places=4):
        yield "/margin", "Give a margin of 0 or more with at most 4 decimals; 0.15 is 15 %."


def _wrong_rest(rate: Rate) -> Iterator[tuple[str, str]]:
    for name in ("included_cpu_millicores", "included_memory_mib"):
        value = getattr(rate, name)
        if value is not None and (rate.resource != Rate.Resource.GPU or not 0 <= value < MOST_INCLUDED):
            yield f"/{name}", f"Only a GPU rate includes CPU or memory, from 0 to less than {MOST_INCLUDED:,}."
    if rate.valid_from.microsecond:
        yield "/valid_from", "Give whole seconds."


def _is_between(value: Decimal | None, limit: Decimal, *, places: int) -> bool:
    if not isinstance(value, Decimal) or not value.is_finite() or not 0 <= value < limit:
        return False
    try:
        return value == value.quantize(Decimal(1).scaleb(-places))
    except InvalidOperation:
        return False


def _refuse_in_closed(rate: Rate, issuer: Issuer, same: list[Rate]) -> None:
    """A gap in closed time may be filled (nothing was billed in it); what had a price keeps it."""
    closed = closed_until(issuer)
    if closed is None or rate.valid_from >= closed:
        return
    end = min(closed, rate.valid_to or closed)
    if rate.resource in (Rate.Resource.STORAGE, Rate.Resource.NETWORK):
        # Without a rate they don't block a close, so only what changes afterwards would be charged, or given back.
        raise Conflict(
            f"{issuer.name}: periods until {format_rfc3339(closed)} are closed, and {rate.resource} was not charged in "
            f"all of them. Let the rate begin at {format_rfc3339(closed)} or later."
        )
    for row in same:
        if row.valid_from < end and (row.valid_to is None or row.valid_to > rate.valid_from):
            raise Conflict(
                f"{issuer.name}: periods until {format_rfc3339(closed)} are closed, and this was priced in them. "
                f"Let the new rate begin at {format_rfc3339(closed)} or later."
            )


def _make_room(rate: Rate, same: list[Rate]) -> dict[str, str] | None:
    """End, or replace, the rate that is in force where the new one begins."""
    for row in same:
        if row.valid_from == rate.valid_from:
            before = _facts(row)
            row.delete()
            return before
        if row.valid_from < rate.valid_from and (row.valid_to is None or row.valid_to > rate.valid_from):
            before = _facts(row)
            row.valid_to = rate.valid_from
            row.save(update_fields=["valid_to"])
            return before
    return None


def _facts(rate: Rate) -> dict[str, str]:
    return {
        "price": "" if rate.price is None else str(rate.price),
        "source": rate.source,
        "margin": str(rate.margin),
        "valid_from": format_rfc3339(rate.valid_from),
        "valid_to": format_rfc3339(rate.valid_to) if rate.valid_to else "",
    }


def _tell(verb: str, rate: Rate, before: dict[str, str] | None, actor: Actor) -> None:
    what = rate.gpu_type.slug if rate.gpu_type else rate.resource
    name = " ".join(part for part in (what, rate.sharing, rate.profile) if part)
    audit.record(
        verb,
        actor=actor,
        tenant_id=None,
        object_kind="rate",
        object_id=rate.pk,
        object_name=name,
        before=before,
        after=_facts(rate),
    )
    # Hours in which a price now changes are cut there.
    clusters = Cluster.objects.filter(Q(abandoned_at__isnull=True)).values_list("pk", flat=True)
    workqueue.mark_many(Mark("metering", pk) for pk in clusters)
