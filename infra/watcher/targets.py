"""Leases on watch targets: who watches what. The database's clock decides, so that watchers' clocks need not agree."""

from __future__ import annotations

from collections.abc import Collection, Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime, timedelta
from uuid import UUID

from django.db import transaction
from django.db.models import F, Q
from django.db.models.functions import Now

from infra.models import Cluster, WatchSpan, WatchTarget
from portal.kernel.scoping import system_scope

LEASE = timedelta(seconds=30)
RESOURCES = tuple(WatchTarget.Resource)


class LeaseLost(Exception):
    """Somebody else holds the target now: stop, and write nothing more."""


class Rewound(Exception):
    """The target is not as it was left: the database has lost what was written last (a fail-over to a replica that
    lagged, a crash without durable commits), or the target was reset. What was read since has to be read again."""


@dataclass(frozen=True, slots=True)
class Held:
    """A target that this process holds, as it was when it was taken, or when something was last written of it.

    ``resource_version``: where to resume ("" = list first). ``proof``: the end of the last span when it was taken,
    None = never watched.
    """

    target_id: UUID
    cluster_id: UUID
    resource: str
    token: int
    resource_version: str
    proof: datetime | None
    failures: int = 0


def ensure_targets() -> None:
    """Each cluster that was not given up has its targets."""
    clusters = Cluster.objects.filter(abandoned_at__isnull=True).values_list("pk", flat=True)
    have = set(WatchTarget.objects.values_list("cluster_id", "resource"))
    WatchTarget.objects.bulk_create(
        [
            WatchTarget(cluster_id=cluster_id, resource=resource)
            for cluster_id in clusters
            for resource in RESOURCES
            if (cluster_id, resource) not in have
        ],
        ignore_conflicts=True,
    )


def watched() -> int:
    """How many targets there are to share among the watchers."""
    return WatchTarget.objects.filter(cluster__abandoned_at__isnull=True).count()


def claim(owner: str, limit: int, *, lease: timedelta = LEASE) -> list[Held]:
    """Take up to ``limit`` targets that nobody holds; each gets a new token, so a former holder can't write."""
    if limit < 1:
        return []
    with transaction.atomic():
        free = Q(lease_until__isnull=True) | Q(lease_until__lt=Now())
        due = Q(not_before__isnull=True) | Q(not_before__lte=Now())
        targets = list(
            WatchTarget.objects.select_for_update(skip_locked=True, of=("self",))
            .filter(free, due, cluster__abandoned_at__isnull=True)
            .order_by("cluster_id", "resource")[:limit]
        )
        WatchTarget.objects.filter(pk__in=[target.pk for target in targets]).update(
            lease_owner=owner, lease_token=F("lease_token") + 1, lease_until=Now() + lease
        )
        proofs = dict(
            WatchSpan.objects.filter(target__in=targets, closed_reason="").values_list("target_id", "proved_until")
        )
    return [
        Held(
            target.pk,
            target.cluster_id,
            target.resource,
            target.lease_token + 1,
            target.resource_version,
            proofs.get(target.pk),
            target.failures,
        )
        for target in targets
    ]


def renew(held: Sequence[Held], *, lease: timedelta = LEASE) -> set[UUID]:
    """Prolong the leases; the answer is the ids of the targets that are still ours."""
    ours: set[UUID] = set()
    with transaction.atomic():
        for one in sorted(held, key=lambda h: h.target_id):
            if WatchTarget.objects.filter(
                pk=one.target_id, lease_token=one.token, cluster__abandoned_at__isnull=True
            ).update(lease_until=Now() + lease):
                ours.add(one.target_id)
    return ours


def release(held: Collection[Held]) -> None:
    """Let targets go, so that another watcher takes them at once. The token goes up: what is in flight is refused."""
    for one in held:
        WatchTarget.objects.filter(pk=one.target_id, lease_token=one.token).update(
            lease_owner="", lease_until=None, lease_token=F("lease_token") + 1
        )


@contextmanager
def fenced(held: Held) -> Generator[WatchTarget]:
    """A transaction in which the target is locked, still ours, and as we left it.

    Raises:
        LeaseLost: it has another token now.
        Rewound: it stands at another version.
    """
    with system_scope("watcher"):
        target = (
            WatchTarget.objects.select_for_update(of=("self",))
            .select_related("cluster", "cluster__site")
            .filter(pk=held.target_id, lease_token=held.token)
            .first()
        )
        if target is None:
            raise LeaseLost(f"{held.resource} of cluster {held.cluster_id} is watched by somebody else now")
        if target.resource_version != held.resource_version:
            raise Rewound(
                f"{held.resource} of cluster {target.cluster.slug} were written up to version {held.resource_version}, "
                f"and the database has them up to {target.resource_version or 'none'}: they are read again from there"
            )
        yield target
