"""Checks that Django and the API schema make of themselves: deploy settings, missing migrations, OpenAPI."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent

# Values that production must be given; none of them is used for anything but these checks.
PRODUCTION = {
    "DJANGO_SETTINGS_MODULE": "portal.settings.production",
    "AIF_SECRET_KEY": "checks-only-" * 6,
    "AIF_ENCRYPTION_KEYS": "Y2hlY2tzLW9ubHktY2hlY2tzLW9ubHktY2hlY2tzLTE=",
    "AIF_TOKEN_PEPPER": "checks-only-" * 4,
    "AIF_DATABASE_URL": "postgresql://aif_app@127.0.0.1/checks",
    "AIF_BROKER_URL": "redis://127.0.0.1:1/0",
    "AIF_ALLOWED_HOSTS": "portal.example.com",
    "AIF_PUBLIC_URL": "https://portal.example.com",
    "AIF_BEHIND_TLS_PROXY": "1",
}
TESTING = {"DJANGO_SETTINGS_MODULE": "portal.settings.testing"}


def run(name: str, environment: dict[str, str], *arguments: str) -> bool:
    """One management command; prints what it said where it failed."""
    clean = {key: value for key, value in os.environ.items() if not key.startswith(("AIF_", "DJANGO_"))}
    done = subprocess.run(
        [sys.executable, "manage.py", *arguments],
        cwd=ROOT,
        env=clean | environment,
        capture_output=True,
        text=True,
        check=False,
    )
    print(f"{name}: {'ok' if done.returncode == 0 else 'FAILED'}", flush=True)
    if done.returncode != 0:
        print(done.stdout + done.stderr)
    return done.returncode == 0


def main() -> int:
    """Exit status 1 where any check fails."""
    with tempfile.TemporaryDirectory() as folder:
        schema = str(Path(folder) / "schema.yml")
        results = [
            run("production settings", PRODUCTION, "check", "--deploy", "--fail-level", "WARNING"),
            run("migrations", TESTING, "makemigrations", "--check", "--dry-run"),
            run("OpenAPI", TESTING, "spectacular", "--validate", "--fail-on-warn", "--file", schema),
        ]
    return 0 if all(results) else 1


if __name__ == "__main__":
    sys.exit(main())
