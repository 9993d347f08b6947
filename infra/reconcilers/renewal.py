"""Tokens of a service account are renewed by the probe after two thirds of their life, where the right is given.

The right is optional (``deploy/clusterroles/renew.yaml``): ``create serviceaccounts/token`` for the portal's own
account and no other. Without it people rotate the kubeconfig by hand, and are warned in time.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import datetime

from infra.credentials import ServiceAccountToken, renew_at, service_account_token
from infra.kube.access import Review
from infra.kube.client import KubeClient
from infra.kube.errors import KubeError
from infra.kube.kubeconfig import Credentials
from infra.models import Cluster
from infra.rights import kubectl
from portal.kernel import crypto
from portal.kernel.conditions import Condition, get_condition

CREDENTIALS_RENEWED = "CredentialsRenewed"


@dataclass(frozen=True)
class Renewal:
    """What came of it. ``credentials``: new ones that the cluster has accepted; ``None``: those of before stay."""

    condition: Condition
    credentials: Credentials | None = None


def renew(client: KubeClient, cluster: Cluster, now: datetime, *, ask: bool) -> Renewal | None:
    """Renew the cluster's token where it is time. A cluster that fails is a finding, no failure.

    Args:
        ask: whether it is time to ask for the right, whatever the token's age.

    Returns:
        ``None``: nothing is to be said (no token that could be renewed; or nothing is due).
    """
    stored = Credentials.loads(crypto.decrypt(cluster.kubeconfig_ciphertext))
    token = service_account_token(stored.token)
    known = get_condition(cluster.conditions, CREDENTIALS_RENEWED)
    if token is None or stored.client_cert is not None:
        if known is None or known.reason == "ByHand":
            return None
        return Renewal(
            Condition(CREDENTIALS_RENEWED, "Unknown", "ByHand", "They can't be renewed: rotate them by hand.")
        )
    due = renew_at(token.issued_at, token.expires_at)
    is_due = due is not None and now >= due
    if not ask and not (is_due and known is not None and known.status == "True"):
        return None
    right = Review("create", "", "serviceaccounts", "token", token.namespace, token.name)
    try:
        if not client.access_review(right):
            return Renewal(_by_hand(right, cluster, token))
        if not is_due:
            message = f"Renewed by the portal from {due:%Y-%m-%d %H:%M} UTC on." if due is not None else ""
            return Renewal(Condition(CREDENTIALS_RENEWED, "True", "WillRenew", message))
        return _renewed(client, cluster, stored, token)
    except KubeError as error:
        message = f"They could not be renewed: {error.sentence} They end at {token.expires_at:%Y-%m-%d %H:%M} UTC."
        return Renewal(Condition(CREDENTIALS_RENEWED, "False", error.reason, message))


def _renewed(client: KubeClient, cluster: Cluster, stored: Credentials, token: ServiceAccountToken) -> Renewal:
    text = client.request_token(
        token.namespace, token.name, seconds=int(token.life.total_seconds()), audiences=token.audiences
    )
    fresh = service_account_token(text)
    if fresh is None or fresh.expires_at <= token.expires_at:
        ends = f"{fresh.expires_at:%Y-%m-%d %H:%M} UTC" if fresh else "at a time that it does not say"
        message = f"The cluster gave a token that ends {ends}, no later than the present one. Rotate them by hand."
        return Renewal(Condition(CREDENTIALS_RENEWED, "False", "NotLonger", message))
    credentials = replace(stored, token=text, expires_at=fresh.expires_at)
    # Nothing is replaced by what the cluster does not accept.
    trial = KubeClient(credentials, name=cluster.slug, cluster_id=cluster.pk, identity=cluster.identity)
    try:
        trial.require_identity()
    finally:
        trial.close()
    message = f"Renewed; they end at {fresh.expires_at:%Y-%m-%d %H:%M} UTC."
    return Renewal(Condition(CREDENTIALS_RENEWED, "True", "Renewed", message), credentials)


def _by_hand(right: Review, cluster: Cluster, token: ServiceAccountToken) -> Condition:
    subject = f"system:serviceaccount:{token.namespace}:{token.name}"
    message = (
        f"They end at {token.expires_at:%Y-%m-%d %H:%M} UTC. The portal renews them where it has the right to "
        f"{right}, for its own account: {kubectl(right, cluster.mode, subject)}"
    )
    return Condition(CREDENTIALS_RENEWED, "False", "RightMissing", message)
