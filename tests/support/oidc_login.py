"""The kubectl plugin ``oidc-login`` for tests: kubelogin's name and arguments, and a person who fills the form.

kubelogin itself (int128/kubelogin) can't be had from the module registry. This does what it does with the grant type
``authcode`` (discovery, authorization code with PKCE, the ID token to kubectl), and nothing is kept: each call signs in
anew. Who signs in is in the environment, ``AIF_TEST_LOGIN=USERNAME:PASSWORD``.
"""

from __future__ import annotations

import argparse
import base64
import datetime as dt
import hashlib
import html
import json
import os
import re
import secrets
import shlex
import sys
import tempfile
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlencode, urlsplit

import requests

REDIRECT = "http://localhost:8000"
ROOT = Path(__file__).resolve().parents[2]


def install(folder: Path) -> Path:
    """Put the plugin into a folder, to be first on ``PATH``; returns the folder."""
    program = folder / "kubectl-oidc_login"
    command = f'exec {shlex.quote(sys.executable)} -m tests.support.oidc_login "$@"'
    program.write_text(f"#!/bin/sh\ncd {shlex.quote(str(ROOT))} && {command}\n")
    program.chmod(0o755)
    return folder


def id_token(given: argparse.Namespace, username: str, password: str) -> str:
    """Sign in through the provider's pages; its ID token. Raises RuntimeError with what the provider says."""
    http = requests.Session()
    http.trust_env = False  # REQUESTS_CA_BUNDLE goes before a session's own `verify`
    with tempfile.NamedTemporaryFile("w", suffix=".pem") as authority:
        authority.write(base64.b64decode(given.certificate_authority_data or "").decode())
        authority.flush()
        http.verify = authority.name if given.certificate_authority_data else True
        discovery = http.get(f"{given.oidc_issuer_url}/.well-known/openid-configuration", timeout=30).json()
        verifier = secrets.token_urlsafe(48)
        challenge = base64.urlsafe_b64encode(hashlib.sha256(verifier.encode()).digest()).decode().rstrip("=")
        query = {
            "response_type": "code", "client_id": given.oidc_client_id, "redirect_uri": REDIRECT,
            "scope": " ".join(["openid", *given.oidc_extra_scope]), "state": secrets.token_urlsafe(16),
            "code_challenge": challenge, "code_challenge_method": "S256",
        }  # fmt: skip
        code = _code(http, f"{discovery['authorization_endpoint']}?{urlencode(query)}", username, password)
        form = {
            "grant_type": "authorization_code", "code": code, "client_id": given.oidc_client_id,
            "redirect_uri": REDIRECT, "code_verifier": verifier,
        }  # fmt: skip
        answer: dict[str, Any] = http.post(discovery["token_endpoint"], data=form, timeout=30).json()
    if "id_token" not in answer:
        raise RuntimeError(f"the provider gives no token: {answer}")
    return str(answer["id_token"])


def _code(http: requests.Session, address: str, username: str, password: str) -> str:
    answer = http.get(address, allow_redirects=False, timeout=30)
    form = re.search(r'<form[^>]*id="kc-form-login"[^>]*action="([^"]+)"', answer.text)
    if form:
        fields = {"username": username, "password": password, "credentialId": ""}
        answer = http.post(html.unescape(form[1]), data=fields, allow_redirects=False, timeout=30)
    found = parse_qs(urlsplit(answer.headers.get("Location", "")).query)
    if "code" not in found:
        raise RuntimeError(f"the provider answers {answer.status_code}: {found or answer.text[:500]}")
    return found["code"][0]


def arguments(words: list[str]) -> argparse.Namespace:
    """kubelogin's, as far as a kubeconfig of the portal uses them; one that is not known ends the program."""
    parser = argparse.ArgumentParser(prog="kubectl oidc-login")
    parser.add_argument("command", choices=["get-token"])
    parser.add_argument("--oidc-issuer-url", required=True)
    parser.add_argument("--oidc-client-id", required=True)
    parser.add_argument("--oidc-extra-scope", action="append", default=[])
    parser.add_argument("--oidc-pkce-method", default="auto", choices=["auto", "S256"])
    parser.add_argument("--token-cache-storage", default="disk", choices=["disk", "keyring", "none"])
    parser.add_argument("--certificate-authority-data", default="")
    parser.add_argument("--grant-type", default="auto", choices=["auto", "authcode"])
    return parser.parse_args(words)


def main() -> int:
    """Print an ExecCredential (client.authentication.k8s.io/v1) for kubectl."""
    username, _, password = os.environ["AIF_TEST_LOGIN"].partition(":")
    try:
        token = id_token(arguments(sys.argv[1:]), username, password)
    except (RuntimeError, requests.RequestException) as error:
        sys.stderr.write(f"oidc-login: {error}\n")
        return 1
    middle = token.split(".")[1]
    claims = json.loads(base64.urlsafe_b64decode(middle + "=" * (-len(middle) % 4)))
    ends = dt.datetime.fromtimestamp(claims["exp"], dt.UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    credential = {
        "apiVersion": "client.authentication.k8s.io/v1",
        "kind": "ExecCredential",
        "status": {"token": token, "expirationTimestamp": ends},
    }
    sys.stdout.write(json.dumps(credential))
    return 0


if __name__ == "__main__":
    sys.exit(main())
