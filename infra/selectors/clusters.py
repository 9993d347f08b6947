"""Sites and clusters, read. They are no tenant's: the edge checks who may see them."""

from django.db.models import QuerySet

from infra.models import Cluster, NodePool, Site
from portal.kernel.problems import NotFound


def site_list() -> QuerySet[Site]:
    """All sites by slug."""
    return Site.objects.order_by("slug")


def site_by_slug(slug: str) -> Site:
    """One site.

    Raises:
        NotFound: there is none of that slug.
    """
    site = Site.objects.filter(slug=slug).first()
    if site is None:
        raise NotFound(f"There is no site {slug}.")
    return site


def cluster_list(*, abandoned: bool = False) -> QuerySet[Cluster]:
    """Connected clusters by slug, with their sites; the abandoned ones too if asked."""
    clusters = Cluster.objects.select_related("site").order_by("slug")
    return clusters if abandoned else clusters.filter(abandoned_at__isnull=True)


def cluster_by_slug(slug: str) -> Cluster:
    """One cluster, abandoned or not.

    Raises:
        NotFound: there is none of that slug.
    """
    cluster = Cluster.objects.select_related("site").filter(slug=slug).first()
    if cluster is None:
        raise NotFound(f"There is no cluster {slug}.")
    return cluster


def pool_by_name(cluster: Cluster, name: str) -> NodePool:
    """One pool of a cluster.

    Raises:
        NotFound: there is none of that name.
    """
    pool = NodePool.objects.select_related("cluster", "gpu_type").filter(cluster=cluster, name=name).first()
    if pool is None:
        raise NotFound(f"Cluster {cluster.slug} has no pool {name}.")
    return pool
