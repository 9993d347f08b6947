"""Sites and clusters: made and changed by platform-admins."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any
from uuid import UUID, uuid4

from django.db import transaction
from django.utils import timezone

from infra.concerned import concerned_by
from infra.kube.kubeconfig import Credentials, issued_at
from infra.models import Cluster, Reservation, Site, WatchTarget
from infra.permissions import require_platform_admin
from infra.selectors.inventory import left_on
from infra.services.checks import (
    checked_labels,
    checked_name,
    checked_namespaces,
    checked_slug,
    checked_taints,
)
from infra.services.claims import system_namespaces_set
from infra.services.isolation import WORK_KIND as ISOLATION
from infra.services.preflight import ClusterFacts, probe, read_kubeconfig
from infra.services.rights import rights_store
from portal.kernel import audit, crypto, workqueue
from portal.kernel.actors import Actor
from portal.kernel.problems import Conflict, Invalid

WORK_KIND = "cluster"
DEFAULT_SYSTEM_NAMESPACES = ("kube-node-lease", "kube-public", "kube-system")
SHORTEST_REASON = 10


@dataclass(frozen=True)
class Abandoned:
    """An abandoned cluster, and what was left there: ``Deployment t-acme/web`` …"""

    cluster: Cluster
    leftovers: list[str]


# ---- sites ------------------------------------------------------------------------------------------------


def site_create(*, slug: str, name: str = "", actor: Actor) -> Site:
    """Make a site.

    Raises:
        Invalid: the slug can't be used. Conflict: it is taken.
    """
    require_platform_admin(actor, "site_create", object_kind="site", object_name=slug)
    slug = checked_slug(slug)
    with transaction.atomic():
        if Site.objects.filter(slug=slug).exists():
            raise Conflict(f"There is a site {slug} already.")
        site = Site.objects.create(slug=slug, name=checked_name(name, slug))
        _record("site_create", actor, "site", site.pk, slug, after={"name": site.name})
        return site


def site_update(*, site: Site, name: str, actor: Actor) -> Site:
    """Rename a site; its slug stays what tenants' allowed sites and addresses say."""
    require_platform_admin(actor, "site_update", object_kind="site", object_name=site.slug)
    with transaction.atomic():
        site = Site.objects.select_for_update().get(pk=site.pk)
        before, site.name = site.name, checked_name(name, site.slug)
        if site.name != before:
            site.save(update_fields=["name"])
            _record("site_update", actor, "site", site.pk, site.slug, {"name": before}, {"name": site.name})
        return site


# ---- clusters ---------------------------------------------------------------------------------------------


def cluster_connect(
    *,
    slug: str,
    name: str = "",
    site: Site,
    mode: str = Cluster.Mode.OBSERVE,
    kubeconfig: str,
    labels: Mapping[str, str] | None = None,
    taints: Iterable[Mapping[str, Any]] = (),
    system_namespaces: Iterable[str] = DEFAULT_SYSTEM_NAMESPACES,
    actor: Actor,
) -> Cluster:
    """Connect a cluster, after asking it who it is and what our credentials may do there.

    Args:
        kubeconfig: the pasted text; only what is needed of it is kept, encrypted.
        labels, taints: ours, for placement.
        system_namespaces: their GPU time is overhead.

    Raises:
        Invalid: a value is wrong, the kubeconfig is refused, the cluster can't be reached, or rights are missing.
        Conflict: the slug is taken, or this very cluster is connected already (it is named).
    """
    require_platform_admin(actor, "cluster_connect", object_kind="cluster", object_name=slug)
    slug = checked_slug(slug)
    cluster = Cluster(
        slug=slug,
        name=checked_name(name, slug),
        site=site,
        mode=_checked_mode(mode),
        labels=checked_labels(labels or {}),
        taints=checked_taints(taints),
        system_namespaces=checked_namespaces(list(system_namespaces)),
    )
    if Cluster.objects.filter(slug=slug).exists():
        raise Conflict(f"There is a cluster {slug} already.")
    credentials = read_kubeconfig(kubeconfig)
    facts = probe(credentials, slug=slug, mode=mode)
    _take_credentials(cluster, credentials, facts)
    cluster.identity = facts.identity
    cluster.last_seen_at = timezone.now()
    with transaction.atomic():
        if Cluster.objects.filter(slug=slug).exists():
            raise Conflict(f"There is a cluster {slug} already.")
        same = Cluster.objects.filter(identity=facts.identity).first()
        if same is not None:
            raise Conflict(
                f"This cluster is connected already, as {same.slug} ({same.name}). Change that one, or rotate its "
                "kubeconfig."
            )
        cluster.save(force_insert=True)
        WatchTarget.objects.bulk_create(
            [WatchTarget(cluster=cluster, resource=resource) for resource in WatchTarget.Resource.values]
        )
        after = {
            **_described(cluster),
            "site": site.slug,
            "mode": cluster.mode,
            "api_server": cluster.api_server,
            "identity": cluster.identity,
        }
        _record("cluster_connect", actor, "cluster", cluster.pk, slug, after=after)
        _mark(cluster)
        return cluster


