"""The harness: database, roles, and guards that hold for every test."""

from __future__ import annotations

import os
from collections.abc import Generator
from typing import Any

import psycopg
import pytest
from django.conf import settings
from django.db import connection, connections
from django.test import TransactionTestCase
from hypothesis import HealthCheck
from hypothesis import settings as hypothesis_settings

from tests.support.db import SERVER, SUPERUSER, Clone, take_clone

# No test may fail for being slow on a busy machine; continuous integration tries the same examples each time.
hypothesis_settings.register_profile(
    "portal", deadline=None, suppress_health_check=[HealthCheck.too_slow], derandomize=bool(os.environ.get("CI"))
)
hypothesis_settings.load_profile("portal")

CLONE: Clone = take_clone()
# Tests run as the app role; processes that tests start find the same database.
os.environ["AIF_DATABASE_URL"] = CLONE.url()
settings.DATABASES["default"].update(NAME=CLONE.name, USER="aif_app", HOST=str(SERVER.socket_dir), PORT="")
settings.DATABASES["default"]["TEST"]["NAME"] = CLONE.name


def _flush(self: TransactionTestCase) -> None:
    """In the place of Django's: the app role can't truncate, so the clone is emptied from outside."""
    connections.close_all()
    CLONE.flush()


TransactionTestCase._fixture_teardown = _flush  # type: ignore[attr-defined, unused-ignore]


@pytest.fixture(scope="session")
def django_db_setup(django_db_blocker: Any) -> Generator[None]:
    """The clone, made when the first test asks for a database."""
    with django_db_blocker.unblock():
        CLONE.create()
    yield
    with django_db_blocker.unblock():
        connections.close_all()
    CLONE.drop()


@pytest.fixture(scope="session")
def clone(django_db_setup: None) -> Clone:
    """This run's database, for connections outside Django."""
    return CLONE


@pytest.fixture
def raw(clone: Clone) -> Generator[psycopg.Connection[tuple[object, ...]]]:
    """A connection as the app role, with nothing of ours in between: what row-level security must withstand."""
    with clone.connect() as opened:
        yield opened


@pytest.fixture(scope="session")
def outside(clone: Clone) -> Generator[psycopg.Connection[tuple[object, ...]]]:
    """A connection that sees what is committed, whatever the test's own transaction is."""
    with clone.connect(SUPERUSER) as opened:
        opened.autocommit = True
        yield opened


@pytest.fixture(autouse=True)
def nothing_left_committed(request: pytest.FixtureRequest) -> Generator[None]:
    """A test that is rolled back must not commit from another thread: others would find its rows."""
    marker = request.node.get_closest_marker("django_db")
    rolled_back = "db" in request.fixturenames or marker is not None
    if (marker is not None and marker.kwargs.get("transaction")) or "transactional_db" in request.fixturenames:
        rolled_back = False
    outside = request.getfixturevalue("outside") if rolled_back else None
    yield
    if outside is not None and outside.execute("SELECT FROM kernel_auditevent LIMIT 1").fetchone() is not None:
        CLONE.flush()
        pytest.fail("something was committed beside the test's transaction; mark it django_db(transaction=True)")


@pytest.fixture(autouse=True)
def no_scope_left_open(request: pytest.FixtureRequest) -> Generator[None]:
    """A scope that is still open after a test would hide that the next one has none."""
    from portal.kernel.scoping import scope_is_open

    database = "db" in request.fixturenames or "transactional_db" in request.fixturenames
    yield
    assert not scope_is_open(), "a tenant or system scope was left open"
    open_transaction = database and connection.connection is not None and connection.in_atomic_block
    if open_transaction and not connection.needs_rollback:
        with connection.cursor() as cursor:
            cursor.execute("SELECT coalesce(current_setting('aif.tenants', true), ''), current_role, session_user")
            tenants, role, login = cursor.fetchone()
        assert tenants == "", "the database's tenant setting outlived its scope"
        assert role == login, "the database's role outlived its scope"
