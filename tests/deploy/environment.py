"""The environment that a container gets, as this machine's processes can use it."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

from tests.support.db import ROOT

SECRETS = {
    "AIF_SECRET_KEY": "0123456789abcdefghijklmnopqrstuvwxyz0123456789abcdefghijklmnopqrstuvwxyz",
    "AIF_SECRET_KEY_FALLBACKS": "zyxwvutsrqponmlkjihgfedcba9876543210zyxwvutsrqponmlkjihgfedcba9876543210",
    "AIF_ENCRYPTION_KEYS": "dGVzdGluZy1vbmx5LXRlc3Rpbmctb25seS10ZXN0aW4=",
    "AIF_TOKEN_PEPPER": "abcdefghijklmnopqrstuvwxyz0123456789",
    "AIF_BROKER_URL": "redis://127.0.0.1:1/0",
    "AIF_OIDC_CLIENT_SECRET": "abcdefghijklmnopqrstuvwxyz",
    "AIF_METRICS_TOKEN": "abcdefghijklmnopqrstuvwxyz0123456789",
}


def secret_files(folder: Path, database_url: str) -> dict[str, str]:
    """Each secret in a file; name → its path."""
    paths = {}
    for name, value in (SECRETS | {"AIF_DATABASE_URL": database_url}).items():
        path = folder / name
        path.write_text(value + "\n")
        paths[name] = str(path)
    return paths


def check_deploy(settings: Mapping[str, str]) -> subprocess.CompletedProcess[str]:
    """``manage.py check --deploy`` with these settings alone; any warning makes it fail."""
    own = {name: value for name, value in os.environ.items() if not name.startswith(("AIF_", "DJANGO_"))}
    return subprocess.run(
        [sys.executable, "manage.py", "check", "--deploy", "--fail-level", "WARNING"],
        env=own | dict(settings), cwd=ROOT, capture_output=True, text=True, check=False,
    )  # fmt: skip
