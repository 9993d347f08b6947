"""What a tenant held, by the workload that made the pods: Deployments, Jobs, notebooks, whoever made them."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction
from uuid import UUID

from billing.locks import last_usage_seq
from billing.models import Bucket, DeviceAllocation, Issuer
from billing.prices import book_of, stored_rates
from billing.rating import UsageSum, rate
from billing.selectors.adoption import HOURS_PLACES, known_until
from billing.selectors.conservation import CARD_HOUR
from billing.selectors.held import held_parts
from portal.kernel.clock import Interval
from portal.kernel.money import decimal_from, exact_sum


@dataclass(frozen=True, slots=True)
class WorkloadRow:
    """Card-hours and cost of one workload in one namespace. ``known``: a value of ``infra.workloads.Known``; empty
    ``kind``: what made the pod is not known (its evidence is no watch's)."""

    namespace: str
    kind: str
    name: str
    known: str
    queue: str
    hours: Decimal
    amount: Decimal | None
    unpriced: bool

    @property
    def label(self) -> str:
        """``Deployment/vllm``"""
        return f"{self.kind}/{self.name}" if self.kind else "not known"


def usage_by_workload(tenant_id: UUID, issuer: Issuer, window: Interval) -> list[WorkloadRow]:
    """The tenant's workloads in a window, the dearest first; open hours count up to what is known. Within a scope of
    the tenant."""
    rates = stored_rates(issuer)
    cuts = {edge for one in rates for edge in (one.valid_from, one.valid_to) if edge is not None}
    clusters = DeviceAllocation.objects.filter(tenant_id=tenant_id).order_by().values_list("cluster_id", flat=True)
    ids = list(clusters.distinct())
    parts = held_parts(
        window, ids, known_until(ids), cuts=cuts, hourly=any(one.hourly for one in rates),
        shapes=any(one.included_cpu_millicores is not None or one.included_memory_mib is not None for one in rates),
        workloads=True, tenant_id=tenant_id,
    )  # fmt: skip
    together: dict[tuple[str, tuple[str, str, str, str]], list[UsageSum]] = defaultdict(list)
    for part in parts:
        if part.bucket == Bucket.TENANTS:
            together[part.namespace, part.workload].append(part.usage)
    book = book_of(issuer, rates, window, last_usage_seq(), stand_in=True)
    rows = []
    for (namespace, workload), sums in together.items():
        lines = rate(sums, book)
        amounts = [line.amount for line in lines if line.amount is not None]
        rows.append(
            WorkloadRow(
                namespace, *workload,
                hours=decimal_from(Fraction(sum(one.charged for one in sums), CARD_HOUR), HOURS_PLACES),
                amount=exact_sum(amounts) if amounts else None,
                unpriced=any(not line.is_priced for line in lines),
            )
        )  # fmt: skip
    return sorted(rows, key=lambda row: (-(row.amount or row.hours), row.namespace, row.label))
