"""The probe before a cluster is connected: one of the few times that a request waits for a cluster."""

import ssl
from dataclasses import dataclass

from django.utils import timezone

from infra.kube.access import reviews
from infra.kube.client import KubeClient
from infra.kube.errors import KubeError
from infra.kube.kubeconfig import Credentials, KubeconfigRefused, parse_kubeconfig
from portal.kernel.problems import Invalid

_POINTER = "/kubeconfig"


@dataclass(frozen=True)
class ClusterFacts:
    """What a cluster said of itself. ``identity``: UID of the namespace ``kube-system``."""

    version: str
    identity: str


def read_kubeconfig(text: str) -> Credentials:
    """The credentials in a pasted kubeconfig.

    Raises:
        Invalid: it is refused, with the field and what to do.
    """
    try:
        return parse_kubeconfig(text, now=timezone.now())
    except KubeconfigRefused as error:
        raise Invalid.field(_POINTER, str(error)) from None


def probe(credentials: Credentials, *, slug: str, mode: str) -> ClusterFacts:
    """Ask the cluster who it is, and whether the credentials have every right that the mode needs.

    Raises:
        Invalid: it can't be reached, does not accept the credentials, or rights are missing (each is named).
    """
    try:
        client = KubeClient(credentials, name=slug)
    except (ssl.SSLError, ValueError) as error:
        why = getattr(error, "reason", "") or type(error).__name__
        raise Invalid.field(
            _POINTER, f"TLS does not take the certificates or the key of the kubeconfig ({why}). Make new ones."
        ) from None
    try:
        version = str(client.version().get("gitVersion") or "unknown")
        identity = client.identity()
        missing = [str(review) for review in reviews(mode) if not client.access_review(review)]
    except KubeError as error:
        raise Invalid.field(_POINTER, error.sentence) from error
    finally:
        client.close()
    if missing:
        raise Invalid.field(
            _POINTER,
            f"For mode {mode} the credentials lack these rights on cluster {slug}: {', '.join(missing)}. Bind the "
            f"ClusterRole aifactory-{mode} (deploy/clusterroles/{mode}.yaml) to them.",
        )
    return ClusterFacts(version[:40], identity)