def cluster_update(
    *,
    cluster: Cluster,
    name: str | None = None,
    site: Site | None = None,
    labels: Mapping[str, str] | None = None,
    taints: Iterable[Mapping[str, Any]] | None = None,
    system_namespaces: Iterable[str] | None = None,
    actor: Actor,
) -> Cluster:
    """Change what is given. Nothing that runs is moved; new placements go by the new values.

    Raises:
        Invalid: a value is wrong. Conflict: the cluster was abandoned.
    """
    require_platform_admin(actor, "cluster_update", object_kind="cluster", object_name=cluster.slug)
    with transaction.atomic():
        if system_namespaces is not None:
            # First, as it takes the lock of the cluster's changes: live pods are metered again.
            wanted = checked_namespaces(list(system_namespaces))
            cluster = system_namespaces_set(cluster=cluster, namespaces=wanted, actor=actor)
        cluster = _locked(cluster)
        before = {**_described(cluster), "site": cluster.site.slug}
        if name is not None:
            cluster.name = checked_name(name, cluster.slug)
        if site is not None:
            cluster.site = site
        if labels is not None:
            cluster.labels = checked_labels(labels)
        if taints is not None:
            cluster.taints = checked_taints(taints)
        after = {**_described(cluster), "site": cluster.site.slug}
        if after == before:
            return cluster
        changed = {key for key in after if after[key] != before[key]}
        _save(cluster, *changed)
        _record(
            "cluster_update",
            actor,
            "cluster",
            cluster.pk,
            cluster.slug,
            {key: before[key] for key in changed},
            {key: after[key] for key in changed},
        )
        return cluster


