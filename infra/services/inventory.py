"""Applying and deleting for an owner, with books that a kill at any point leaves true.

A row is written before its object is made; results are written behind the fencing token; nothing is in a
transaction while a cluster is asked. Each write first makes sure that the lease outlasts it.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from django.db import connection
from django.db.models.functions import Now

from infra.kube.apply import (
    ForcePolicy,
    Manifest,
    ObjectKey,
    Owner,
    Prepared,
    Remaining,
    Written,
    apply_one,
    delete_one,
    never_force,
    prepare,
    rank,
)
from infra.kube.client import WRITE_TIMEOUT, KubeClient, Propagation
from infra.kube.errors import Call, FieldConflict, ForeignObject, KubeError, Unreachable
from infra.models import AppliedObject, Cluster
from infra.selectors.inventory import applied_by
from portal.kernel.workqueue import Claimed


class Superseded(Exception):
    """A newer generation of the same owner has been applied: this one is of the past."""


@dataclass
class ApplyReport:
    """What applying did.

    Attributes:
        written: what each apply left, of those that were sent.
        changed: objects that were made or changed.
        unchanged: objects that the cluster was asked about, and that were as wanted.
        skipped: objects that needed no request.
        forced: fields taken back from other managers, by object.
        pruned: objects of older generations that are gone now.
        remaining: objects of older generations that are still going.
    """

    written: dict[ObjectKey, Written] = field(default_factory=dict)
    changed: list[ObjectKey] = field(default_factory=list)
    unchanged: list[ObjectKey] = field(default_factory=list)
    skipped: list[ObjectKey] = field(default_factory=list)
    forced: dict[ObjectKey, tuple[FieldConflict, ...]] = field(default_factory=dict)
    pruned: list[ObjectKey] = field(default_factory=list)
    remaining: list[Remaining] = field(default_factory=list)


@dataclass
class DeleteReport:
    """What is gone, and what is still there and why. Done when ``remaining`` is empty."""

    gone: list[ObjectKey] = field(default_factory=list)
    remaining: list[Remaining] = field(default_factory=list)

    @property
    def done(self) -> bool:
        """Every object of the owner was answered with 404."""
        return not self.remaining


def inventory_apply(
    *,
    item: Claimed,
    cluster: Cluster,
    owner: Owner,
    manifests: Iterable[Manifest],
    force: ForcePolicy = never_force,
    suspect_drift: bool = False,
    propagation: Propagation = "Foreground",
    also: Callable[[ApplyReport], None] | None = None,
) -> ApplyReport:
    """Bring the owner's objects on a cluster to ``manifests``, and delete what older generations left.

    An object whose manifest is the one that was applied last costs no request, unless drift is suspected
    (by this argument, or by a comparison that said so of the object).

    Args:
        also: writes more in the transaction that records what was applied; called when all was applied, something
            was written down, and nothing older is left to delete.

    Raises:
        Superseded: a newer generation has been applied.
        LeaseLost: the lease does not outlast the next write; nothing more is written.
        KubeError: the first object that could not be applied; those before it are recorded, none is pruned.
    """
    client = KubeClient.for_cluster(cluster)
    wanted = prepare(manifests, owner)
    rows = _open_rows(item, cluster, owner, wanted)
    report = ApplyReport()

    def before_write() -> None:
        item.require(WRITE_TIMEOUT)

    try:
        for each in wanted:
            row = rows[each.key]
            if row.uid and row.digest == each.digest and not (suspect_drift or row.drift_suspected):
                report.skipped.append(each.key)
                continue
            client.require_identity()
            result = apply_one(client, each, owner, uid=row.uid, force=force, before_write=before_write)
            report.written[each.key] = result
            (report.changed if result.changed else report.unchanged).append(each.key)
            if result.forced:
                report.forced[each.key] = result.forced
    except KubeError:
        _record(item, owner, rows, wanted, report, None)
        raise
    keys = {each.key for each in wanted}
    old = [row for key, row in rows.items() if key not in keys and row.generation < owner.generation]
    _record(item, owner, rows, wanted, report, also if not old else None)
    pruned = _delete(item, client, owner, old, propagation)
    report.pruned, report.remaining = pruned.gone, pruned.remaining
    return report


def inventory_delete(
    *, item: Claimed, cluster: Cluster, owner: Owner, propagation: Propagation = "Foreground"
) -> DeleteReport:
    """Have all objects of the owner on a cluster deleted. Call it again until the report is ``done``.

    Raises:
        LeaseLost: as :func:`inventory_apply`.
        KubeError: the cluster can't be asked; what was seen to be gone before is recorded.
    """
    rows = list(applied_by(owner.kind, owner.id, cluster.id))
    if not rows:
        return DeleteReport()
    return _delete(item, KubeClient.for_cluster(cluster), owner, rows, propagation)


def inventory_suspect(rows: Iterable[AppliedObject]) -> int:
    """Remember that these objects may not be as our last apply left them; how many that is news of."""
    ids = [row.pk for row in rows]
    return AppliedObject.objects.filter(pk__in=ids, drift_suspected=False).update(drift_suspected=True)


def _open_rows(item: Claimed, cluster: Cluster, owner: Owner, wanted: list[Prepared]) -> dict[ObjectKey, AppliedObject]:
    """The owner's rows, with new ones for what is new; behind the token.

    Raises:
        ForeignObject: an object is another owner's by our own books.
    """
    with item.fenced():
        rows = {_key(row): row for row in applied_by(owner.kind, owner.id, cluster.id)}
        if any(row.generation > owner.generation for row in rows.values()):
            raise Superseded(f"A newer generation of {owner.kind} {owner.id} has been applied on {cluster.slug}.")
        new = [each.key for each in wanted if each.key not in rows]
        _refuse_others(cluster, owner, new)
        for key in new:
            rows[key] = AppliedObject(
                cluster=cluster,
                owner_kind=owner.kind,
                owner_id=owner.id,
                tenant_id=owner.tenant_id,
                api_version=key.api_version,
                kind=key.kind,
                namespace=key.namespace,
                name=key.name,
                generation=owner.generation,
            )
        AppliedObject.objects.bulk_create([rows[key] for key in new])
    return rows


def _refuse_others(cluster: Cluster, owner: Owner, keys: list[ObjectKey]) -> None:
    names = {key.name for key in keys}
    taken = AppliedObject.objects.filter(cluster=cluster, name__in=names, deleted_at__isnull=True)
    by_key = {_key(row): row for row in taken}
    for key in keys:
        if key in by_key:
            other = by_key[key]
            raise ForeignObject(
                Call(cluster.slug, "apply", key.kind, key.namespace, key.name),
                f"{key} on cluster {cluster.slug} belongs to {other.owner_kind} {other.owner_id}; "
                f"{owner.kind} {owner.id} can't have it too.",
            )


_RECORD = """
UPDATE infra_appliedobject o SET
    uid = w.uid, resource_version = w.resource_version, digest = w.digest, generation = %s, drift_suspected = false,
    applied_at = statement_timestamp()
