"""Probes: ``/healthz`` (this process answers) and ``/readyz`` (what it needs answers, each named)."""

from __future__ import annotations

from django.conf import settings
from django.db import DatabaseError, connection
from django.db.migrations.executor import MigrationExecutor
from django.http import HttpRequest, JsonResponse
from kombu import Connection

from portal.kernel.checks import role_problem

OK = "ok"


def healthz(request: HttpRequest) -> JsonResponse:
    """200 while the process serves requests; it asks nobody else."""
    return JsonResponse({"status": OK})


def readyz(request: HttpRequest) -> JsonResponse:
    """200 when database, its schema and the broker are there, else 503; the answer tells them apart."""
    parts = {"database": _database(), "broker": _broker()}
    ready = all(value == OK for value in parts.values())
    return JsonResponse(
        {"status": OK if ready else "unavailable", **parts},
        status=200 if ready else 503,
        headers={"Cache-Control": "no-store"},
    )


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
