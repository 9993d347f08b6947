"""Tokens of service accounts (TokenRequest): they end with their time, and with their account."""

from __future__ import annotations

import base64
import json
import secrets
from collections.abc import Callable
from typing import TYPE_CHECKING

from simulator.access import User
from simulator.errors import bad_request
from simulator.kinds import SERVICE_ACCOUNT, Obj
from simulator.objects import name_of, rfc3339
from simulator.store import Store

if TYPE_CHECKING:
    from simulator.cluster import Cluster

ISSUER = "https://kubernetes.default.svc.cluster.local"
LEAST_SECONDS, DEFAULT_SECONDS = 600, 3600


class Tokens:
    """Of one cluster, in memory. There is no RBAC here: who has one may do everything."""

    def __init__(self, store: Store, clock: Callable[[], float]) -> None:
        self._store, self._clock = store, clock
        self._rows: dict[str, tuple[User, str, str, str, float]] = {}

    def request(self, cluster: Cluster, namespace: str, name: str, body: Obj) -> Obj:
        """The answer to a TokenRequest; raises ApiError 404 for an account that is not there."""
        account = cluster.registry.entry(SERVICE_ACCOUNT, namespace, name).obj
        spec = body.get("spec") or {}
        seconds = spec.get("expirationSeconds") or DEFAULT_SECONDS
        if not isinstance(seconds, int) or seconds < LEAST_SECONDS:
            raise bad_request(f"spec.expirationSeconds: may not specify a duration less than {LEAST_SECONDS} seconds")
        now = self._clock()
        ends = now + seconds
        subject = f"system:serviceaccount:{namespace}:{name}"
        groups = ("system:serviceaccounts", f"system:serviceaccounts:{namespace}", "system:authenticated")
        claims = {
            "iss": ISSUER,
            "sub": subject,
            "aud": spec.get("audiences") or [ISSUER],
            "iat": int(now),
            "exp": int(ends),
            "kubernetes.io": {
                "namespace": namespace,
                "serviceaccount": {"name": name, "uid": account["metadata"]["uid"]},
            },
        }
        user = User(subject, groups, _token(claims), writes=True)
        self._rows[user.token] = (user, namespace, name, account["metadata"]["uid"], ends)
        return {
            "kind": "TokenRequest",
            "apiVersion": "authentication.k8s.io/v1",
            "metadata": {"name": name_of(account), "namespace": namespace, "creationTimestamp": rfc3339(self._clock())},
            "spec": {**spec, "expirationSeconds": seconds},
            "status": {"token": user.token, "expirationTimestamp": rfc3339(ends)},
        }

    def user(self, token: str) -> User | None:
        """Whose token it is; None once its time is over or its account is gone or another one."""
        row = self._rows.get(token)
        if row is None:
            return None
        user, namespace, name, uid, ends = row
        entry = self._store.get(SERVICE_ACCOUNT, namespace, name)
        if entry is None or entry.obj["metadata"]["uid"] != uid or self._clock() >= ends:
            del self._rows[token]
            return None
        return user


def _token(claims: Obj) -> str:
    """In a JWT's form, so that its end can be read; in place of a signature stands a secret, and it is looked up."""
    parts = [{"alg": "RS256", "typ": "JWT"}, claims]
    texts = [base64.urlsafe_b64encode(json.dumps(part).encode()).decode().rstrip("=") for part in parts]
    return ".".join([*texts, secrets.token_urlsafe(48)])
