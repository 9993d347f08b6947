"""The command line of an installation on one machine: ``python -m portal.cli up|down|manage|backup|restore``."""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
from contextlib import ExitStack
from pathlib import Path

import psycopg

from portal.cli.backup import Place, backup, embedded, nothing_runs, restore
from portal.cli.instance import ROOT, Instance, database_of, default_data_folder
from portal.cli.postgres import PostgresError
from portal.cli.processes import Identity
from portal.cli.supervisor import Options, Supervisor


def main(arguments: list[str] | None = None) -> int:
    """Run the command; the exit status."""
    parser = argparse.ArgumentParser(prog="python -m portal.cli", description="AI Factory Portal on one machine.")
    parser.add_argument("--data-dir", type=Path, default=None, help="where everything is kept")
    commands = parser.add_subparsers(dest="command", required=True)
    up = commands.add_parser("up", help="start everything and stay")
    up.add_argument("--data-dir", type=Path, default=argparse.SUPPRESS)
    up.add_argument("--port", type=int, default=None, help="of the web pages (default: 8000 or the next free one)")
    up.add_argument("--demo", action="store_true", help="with a simulated fleet and demonstration data")
    up.add_argument(
        "--clusters",
        choices=["simulator", "real", "none"],
        default="simulator",
        help="of the demonstration; real: control planes, built from source",
    )
    up.add_argument(
        "--sign-in",
        choices=["local", "keycloak"],
        default="local",
        help="of the demonstration; keycloak: a real one beside it (needs Java 17, and Maven the first time)",
    )
    down = commands.add_parser("down", help="end a running instance, and its database server")
    down.add_argument("--data-dir", type=Path, default=argparse.SUPPRESS)
    for name, about, option in (
        ("backup", "write a backup of the database (without the encryption keys) to a file", "--to"),
        ("restore", "restore a backup into an empty database", "--from"),
    ):
        kept = commands.add_parser(name, help=about)
        kept.add_argument("--data-dir", type=Path, default=argparse.SUPPRESS)
        kept.add_argument(option, type=Path, required=True, dest="file", metavar="FILE")
        role = "a role that reads everything" if name == "backup" else "the owner of the tables"
        kept.add_argument(
            "--database-url",
            help=f"of a database of your own, for {role}; the settings (AIF_…) come from the environment then",
        )
    manage = commands.add_parser("manage", help="run manage.py against the instance's database")
    manage.add_argument("rest", nargs=argparse.REMAINDER)
    given = parser.parse_args(arguments)
    instance = Instance((given.data_dir or default_data_folder()).absolute())
    if given.command == "up":
        if given.sign_in != "local" and not given.demo:
            parser.error("--sign-in keycloak is for the demonstration: add --demo, or see docs/sign-in.md.")
        options = Options(instance.data, given.port, given.demo, given.clusters, given.sign_in)
        return Supervisor(options, instance).run()
    if given.command == "down":
        return _down(instance)
    if given.command in ("backup", "restore"):
        if given.database_url and not (os.environ.get("AIF_DATABASE_URL") or os.environ.get("AIF_DATABASE_URL_FILE")):
            parser.error("with --database-url the environment must hold the settings: AIF_DATABASE_URL and the keys.")
        return _keep(instance, given)
    return _manage(instance, given.rest)


def _keep(instance: Instance, given: argparse.Namespace) -> int:
    def say(line: str) -> None:
        print(line, flush=True)  # noqa: T201

    try:
        with ExitStack() as stack:
            if given.database_url:
                url = given.database_url
                place = Place(database_of(os.environ), url, url, dict(os.environ))
            else:
                if given.command == "restore":
                    instance.prepare()
                    stack.enter_context(nothing_runs(instance))
                place = stack.enter_context(embedded(instance))
            (backup if given.command == "backup" else restore)(place, given.file, say)
    except (RuntimeError, psycopg.Error, OSError) as error:
        print(error, file=sys.stderr)  # noqa: T201
        return 1
    return 0


def _down(instance: Instance) -> int:
    state = instance.read_state()
    supervisor = state.get("supervisor")
    if supervisor is not None:
        Identity.from_json(supervisor).end(patience=60)
    for data in reversed(state.get("processes", [])):
        Identity.from_json(data).end()
    instance.postgres.stop()
    return 0


def _manage(instance: Instance, rest: list[str]) -> int:
    if not instance.private.exists():
        print(f"There is no installation in {instance.data}. Start one: python -m portal.cli up", file=sys.stderr)  # noqa: T201
        return 1
    env = instance.environment(port=8000, demo=bool(os.environ.get("AIF_DEMO")))
    try:
        with instance.postgres.running():
            # In the caller's folder, so that `apply -f FILE` finds the file.
            return subprocess.run([sys.executable, str(ROOT / "manage.py"), *rest], env=env, check=False).returncode
    except PostgresError as error:
        print(error, file=sys.stderr)  # noqa: T201
        return 1


if __name__ == "__main__":
    sys.exit(main())
