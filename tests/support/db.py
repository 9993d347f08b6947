"""The tests' database: one embedded server for all runs, a migrated template, a clone per worker.

The server is started once and adopted by later runs (data outside the repository, ``fsync=off``). The template's
name holds a hash of the migrations, so another checkout or a changed migration makes another template. A run takes
the clone ``aif_test_<AIF_TEST_WORKER>`` (and the xdist worker's name); a file lock keeps two runs from sharing it.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import subprocess
import sys
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO

import psycopg
from psycopg import sql

from portal.cli.postgres import APP, OWNER, SUPERUSER, Postgres, create_database, ensure_roles

ROOT = Path(__file__).resolve().parents[2]
KEPT_TEMPLATES = 4
KEPT_TABLES = ("django_migrations", "django_content_type", "auth_permission")


def data_folder() -> Path:
    """Where the server's data is: as root a folder of its own, else the user's cache; AIF_TEST_DATA overrides."""
    if given := os.environ.get("AIF_TEST_DATA"):
        return Path(given)
    if os.geteuid() == 0:
        return Path("/var/lib/ai-factory-portal-test")
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    return cache / "ai-factory-portal-test"


SERVER = Postgres(data_folder() / "pg", data_folder() / "run", fsync=False)


@dataclass
class Clone:
    """This run's database; the lock is held until the process ends."""

    name: str
    lock: IO[str]

    def url(self, user: str = APP) -> str:
        """Its address for a role."""
        return SERVER.url(self.name, user)

    def connect(self, user: str = APP) -> psycopg.Connection[tuple[object, ...]]:
        """A connection of its own, outside Django, with autocommit."""
        return psycopg.connect(self.url(user), autocommit=True)

    def create(self) -> None:
        """Make the database anew from the template."""
        with _administrator() as connection, _locked("template"):
            template = _template(connection)
            _drop(connection, self.name)
            create_database(connection, self.name, template)

    def drop(self) -> None:
        """Remove the database (AIF_TEST_KEEP keeps it for looking at)."""
        if not os.environ.get("AIF_TEST_KEEP"):
            with _administrator() as connection:
                _drop(connection, self.name)

    def flush(self) -> None:
        """Empty all tables that have rows, as the superuser: the app role may not truncate."""
        with self.connect(SUPERUSER) as connection:
            tables = [
                str(row[0])
                for row in connection.execute(
                    "SELECT relname FROM pg_class WHERE relkind IN ('r', 'p') AND NOT relispartition"
                    " AND relnamespace = 'public'::regnamespace AND relname != ALL(%s)",
                    [list(KEPT_TABLES)],
                )
            ]
            probe = sql.SQL(" UNION ALL ").join(
                sql.SQL("SELECT {} WHERE EXISTS (SELECT FROM {})").format(sql.Literal(table), sql.Identifier(table))
                for table in tables
            )
            filled = [str(row[0]) for row in connection.execute(probe)]
            if filled:
                names = sql.SQL(", ").join(map(sql.Identifier, filled))
                connection.execute(sql.SQL("TRUNCATE {} CASCADE").format(names))


def take_clone() -> Clone:
    """A name that no other run uses now."""
    base = f"aif_test_{os.environ.get('AIF_TEST_WORKER', 'main')}_{os.environ.get('PYTEST_XDIST_WORKER', 'one')}"
    data_folder().mkdir(parents=True, exist_ok=True, mode=0o711)
    for number in range(1, 100):
        name = (base if number == 1 else f"{base}_{number}").replace("-", "_").lower()[:60]
        handle = open(data_folder() / f"{name}.lock", "a")  # noqa: SIM115  # held for the life of the run
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            handle.close()
            continue
        return Clone(name, handle)
    raise RuntimeError("A hundred test runs at once: set AIF_TEST_WORKER to another name.")


@contextmanager
def migrated_template() -> Generator[str]:
    """The address of the migrated template, for whoever reads from it; nobody clones it meanwhile."""
    with _administrator() as connection, _locked("template"):
        yield SERVER.url(_template(connection), SUPERUSER)


@contextmanager
def _administrator() -> Generator[psycopg.Connection[tuple[object, ...]]]:
    SERVER.ensure_running()
    with psycopg.connect(SERVER.url("postgres", SUPERUSER), autocommit=True) as connection:
        ensure_roles(connection)
        yield connection


@contextmanager
def _locked(name: str) -> Generator[None]:
    with open(data_folder() / f"{name}.lock", "a") as handle:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield


def _fingerprint() -> str:
    digest = hashlib.sha256()
    folders = [ROOT / name for name in ("portal", "infra", "tenants", "billing", "tests/support")]
    files = sorted(path for folder in folders for path in folder.rglob("*.py"))
    for path in files:
        if path.parent.name == "migrations" or path.name in ("rls.py", "base.py", "usage_table.py"):
            digest.update(str(path.relative_to(ROOT)).encode())
            digest.update(path.read_bytes())
    return digest.hexdigest()[:12]


def _template(connection: psycopg.Connection[tuple[object, ...]]) -> str:
    """The migrated template's name; made where it is missing. The caller holds the lock."""
    name = f"aif_template_{_fingerprint()}"
    templates = connection.execute(
        "SELECT datname FROM pg_database WHERE datname LIKE 'aif_template_%' ORDER BY oid"
    ).fetchall()
    known = [str(row[0]) for row in templates]
    if name in known:
        return name
    building = "aif_building_template"
    _drop(connection, building)
    create_database(connection, building)
    _migrate(building)
    connection.execute(sql.SQL("ALTER DATABASE {} RENAME TO {}").format(*map(sql.Identifier, (building, name))))
    for old in known[: -KEPT_TEMPLATES + 1]:
        _drop(connection, old)
    return name


def _migrate(database: str) -> None:
    environment = os.environ | {
        "DJANGO_SETTINGS_MODULE": "portal.settings.testing",
        "AIF_DATABASE_URL": SERVER.url(database, OWNER),
    }
    result = subprocess.run(
        [sys.executable, str(ROOT / "manage.py"), "migrate", "--verbosity", "0"],
        env=environment, cwd=ROOT, capture_output=True, text=True, check=False,
    )  # fmt: skip
    if result.returncode != 0:
        raise RuntimeError(f"The migrations fail on an empty database:\n{result.stdout}{result.stderr}")


def _drop(connection: psycopg.Connection[tuple[object, ...]], name: str) -> None:
    connection.execute(sql.SQL("DROP DATABASE IF EXISTS {} WITH (FORCE)").format(sql.Identifier(name)))
