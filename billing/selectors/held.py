"""What allocations held in any window, summed by SQL, whether their hours are final or not."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

from django.db import connection

from billing.prices import segments_of
from billing.rates import RateKey, Resource
from billing.rating import HostPart, Subject, UsageSum
from infra.models import GPUType
from infra.shares import CARD
from portal.kernel.clock import Interval, hours

_SQL = """
WITH cuts AS (
    SELECT * FROM unnest(%(starts)s::timestamptz[], %(ends)s::timestamptz[]) WITH ORDINALITY AS c (s, e, n)
), known AS (
    SELECT * FROM unnest(%(clusters)s::uuid[], %(untils)s::timestamptz[]) AS k (cluster_id, until)
)
SELECT a.cluster_id, a.namespace, a.tenant_id, a.bucket, a.deployment_id, a.cost_code, a.gpu_type_id, a.sharing,
    a.profile, c.n, {workload}, {shape}, sum(t.ms), sum(t.ms * a.share::numeric)
FROM billing_deviceallocation a
JOIN known k USING (cluster_id)
JOIN cuts c ON a.started_at < c.e AND coalesce(a.ended_at, k.until) > c.s
{join}
CROSS JOIN LATERAL (
    SELECT floor(extract(epoch FROM least(coalesce(a.ended_at, k.until), k.until, c.e)
        - greatest(a.started_at, c.s)) * 1000)::bigint AS ms
) t
WHERE a.started_at < %(end)s AND (a.ended_at IS NULL OR a.ended_at > %(start)s) AND t.ms > 0
    AND (%(namespace)s = '' OR a.namespace = %(namespace)s)
    AND (%(tenant)s::uuid IS NULL OR a.tenant_id = %(tenant)s::uuid)
GROUP BY 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17
"""
_WORKLOAD = "p.workload_kind, p.workload_name, p.workload_known, p.queue"
_NO_WORKLOAD = "NULL::text, NULL::text, NULL::text, NULL::text"
_JOIN = "LEFT JOIN infra_podobservation p ON p.cluster_id = a.cluster_id AND p.uid = a.pod_uid"
_SHAPE = "a.share, a.cpu_millicores, a.host_memory_mib"
_NO_SHAPE = "0::bigint, 0::bigint, 0::bigint"


@dataclass(frozen=True, slots=True)
class HeldPart:
    """A sum of allocations. ``workload`` is (kind, name, how it is known, queue); empty where it was not asked for."""

    cluster_id: UUID
    namespace: str
    tenant_id: UUID | None
    bucket: str
    workload: tuple[str, str, str, str]
    usage: UsageSum


def held_parts(
    window: Interval,
    cluster_ids: Iterable[UUID],
    until: Mapping[UUID, datetime],
    *,
    cuts: Iterable[datetime],
    hourly: bool = False,
    shapes: bool = False,
    workloads: bool = False,
    namespace: str = "",
    tenant_id: UUID | None = None,
) -> list[HeldPart]:
    """Sums by cluster, namespace, tenant, bucket, kind of card and segment, within the open scope.

    Args:
        until: cluster → up to when it is known; an allocation that is still open counts until then. A cluster that is
            not among them has nothing.
        cuts: where rates change.
        hourly: cut each hour too, for rates that are another one each hour.
        shapes: keep devices of different CPU and memory apart, for rates that include some of the host's.
        workloads: keep workloads apart.
    """
    ids = [pk for pk in cluster_ids if pk in until]
    if not ids or window.is_empty:
        return []
    edges = {*cuts, *(one.start for one in hours(window))} if hourly else set(cuts)
    segments = segments_of(edges, window)
    # Nothing but these constants is put into the text.
    statement = _SQL.format(
        workload=_WORKLOAD if workloads else _NO_WORKLOAD,
        shape=_SHAPE if shapes else _NO_SHAPE,
        join=_JOIN if workloads else "",
    )
    with connection.cursor() as cursor:
        cursor.execute(
            statement,
            {
                "starts": [one.start for one in segments], "ends": [one.end for one in segments], "clusters": ids,
                "untils": [until[pk] for pk in ids], "start": window.start, "end": window.end,
                "namespace": namespace, "tenant": tenant_id,
            },
        )  # fmt: skip
        rows = cursor.fetchall()
    slugs = dict(GPUType.objects.values_list("pk", "slug"))
    return [_part(row, segments, slugs, by_cluster=hourly) for row in rows]


def _part(row: Sequence[Any], segments: Sequence[Interval], slugs: Mapping[UUID, str], *, by_cluster: bool) -> HeldPart:
    cluster, space, tenant, bucket, deployment, code, gpu_type, sharing, profile, number = row[:10]
    kind, name, known, queue = (value or "" for value in row[10:14])
    share, cpu, memory, milliseconds, charged = (int(value) for value in row[14:])
    host = HostPart(cpu, memory, CARD if sharing == "mig" else share, milliseconds)
    usage = UsageSum(
        Subject(str(tenant or ""), "" if deployment else space, str(deployment or ""), code),
        RateKey(Resource.GPU, slugs.get(gpu_type, ""), sharing, profile),
        segments[number - 1],
        milliseconds,
        charged,
        (host,) if cpu or memory else (),
        cluster=str(cluster) if by_cluster else "",
    )
    return HeldPart(cluster, space, tenant, bucket, (kind, name, known, queue), usage)
