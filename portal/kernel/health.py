"""Probes: ``/healthz`` (this process answers) and ``/readyz`` (what it needs answers, each named).

Some parts only inform: a worker that is silent or a cluster that does not answer must not take the pages out of a load
balancer, which are what people look at then. The answer is everybody's, so it is terse: no names, no counts. The page
for whoever is on call (``/platform/operations/``) has the details.
"""

from __future__ import annotations

from collections.abc import Callable

from django.conf import settings
from django.db import DatabaseError, connection
from django.db.migrations.executor import MigrationExecutor
from django.http import HttpRequest, JsonResponse
from kombu import Connection

from portal.kernel import heartbeat
from portal.kernel.checks import role_problem

OK = "ok"
SILENT = "silent"
NOT_KNOWN = "not known"

Inform = Callable[[], str]
_informing: dict[str, Inform] = {}


def inform(name: str, part: Inform) -> None:
    """Have ``part()`` tell of a part of the installation in a word or two, ``ok`` where all is well; it may ask the
    database and nothing else. Each app registers its own when it is ready."""
    _informing[name] = part


def _heard_of(kind: str) -> Inform:
    return lambda: OK if heartbeat.is_alive(kind) else SILENT


# "tasks" is the whole way: the clock, the broker and a worker have brought a task to its end.
for _kind in ("worker", "beat", "tasks"):
    inform(_kind, _heard_of(_kind))


def healthz(request: HttpRequest) -> JsonResponse:
    """200 while the process serves requests; it asks nobody else."""
    return JsonResponse({"status": OK})


def readyz(request: HttpRequest) -> JsonResponse:
    """200 when database, its schema and the broker are there, else 503; the answer tells them apart, and tells of the
    parts that only inform."""
    needed = needed_parts()
    ready = all(value == OK for value in needed.values())
    return JsonResponse(
        {"status": OK if ready else "unavailable", **needed, **informing_parts(needed["database"] == OK)},
        status=200 if ready else 503,
        headers={"Cache-Control": "no-store"},
    )


def needed_parts() -> dict[str, str]:
    """What the pages and the API can't do without."""
    return {"database": _database(), "broker": _broker()}


def informing_parts(database_answers: bool) -> dict[str, str]:
    """The other parts, each in a word or two."""
    return {name: _told(part) if database_answers else NOT_KNOWN for name, part in _informing.items()}


def _told(part: Inform) -> str:
    try:
        return part()
    except DatabaseError:
        return NOT_KNOWN


def _database() -> str:
    try:
        with connection.cursor() as cursor:
            cursor.execute("SELECT 1")
        if role_problem() is not None:
            return "the role bypasses row-level security"
        executor = MigrationExecutor(connection)
        if executor.migration_plan(executor.loader.graph.leaf_nodes()):
            return "migrations are missing"
    except DatabaseError:
        return "does not answer"
    return OK


def _broker() -> str:
    options = {"socket_connect_timeout": 2, "socket_timeout": 2}
    try:
        with Connection(settings.AIF_BROKER_URL, connect_timeout=2, transport_options=options) as broker:
            broker.ensure_connection(max_retries=1, timeout=2)
    except Exception:  # noqa: BLE001  # each transport has its own errors; all mean the same here
        return "does not answer"
    return OK