FROM unnest(%s::uuid[], %s::text[], %s::text[], %s::text[]) AS w (id, uid, resource_version, digest)
WHERE o.id = w.id
"""


def _record(
    item: Claimed,
    owner: Owner,
    rows: dict[ObjectKey, AppliedObject],
    wanted: list[Prepared],
    report: ApplyReport,
    also: Callable[[ApplyReport], None] | None,
) -> None:
    """Write down what was applied, and that the skipped ones belong to this generation too."""
    done = [(rows[each.key].pk, report.written[each.key], each.digest) for each in wanted if each.key in report.written]
    moved = [rows[key].pk for key in report.skipped if rows[key].generation < owner.generation]
    if not done and not moved:
        return
    with item.fenced():
        if done:
            with connection.cursor() as cursor:
                cursor.execute(
                    _RECORD,
                    [
                        owner.generation,
                        [pk for pk, _, _ in done],
                        [written.uid for _, written, _ in done],
                        [written.resource_version for _, written, _ in done],
                        [digest for _, _, digest in done],
                    ],
                )
        if moved:
            AppliedObject.objects.filter(pk__in=moved).update(generation=owner.generation)
        if also is not None:
            also(report)


def _delete(
    item: Claimed, client: KubeClient, owner: Owner, rows: list[AppliedObject], propagation: Propagation
) -> DeleteReport:
    """Delete the objects of ``rows``, the latest first; only a 404 of the right cluster closes a row."""
    report = DeleteReport()
    if not rows:
        return report
    gone: list[AppliedObject] = []
    failed: KubeError | None = None

    def before_write() -> None:
        item.require(WRITE_TIMEOUT)

    client.require_identity()
    for row in sorted(rows, key=lambda row: rank(_key(row)), reverse=True):
        try:
            left = delete_one(client, _key(row), owner, uid=row.uid, propagation=propagation, before_write=before_write)
        except KubeError as error:
            failed = failed or error
            report.remaining.append(Remaining(_key(row), error.sentence))
            if isinstance(error, Unreachable):
                break
            continue
        if left is None:
            gone.append(row)
            report.gone.append(_key(row))
        else:
            report.remaining.append(left)
    if gone:
        with item.fenced():
            AppliedObject.objects.filter(pk__in=[row.pk for row in gone]).update(deleted_at=Now())
    if failed is not None:
        raise failed
    return report


def _key(row: AppliedObject) -> ObjectKey:
    return ObjectKey(row.api_version, row.kind, row.namespace, row.name)
