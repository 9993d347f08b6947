"""What the platform has set for tenant clusters: versions, endpoint, chart, sign-in. Read from the settings."""

from __future__ import annotations

from dataclasses import dataclass
from urllib.parse import urlsplit

from django.conf import settings

from infra.adapters.oidc import SignIn
from infra.adapters.vcluster import Image, version_pair
from infra.kube.kubeconfig import KubeconfigRefused, checked_server
from portal.kernel.problems import Conflict, Invalid


@dataclass(frozen=True, order=True)
class Version:
    """A Kubernetes version on offer, and the chart that makes it: ``1.35.0``, ``0.35.3``."""

    kubernetes: str
    chart: str

    @property
    def minor(self) -> tuple[int, int]:
        """Major and minor of Kubernetes."""
        return version_pair(self.kubernetes)

    @property
    def chart_minor(self) -> tuple[int, int]:
        """Major and minor of the chart."""
        return version_pair(self.chart)

    def __str__(self) -> str:
        return f"Kubernetes {self.kubernetes} (chart {self.chart})"


def versions() -> list[Version]:
    """What is on offer, the oldest first.

    Raises:
        Conflict: ``AIF_VCLUSTER_VERSIONS`` can't be read.
    """
    found = []
    for word in settings.AIF_VCLUSTER_VERSIONS:
        kubernetes, _, chart = word.partition("=")
        try:
            version = Version(kubernetes.strip().removeprefix("v"), chart.strip())
            found.append((version.minor, version.chart_minor, version))
        except ValueError:
            raise Conflict(
                f"AIF_VCLUSTER_VERSIONS: {word!r} is not of the form 1.35.0=0.35.3 (Kubernetes=chart). "
                "Ask a platform-admin to set it right."
            ) from None
    if not found:
        raise Conflict("AIF_VCLUSTER_VERSIONS is empty: no version of a tenant cluster is on offer.")
    return [version for _, _, version in sorted(found)]


def next_versions(kubernetes: str, chart: str) -> list[Version]:
    """Where an upgrade may go from here: newer, and at most one minor version further in Kubernetes and chart."""
    now = Version(kubernetes, chart)
    return [version for version in versions() if not why_not(now, version)]


def why_not(now: Version, wanted: Version) -> str:
    """Why an upgrade from ``now`` to ``wanted`` is refused; "" where it is not."""
    if wanted == now:
        return f"It is at {now} already."
    if (wanted.minor, wanted.chart_minor) < (now.minor, now.chart_minor) or wanted.minor < now.minor:
        return f"{wanted} is older than {now}: what was stored by the newer one can't be read by it."
    if wanted.chart_minor < now.chart_minor:
        return f"{wanted} has an older chart than {now}."
    step = max(wanted.minor[1] - now.minor[1], _chart_steps(now, wanted))
    if wanted.minor[0] != now.minor[0] or wanted.chart_minor[0] != now.chart_minor[0] or step > 1:
        return f"From {now} to {wanted} is more than one minor version; go one at a time."
    return ""


def _chart_steps(now: Version, wanted: Version) -> int:
    """How many of the charts' minor versions lie between the two."""
    return wanted.chart_minor[1] - now.chart_minor[1]


def endpoint_for(tenant_slug: str, cluster_slug: str) -> str:
    """The endpoint by the platform's pattern; "" where none is set.

    Raises:
        Conflict: the pattern can't be filled in.
    """
    pattern = settings.AIF_TENANT_CLUSTER_ENDPOINT
    try:
        return pattern.format(tenant=tenant_slug, cluster=cluster_slug).rstrip("/")
    except (KeyError, IndexError, ValueError):
        raise Conflict(
            "AIF_TENANT_CLUSTER_ENDPOINT can't be filled in: use {tenant} and {cluster} only. "
            "Ask a platform-admin to set it right."
        ) from None


def checked_endpoint(endpoint: str) -> str:
    """``endpoint`` where it can be an API server's address: https, a host, perhaps a port.

    Raises:
        Invalid: with what is wrong.
    """
    try:
        server = checked_server(endpoint, "endpoint")
    except KubeconfigRefused as error:
        raise Invalid.field("/endpoint", str(error)) from None
    if urlsplit(server).path:
        raise Invalid.field("/endpoint", "An endpoint has no path. Write https://host:port.")
    return server


def control_plane_image(chart_version: str) -> Image:
    """The image of that chart version: the tag is the version."""
    registry, _, repository = settings.AIF_VCLUSTER_IMAGE.partition("/")
    return Image(registry, repository, chart_version)


def sign_in_for(audience: str) -> SignIn | None:
    """The identity provider with this audience; ``None`` while sign-in through one is off."""
    if not settings.AIF_OIDC_ISSUER:
        return None
    return SignIn(settings.AIF_OIDC_ISSUER, audience, settings.AIF_TENANT_CLUSTER_OIDC_CA)
