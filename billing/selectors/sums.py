"""Usage summed by SQL, in the form that the pure rating takes: one row per subject, kind of card and rate segment."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any
from uuid import UUID

from django.db import connection

from billing.models import Bucket
from billing.prices import segments_of
from billing.rates import Rate, RateKey, Resource
from billing.rating import Estimate, HostPart, Subject, UsageSum
from infra.models import GPUType
from infra.models.evidence import EvidenceSource
from infra.shares import CARD
from portal.kernel.clock import HOUR, Interval, hour_start

IDLE = "(idle)"
"""Namespace of the subject of reserved idle time."""


_INNER = """(
    SELECT p.evidence #>> '{annotations,vcluster.loft.sh/object-namespace}'
    FROM billing_deviceallocation a JOIN infra_podobservation p ON p.cluster_id = a.cluster_id AND p.uid = a.pod_uid
    WHERE a.id = billing_usagerecord.allocation_id
)"""
"""The namespace inside the tenant cluster from which a pod was synced to its host, as the syncer notes it there."""


@dataclass(frozen=True, slots=True)
class Part:
    """A stretch of usage: slots in ``window`` with a sequence number in (``after``, ``upto``]."""

    window: Interval
    after: int
    upto: int


@dataclass(frozen=True, slots=True)
class Only:
    """Narrows sums; what is empty or None does not. ``namespace`` means pods of no deployment.

    ``retroactive``: only what was rebuilt from history; else only what was not. The two are never in one sum.
    """

    deployment_id: UUID | None = None
    namespace: str = ""
    gpu_type_id: UUID | None = None
    sharing: str = ""
    retroactive: bool = False

    @property
    def condition(self) -> str:
        """SQL with named parameters, one for each field that is set."""
        parts = [
            f"AND {name} = %({name})s" for name in ("deployment_id", "gpu_type_id", "sharing") if getattr(self, name)
        ]
        if self.namespace:
            parts.append("AND namespace = %(namespace)s AND deployment_id IS NULL")
        parts.append(f"AND source {'=' if self.retroactive else '<>'} '{EvidenceSource.RETROACTIVE}'")
        return " ".join(parts)


EVERYTHING = Only()


@dataclass(slots=True)
class Sums:
    """What was used: held, and reserved but idle."""

    held: list[UsageSum] = field(default_factory=list)
    idle: list[UsageSum] = field(default_factory=list)


def usage_sums(
    part: Part,
    edges: Iterable[datetime],
    rates: Sequence[Rate],
    *,
    tenant_ids: Collection[UUID] | None = None,
    only: Only = EVERYTHING,
    subjects: bool = True,
    inner: bool = False,
) -> dict[UUID, Sums]:
    """Charged usage by tenant, summed by SQL. Needs a scope that covers the tenants.

    Args:
        edges: where the sums are cut (usage must be cut there already): rates, days.
        rates: to know whether the shape of devices matters (it does where a GPU rate includes host resources), and
            which sums are needed by cluster and hour (those with an hourly rate; only such a card pays for it).
        tenant_ids: only these tenants; ``None``: all that the scope shows.
        only: narrows what is summed.
        subjects: whether deployments, namespaces and cost codes are kept apart (else they are empty).
        inner: whether namespaces inside tenant clusters are.
    """
    segments = segments_of(edges, part.window)
    if any(rate.hourly for rate in rates):
        return _by_tenant(*_hourly_rows(part, segments, rates, tenant_ids, only, subjects=subjects, inner=inner))
    shapes = any(rate.included_cpu_millicores is not None or rate.included_memory_mib is not None for rate in rates)
    shape = "share, cpu_millicores, host_memory_mib" if shapes else "0, 0, 0"
    subject = _subject(subjects, _INNER if inner else "''")
    with connection.cursor() as cursor:
        cursor.execute(
            f"""
            SELECT tenant_id, bucket, {subject}, gpu_type_id, sharing, profile,
                width_bucket(slot, %(edges)s::timestamptz[]), {shape}, sum(milliseconds), sum(charged)
            FROM billing_usagerecord
            WHERE hour >= %(first_hour)s AND slot >= %(start)s AND hour < %(end)s AND slot < %(end)s
                AND seq > %(after)s AND seq <= %(upto)s AND bucket IN ('{Bucket.TENANTS}', '{Bucket.IDLE}')
                AND {"tenant_id = ANY(%(tenants)s)" if tenant_ids is not None else "tenant_id IS NOT NULL"}
                {only.condition}
            GROUP BY 1, 2, 3, 4, 5, 6, 7, 8, 9, 10{", 11, 12, 13" if shapes else ""}
            HAVING sum(milliseconds) <> 0 OR sum(charged) <> 0
            """,  # noqa: S608  # constants only; values are parameters
            _values(part, segments, tenant_ids, only),
        )
        rows = cursor.fetchall()
    return _by_tenant(rows, segments)


def _subject(subjects: bool, inner: str) -> str:
    subject = "deployment_id, namespace, cost_code" if subjects else "NULL::uuid, '', ''"
    return f"{subject}, {inner}"


def _values(
    part: Part, segments: Sequence[Interval], tenant_ids: Collection[UUID] | None, only: Only
) -> dict[str, Any]:
    """The parameters that name the rows of a part: the same for both queries."""
    return {
        "edges": [segment.start for segment in segments],
        "first_hour": hour_start(part.window.start),
        "start": part.window.start,
        "end": part.window.end,
        "after": part.after,
        "upto": part.upto,
        "tenants": list(tenant_ids) if tenant_ids is not None else None,
        "deployment_id": only.deployment_id,
        "namespace": only.namespace,
        "gpu_type_id": only.gpu_type_id,
        "sharing": only.sharing,
    }


def _hourly_rows(
    part: Part, segments: Sequence[Interval], rates: Sequence[Rate], tenant_ids: Collection[UUID] | None, only: Only,
    *, subjects: bool, inner: bool,
) -> tuple[Sequence[tuple[Any, ...]], Sequence[Interval]]:  # fmt: skip
    """As the plain query, with cluster and hour where an hourly rate is in force; the rest is summed as ever."""
    shapes = any(rate.included_cpu_millicores is not None or rate.included_memory_mib is not None for rate in rates)
    types = {slug: pk for pk, slug in GPUType.objects.values_list("pk", "slug")}
    whole: set[int] = set()
    kinds: list[tuple[int, UUID, str, str]] = []
    for number, segment in enumerate(segments, start=1):
        for rate in rates:
            if not rate.hourly or not rate.covers(segment):
                continue
            if rate.key.resource is Resource.GPU:
                kinds.append((number, types[rate.key.gpu_type], rate.key.sharing, rate.key.profile))
            elif shapes and rate.key.resource in (Resource.CPU, Resource.MEMORY):
                whole.add(number)
    shape = "share, cpu_millicores, host_memory_mib" if shapes else "0, 0, 0"
    subject = _subject(subjects, "inside")
    columns = list(zip(*kinds, strict=True)) if kinds else [(), (), (), ()]
    with connection.cursor() as cursor:
        cursor.execute(
            f"""
            WITH used AS (
                SELECT *, width_bucket(slot, %(edges)s::timestamptz[]) AS segment, {_INNER if inner else "''"} AS inside
                FROM billing_usagerecord
                WHERE hour >= %(first_hour)s AND slot >= %(start)s AND hour < %(end)s AND slot < %(end)s
                    AND seq > %(after)s AND seq <= %(upto)s AND bucket IN ('{Bucket.TENANTS}', '{Bucket.IDLE}')
                    AND {"tenant_id = ANY(%(tenants)s)" if tenant_ids is not None else "tenant_id IS NOT NULL"}
                    {only.condition}
            ), apart AS (
                SELECT used.*, segment = ANY(%(whole)s::int[]) OR (segment, gpu_type_id, sharing, profile) IN (
                    SELECT * FROM unnest(%(numbers)s::int[], %(types)s::uuid[], %(modes)s::text[], %(profiles)s::text[])
                ) AS hourly FROM used
            )
            SELECT tenant_id, bucket, {subject}, gpu_type_id, sharing, profile, segment, {shape}, sum(milliseconds),
                sum(charged), CASE WHEN hourly THEN cluster_id END, CASE WHEN hourly THEN hour END
            FROM apart
            GROUP BY 1, 2, 3, 4, 5, 6, 7, 8, 9, 10{", 11, 12, 13" if shapes else ""}, 16, 17
            HAVING sum(milliseconds) <> 0 OR sum(charged) <> 0
            """,  # noqa: S608  # constants only; values are parameters
            {
                **_values(part, segments, tenant_ids, only),
                "whole": sorted(whole),
                "numbers": list(columns[0]),
                "types": list(columns[1]),
                "modes": list(columns[2]),
                "profiles": list(columns[3]),
            },
        )
        return cursor.fetchall(), segments


def _by_tenant(rows: Sequence[tuple[Any, ...]], segments: Sequence[Interval]) -> dict[UUID, Sums]:
    slugs = dict(GPUType.objects.values_list("pk", "slug"))
    found: dict[UUID, Sums] = defaultdict(Sums)
    for row in rows:
        tenant_id, bucket, deployment, namespace, code, inside, gpu_type, sharing, profile, number = row[:10]
        share, cpu, memory, milliseconds, charged = (int(value) for value in row[10:15])
        cluster, hour = row[15:] if len(row) > 15 else (None, None)
        segment = segments[number - 1]
        idle = bucket == Bucket.IDLE
        host = HostPart(cpu, memory, CARD if sharing == "mig" else share, milliseconds)
        usage = UsageSum(
            Subject(
                str(tenant_id),
                IDLE if idle else "" if deployment else namespace,
                str(deployment) if deployment else "",
                code,
                inside or "",
            ),
            RateKey(Resource.GPU, slugs.get(gpu_type, ""), sharing, profile),
            segment if hour is None else _part_of(segment, hour),
            milliseconds,
            charged,
            (host,) if cpu or memory else (),
            cluster=str(cluster) if cluster is not None else "",
        )
        (found[tenant_id].idle if idle else found[tenant_id].held).append(usage)
    return found


def _part_of(segment: Interval, hour: datetime) -> Interval:
    """The hour, cut to the segment."""
    return Interval(max(hour, segment.start), min(hour + HOUR, segment.end))


def estimate_sums(
    part: Part, edges: Iterable[datetime], rates: Sequence[Rate], *, tenant_ids: Collection[UUID] | None = None
) -> dict[UUID, list[Estimate]]:
    """What OpenCost says that storage and network cost, by tenant, where the card has a rate for them.

    An hour belongs to the segment, and to the period, in which it begins.
    """
    wanted = {rate.key.resource for rate in rates} & {Resource.STORAGE, Resource.NETWORK}
    found: dict[UUID, list[Estimate]] = defaultdict(list)
    if not wanted:
        return found
    segments = segments_of(edges, part.window)
    with connection.cursor() as cursor:
        cursor.execute(
            f"""
            SELECT tenant_id, namespace, cost_code, resource, currency,
                width_bucket(hour, %(edges)s::timestamptz[]), sum(amount)
            FROM billing_estimatedcost
            WHERE hour >= %(start)s AND hour < %(end)s AND seq > %(after)s AND seq <= %(upto)s
                AND resource = ANY(%(resources)s)
                AND {"tenant_id = ANY(%(tenants)s)" if tenant_ids is not None else "true"}
            GROUP BY 1, 2, 3, 4, 5, 6 HAVING sum(amount) <> 0
            """,  # noqa: S608  # constants only; values are parameters
            {
                "edges": [segment.start for segment in segments],
                "start": part.window.start,
                "end": part.window.end,
                "after": part.after,
                "upto": part.upto,
                "resources": sorted(one.value for one in wanted),
                "tenants": list(tenant_ids) if tenant_ids is not None else None,
            },
        )
        rows = cursor.fetchall()
    for tenant_id, namespace, code, resource, currency, number, cost in rows:
        subject = Subject(str(tenant_id), namespace, "", code)
        found[tenant_id].append(Estimate(subject, RateKey(Resource(resource)), segments[number - 1], cost, currency))
    return found
