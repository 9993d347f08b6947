"""An hour's answer into rows: a new revision where it says something new, a reason where it can't be used."""

from __future__ import annotations

import hashlib
import json
import zlib
from collections.abc import Mapping
from datetime import datetime
from decimal import Decimal
from uuid import UUID

from django.db import connection
from django.db.models import Q

from billing.locks import UNIT_COSTS, hold_usage_locks
from billing.models import DeviceAllocation, OpenCostAnswer, OpenCostRow, OpenCostSource, UnitCost
from billing.opencost.answers import FIGURES, Allocation, Assets, Row, by_namespace
from billing.opencost.unitcosts import Unit, unit_costs
from billing.services.opencost.estimates import estimates_write
from infra.models import Cluster, GPUType, Node
from portal.kernel.clock import HOUR, Interval, format_rfc3339

LARGEST_RAW = 4 * 1024 * 1024
"""Compressed bytes of a raw answer above which it is not kept."""


def source_ensure(cluster_id: UUID, *, lock: bool = True) -> OpenCostSource:
    """The row of a cluster's OpenCost, locked until the transaction ends."""
    OpenCostSource.objects.bulk_create([OpenCostSource(cluster_id=cluster_id)], ignore_conflicts=True)
    rows = OpenCostSource.objects.select_related("cluster")
    return (rows.select_for_update(of=("self",)) if lock else rows).get(cluster_id=cluster_id)


def answer_store(
    source: OpenCostSource,
    allocation: Allocation,
    assets: Assets | None,
    *,
    now: datetime,
    assets_reason: str = "",
    bodies: Mapping[str, bytes] | None = None,
    version: str = "",
    origin: str = "opencost",
) -> OpenCostAnswer:
    """Keep an answer, its unit costs and the tenants' parts of it; the same answer again only counts how often.

    So does one that says less than the last: nothing at all of an hour that had something (its Prometheus lost it), or
    no assets where there were some. What it no longer knows is not zero.

    Call it in a transaction, with the source's row locked. What is on closed bills stays as it is.
    """
    assert connection.in_atomic_block, "an answer and what is made of it are one transaction"
    hour = allocation.window
    types = _types(source.cluster, hour)
    units = unit_costs(allocation, assets, types)
    digest = _digest(allocation, units, source.currency)
    answers = OpenCostAnswer.objects.filter(cluster_id=source.cluster_id, hour=hour.start, accepted=True)
    last = answers.order_by("-revision").first()
    lost = last is not None and ((allocation.empty and not last.empty) or (assets is None and not last.reason))
    if last is not None and (lost or last.digest == digest):
        last.asked, last.asked_at = last.asked + 1, now
        last.save(update_fields=["asked", "asked_at"])
        return last
    hold_usage_locks([UNIT_COSTS])
    answer = OpenCostAnswer.objects.create(
        cluster_id=source.cluster_id, hour=hour.start, accepted=True, revision=last.revision + 1 if last else 0,
        reason=assets_reason, empty=allocation.empty, version=version, currency=source.currency, digest=digest,
        raw=_packed(bodies), fetched_at=now, asked_at=now, source=origin,
    )  # fmt: skip
    _rows(answer, allocation)
    slugs = dict(GPUType.objects.values_list("slug", "pk"))
    UnitCost.objects.bulk_create(
        UnitCost(
            answer=answer, cluster_id=answer.cluster_id, hour=answer.hour, resource=unit.resource.value,
            gpu_type_id=slugs[unit.gpu_type] if unit.gpu_type else None, price=unit.price, currency=answer.currency,
            basis=unit.basis.value, quantity=unit.quantity,
        )
        for unit in units
        if unit.price > 0
    )  # fmt: skip
    estimates_write(source.cluster_id, [answer])
    return answer


def answer_refuse(
    source: OpenCostSource, hour: datetime, reason: str, *, now: datetime, bodies: Mapping[str, bytes] | None = None,
    version: str = "",
) -> OpenCostAnswer:  # fmt: skip
    """Keep a refused answer with its reason; one row an hour, with how often it was asked."""
    row, made = OpenCostAnswer.objects.get_or_create(
        cluster_id=source.cluster_id, hour=hour, accepted=False, revision=0,
        defaults={
            "reason": reason, "currency": source.currency, "version": version, "raw": _packed(bodies),
            "fetched_at": now, "asked_at": now,
        },
    )  # fmt: skip
    if not made:
        row.asked, row.asked_at, row.reason, row.raw, row.version = row.asked + 1, now, reason, _packed(bodies), version
        row.save(update_fields=["asked", "asked_at", "reason", "raw", "version"])
    return row


def _types(cluster: Cluster, hour: Interval) -> dict[str, str]:
    """Type of card by node, of the nodes that were there in the hour (or of that name, where only a later one is)."""
    rows = Node.objects.filter(cluster=cluster, pool__gpu_type__isnull=False)
    there = rows.filter(Q(gone_at__isnull=True) | Q(gone_at__gt=hour.start))
    return dict(there.order_by("-first_seen_at").values_list("name", "pool__gpu_type__slug"))


def _rows(answer: OpenCostAnswer, allocation: Allocation) -> None:
    """Namespaces all of them; pods where OpenCost counts cards, or where we know that they held some."""
    window = Q(started_at__lt=answer.hour + HOUR) & (Q(ended_at__isnull=True) | Q(ended_at__gt=answer.hour))
    ours = set(
        DeviceAllocation.objects.filter(window, cluster_id=answer.cluster_id).values_list("namespace", "pod_name")
    )
    pods = [
        row
        for row in allocation.rows
        if row.pod and not row.special and (row.gpu_hours or (row.namespace, row.pod) in ours)
    ]
    OpenCostRow.objects.bulk_create(
        (
            OpenCostRow(
                answer=answer, namespace=row.namespace, pod=row.pod, special=row.special, starts_at=row.lasted.start,
                ends_at=row.lasted.end, **{name: getattr(row, name) for name in FIGURES},
            )
            for row in (*by_namespace(allocation.rows), *pods)
        ),
        batch_size=2000,
    )  # fmt: skip


def _digest(allocation: Allocation, units: list[Unit], currency: str) -> str:
    body = {
        "currency": currency,
        "rows": [_row(row) for row in allocation.rows],
        "units": [[unit.resource, unit.gpu_type, _text(unit.price), unit.basis] for unit in units],
    }
    return hashlib.sha256(json.dumps(body, separators=(",", ":")).encode()).hexdigest()


def _row(row: Row) -> list[str]:
    edges = [format_rfc3339(row.lasted.start), format_rfc3339(row.lasted.end)]
    return [row.special, row.namespace, row.pod, *edges, *(_text(getattr(row, name)) for name in FIGURES)]


def _text(value: Decimal) -> str:
    return f"{value.normalize():f}"


def _packed(bodies: Mapping[str, bytes] | None) -> bytes | None:
    if not bodies:
        return None
    text = json.dumps({path: body.decode("utf-8", "replace") for path, body in bodies.items()})
    packed = zlib.compress(text.encode(), 6)
    return packed if len(packed) <= LARGEST_RAW else None
