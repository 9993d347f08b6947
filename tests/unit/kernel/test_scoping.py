"""The scope: what the managers refuse, what the database refuses, and that nothing is left behind."""

import uuid

import psycopg
import pytest
from django.apps import apps
from django.db import IntegrityError, ProgrammingError, connection, models, transaction

from portal.kernel.models import AuditEvent
from portal.kernel.rls import composite_key_name
from portal.kernel.scoping import (
    Global,
    ScopeError,
    TenantOwned,
    current_tenants,
    is_system,
    system_scope,
    tenant_scope,
)
from tests.support.scopedapp.models import Book, Note, Shelf

A, B = uuid.UUID(int=1), uuid.UUID(int=2)


def database_scope() -> tuple[str, bool]:
    with connection.cursor() as cursor:
        cursor.execute("SELECT coalesce(current_setting('aif.tenants', true), ''), current_role != session_user")
        return cursor.fetchone()


@pytest.fixture
def shelves(db: None) -> tuple[Shelf, Shelf]:
    with tenant_scope(A):
        mine = Shelf.objects.create(tenant_id=A, name="one")
    with tenant_scope(B):
        theirs = Shelf.objects.create(tenant_id=B, name="one")
    return mine, theirs


@pytest.mark.parametrize(
    "read",
    [
        lambda: Shelf.objects.exists(),
        lambda: Shelf.objects.count(),
        lambda: Shelf.objects.all(),
        lambda: Shelf.objects.exclude(name="x"),
        lambda: Shelf.objects.in_bulk(),
        lambda: Shelf.objects.update(name="x"),
        lambda: Shelf.objects.create(tenant_id=A, name="x"),
        lambda: Shelf.objects.bulk_create([Shelf(tenant_id=A, name="x")]),
        lambda: Shelf(tenant_id=A, name="x").save(),
        lambda: Shelf(id=uuid.uuid4(), tenant_id=A, name="x").delete(),
        lambda: Shelf._base_manager.first(),
        lambda: Shelf(id=uuid.uuid4()).refresh_from_db(),
        lambda: Book(id=uuid.uuid4(), shelf_id=uuid.uuid4()).shelf,
        lambda: Shelf(id=uuid.uuid4()).books.all(),
        current_tenants,
    ],
)
def test_without_a_scope_every_way_raises(db: None, read) -> None:
    with pytest.raises(ScopeError):
        read()


def test_none_needs_no_scope() -> None:
    assert list(Shelf.objects.none()) == []


def test_a_tenant_sees_its_own_rows(shelves: tuple[Shelf, Shelf]) -> None:
    mine, theirs = shelves
    with tenant_scope(A):
        assert list(Shelf.objects.all()) == [mine]
        assert not Shelf.objects.filter(pk=theirs.pk).exists()
        with pytest.raises(Shelf.DoesNotExist):
            theirs.refresh_from_db()
        assert Shelf.objects.filter(pk=theirs.pk).update(name="stolen") == 0
    with tenant_scope(A, B):
        assert Shelf.objects.count() == 2
    with system_scope("test"):
        assert Shelf.objects.count() == 2
        assert is_system()


def test_saving_outside_the_scope_is_refused(shelves: tuple[Shelf, Shelf]) -> None:
    _, theirs = shelves
    with tenant_scope(A):
        for act in (
            theirs.save,
            theirs.delete,
            lambda: Shelf.objects.create(tenant_id=B, name="x"),
            lambda: Shelf.objects.bulk_create([Shelf(tenant_id=B, name="x")]),
        ):
            with pytest.raises(ScopeError):
                act()


def test_raw_sql_is_held_by_the_database(shelves: tuple[Shelf, Shelf]) -> None:
    def rows() -> int:
        with connection.cursor() as cursor:
            cursor.execute("SELECT count(*) FROM scopedapp_shelf")
            return cursor.fetchone()[0]

    with tenant_scope(A):
        assert rows() == 1
    with system_scope("test"):
        assert rows() == 2
    with pytest.raises(ProgrammingError, match="no tenant scope is open"), transaction.atomic():
        rows()


