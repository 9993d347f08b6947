"""What has been used since the last final hour: computed when it is asked for, never stored."""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import datetime
from uuid import UUID

from django.db.models import Min

from billing.drawing import charges as rated
from billing.locks import last_usage_seq
from billing.models import Bucket, DeviceAllocation, Issuer, MeterProgress
from billing.prices import book_of, segments_of, stored_rates
from billing.rates import RateKey, Resource
from billing.rating import HostPart, Line, Subject, UsageSum
from infra.models import WatchTarget
from infra.models.evidence import EvidenceSource
from infra.shares import CARD
from portal.kernel.clock import Interval, clip, hours


@dataclass(frozen=True, slots=True)
class Running:
    """Charges of the hours that are not final yet. Where OpenCost has not answered for one, its last price stands in.

    ``known_until``: the earliest instant up to which one of the tenant's clusters has told; None: nothing runs.
    """

    lines: tuple[Line, ...]
    known_until: datetime | None


def running_usage(
    tenant_id: UUID, issuer: Issuer, *, since: datetime | None = None, before: datetime | None = None
) -> Running:
    """The tenant's charges from each cluster's last final hour to its watermark. Within a scope of the tenant.

    Args:
        since: nothing before this instant (the start of the period).
        before: nothing from this instant on (its end).
    """
    rates = stored_rates(issuer)
    edges = {edge for rate in rates for edge in (rate.valid_from, rate.valid_to) if edge is not None}
    hourly = any(rate.hourly for rate in rates)
    known = dict(
        WatchTarget.objects.exclude(resource=WatchTarget.Resource.NAMESPACES)
        .values_list("cluster_id")
        .annotate(known=Min("watermark"))
        .filter(known__isnull=False)
    )
    final = dict(MeterProgress.objects.values_list("cluster_id", "final_until"))
    sums: list[UsageSum] = []
    untils: set[datetime] = set()
    # What ended before the last final hour of every cluster is in the records.
    rows = (
        DeviceAllocation.objects.filter(tenant_id=tenant_id, bucket=Bucket.TENANTS)
        .exclude(source=EvidenceSource.RETROACTIVE)  # never on a bill
        .select_related("gpu_type")
    )
    finals = [instant for instant in final.values() if instant is not None]
    if len(finals) == len(known) and finals:
        rows = rows.filter(ended_at__isnull=True) | rows.filter(ended_at__gt=min(finals))
    for row in rows:
        until = known.get(row.cluster_id)
        if until is not None and before is not None:
            until = min(until, before)
        start = max(filter(None, (row.started_at, final.get(row.cluster_id), since)))
        if until is None or start >= until:
            continue
        untils.add(until)
        part = clip(Interval(row.started_at, max(row.started_at, row.ended_at or until)), Interval(start, until))
        if part is not None:
            cuts = edges | {one.start for one in hours(part)} if hourly else edges
            sums += [_sum(row, piece, by_cluster=hourly) for piece in segments_of(cuts, part)]
    if not sums:
        return Running((), min(untils, default=None))
    whole = Interval(min(one.segment.start for one in sums), max(one.segment.end for one in sums))
    cuts = edges | {one.start for one in hours(whole)} if hourly else edges
    book = book_of(issuer, rates, whole, last_usage_seq(), stand_in=True)
    return Running(rated(_whole_segments(sums, cuts), (), book), min(untils, default=None))


def _sum(row: DeviceAllocation, piece: Interval, *, by_cluster: bool) -> UsageSum:
    host = HostPart(row.cpu_millicores, row.host_memory_mib, CARD if row.sharing == "mig" else row.share, piece.ms)
    return UsageSum(
        Subject(
            str(row.tenant_id), "" if row.deployment_id else row.namespace, str(row.deployment_id or ""), row.cost_code
        ),
        RateKey(Resource.GPU, row.gpu_type.slug if row.gpu_type else "", row.sharing, row.profile),
        piece,
        piece.ms,
        row.share * piece.ms,
        (host,) if row.cpu_millicores or row.host_memory_mib else (),
        cluster=str(row.cluster_id) if by_cluster else "",
    )


def _whole_segments(sums: list[UsageSum], edges: set[datetime]) -> list[UsageSum]:
    """The pieces with the segment that they lie in, so that pieces of one segment are summed together."""
    whole = Interval(min(one.segment.start for one in sums), max(one.segment.end for one in sums))
    segments = segments_of(edges, whole)
    return [replace(one, segment=next(s for s in segments if one.segment.start in s)) for one in sums]