def cluster_set_mode(*, cluster: Cluster, mode: str, actor: Actor) -> Cluster:
    """Switch between observe and manage. To manage: the rights are checked first, by asking the cluster.

    Raises:
        Invalid: rights are missing (each is named), or the cluster can't be asked.
        Conflict: to observe while objects of ours are there: they could never be deleted again.
    """
    require_platform_admin(actor, "cluster_set_mode", object_kind="cluster", object_name=cluster.slug)
    mode = _checked_mode(mode)
    if mode == Cluster.Mode.MANAGE and cluster.mode != mode and cluster.abandoned_at is None:
        credentials = Credentials.loads(crypto.decrypt(cluster.kubeconfig_ciphertext))
        _require_identity(cluster, probe(credentials, slug=cluster.slug, mode=mode))
    with transaction.atomic():
        cluster = _locked(cluster)
        before = cluster.mode
        if before == mode:
            return cluster
        left = left_on(cluster.pk).count()
        if mode == Cluster.Mode.OBSERVE and left and not left_on(cluster.pk).exclude(owner_kind=ISOLATION).exists():
            raise Conflict(
                f"The portal's admission policies are still on cluster {cluster.slug}; in observe mode they could "
                "never be deleted. Take them down first (page Isolation of the cluster), or pause the cluster."
            )
        if mode == Cluster.Mode.OBSERVE and left:
            raise Conflict(
                f"{left} objects of the portal are still on cluster {cluster.slug}; in observe mode they could never "
                "be deleted. Delete the deployments and tenants' namespaces there first, or pause the cluster."
            )
        held = Reservation.objects.filter(cluster=cluster, released_at__isnull=True).count()
        if mode == Cluster.Mode.OBSERVE and held:
            raise Conflict(
                f"{held} reservations hold devices of cluster {cluster.slug} for replicas that are about to be made "
                "there. Delete those deployments first, or pause the cluster."
            )
        cluster.mode, cluster.rights_checked_at = mode, None
        _save(cluster, "mode", "rights_checked_at")
        _record("cluster_set_mode", actor, "cluster", cluster.pk, cluster.slug, {"mode": before}, {"mode": mode})
        return cluster


def cluster_pause(*, cluster: Cluster, actor: Actor) -> Cluster:
    """From now on nothing is written to the cluster; what runs there goes on and is metered."""
    return _set_paused(cluster, True, "cluster_pause", actor)


def cluster_resume(*, cluster: Cluster, actor: Actor) -> Cluster:
    """Write to the cluster again."""
    return _set_paused(cluster, False, "cluster_resume", actor)


def cluster_rotate_kubeconfig(*, cluster: Cluster, kubeconfig: str, actor: Actor) -> Cluster:
    """Take new credentials, perhaps a new address, of the same cluster.

    Raises:
        Invalid: as :func:`cluster_connect`. Conflict: they lead to another cluster, or it was abandoned.
    """
    require_platform_admin(actor, "cluster_rotate_kubeconfig", object_kind="cluster", object_name=cluster.slug)
    credentials = read_kubeconfig(kubeconfig)
    facts = probe(credentials, slug=cluster.slug, mode=cluster.mode)
    with transaction.atomic():
        cluster = _locked(cluster)
        _require_identity(cluster, facts)
        before = cluster.api_server
        _take_credentials(cluster, credentials, facts)
        _save(
            cluster, "api_server", "kubeconfig_ciphertext", "credential_expires_at", "credential_issued_at",
            "kubernetes_version", "rights", "rights_checked_at",
        )  # fmt: skip
        _record(
            "cluster_rotate_kubeconfig",
            actor,
            "cluster",
            cluster.pk,
            cluster.slug,
            {"api_server": before},
            {"api_server": cluster.api_server, "expires_at": str(cluster.credential_expires_at or "not known")},
        )
        return cluster


def cluster_abandon(*, cluster: Cluster, reason: str, actor: Actor) -> Abandoned:
    """Give up a cluster that is gone for ever. Its credentials are thrown away, its evidence and bills stay.

    What we had there is listed, not deleted: only the cluster could say that it is gone. Should the cluster come
    back it can be connected anew, as another one.

    Args:
        reason: at least ten characters, for the audit.

    Raises:
        Invalid: no reason. Conflict: it was abandoned before.
    """
    require_platform_admin(actor, "cluster_abandon", object_kind="cluster", object_name=cluster.slug)
    reason = reason.strip()
    if len(reason) < SHORTEST_REASON:
        raise Invalid.field("/reason", f"Say in at least {SHORTEST_REASON} characters why the cluster is given up.")
    with transaction.atomic():
        cluster = _locked(cluster)
        leftovers = [f"{row.kind} {row.namespace}/{row.name}".replace(" /", " ") for row in left_on(cluster.pk)]
        cluster.abandoned_at = timezone.now()
        cluster.abandoned_reason = reason
        cluster.kubeconfig_ciphertext = b""
        cluster.credential_expires_at = cluster.credential_issued_at = None
        identity = cluster.identity
        cluster.identity = f"{identity}#{uuid4().hex[:8]}"
        _save(
            cluster, "abandoned_at", "abandoned_reason", "kubeconfig_ciphertext", "credential_expires_at",
            "credential_issued_at", "identity",
        )  # fmt: skip
        after = {"abandoned_reason": reason, "identity": identity, "leftovers": leftovers}
        _record("cluster_abandon", actor, "cluster", cluster.pk, cluster.slug, after=after)
        return Abandoned(cluster, leftovers)


