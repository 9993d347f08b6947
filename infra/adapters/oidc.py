"""Signing in to a tenant cluster: what its API server believes, and the kubeconfig that people get. Pure.

Shapes: ``AuthenticationConfiguration`` of apiserver.config.k8s.io/v1 (kubernetes, structured authentication), and a
kubeconfig with an exec plugin of client.authentication.k8s.io/v1 (int128/kubelogin). One audience a tenant: a token for
one tenant's cluster is refused by every other.
"""

from __future__ import annotations

import base64
from dataclasses import dataclass
from typing import Any

import yaml

PREFIX = "oidc:"
"""Before user and group names inside, so that no token can name a built-in user or group."""
USERNAME_CLAIM = "sub"
"""The subject: it is never given to somebody else, and it is what the portal knows its people by."""
GROUPS_CLAIM = "groups"


@dataclass(frozen=True)
class SignIn:
    """An identity provider as a tenant cluster uses it. ``ca_pem``: its authority, where it is no public one."""

    issuer: str
    audience: str
    ca_pem: str = ""


def authentication_configuration(sign_in: SignIn) -> str:
    """The API server's AuthenticationConfiguration, YAML."""
    issuer: dict[str, Any] = {"url": sign_in.issuer, "audiences": [sign_in.audience]}
    if sign_in.ca_pem:
        issuer["certificateAuthority"] = sign_in.ca_pem
    jwt = {
        "issuer": issuer,
        "claimMappings": {
            "username": {"claim": USERNAME_CLAIM, "prefix": PREFIX},
            "groups": {"claim": GROUPS_CLAIM, "prefix": PREFIX},
        },
        "userValidationRules": [
            {
                "expression": "!user.username.startsWith('system:')",
                "message": "names of the system are not given to people",
            },
            {
                "expression": "user.groups.all(group, !group.startsWith('system:'))",
                "message": "groups of the system are not given to people",
            },
        ],
    }
    config = {
        "apiVersion": "apiserver.config.k8s.io/v1",
        "kind": "AuthenticationConfiguration",
        "jwt": [jwt],
    }
    return yaml.safe_dump(config, sort_keys=False)


def member_kubeconfig(*, context: str, server: str, ca_pem: str, sign_in: SignIn) -> str:
    """A kubeconfig without a secret: the token comes from the identity provider when it is used (kubelogin).

    Args:
        context: its name in a list of contexts.
        ca_pem: the authority of ``server``.
    """
    arguments = [
        "oidc-login",
        "get-token",
        f"--oidc-issuer-url={sign_in.issuer}",
        f"--oidc-client-id={sign_in.audience}",
        f"--oidc-extra-scope={GROUPS_CLAIM}",
        "--oidc-pkce-method=S256",
        "--token-cache-storage=keyring",
    ]
    if sign_in.ca_pem:
        arguments.append(f"--certificate-authority-data={_base64(sign_in.ca_pem)}")
    user = {
        "exec": {
            "apiVersion": "client.authentication.k8s.io/v1",
            "command": "kubectl",
            "args": arguments,
            "interactiveMode": "IfAvailable",
            "installHint": "Install the kubectl plugin oidc-login (kubelogin): https://github.com/int128/kubelogin",
        }
    }
    config = {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": context,
        "clusters": [
            {"name": context, "cluster": {"server": server, "certificate-authority-data": _base64(ca_pem)}},
        ],
        "contexts": [{"name": context, "context": {"cluster": context, "user": f"{context}-oidc"}}],
        "users": [{"name": f"{context}-oidc", "user": user}],
    }
    return yaml.safe_dump(config, sort_keys=False)


def _base64(text: str) -> str:
    return base64.b64encode(text.encode()).decode()
