"""System checks of the settings that isolation depends on."""

from collections.abc import Sequence
from typing import Any

from django.core.checks import CheckMessage, Error, Tags, register
from django.db import connections

from portal.kernel import crypto


@register(Tags.security)
def encryption_keys(app_configs: Any, **kwargs: Any) -> list[CheckMessage]:
    """The encryption keys can be used."""
    try:
        crypto.decrypt(crypto.encrypt(b"check"))
    except Exception as error:  # noqa: BLE001  # whatever it is, the keys are not usable
        return [Error(str(error), id="aif.E001")]
    return []


def role_problem(alias: str = "default") -> str | None:
    """Why the role we log in with must not serve requests, or ``None``."""
    with connections[alias].cursor() as cursor:
        cursor.execute("SELECT rolsuper OR rolbypassrls FROM pg_roles WHERE rolname = session_user")
        row = cursor.fetchone()
        cursor.execute(
            "SELECT EXISTS (SELECT FROM pg_class WHERE relkind IN ('r', 'p') AND relrowsecurity"
            " AND relowner = (SELECT oid FROM pg_roles WHERE rolname = session_user))"
        )
        owned = cursor.fetchone()
    if (row and row[0]) or (owned and owned[0]):
        return (
            "The database role of AIF_DATABASE_URL is a superuser, bypasses row-level security or owns the tables, "
            "so the database would not keep tenants apart. Log in as the app role; the owner's address is for "
            "`migrate` only."
        )
    return None


@register(Tags.database, deploy=True)
def database_roles(app_configs: Any, databases: Sequence[str] | None = None, **kwargs: Any) -> list[CheckMessage]:
    """``check --deploy --database default``; not part of ``migrate``, which the owner runs."""
    problems = [role_problem(alias) for alias in databases or []]
    return [Error(problem, id="aif.E002") for problem in problems if problem]
