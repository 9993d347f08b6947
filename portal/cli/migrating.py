"""Migrations (and static files) under a lock: of several starts at once, one works and the others wait. No Django."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Mapping

import psycopg

from portal.cli.instance import ROOT, with_database

_LOCK = 7163541


class MigrationError(RuntimeError):
    """The migrations failed; the message holds what they printed."""


def prepare(owner_url: str, env: Mapping[str, str], *options: str) -> None:
    """Run ``manage.py prepare`` with these options as the owner.

    Args:
        owner_url: address of the database for the owner role.
        env: the environment; AIF_DATABASE_URL is replaced.

    Raises:
        MigrationError: with the output.
    """
    with psycopg.connect(owner_url, autocommit=True) as connection:
        connection.execute("SELECT pg_advisory_lock(%s)", [_LOCK])
        result = subprocess.run(
            [sys.executable, str(ROOT / "manage.py"), "prepare", *options],
            env=with_database(env, owner_url),
            cwd=ROOT,
            capture_output=True,
            text=True,
            check=False,
        )
    if result.returncode != 0:
        raise MigrationError(f"The migrations failed:\n{(result.stdout + result.stderr).strip()[-4000:]}")
