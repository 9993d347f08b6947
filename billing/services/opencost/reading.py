"""Reading one cluster's OpenCost: whole hours that are over, the oldest first, a few at a time. Safe to repeat.

Each hour is a transaction of its own, in which ``read_until`` moves on. After an outage it catches up with a day of
hours at most in one run. An hour whose answer was refused is asked again with growing pauses, and does not hold up the
hours after it. Every taken hour is asked twice more within two days: OpenCost may have had late samples.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from datetime import datetime, timedelta
from uuid import UUID

from django.db.models import F, Q

from billing.models import MeterProgress, OpenCostAnswer, OpenCostSource
from billing.opencost.client import SETTLED, HourRefused, OpenCostClient
from billing.services.opencost.estimates import claims_work_in
from billing.services.opencost.storing import answer_refuse, answer_store, source_ensure
from infra.models import ClusterEndpoint
from infra.outbound import EndpointClient, EndpointError, open_endpoint
from portal.kernel.clock import HOUR, format_rfc3339, hour_start, utcnow
from portal.kernel.conditions import Condition, set_condition
from portal.kernel.scoping import system_scope

Scope = Callable[[], AbstractContextManager[None]]
Open = Callable[[ClusterEndpoint], AbstractContextManager[EndpointClient]]

MOST_HOURS = 24
"""Hours that one run asks for."""
FARTHEST = timedelta(days=35)
"""How far back reading begins on a cluster that was metered before its OpenCost was connected."""
MOST_TRIES = 8
FIRST_PAUSE = timedelta(minutes=10)
LOOKS = ((1, timedelta(hours=6)), (2, timedelta(hours=30)))
"""(how often it was asked, how old the hour is then): when a taken hour is asked again."""
LOOK_PAUSE = timedelta(hours=5)
LAST_LOOK = timedelta(days=3)


@dataclass(frozen=True, slots=True)
class Read:
    """What a run did. ``again``: come back after so many seconds (None: with the next tick)."""

    hours: int
    refused: int
    again: float | None = None
    message: str = ""


def read_cluster(
    cluster_id: UUID, *, scope: Scope | None = None, opener: Open = open_endpoint, budget_seconds: float = 20.0
) -> Read:
    """Ask for what is due, and keep the answers.

    Args:
        scope: opens the transaction of each step (a fenced one in a worker); default: a system scope.
        opener: makes the client of the endpoint.
        budget_seconds: after so long no further hour is asked.
    """
    scope = scope or (lambda: system_scope("reading OpenCost"))
    started = time.monotonic()
    with scope():
        endpoint = (
            ClusterEndpoint.objects.filter(
                cluster_id=cluster_id, role=ClusterEndpoint.Role.OPENCOST, cluster__abandoned_at__isnull=True
            )
            .select_related("cluster")
            .first()
        )
        if endpoint is None or endpoint.paused:
            return Read(0, 0)
        source = source_ensure(cluster_id)
        claims_work_in(source)
        due = _due(endpoint, source)
    taken = refused = 0
    try:
        with opener(endpoint) as http:
            client = OpenCostClient(http)
            version = client.version() or endpoint.version if due else ""
            for hour in due[:MOST_HOURS]:
                if time.monotonic() - started > budget_seconds:
                    break
                if _read_hour(client, endpoint, hour, version, scope):
                    taken += 1
                else:
                    refused += 1
    except EndpointError as error:
        return _failed(endpoint, error, scope, taken, refused)
    with scope():
        OpenCostSource.objects.filter(cluster_id=cluster_id).update(failures=0, last_error="")
    left = len(due) - taken - refused
    return Read(
        taken, refused, 2.0 if left else None, f"{left} hours of OpenCost are still to be asked." if left else ""
    )


def _due(endpoint: ClusterEndpoint, source: OpenCostSource) -> list[datetime]:
    """Hours to ask, the oldest first: new ones, refused ones whose pause is over, taken ones to look at again."""
    now = utcnow()
    if source.first_hour is None:
        source.first_hour = _first_hour(endpoint, now)
        source.save(update_fields=["first_hour"])
    last = hour_start(now - SETTLED)
    at = max(endpoint.read_until or source.first_hour, source.first_hour)
    new: list[datetime] = []
    while at + HOUR <= last and len(new) <= MOST_HOURS:
        new.append(at)
        at += HOUR
    answers = OpenCostAnswer.objects.filter(cluster_id=endpoint.cluster_id, hour__lt=endpoint.read_until or last)
    done = answers.filter(accepted=True).values("hour")
    again = [
        hour
        for hour, asked, asked_at in answers.filter(accepted=False, asked__lt=MOST_TRIES)
        .exclude(hour__in=done)
        .values_list("hour", "asked", "asked_at")
        if asked_at + FIRST_PAUSE * 2 ** (asked - 1) <= now
    ]
    look = Q(pk__in=[])
    for asked, age in LOOKS:
        look |= Q(asked=asked, hour__lte=now - age - HOUR, asked_at__lte=now - LOOK_PAUSE)
    looks = answers.filter(look, accepted=True, source="opencost", hour__gte=now - LAST_LOOK)
    newest = looks.order_by("hour", "-revision").distinct("hour").values_list("hour", flat=True)
    return sorted({*new, *again}) + [hour for hour in list(newest)[:MOST_HOURS] if hour not in {*new, *again}]


def _first_hour(endpoint: ClusterEndpoint, now: datetime) -> datetime:
    metered = (
        MeterProgress.objects.filter(cluster_id=endpoint.cluster_id).values_list("metered_from", flat=True).first()
    )
    return hour_start(max(now - FARTHEST, metered or endpoint.created_at))


def _read_hour(client: OpenCostClient, endpoint: ClusterEndpoint, hour: datetime, version: str, scope: Scope) -> bool:
    """Ask for one hour and keep what came; whether it was taken. No transaction is open while it is asked."""
    reason, bodies, answer = "", {}, None
    try:
        answer = client.hour(hour)
    except HourRefused as refused:
        reason, bodies = refused.sentence, refused.bodies
    with scope():
        now = utcnow()
        source = source_ensure(endpoint.cluster_id)
        told = False
        if answer is None:
            answer_refuse(source, hour, reason, now=now, bodies=bodies, version=version)
            where = Condition(
                "Reading", "False", "AnswerRefused", f"The answer for the hour from {format_rfc3339(hour)}: {reason}",
                endpoint.generation,
            )  # fmt: skip
        else:
            answer_store(
                source, answer.allocation, answer.assets, now=now, assets_reason=answer.assets_reason,
                bodies=answer.bodies, version=version,
            )  # fmt: skip
            where = Condition("Reading", "True", "Answered", "Its hours are read as they end.", endpoint.generation)
            told = OpenCostAnswer.objects.filter(cluster_id=endpoint.cluster_id, hour=hour, accepted=False).exists()
        _move_on(endpoint, hour, where if answer is None or told else None, where, now, version)
    return answer is not None


def _move_on(
    endpoint: ClusterEndpoint, hour: datetime, always: Condition | None, new: Condition, now: datetime, version: str
) -> None:
    """``read_until`` after this hour, unless it is there already or somebody set the endpoint anew meanwhile.

    Args:
        always: the condition to set in any case; ``new``: the one to set where the hour is a new one. A second look at
            an old hour says nothing of the newest.
    """
    row = ClusterEndpoint.objects.select_for_update(of=("self",)).filter(pk=endpoint.pk).first()
    if row is None or row.generation != endpoint.generation:
        return
    condition = always
    if row.read_until is None or row.read_until <= hour:
        row.read_until, condition = hour + HOUR, new
    if condition is not None:
        row.conditions = set_condition(row.conditions, condition, now=now)
    row.last_answer_at, row.version = now, version or row.version
    row.save(update_fields=["read_until", "conditions", "last_answer_at", "version"])


def _failed(endpoint: ClusterEndpoint, error: EndpointError, scope: Scope, taken: int, refused: int) -> Read:
    """It could not be asked: say so, and wait longer each time."""
    with scope():
        source_ensure(endpoint.cluster_id)
        OpenCostSource.objects.filter(cluster_id=endpoint.cluster_id).update(
            failures=F("failures") + 1, last_error=error.sentence
        )
        failures = OpenCostSource.objects.values_list("failures", flat=True).get(cluster_id=endpoint.cluster_id)
        row = ClusterEndpoint.objects.select_for_update(of=("self",)).filter(pk=endpoint.pk).first()
        if row is not None and row.generation == endpoint.generation:
            condition = Condition("Reading", "False", "NotReached", error.sentence, endpoint.generation)
            row.conditions = set_condition(row.conditions, condition, now=utcnow())
            row.save(update_fields=["conditions"])
    return Read(taken, refused, min(60.0 * 2 ** min(failures - 1, 6), 3600.0), error.sentence)