def test_the_database_refuses_a_foreign_row(shelves: tuple[Shelf, Shelf]) -> None:
    with tenant_scope(A), pytest.raises(ProgrammingError, match="row-level security"), transaction.atomic():
        with connection.cursor() as cursor:
            cursor.execute("INSERT INTO scopedapp_shelf (id, tenant_id, name) VALUES (%s, %s, 'x')", [uuid.uuid4(), B])
    with tenant_scope(A), pytest.raises(ProgrammingError, match="row-level security"), transaction.atomic():
        Shelf.objects.update(tenant_id=B)


def test_a_child_cannot_point_at_another_tenants_parent(shelves: tuple[Shelf, Shelf]) -> None:
    _, theirs = shelves
    with pytest.raises(IntegrityError), tenant_scope(A):
        Book.objects.create(tenant_id=A, shelf_id=theirs.pk, title="x")
        with connection.cursor() as cursor:
            cursor.execute("SET CONSTRAINTS ALL IMMEDIATE")


def test_a_foreign_parent_cannot_be_read_through_a_child(shelves: tuple[Shelf, Shelf]) -> None:
    _, theirs = shelves
    with tenant_scope(A), pytest.raises(Shelf.DoesNotExist):
        assert Book(tenant_id=A, shelf_id=theirs.pk).shelf is not None


def test_a_cascade_stays_within_the_scope(shelves: tuple[Shelf, Shelf]) -> None:
    mine, theirs = shelves
    with tenant_scope(A, B):
        Book.objects.create(tenant_id=A, shelf=mine, title="a")
        Book.objects.create(tenant_id=B, shelf=theirs, title="b")
    with tenant_scope(A):
        mine.delete()
    with system_scope("test"):
        assert [book.title for book in Book.objects.all()] == ["b"]


def test_append_only_rows_can_be_neither_changed_nor_removed(db: None) -> None:
    with tenant_scope(A):
        Note.objects.create(tenant_id=A, text="x")
    for scope in (tenant_scope(A), system_scope("test")):
        with scope:
            with pytest.raises(ProgrammingError, match="permission denied"), transaction.atomic():
                Note.objects.update(text="y")
            with pytest.raises(ProgrammingError, match="permission denied"), transaction.atomic():
                Note.objects.all().delete()


def test_settings_end_with_the_scope_in_every_nesting(db: None) -> None:
    assert database_scope() == ("", False)
    with tenant_scope(A, B):
        with tenant_scope(A):
            assert database_scope() == (f"{{{A}}}", False)
        assert database_scope() == (f"{{{A},{B}}}", False)
        with pytest.raises(ZeroDivisionError), tenant_scope(B):
            1 / 0
        assert database_scope() == (f"{{{A},{B}}}", False)
    assert database_scope() == ("", False)
    with system_scope("outer"):
        with tenant_scope(A):
            assert database_scope() == (f"{{{A}}}", False)
            assert current_tenants() == {A}
        assert database_scope() == ("", True)
        with system_scope("inner"):
            assert database_scope() == ("", True)
        assert database_scope() == ("", True)
    assert database_scope() == ("", False)
    with pytest.raises(ZeroDivisionError), system_scope("fails"):
        1 / 0
    assert database_scope() == ("", False)


def test_a_database_error_inside_leaves_nothing_behind(db: None) -> None:
    with tenant_scope(A):
        with pytest.raises(ProgrammingError), tenant_scope(A), connection.cursor() as cursor:
            cursor.execute("SELECT no_such_column")
        assert database_scope() == (f"{{{A}}}", False)
    assert database_scope() == ("", False)


@pytest.mark.django_db(transaction=True)
def test_on_commit_hooks_run_without_a_scope() -> None:
    seen: list[object] = []

    def hook() -> None:
        try:
            current_tenants()
        except ScopeError as error:
            seen.append(error)

    with tenant_scope(A):
        transaction.on_commit(hook)
    assert len(seen) == 1
    assert database_scope() == ("", False)


