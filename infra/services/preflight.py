"""The probe before a cluster is connected: one of the few times that a request waits for a cluster.

What it sends: three reads, one SelfSubjectAccessReview a right, and where one is missing one SelfSubjectReview. Those
two kinds are asked for with a POST, but are answers and nothing else: the API server stores no object of them.
"""

import ssl
from dataclasses import dataclass

from django.utils import timezone

from infra.kube.access import Review
from infra.kube.client import KubeClient
from infra.kube.errors import KubeError
from infra.kube.kubeconfig import Credentials, KubeconfigRefused, parse_kubeconfig
from infra.kube.reader import KubeReader
from infra.models import Cluster, ClusterEndpoint
from infra.permissions import require_platform_admin
from infra.rights import RightsReport, rights_report, sentence
from portal.kernel.actors import Actor
from portal.kernel.problems import Invalid

_POINTER = "/kubeconfig"


@dataclass(frozen=True)
class ClusterFacts:
    """What a cluster said of itself. ``identity``: UID of the namespace ``kube-system``."""

    version: str
    identity: str
    rights: RightsReport | None = None


def read_kubeconfig(text: str) -> Credentials:
    """The credentials in a pasted kubeconfig.

    Raises:
        Invalid: it is refused, with the field and what to do.
    """
    try:
        return parse_kubeconfig(text, now=timezone.now())
    except KubeconfigRefused as error:
        raise Invalid.field(_POINTER, str(error)) from None


def preflight(*, kubeconfig: str, mode: str, actor: Actor) -> ClusterFacts:
    """Check a kubeconfig without connecting anything: the cluster's version and identity, and each right.

    Raises:
        Forbidden: the actor is no platform-admin. Invalid: the kubeconfig is refused, or the cluster can't be asked.
    """
    require_platform_admin(actor, "preflight", object_kind="cluster", object_name="")
    if mode not in Cluster.Mode.values:
        raise Invalid.field("/mode", "Use observe or manage.")
    return examine(read_kubeconfig(kubeconfig), slug="to be connected", mode=mode)


def probe(credentials: Credentials, *, slug: str, mode: str) -> ClusterFacts:
    """Ask the cluster who it is, and whether the credentials have every right that the mode needs.

    Raises:
        Invalid: it can't be reached, does not accept the credentials, or rights are missing (each is named; the
            problem's ``rights`` holds the whole report).
    """
    facts = examine(credentials, slug=slug, mode=mode)
    assert facts.rights is not None  # examine has asked
    if facts.rights.missing:
        detail = (
            f"For mode {mode} the credentials lack these rights on cluster {slug}: {sentence(facts.rights.missing)}. "
            f"Apply deploy/clusterroles/{mode}.yaml and bind its ClusterRole aifactory-{mode} to them."
        )
        raise Invalid(errors=[{"pointer": _POINTER, "detail": detail}], rights=facts.rights.dump())
    return facts


def examine(credentials: Credentials, *, slug: str, mode: str) -> ClusterFacts:
    """Version, identity and rights, whatever they are.

    Raises:
        Invalid: the cluster can't be reached, or does not accept the credentials.
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
        return ClusterFacts(version[:40], client.identity(), ask_rights(client, mode))
    except KubeError as error:
        raise Invalid.field(_POINTER, error.sentence) from error
    finally:
        client.close()


def ask_rights(client: KubeReader, mode: str, cluster: Cluster | None = None) -> RightsReport:
    """Each right of the mode, and those that are used where they are given.

    Raises:
        KubeError: the cluster can't be asked.
    """

    def subject() -> str:
        try:
            return client.subject()
        except KubeError:
            return ""  # older servers don't know the kind

    return rights_report(mode, client.access_review, subject, also=_proxied(cluster) if cluster else None)


def _proxied(cluster: Cluster) -> dict[Review, str]:
    """Reading through the API server's proxy, for the endpoints of the cluster that are reached so."""
    found: dict[Review, str] = {}
    for row in ClusterEndpoint.objects.filter(cluster=cluster, via=ClusterEndpoint.Via.PROXY):
        namespace, _, target = row.service.partition("/")
        why = f"{row.get_role_display()} through the API server's proxy"
        found[Review("get", "", "services", "proxy", namespace, target)] = why
    return found
