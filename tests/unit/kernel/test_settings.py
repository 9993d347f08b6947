"""Settings come from the environment, and production is strict."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from portal.cli.postgres import OWNER
from tests.support.db import ROOT, Clone

GOOD = {
    "DJANGO_SETTINGS_MODULE": "portal.settings.production",
    "AIF_SECRET_KEY": "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ",
    "AIF_ENCRYPTION_KEYS": "dGVzdGluZy1vbmx5LXRlc3Rpbmctb25seS10ZXN0aW4=",
    "AIF_TOKEN_PEPPER": "0123456789abcdefghijklmnopqrstuvwxyz",
    "AIF_BROKER_URL": "redis://127.0.0.1/0",
    "AIF_ALLOWED_HOSTS": "portal.example.org",
    "AIF_PUBLIC_URL": "https://portal.example.org",
}


def manage(*arguments: str, **changes: str) -> subprocess.CompletedProcess[str]:
    inherited = {key: value for key, value in os.environ.items() if not key.startswith("AIF_")}
    environment = inherited | GOOD | {"AIF_DATABASE_URL": "postgresql://aif_app@127.0.0.1/aif"} | changes
    return subprocess.run(
        [sys.executable, "manage.py", *arguments],
        cwd=ROOT, env={key: value for key, value in environment.items() if value}, capture_output=True, text=True,
        check=False,
    )  # fmt: skip


def test_check_deploy_is_clean(clone: Clone) -> None:
    deploy = ("check", "--deploy", "--fail-level", "WARNING", "--database", "default")
    result = manage(*deploy, AIF_DATABASE_URL=clone.url())
    assert result.returncode == 0, result.stderr
    result = manage(*deploy, AIF_DATABASE_URL=clone.url(OWNER))
    assert "aif.E002" in result.stderr, "the owner's address must not serve requests"


@pytest.mark.parametrize(
    ("name", "value", "sentence"),
    [
        ("AIF_SECRET_KEY", "", "Set AIF_SECRET_KEY"),
        ("AIF_ENCRYPTION_KEYS", "", "Set AIF_ENCRYPTION_KEYS"),
        ("AIF_ENCRYPTION_KEYS", "short", "32 bytes"),
        ("AIF_TOKEN_PEPPER", "short", "shorter than 32"),
        ("AIF_ALLOWED_HOSTS", "", "Set AIF_ALLOWED_HOSTS"),
        ("AIF_DATABASE_URL", "mysql://x/y", "use postgresql://"),
        ("AIF_LOCAL_ACCOUNTS", "maybe", "use 1 or 0"),
        ("AIF_LOOPBACK", "1", "only 127.0.0.1"),
    ],
)
def test_a_wrong_environment_stops_the_start_with_a_sentence(name: str, value: str, sentence: str) -> None:
    result = manage("check", **{name: value})
    assert result.returncode != 0
    assert sentence in result.stderr


OIDC = {
    "AIF_OIDC_ISSUER": "https://sso.example.org/realms/x",
    "AIF_OIDC_CLIENT_ID": "portal",
    "AIF_OIDC_CLIENT_SECRET": "s3cret",
}


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({}, ""),
        ({"AIF_OIDC_ISSUER": "http://sso.example.org/realms/x"}, "AIF_OIDC_ISSUER=http://sso.example.org"),
        ({"AIF_OIDC_BACKCHANNEL_URL": "http://keycloak:8080/realms/x"}, "AIF_OIDC_BACKCHANNEL_URL=http://keycloak"),
        ({"AIF_OIDC_ISSUER": "sso.example.org"}, "use https://"),
        ({"AIF_OIDC_CLIENT_SECRET": ""}, "needs AIF_OIDC_CLIENT_ID and AIF_OIDC_CLIENT_SECRET"),
        ({"AIF_OIDC_SCOPES": "profile"}, "must hold openid"),
        ({"AIF_OIDC_ISSUER": "", "AIF_LOCAL_ACCOUNTS": "0"}, "Nobody can sign in"),
    ],
)
def test_sign_in_through_a_provider_is_set_up_wholly_or_not(changes: dict[str, str], sentence: str) -> None:
    result = manage("check", "--deploy", "--fail-level", "ERROR", **(OIDC | changes))
    assert (result.returncode == 0) is (not sentence), result.stderr
    assert sentence in result.stderr
    assert "s3cret" not in result.stderr + result.stdout


def test_migrations_are_complete(db: None) -> None:
    from django.core.management import call_command

    call_command("makemigrations", "kernel", "accounts", "scopedapp", "--check", "--dry-run", verbosity=0)