@pytest.mark.parametrize("names", [(), ("not a uuid",)])
def test_a_tenant_scope_needs_tenants(names) -> None:
    with pytest.raises(ScopeError), tenant_scope(*names):
        pass


def test_scopes_cannot_be_widened(db: None) -> None:
    with tenant_scope(A):
        with pytest.raises(ScopeError, match="widened"), tenant_scope(A, B):
            pass
        with pytest.raises(ScopeError, match="refused"), system_scope("test"):
            pass
    with pytest.raises(ScopeError, match="reason"), system_scope(" "):
        pass


def test_the_app_role_sees_nothing(shelves: tuple[Shelf, Shelf], raw: psycopg.Connection) -> None:
    for table in ("scopedapp_shelf", "scopedapp_book", "kernel_auditevent"):
        with pytest.raises(psycopg.errors.InsufficientPrivilege):
            raw.execute("SELECT count(*) FROM scopedapp_shelf")
        assert raw.execute("SELECT relforcerowsecurity FROM pg_class WHERE relname = %s", [table]).fetchone() == (True,)
    for statement in (
        "ALTER TABLE scopedapp_shelf DISABLE ROW LEVEL SECURITY",
        "CREATE TABLE mine (id int)",
        "TRUNCATE scopedapp_shelf",
        "DELETE FROM django_migrations",
    ):
        with pytest.raises(psycopg.errors.InsufficientPrivilege):
            raw.execute(statement)


# -- trip-wires: they look at every model of every app -------------------------------------------------------
OURS = ("kernel", "accounts", "infra", "tenants", "billing", "portal_auth", "home", "demo", "cli", "scopedapp")


def our_models() -> list[type[models.Model]]:
    return [
        model
        for model in apps.get_models(include_auto_created=True)
        if model._meta.app_label in OURS and not model._meta.proxy
    ]


def test_every_table_is_declared_global_or_tenant_owned() -> None:
    undeclared = [m.__name__ for m in our_models() if issubclass(m, Global) == issubclass(m, TenantOwned)]
    assert undeclared == []


def test_every_tenant_owned_model_is_guarded(db: None) -> None:
    for model in our_models():
        if not issubclass(model, TenantOwned):
            continue
        table = model._meta.db_table
        assert model._default_manager.__class__.__name__ == "ScopedManager", table
        assert model._base_manager.__class__.__name__ == "ScopedManager", table
        with connection.cursor() as cursor:
            cursor.execute(
                "SELECT relrowsecurity AND relforcerowsecurity, EXISTS (SELECT FROM pg_policy WHERE polrelid = c.oid)"
                " FROM pg_class c WHERE relname = %s AND relnamespace = 'public'::regnamespace",
                [table],
            )
            assert cursor.fetchone() == (True, True), f"{table}: its migration lacks EnableRLS"
            for field in model._meta.concrete_fields:
                target = field.related_model
                if target is None or not issubclass(target, TenantOwned):
                    continue
                name = composite_key_name(table, str(field.column))
                cursor.execute("SELECT count(*) FROM pg_constraint WHERE conname = %s AND contype = 'f'", [name])
                assert cursor.fetchone() == (1,), f"{table}.{field.column}: its migration lacks TenantForeignKey"


def test_unique_constraints_of_tenants_start_with_the_tenant() -> None:
    for model in our_models():
        if not issubclass(model, TenantOwned) or model is AuditEvent:
            continue
        for constraint in model._meta.constraints:
            if isinstance(constraint, models.UniqueConstraint) and constraint.fields:
                assert constraint.fields[0] in ("tenant", "tenant_id"), f"{model.__name__}: {constraint.name}"
        for field in model._meta.concrete_fields:
            assert not field.unique or field.primary_key, f"{model.__name__}.{field.name} is unique for all tenants"
