"""A database of a former version, migrated: nothing is lost, and its bills are the same to the byte."""

from __future__ import annotations

import base64
import json
import lzma
import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import psycopg
import pytest
from psycopg import sql

from portal.cli.postgres import APP, OWNER, SUPERUSER, binaries, create_database
from tests.support.db import ROOT, SERVER, Clone

DATA = ROOT / "tests" / "data" / "upgrade"
FORMER = ["0.1.0"]
DROP = sql.SQL("DROP DATABASE IF EXISTS {} WITH (FORCE)")
REWRITTEN = {"django_migrations", "django_content_type", "auth_permission"}
"""Tables whose rows are migrate's own business."""

EXPORT = """
import django; django.setup()
import base64, json
from billing.exports import bill_csv
from billing.models import Bill
from billing.selectors.bills import bill_is_reproducible
from portal.kernel.scoping import system_scope

with system_scope("upgrade test"):
    bills = list(Bill.objects.order_by("number"))
    print(json.dumps({
        bill_csv(bill).name: [base64.b64encode(bill_csv(bill).body).decode(), bill_is_reproducible(bill)]
        for bill in bills
    }))
"""


@dataclass
class Upgraded:
    """A restored and migrated database."""

    name: str
    version: str
    before: dict[str, int] = field(default_factory=dict)

    def environment(self, user: str) -> dict[str, str]:
        """Of a process on this database."""
        return os.environ | {
            "DJANGO_SETTINGS_MODULE": "portal.settings.testing",
            "AIF_DATABASE_URL": SERVER.url(self.name, user),
        }

    def python(self, *arguments: str, user: str = APP) -> str:
        """What a Python process prints; it must end well."""
        done = subprocess.run(
            [sys.executable, *arguments], env=self.environment(user), cwd=ROOT, capture_output=True, text=True,
            check=False,
        )  # fmt: skip
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    def rows(self) -> dict[str, int]:
        """Table → rows; a partitioned table once."""
        with psycopg.connect(SERVER.url(self.name, SUPERUSER), autocommit=True) as connection:
            tables = connection.execute(
                "SELECT relname FROM pg_class WHERE relkind IN ('r', 'p') AND NOT relispartition"
                " AND relnamespace = 'public'::regnamespace"
            ).fetchall()
            count = sql.SQL("SELECT count(*) FROM {}")
            counted = {table: connection.execute(count.format(sql.Identifier(table))) for (table,) in tables}
            return {str(table): int(rows.fetchall()[0][0]) for table, rows in counted.items()}


@pytest.fixture(scope="module", params=FORMER)
def upgraded(request: pytest.FixtureRequest, clone: Clone) -> Iterator[Upgraded]:
    """The former version's database, restored as its administrator would and migrated by this version."""
    database = Upgraded(f"{clone.name}_upgrade"[:63], request.param)
    with psycopg.connect(SERVER.url("postgres", SUPERUSER), autocommit=True) as connection:
        connection.execute(DROP.format(sql.Identifier(database.name)))
        create_database(connection, database.name)
    _restore(database.name, DATA / f"{database.version}.sql.xz")
    database.before = database.rows()
    database.python("manage.py", "migrate", "--no-input", "--verbosity", "0", user=OWNER)
    yield database
    with psycopg.connect(SERVER.url("postgres", SUPERUSER), autocommit=True) as connection:
        connection.execute(DROP.format(sql.Identifier(database.name)))


def _restore(name: str, dump: Path) -> None:
    command = [str(binaries() / "psql"), "--quiet", "--no-psqlrc", "--set=ON_ERROR_STOP=1"]
    done = subprocess.run(
        [*command, "--output=/dev/null", f"--dbname={SERVER.url(name, SUPERUSER)}"],
        input=lzma.decompress(dump.read_bytes()), capture_output=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr.decode()


def test_the_schema_is_this_versions(upgraded: Upgraded) -> None:
    """Nothing is left to migrate, and the migrations say what the models say."""
    upgraded.python("manage.py", "migrate", "--check", user=OWNER)
    upgraded.python("manage.py", "makemigrations", "--check", "--dry-run", user=OWNER)


def test_no_row_is_lost(upgraded: Upgraded) -> None:
    """Every table of the former version has the rows it had."""
    after = upgraded.rows()
    assert upgraded.before["billing_usagerecord"] > 10_000
    kept = {table: count for table, count in upgraded.before.items() if table not in REWRITTEN}
    assert {table: after.get(table) for table in kept} == kept


def test_bills_are_the_same_to_the_byte(upgraded: Upgraded) -> None:
    """Exported again, and made again from the usage, the closed month's bills are what they were."""
    found = json.loads(upgraded.python("-c", EXPORT).splitlines()[-1])
    wanted = {path.name: path.read_bytes() for path in DATA.glob("bill-*.csv")}
    assert len(wanted) == 2
    assert {name: base64.b64decode(body) for name, (body, _) in found.items()} == wanted
    assert all(reproducible for _, reproducible in found.values())


def test_row_level_security_still_holds(upgraded: Upgraded) -> None:
    """The app role sees no tenant's row without a scope; the roles are those that are asked for."""
    with psycopg.connect(SERVER.url(upgraded.name, APP), autocommit=True) as connection:
        with pytest.raises(psycopg.errors.InsufficientPrivilege, match="no tenant scope is open"):
            connection.execute("SELECT count(*) FROM tenants_modeldeployment")
    upgraded.python("manage.py", "check", "--database", "default", "--deploy", "--tag", "database")
