"""``python -m portal.cli backup`` and ``restore``: the whole installation is its database. No Django.

Settings (keys, version, which migrations there are) are asked for through ``manage.py``, as only Django knows them.
The encryption keys are *not* in a backup: kept apart from it, neither is worth anything alone.
"""

from __future__ import annotations

import fcntl
import json
import subprocess
import sys
import tempfile
from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import psycopg
from psycopg import sql

from portal.cli import archive, pgtools
from portal.cli.archive import Manifest
from portal.cli.instance import DATABASE, ROOT, Instance, with_database
from portal.cli.migrating import prepare
from portal.cli.postgres import APP, OWNER, SUPERUSER, PostgresError

Say = Callable[[str], None]


class BackupError(RuntimeError):
    """It was refused, or failed; the message says why and what to do. Nothing was changed unless it says so."""


@dataclass(frozen=True)
class Place:
    """A database with what is needed to work on it.

    Attributes:
        url: its address for the app role.
        reader_url: for a role that reads everything and that row-level security does not hold for (a backup).
        owner_url: for the owner of the tables (a restore).
        env: settings (``AIF_…``) for ``manage.py``.
    """

    url: str
    reader_url: str
    owner_url: str
    env: Mapping[str, str]

    def manage(self, *arguments: str) -> str:
        """What ``manage.py`` printed.

        Raises:
            BackupError: with its error.
        """
        done = subprocess.run(
            [sys.executable, str(ROOT / "manage.py"), *arguments],
            env=with_database(self.env, self.url), cwd=ROOT, capture_output=True, text=True, check=False,
        )  # fmt: skip
        if done.returncode != 0:
            lines = (done.stderr or done.stdout).strip()
            raise BackupError(lines.removeprefix("CommandError: ")[-2000:])
        return done.stdout


@contextmanager
def embedded(instance: Instance) -> Generator[Place]:
    """The instance's own database; its server is started where it does not run, and stopped again then."""
    if not (instance.private / "secrets.json").exists():
        raise BackupError(
            f"{instance.private / 'secrets.json'} is missing: the keys of an installation are not in its backup. Copy "
            "the file of the installation that the backup was made of there, and try again."
        )
    postgres = instance.postgres
    with postgres.running():
        postgres.prepare(DATABASE)
        env = instance.environment(port=8000, demo=False)
        yield Place(postgres.url(DATABASE, APP), postgres.url(DATABASE, SUPERUSER), postgres.url(DATABASE, OWNER), env)


@contextmanager
def nothing_runs(instance: Instance) -> Generator[None]:
    """No ``up`` of the instance, and none is started meanwhile.

    Raises:
        BackupError: one runs.
    """
    with open(instance.private / "up.lock", "a") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise BackupError("The installation runs. End it first: python -m portal.cli down") from None
        yield


def backup(place: Place, target: Path, say: Say) -> Manifest:
    """Write a consistent backup; everything may run meanwhile.

    Raises:
        BackupError, ArchiveError, PostgresError: with what to do; no file is left.
    """
    if target.exists():
        raise archive.ArchiveError(f"{target} is there already. It is not overwritten: give another name.")
    facts: dict[str, Any] = json.loads(place.manage("backup_facts"))
    with tempfile.TemporaryDirectory(dir=target.absolute().parent, prefix=".backup-") as folder:
        dumped = Path(folder) / archive.DUMP
        with psycopg.connect(place.reader_url) as connection:
            connection.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ
            connection.read_only = True
            _require_reader(connection)
            # Facts and dump are of one snapshot, whatever is written meanwhile.
            snapshot = str(_one(connection, "SELECT pg_export_snapshot()"))
            made_at = datetime.now(UTC)
            migrations = _migrations(connection)
            rows = row_counts(connection)
            pgtools.dump(place.reader_url, dumped, snapshot=snapshot)
            server = str(_one(connection, "SHOW server_version"))
        checksum, size = archive.digest_of(dumped)
        manifest = Manifest(
            made_at=made_at.isoformat(timespec="seconds").replace("+00:00", "Z"),
            version=facts["version"],
            migrations=migrations,
            app_role=facts["app_role"],
            system_role=facts["system_role"],
            canaries=facts["canaries"],
            pepper=facts["pepper"],
            dump_sha256=checksum,
            dump_bytes=size,
            postgres=server,
            rows=rows,
        )
        archive.write(target, manifest, dumped)
    say(f"{target}: {sum(rows.values())} rows of {len(rows)} tables, as of {manifest.made_at}.")
    say("The encryption keys are not in it. Keep them apart from it: without them its kubeconfigs can't be read.")
    return manifest


