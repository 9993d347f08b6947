"""Migration operations for tables that belong to tenants.

They take *table* names (``"tenants_gpuquota"``), run as the owner, and change no model state::

    operations = [
        migrations.CreateModel(...),
        EnableRLS("tenants_modelreplica"),
        TenantForeignKey("tenants_modelreplica", "deployment_id", "tenants_modeldeployment"),
        AppendOnly("billing_usagerecord"),
    ]
"""

import hashlib
from typing import Any

from django.conf import settings
from django.db.backends.base.schema import BaseDatabaseSchemaEditor
from django.db.migrations.operations.base import Operation
from django.db.migrations.state import ProjectState

POLICY = "aif_tenant"
"""Name of the policy that lets a tenant scope read and write its rows."""


def composite_key_name(child: str, column: str) -> str:
    """Name of the constraint that :class:`TenantForeignKey` adds (at most 63 characters)."""
    return _short(f"{child}_{column}_tenant_fk")


def _short(name: str) -> str:
    if len(name) <= 63:
        return name
    return f"{name[:50]}_{hashlib.sha256(name.encode()).hexdigest()[:12]}"


class _SQL(Operation):
    """An operation that is only SQL and leaves the model state alone."""

    reduces_to_sql = True
    reversible = True

    def forward(self) -> list[str]:
        raise NotImplementedError

    def backward(self) -> list[str]:
        raise NotImplementedError

    def state_forwards(self, app_label: str, state: ProjectState) -> None:
        """The state stays: Django knows nothing of policies and composite keys."""

    def database_forwards(
        self, app_label: str, schema_editor: BaseDatabaseSchemaEditor, from_state: Any, to_state: Any
    ) -> None:
        for statement in self.forward():
            schema_editor.execute(statement, params=None)

    def database_backwards(
        self, app_label: str, schema_editor: BaseDatabaseSchemaEditor, from_state: Any, to_state: Any
    ) -> None:
        for statement in self.backward():
            schema_editor.execute(statement, params=None)

    def deconstruct(self) -> tuple[str, list[Any], dict[str, Any]]:
        args, kwargs = self._constructor_args  # type: ignore[attr-defined]  # set by Operation.__new__
        return self.__class__.__name__, list(args), dict(kwargs)


class EnableRLS(_SQL):
    """Turn row-level security on, also for the owner, with one policy for reading and writing.

    Args:
        table: a table with a column ``tenant_id``.
        insert_anyone: rows may be added for any tenant, also without a scope (the audit, whose refusals are
            written when no scope is open); reading stays within the scope.
    """

    def __init__(self, table: str, insert_anyone: bool = False) -> None:
        self.table = table
        self.insert_anyone = insert_anyone

    def forward(self) -> list[str]:
        # ANY((SELECT f())) runs the function once; a bare f() in the policy would run it for each row.
        within = "tenant_id = ANY ((SELECT aif_tenants())::uuid[])"
        statements = [
            f'ALTER TABLE "{self.table}" ENABLE ROW LEVEL SECURITY',
            f'ALTER TABLE "{self.table}" FORCE ROW LEVEL SECURITY',
        ]
        if self.insert_anyone:
            statements += [
                f'CREATE POLICY {POLICY} ON "{self.table}" FOR SELECT USING ({within})',
                f'CREATE POLICY {POLICY}_insert ON "{self.table}" FOR INSERT WITH CHECK (true)',
            ]
        else:
            statements.append(f'CREATE POLICY {POLICY} ON "{self.table}" USING ({within}) WITH CHECK ({within})')
        return statements

    def backward(self) -> list[str]:
        return [
            f'DROP POLICY IF EXISTS {POLICY}_insert ON "{self.table}"',
            f'DROP POLICY {POLICY} ON "{self.table}"',
            f'ALTER TABLE "{self.table}" NO FORCE ROW LEVEL SECURITY',
            f'ALTER TABLE "{self.table}" DISABLE ROW LEVEL SECURITY',
        ]

    def describe(self) -> str:
        return f"Enable row-level security on {self.table}"


class TenantForeignKey(_SQL):
    """Composite key (tenant_id, column) → parent (tenant_id, id): a row can't point into another tenant.

    Foreign-key checks bypass row-level security, so Django's own key alone would accept a foreign parent's id.
    """

    def __init__(self, child: str, column: str, parent: str) -> None:
        self.child = child
        self.column = column
        self.parent = parent

    def forward(self) -> list[str]:
        unique = _short(f"{self.parent}_tenant_id_id_key")
        return [
            f'CREATE UNIQUE INDEX IF NOT EXISTS "{unique}" ON "{self.parent}" (tenant_id, id)',
            (
                f'ALTER TABLE "{self.child}" ADD CONSTRAINT "{composite_key_name(self.child, self.column)}" '
                f'FOREIGN KEY (tenant_id, "{self.column}") REFERENCES "{self.parent}" (tenant_id, id) '
                "DEFERRABLE INITIALLY DEFERRED"
            ),
        ]

    def backward(self) -> list[str]:
        name = composite_key_name(self.child, self.column)
        return [f'ALTER TABLE "{self.child}" DROP CONSTRAINT "{name}"']

    def describe(self) -> str:
        return f"Composite tenant key {self.child}.{self.column} to {self.parent}"


class AppendOnly(_SQL):
    """Rows may be added and read, never changed or removed: not by the app role, not by the system role."""

    def __init__(self, table: str) -> None:
        self.table = table

    def forward(self) -> list[str]:
        return [f'REVOKE UPDATE, DELETE, TRUNCATE ON "{self.table}" FROM {_roles()}']

    def backward(self) -> list[str]:
        return [f'GRANT UPDATE, DELETE ON "{self.table}" TO {_roles()}']

    def describe(self) -> str:
        return f"Make {self.table} append-only"


class GrantRuntimeRoles(_SQL):
    """Let the app and the system role use what the owner has made, and what it will make."""

    def forward(self) -> list[str]:
        roles = _roles()
        return [
            f"GRANT USAGE ON SCHEMA public TO {roles}",
            f"GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA public TO {roles}",
            f"GRANT USAGE, SELECT ON ALL SEQUENCES IN SCHEMA public TO {roles}",
            f"ALTER DEFAULT PRIVILEGES IN SCHEMA public GRANT SELECT, INSERT, UPDATE, DELETE ON TABLES TO {roles}",
            f"ALTER DEFAULT PRIVILEGES IN SCHEMA public GRANT USAGE, SELECT ON SEQUENCES TO {roles}",
            f"REVOKE INSERT, UPDATE, DELETE ON django_migrations FROM {roles}",
        ]

    def backward(self) -> list[str]:
        roles = _roles()
        return [
            f"ALTER DEFAULT PRIVILEGES IN SCHEMA public REVOKE ALL ON SEQUENCES FROM {roles}",
            f"ALTER DEFAULT PRIVILEGES IN SCHEMA public REVOKE ALL ON TABLES FROM {roles}",
            f"REVOKE ALL ON ALL SEQUENCES IN SCHEMA public FROM {roles}",
            f"REVOKE ALL ON ALL TABLES IN SCHEMA public FROM {roles}",
        ]

    def describe(self) -> str:
        return "Grant the runtime roles their rights"


def _roles() -> str:
    return f'"{settings.AIF_DB_APP_ROLE}", "{settings.AIF_DB_SYSTEM_ROLE}"'
