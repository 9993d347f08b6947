"""The compose file: its secrets, its database roles, and the settings of its processes."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest
import yaml
from cryptography.fernet import Fernet

from portal.cli.postgres import SUPERUSER, Postgres, binaries
from tests.deploy.environment import check_deploy, secret_files
from tests.support.db import ROOT, Clone

FOLDER = ROOT / "deploy" / "compose"
PROCESSES = ("web", "worker", "beat", "watcher", "migration")
GIVEN = {"AIF_PUBLIC_URL": "https://portal.example.com", "AIF_ALLOWED_HOSTS": "portal.example.com"}
_VARIABLE = re.compile(r"\$\{(\w+)(?::[-?]([^}]*))?\}")


@pytest.fixture(scope="module")
def compose() -> dict[str, Any]:
    """The file with the variables that a person gives filled in."""

    def fill(match: re.Match[str]) -> str:
        return GIVEN.get(match[1], "" if ":?" in match[0] else match[2] or "")

    def walk(value: Any) -> Any:
        if isinstance(value, dict):
            return {name: walk(each) for name, each in value.items()}
        if isinstance(value, list):
            return [walk(each) for each in value]
        return _VARIABLE.sub(fill, value) if isinstance(value, str) else value

    data: dict[str, Any] = walk(yaml.safe_load((FOLDER / "compose.yaml").read_text()))
    return data


@pytest.fixture(scope="module")
def secrets() -> Iterator[Path]:
    """The secrets, made by the script in a folder of their own."""
    with tempfile.TemporaryDirectory() as folder:
        _make(Path(folder))
        yield Path(folder)


def _make(folder: Path) -> None:
    subprocess.run([str(FOLDER / "secrets.sh"), str(folder)], check=True, capture_output=True)


def test_every_process_starts_with_settings_that_production_accepts(
    compose: dict[str, Any], tmp_path: Path, clone: Clone
) -> None:
    """``check --deploy`` has nothing to say."""
    files = secret_files(tmp_path, clone.url())
    for process in PROCESSES:
        environment = compose["services"][process]["environment"]
        mounted = compose["services"][process]["secrets"]
        for name, value in environment.items():
            if name.endswith("_FILE"):
                assert value.removeprefix("/run/secrets/") in mounted, f"{process} does not have {value}"
    web = dict(compose["services"]["web"]["environment"])
    web |= {name: files[name.removesuffix("_FILE")] for name in web if name.endswith("_FILE")}
    done = check_deploy(web)
    assert done.returncode == 0, done.stdout + done.stderr


def test_only_the_migration_sees_the_owners_address(compose: dict[str, Any]) -> None:
    """The others log in as the app role."""
    seen = {
        name for name in compose["services"] if "owner_database_url" in compose["services"][name].get("secrets", ())
    }
    assert seen == {"migration"}


def test_the_processes_can_do_little(compose: dict[str, Any]) -> None:
    """No capability, no new privileges, nothing of the image may be written; only loopback is opened."""
    for process in PROCESSES:
        service = compose["services"][process]
        assert service["read_only"] is True
        assert service["cap_drop"] == ["ALL"]
        assert service["security_opt"] == ["no-new-privileges:true"]
    ports = {name: service["ports"] for name, service in compose["services"].items() if "ports" in service}
    assert ports == {"web": ["127.0.0.1:8000:8000"]}


def test_every_secret_that_is_named_is_made(compose: dict[str, Any], secrets: Path) -> None:
    """By the script; and nothing of it is made twice."""
    assert {Path(each["file"]).name for each in compose["secrets"].values()} == {
        path.name for path in secrets.iterdir()
    }
    before = {path.name: path.read_text() for path in secrets.iterdir()}
    _make(secrets)
    assert {path.name: path.read_text() for path in secrets.iterdir()} == before
    Fernet((secrets / "encryption_keys").read_text().strip())
    assert len({text for name, text in before.items() if not name.endswith("_url")}) == 7


def test_nobody_else_gets_to_the_secrets_also_in_a_folder_that_was_there(tmp_path: Path) -> None:
    """Each file can be read by everybody, as the image's user must; so the folder keeps them."""
    tmp_path.chmod(0o755)
    _make(tmp_path)
    assert tmp_path.stat().st_mode & 0o777 == 0o700


def test_the_roles_are_those_that_the_portal_asks_for(secrets: Path, tmp_path: Path) -> None:
    """On a fresh server: the owner migrates, the app role passes the portal's own check and is kept apart."""
    # As root the server has a user of its own, who must be able to reach its folder.
    base = Path(tempfile.mkdtemp(dir="/var/lib" if os.geteuid() == 0 else None, prefix="aif-roles-"))
    base.chmod(0o711)
    server = Postgres(base / "pg", base / "run", fsync=False)
    try:
        server.ensure_running()
        script = (FOLDER / "roles.sh").read_text().replace("/run/secrets", str(secrets))
        path = f"{binaries()}:{os.environ['PATH']}"
        environment = os.environ | {"PGHOST": str(server.socket_dir), "POSTGRES_USER": SUPERUSER, "PATH": path}
        done = subprocess.run(["bash", "-c", script], env=environment, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        owner, app = server.url("aif", "aif_owner"), server.url("aif", "aif_app")
        _manage("migrate", "--no-input", "--verbosity", "0", url=owner)
        _manage("check", "--deploy", "--database", "default", "--tag", "database", url=app)
        with psycopg.connect(app) as connection, pytest.raises(psycopg.errors.InsufficientPrivilege):
            connection.execute("CREATE TABLE mine (a int)")
    finally:
        server.stop()
        shutil.rmtree(base, ignore_errors=True)


def _manage(*arguments: str, url: str) -> None:
    environment = os.environ | {"DJANGO_SETTINGS_MODULE": "portal.settings.testing", "AIF_DATABASE_URL": url}
    done = subprocess.run(
        [sys.executable, "manage.py", *arguments],
        env=environment,
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