def restore(place: Place, source: Path, say: Say) -> Manifest:
    """Restore into an empty database, and make what was in flight safe. Nothing may use the database meanwhile.

    Raises:
        BackupError, ArchiveError, PostgresError: refused; the database is as it was, unless the message says otherwise.
    """
    manifest = archive.read_manifest(source)
    with tempfile.TemporaryDirectory(dir=source.absolute().parent, prefix=".restore-") as folder:
        dumped, told = Path(folder) / archive.DUMP, Path(folder) / archive.MANIFEST
        archive.extract_dump(source, manifest, dumped)
        told.write_text(json.dumps({"migrations": manifest.migrations, "canaries": manifest.canaries,
                                    "pepper": manifest.pepper, "version": manifest.version,
                                    "app_role": manifest.app_role, "system_role": manifest.system_role}))  # fmt: skip
        # Before anything is lost: the keys fit, and this version knows every migration of it.
        with psycopg.connect(place.owner_url) as connection:
            _require_empty(connection)
            _require_roles(connection, manifest)
        place.manage("check_backup", str(told))
        say(f"Restoring {source}, made at {manifest.made_at} by version {manifest.version}.")
        pgtools.restore(place.owner_url, dumped)
    with psycopg.connect(place.url) as connection:
        connection.execute(sql.SQL("SET LOCAL ROLE {}").format(sql.Identifier(manifest.system_role)))
        found = row_counts(connection)
    different = sorted(name for name in {*found, *manifest.rows} if found.get(name) != manifest.rows.get(name))
    if different:
        raise BackupError(
            f"The restored tables do not hold what the backup says: {', '.join(different[:10])}. The database is not "
            "empty now; make a new one and try another copy."
        )
    try:
        prepare(place.owner_url, place.env, "--no-static")
        say(place.manage("after_restore").strip())
    except (RuntimeError, OSError) as error:
        raise BackupError(
            f"The data is restored, and what follows failed: {error}\nStart nothing yet. Run `manage.py prepare` as "
            "the owner and `manage.py after_restore`, then start."
        ) from error
    return manifest


def row_counts(connection: psycopg.Connection[Any]) -> dict[str, int]:
    """Table → rows, of all tables of ours (a partitioned one counts as one)."""
    names = [
        str(row[0])
        for row in connection.execute(
            "SELECT relname FROM pg_class WHERE relkind IN ('r', 'p') AND NOT relispartition"
            " AND relnamespace = 'public'::regnamespace ORDER BY relname"
        )
    ]
    return {
        name: int(_one(connection, sql.SQL("SELECT count(*) FROM {}").format(sql.Identifier(name)))) for name in names
    }


def _migrations(connection: psycopg.Connection[Any]) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for app, name in connection.execute("SELECT app, name FROM django_migrations ORDER BY app, name"):
        found.setdefault(str(app), []).append(str(name))
    return found


def _require_reader(connection: psycopg.Connection[Any]) -> None:
    if not _one(connection, "SELECT rolsuper OR rolbypassrls FROM pg_roles WHERE rolname = current_user"):
        raise BackupError(
            "Row-level security holds for the role of --database-url, so it would not see everything. Use a role for "
            "backups: CREATE ROLE aif_backup LOGIN BYPASSRLS IN ROLE pg_read_all_data, with CONNECT on the database."
        )


def _require_empty(connection: psycopg.Connection[Any]) -> None:
    tables = int(
        _one(
            connection,
            "SELECT count(*) FROM pg_class WHERE relkind IN ('r', 'p', 'v', 'm', 'S')"
            " AND relnamespace = 'public'::regnamespace",
        )
    )
    if tables:
        raise BackupError(
            f"The database is not empty ({tables} tables, views and sequences). A backup is restored into a new one "
            "only: choose another data folder, or make an empty database."
        )


def _require_roles(connection: psycopg.Connection[Any], manifest: Manifest) -> None:
    for role, bypasses in ((manifest.app_role, False), (manifest.system_role, True)):
        found = connection.execute("SELECT rolbypassrls FROM pg_roles WHERE rolname = %s", [role]).fetchone()
        if found is None or bool(found[0]) != bypasses:
            why = "is missing" if found is None else "has other rights than it needs"
            raise PostgresError(
                f"The role {role} {why}. Make the three roles as docs/install.md says (the system role with BYPASSRLS, "
                "the app role without), then try again."
            )


def _one(connection: psycopg.Connection[Any], question: str | sql.Composed) -> Any:
    row = connection.execute(question).fetchone()
    assert row is not None  # each of them has one row
    return row[0]
