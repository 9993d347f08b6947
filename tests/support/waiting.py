"""Waiting until another session of the test's database waits."""

from __future__ import annotations

from django.db import connection


def until_a_lock_is_waited_for() -> None:
    """Until a session of this database waits for an advisory lock."""
    while True:
        with connection.cursor() as cursor:
            cursor.execute(
                "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND NOT granted"
                " AND database = (SELECT oid FROM pg_database WHERE datname = current_database())"
            )
            row = cursor.fetchone()
        if row and row[0]:
            return