# ---- inside -----------------------------------------------------------------------------------------------


def _set_paused(cluster: Cluster, paused: bool, verb: str, actor: Actor) -> Cluster:
    require_platform_admin(actor, verb, object_kind="cluster", object_name=cluster.slug)
    with transaction.atomic():
        cluster = _locked(cluster)
        if cluster.paused == paused:
            return cluster
        cluster.paused = paused
        _save(cluster, "paused")
        _record(verb, actor, "cluster", cluster.pk, cluster.slug, {"paused": not paused}, {"paused": paused})
        return cluster


def _locked(cluster: Cluster) -> Cluster:
    # The key stays, so rows that refer to the cluster may be added meanwhile.
    rows = Cluster.objects.select_for_update(of=("self",), no_key=True)
    row = rows.select_related("site").get(pk=cluster.pk)
    if row.abandoned_at is not None:
        raise Conflict(f"Cluster {row.slug} was abandoned at {row.abandoned_at:%Y-%m-%d %H:%M} UTC.")
    return row


def _save(cluster: Cluster, *fields: str) -> None:
    cluster.generation += 1
    cluster.save(update_fields=[*fields, "generation"])
    _mark(cluster)


def _mark(cluster: Cluster) -> None:
    """Have it probed, and whoever may gain or lose by the change looked at."""
    marks = [workqueue.Mark(WORK_KIND, cluster.pk, cluster.pk), *concerned_by(cluster.pk)]
    if cluster.writable:
        # Our policies go by who we are there, and by the mode.
        marks.append(workqueue.Mark(ISOLATION, cluster.pk, cluster.pk))
    workqueue.mark_many(marks)


def _take_credentials(cluster: Cluster, credentials: Credentials, facts: ClusterFacts) -> None:
    cluster.api_server = credentials.server
    cluster.kubeconfig_ciphertext = crypto.encrypt(credentials.dumps())
    cluster.credential_expires_at = credentials.expires_at
    cluster.credential_issued_at = issued_at(credentials)
    cluster.kubernetes_version = facts.version
    if facts.rights is not None:
        rights_store(cluster, facts.rights, at=timezone.now())


def _require_identity(cluster: Cluster, facts: ClusterFacts) -> None:
    if facts.identity != cluster.identity:
        raise Conflict(
            f"This is not cluster {cluster.slug}: its namespace kube-system has the UID {facts.identity}, that of "
            f"{cluster.slug} is {cluster.identity}. Connect it as a cluster of its own."
        )


def _checked_mode(mode: str) -> str:
    if mode not in Cluster.Mode.values:
        raise Invalid.field("/mode", "Use observe or manage.")
    return mode


def _described(cluster: Cluster) -> dict[str, Any]:
    return {
        "name": cluster.name,
        "labels": cluster.labels,
        "taints": cluster.taints,
        "system_namespaces": cluster.system_namespaces,
    }


def _record(
    verb: str,
    actor: Actor,
    kind: str,
    object_id: UUID,
    name: str,
    before: Mapping[str, Any] | None = None,
    after: Mapping[str, Any] | None = None,
) -> None:
    audit.record(
        verb,
        actor=actor,
        tenant_id=None,
        object_kind=kind,
        object_id=object_id,
        object_name=name,
        before=before,
        after=after,
    )
