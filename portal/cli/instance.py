"""One installation on one machine: its data folder, its secrets, and the environment its processes get. No Django."""

from __future__ import annotations

import base64
import json
import os
import secrets
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from portal.cli.postgres import APP, OWNER, Postgres

DATABASE = "aif"
ROOT = Path(__file__).resolve().parents[2]


def default_data_folder() -> Path:
    """As root a folder of its own (the database's user must reach it), else the user's data folder."""
    if given := os.environ.get("AIF_DATA_DIR"):
        return Path(given)
    if os.geteuid() == 0:
        return Path("/var/lib/ai-factory-portal")
    home = Path(os.environ.get("XDG_DATA_HOME") or Path.home() / ".local" / "share")
    return home / "ai-factory-portal"


@dataclass(frozen=True)
class Instance:
    """Where everything of the installation is."""

    data: Path

    @property
    def postgres(self) -> Postgres:
        """Its embedded database server."""
        return Postgres(self.data / "postgres", self.data / "postgres-run")

    @property
    def private(self) -> Path:
        """Secrets, sockets, state: only our user may enter."""
        return self.data / "private"

    @property
    def state_file(self) -> Path:
        """Pids and address of the running instance."""
        return self.private / "state.json"

    @property
    def broker_socket(self) -> Path:
        """Where the embedded Valkey listens."""
        return self.private / "valkey.sock"

    def prepare(self) -> None:
        """Make the folders. As root the data folder may be entered (not listed) by the database's user."""
        root = os.geteuid() == 0
        self.data.mkdir(parents=True, exist_ok=True, mode=0o711 if root else 0o700)
        if root:
            self.data.chmod(0o711)
        self.private.mkdir(exist_ok=True, mode=0o700)
        self.private.chmod(0o700)
        (self.data / "valkey").mkdir(exist_ok=True, mode=0o700)

    def secrets(self) -> dict[str, str]:
        """The installation's secrets; made on the first start, readable by our user only."""
        path = self.private / "secrets.json"
        if path.exists():
            stored: dict[str, str] = json.loads(path.read_text())
            return stored
        made = {
            "AIF_SECRET_KEY": secrets.token_urlsafe(50),
            "AIF_ENCRYPTION_KEYS": base64.urlsafe_b64encode(secrets.token_bytes(32)).decode(),
            "AIF_TOKEN_PEPPER": secrets.token_urlsafe(32),
        }
        write_private(path, json.dumps(made, indent=1))
        return made

    def environment(self, *, port: int, demo: bool, owner: bool = False) -> dict[str, str]:
        """The environment of a process of ours: the caller's without its ``AIF_*``, and our settings.

        Args:
            owner: log in as the owner of the tables (for migrations), not as the app role.
        """
        inherited = {name: value for name, value in os.environ.items() if not name.startswith("AIF_")}
        kept = {name: os.environ[name] for name in ("AIF_LOG_LEVEL",) if name in os.environ}
        return {
            **inherited,
            **kept,
            **self._bytecode(inherited),
            **self.secrets(),
            "DJANGO_SETTINGS_MODULE": "portal.settings.production",
            "PYTHONUNBUFFERED": "1",
            "AIF_DATABASE_URL": self.postgres.url(DATABASE, OWNER if owner else APP),
            "AIF_BROKER_URL": f"redis+socket://{self.broker_socket}",
            "AIF_ALLOWED_HOSTS": "127.0.0.1,localhost",
            "AIF_PUBLIC_URL": f"http://127.0.0.1:{port}",
            "AIF_LOOPBACK": "1",
            "AIF_STATIC_ROOT": str(self.data / "static"),
            "AIF_DEMO": "1" if demo else "0",
        }

    def _bytecode(self, env: dict[str, str]) -> dict[str, str]:
        """Where Python may not keep compiled modules beside their source, they are kept in the data folder: else each
        of our processes would compile a thousand modules anew, which takes seconds."""
        if not env.get("PYTHONDONTWRITEBYTECODE") or env.get("PYTHONPYCACHEPREFIX"):
            return {}
        return {"PYTHONDONTWRITEBYTECODE": "", "PYTHONPYCACHEPREFIX": str(self.data / "bytecode")}

    def read_state(self) -> dict[str, Any]:
        """What the last start wrote; empty if there was none or the file is broken."""
        try:
            state: dict[str, Any] = json.loads(self.state_file.read_text())
        except (OSError, ValueError):
            return {}
        return state

    def write_state(self, state: dict[str, Any]) -> None:
        """Replace the state file in one step."""
        write_private(self.state_file, json.dumps(state, indent=1))


def write_private(path: Path, text: str) -> None:
    """Write a file that only our user may read, in one step."""
    unfinished = path.with_suffix(".new")
    descriptor = os.open(unfinished, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(descriptor, "w") as handle:
        handle.write(text)
    unfinished.replace(path)


def with_database(env: Mapping[str, str], url: str) -> dict[str, str]:
    """The environment with this address of the database, whatever it or a file named before."""
    others = {name: value for name, value in env.items() if name != "AIF_DATABASE_URL_FILE"}
    return {**others, "AIF_DATABASE_URL": url}


def database_of(env: Mapping[str, str]) -> str:
    """The address of the database that the settings name, themselves or by a file; empty where they name none.

    Raises OSError where the file can't be read.
    """
    path = env.get("AIF_DATABASE_URL_FILE")
    return Path(path).read_text(encoding="utf-8").strip() if path else env.get("AIF_DATABASE_URL", "").strip()
