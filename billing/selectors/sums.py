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
from billing.rating import HostPart, Subject, UsageSum
from infra.models import GPUType
from infra.shares import CARD
from portal.kernel.clock import Interval, hour_start

IDLE = "(idle)"
"""Namespace of the subject of reserved idle time."""


@dataclass(frozen=True, slots=True)
class Part:
    """A stretch of usage: slots in ``window`` with a sequence number in (``after``, ``upto``]."""

    window: Interval
    after: int
    upto: int


@dataclass(frozen=True, slots=True)
class Only:
    """Narrows sums; what is empty or None does not. ``namespace`` means pods of no deployment."""

    deployment_id: UUID | None = None
    namespace: str = ""
    gpu_type_id: UUID | None = None
    sharing: str = ""

    @property
    def condition(self) -> str:
        """SQL with named parameters, one for each field that is set."""
        parts = [
            f"AND {name} = %({name})s" for name in ("deployment_id", "gpu_type_id", "sharing") if getattr(self, name)
        ]
        if self.namespace:
            parts.append("AND namespace = %(namespace)s AND deployment_id IS NULL")
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
) -> dict[UUID, Sums]:
    """Charged usage by tenant, summed by SQL. Needs a scope that covers the tenants.

    Args:
        edges: where the sums are cut (usage must be cut there already): rates, days.
        rates: only to know whether the shape of devices matters (it does where a GPU rate includes host resources).
        tenant_ids: only these tenants; ``None``: all that the scope shows.
        only: narrows what is summed.
        subjects: whether deployments, namespaces and cost codes are kept apart (else they are empty).
    """
    segments = segments_of(edges, part.window)
    shapes = any(rate.included_cpu_millicores is not None or rate.included_memory_mib is not None for rate in rates)
    shape = "share, cpu_millicores, host_memory_mib" if shapes else "0, 0, 0"
    subject = "deployment_id, namespace, cost_code" if subjects else "NULL::uuid, '', ''"
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
            GROUP BY 1, 2, 3, 4, 5, 6, 7, 8, 9{", 10, 11, 12" if shapes else ""}
            HAVING sum(milliseconds) <> 0 OR sum(charged) <> 0
            """,  # noqa: S608  # constants only; values are parameters
            {
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
            },
        )
        rows = cursor.fetchall()
    return _by_tenant(rows, segments)


def _by_tenant(rows: Sequence[tuple[Any, ...]], segments: Sequence[Interval]) -> dict[UUID, Sums]:
    slugs = dict(GPUType.objects.values_list("pk", "slug"))
    found: dict[UUID, Sums] = defaultdict(Sums)
    for row in rows:
        tenant_id, bucket, deployment, namespace, code, gpu_type, sharing, profile, number = row[:9]
        share, cpu, memory, milliseconds, charged = (int(value) for value in row[9:])
        idle = bucket == Bucket.IDLE
        host = HostPart(cpu, memory, CARD if sharing == "mig" else share, milliseconds)
        usage = UsageSum(
            Subject(
                str(tenant_id),
                IDLE if idle else "" if deployment else namespace,
                str(deployment) if deployment else "",
                code,
            ),
            RateKey(Resource.GPU, slugs.get(gpu_type, ""), sharing, profile),
            segments[number - 1],
            milliseconds,
            charged,
            (host,) if cpu or memory else (),
        )
        (found[tenant_id].idle if idle else found[tenant_id].held).append(usage)
    return found
