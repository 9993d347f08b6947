"""Tenants' parts of storage and network costs, written as differences, so that doing it twice adds nothing."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Sequence
from datetime import datetime
from decimal import Decimal
from uuid import UUID

from django.db import connection
from django.db.models import Exists, OuterRef, Q, Sum

from billing.locks import hold_usage_locks
from billing.models import EstimatedCost, OpenCostAnswer, OpenCostRow, OpenCostSource, Rate
from billing.opencost.estimates import Claim, share_out
from infra.models import ChangeCounter, NamespaceClaim
from portal.kernel.clock import HOUR, Interval, hour_start

_Key = tuple[datetime, UUID, str, str, str, str]
"""(hour, tenant, namespace, cost code, resource, currency)"""


def claims_work_in(source: OpenCostSource) -> int:
    """Share hours out anew where namespace claims changed since the last time; how many rows were added.

    Call it in a transaction, with the source's row locked.
    """
    seq = ChangeCounter.objects.filter(cluster_id=source.cluster_id).values_list("value", flat=True).first() or 0
    if seq == source.claims_seq:
        return 0
    changed = NamespaceClaim.objects.filter(cluster_id=source.cluster_id, changed_seq__gt=source.claims_seq)
    since: dict[str, datetime] = {}
    for namespace, start in changed.values_list("namespace", "valid_from"):
        since[namespace] = min(start, since.get(namespace, start))
    for namespace, start in _unclaimed(source.cluster_id):
        since[namespace] = min(start, since.get(namespace, start))
    rows = 0
    if since:
        answers = latest_answers(source.cluster_id, hour_start(min(since.values())))
        rows = estimates_write(source.cluster_id, answers, namespaces=set(since))
    source.claims_seq = seq
    source.save(update_fields=["claims_seq"])
    return rows


def _unclaimed(cluster_id: UUID) -> list[tuple[str, datetime]]:
    """(namespace, hour) of parts whose tenant has no claim there any more: of a claim that is taken back no row stays,
    so nothing else tells."""
    claims = NamespaceClaim.objects.filter(
        Q(valid_to__isnull=True) | Q(valid_to__gt=OuterRef("hour")), cluster_id=cluster_id,
        namespace=OuterRef("namespace"), tenant_id=OuterRef("tenant_id"), valid_from__lt=OuterRef("hour") + HOUR,
    )  # fmt: skip
    rows = EstimatedCost.objects.filter(~Exists(claims), cluster_id=cluster_id).order_by()
    keys = ("namespace", "hour", "tenant_id", "cost_code", "resource", "currency")
    left = rows.values(*keys).annotate(sum_amount=Sum("amount")).exclude(sum_amount=0)
    return list(left.values_list("namespace", "hour"))


def latest_answers(cluster_id: UUID, since: datetime) -> list[OpenCostAnswer]:
    """The latest taken answer of each hour from ``since`` on, without the raw bodies."""
    rows = OpenCostAnswer.objects.filter(cluster_id=cluster_id, accepted=True, hour__gte=since)
    return list(rows.order_by("hour", "-revision").distinct("hour").defer("raw"))


def estimates_write(
    cluster_id: UUID, answers: Sequence[OpenCostAnswer], *, namespaces: Collection[str] | None = None
) -> int:
    """Add what the tenants' parts of these hours lack; how many rows. The source's row must be locked."""
    assert connection.in_atomic_block
    if not answers:
        return 0
    by_id = {answer.pk: answer for answer in answers}
    costs = OpenCostRow.objects.filter(answer__in=list(by_id), pod="", special="")
    written = EstimatedCost.objects.filter(cluster_id=cluster_id, hour__in=[answer.hour for answer in answers])
    claims = NamespaceClaim.objects.filter(cluster_id=cluster_id)
    if namespaces is not None:
        costs, written = costs.filter(namespace__in=namespaces), written.filter(namespace__in=namespaces)
        claims = claims.filter(namespace__in=namespaces)
    claimed = _claims(claims)
    wanted: dict[_Key, Decimal] = defaultdict(Decimal)
    for row in costs.filter(Q(pv_cost__gt=0) | Q(network_cost__gt=0) | Q(lb_cost__gt=0)):
        answer = by_id[row.answer_id]
        hour = Interval(answer.hour, answer.hour + HOUR)
        for resource, cost in (
            (Rate.Resource.STORAGE, row.pv_cost),
            (Rate.Resource.NETWORK, row.network_cost + row.lb_cost),
        ):
            for part in share_out(cost, hour, claimed.get(row.namespace, ())) if cost else ():
                if part.tenant_id is not None:
                    key = (hour.start, part.tenant_id, row.namespace, part.cost_code, resource.value, answer.currency)
                    wanted[key] += part.amount
    keys = ("hour", "tenant_id", "namespace", "cost_code", "resource", "currency")
    known: dict[_Key, Decimal] = {
        (hour, tenant, namespace, code, resource, currency): amount
        for hour, tenant, namespace, code, resource, currency, amount in written.order_by()
        .values_list(*keys)
        .annotate(sum_amount=Sum("amount"))
    }
    answer_of = {answer.hour: answer for answer in answers}
    rows = [
        EstimatedCost(
            cluster_id=cluster_id, hour=key[0], tenant_id=key[1], namespace=key[2], cost_code=key[3], resource=key[4],
            currency=key[5], amount=lacks, answer=answer_of[key[0]],
        )
        for key in sorted(wanted.keys() | known.keys())
        if (lacks := wanted.get(key, Decimal(0)) - known.get(key, Decimal(0)))
    ]  # fmt: skip
    # Of exactly those who get a row, whoever claimed what meanwhile; the rows draw their numbers below.
    hold_usage_locks({row.tenant_id for row in rows})
    EstimatedCost.objects.bulk_create(rows, batch_size=2000)
    return len(rows)


def _claims(rows: Iterable[NamespaceClaim]) -> dict[str, list[Claim]]:
    found: dict[str, list[Claim]] = defaultdict(list)
    for row in rows:
        found[row.namespace].append(Claim(row.tenant_id, row.cost_code, row.valid_from, row.valid_to))
    return found
