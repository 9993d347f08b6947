"""Reconciler ``isolation``: our admission policies on a managed cluster, and the proof that its guards refuse.

Policies are objects of ours like any other: in the inventory, compared by the slow resync, applied whole when somebody
changed them. The proof is a handful of dry runs in a namespace of ours (:mod:`infra.adapters.probing`).
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Callable, Mapping
from typing import Any
from uuid import NAMESPACE_URL, UUID, uuid5

from django.conf import settings
from django.utils import timezone

from infra.adapters import probing
from infra.adapters.admission import API, MANAGED_LABEL, TENANT_LABEL, AdmissionFacts, admission_objects, refused_by
from infra.concerned import concerned_by
from infra.isolation import NOT_ASKED, Piece
from infra.kube.apply import Owner, force_fields, is_owners
from infra.kube.client import WRITE_TIMEOUT, KubeClient
from infra.kube.errors import (
    ApiMissing,
    Forbidden,
    KubeError,
    NotFound,
    PolicyRefused,
    QuotaRefused,
    Retryable,
    WriteRefused,
)
from infra.models import Cluster
from infra.names import FIELD_MANAGER, MANAGED_BY, selector
from infra.selectors.inventory import applied_by
from infra.services.inventory import Superseded, inventory_apply, inventory_delete, inventory_suspect
from infra.services.isolation import WORK_KIND, isolation_store
from portal.kernel import ticks, workqueue
from portal.kernel.workqueue import Claimed, Done, Mark, Outcome, RetryAfter

CHECK_SECONDS = 600
AGAIN_SECONDS = 60.0
SOON_SECONDS = 2.0
"""A policy that was just written is not in force at once."""
FORCE = force_fields(".spec", ".metadata.labels")

Told = dict[str, str]


@ticks.every(CHECK_SECONDS, "infra.isolation.check")
def mark_all() -> None:
    """Have every managed cluster looked at."""
    rows = Cluster.objects.filter(mode=Cluster.Mode.MANAGE, abandoned_at__isnull=True)
    workqueue.mark_many(Mark(WORK_KIND, pk, cluster_id=pk, cause="resync") for pk in rows.values_list("pk", flat=True))


def owner_of(cluster: Cluster) -> Owner:
    """Whose the policies are: the cluster's itself, so that they are known again when it is connected anew."""
    return Owner(WORK_KIND, owner_id(cluster.identity), None, cluster.generation)


def owner_id(identity: str) -> UUID:
    """From the UID of the cluster's namespace kube-system."""
    return uuid5(NAMESPACE_URL, f"aifactory:isolation:{identity}")


@workqueue.register(WORK_KIND, lease_seconds=120)
def reconcile(item: Claimed) -> Outcome:
    """Apply the policies, ask the guards, write what was found. What the cluster does not tell now stays as it was."""
    cluster = Cluster.objects.filter(
        pk=item.object_id, mode=Cluster.Mode.MANAGE, abandoned_at__isnull=True
    ).first()  # fmt: skip
    if cluster is None:
        return Done()
    owner = owner_of(cluster)
    if not cluster.isolation_wanted:
        report = inventory_delete(item=item, cluster=cluster, owner=owner, propagation="Background")
        return Done() if report.done else RetryAfter(SOON_SECONDS, "the policies are being deleted")
    client = KubeClient.for_cluster(cluster)
    changed = False
    try:
        _drop_edited(item, cluster, owner, client)
        changed = _apply(item, cluster, owner, client)
        found = _proven(client)
    except Superseded:
        return RetryAfter(1, "a newer generation was applied meanwhile")
    except WriteRefused as error:
        return RetryAfter(AGAIN_SECONDS, error.sentence)
    except Retryable:
        raise
    except KubeError as error:
        found = _nothing(Piece.ADMISSION, "no", error.sentence)
    with item.fenced():
        row = Cluster.objects.select_for_update(no_key=True).get(pk=cluster.pk)
        if row.mode != Cluster.Mode.MANAGE or not row.isolation_wanted:
            return RetryAfter(1, "the cluster was changed meanwhile")
        if isolation_store(row, found, at=timezone.now()):
            workqueue.mark_many(concerned_by(row.pk))
    open_ones = [name for name, told in found.items() if told["state"] != "yes" and name != Piece.HAMI]
    if open_ones:
        return RetryAfter(SOON_SECONDS if changed else AGAIN_SECONDS, f"not proven yet: {', '.join(open_ones)}")
    return Done()


def _drop_edited(item: Claimed, cluster: Cluster, owner: Owner, client: KubeClient) -> None:
    """Delete those of our policies to which somebody added something: applying leaves what others own (a further
    match condition, say, by which a policy no longer matches), so they are made anew."""
    for kind in ("ValidatingAdmissionPolicy", "ValidatingAdmissionPolicyBinding"):
        try:
            listed = client.list_all(API, kind, label_selector=selector({MANAGED_BY: FIELD_MANAGER})).items
        except ApiMissing:
            return
        for live in listed:
            metadata = live["metadata"]
            if not is_owners(live, owner) or not _others_fields(metadata):
                continue
            rows = applied_by(owner.kind, owner.id, cluster.pk).filter(kind=kind, name=metadata["name"])
            inventory_suspect(rows)
            item.require(WRITE_TIMEOUT)
            with contextlib.suppress(NotFound):
                client.delete(API, kind, metadata["name"], uid=metadata["uid"])


def _others_fields(metadata: Mapping[str, Any]) -> bool:
    return any(
        entry.get("manager") != FIELD_MANAGER and "f:spec" in (entry.get("fieldsV1") or {})
        for entry in metadata.get("managedFields") or []
    )


def _apply(item: Claimed, cluster: Cluster, owner: Owner, client: KubeClient) -> bool:
    facts = AdmissionFacts(
        portal_user=client.subject(),
        schedulers=tuple(settings.AIF_TENANT_SCHEDULERS),
        runtime_classes=tuple(settings.AIF_TENANT_RUNTIME_CLASSES),
        priority_classes=tuple(settings.AIF_TENANT_PRIORITY_CLASSES),
        resources=tuple(settings.AIF_TENANT_RESOURCES),
        tolerations=(
            *settings.AIF_TENANT_TOLERATIONS,
            *(re.split("[=:]", one)[0] for one in settings.AIF_TENANT_CLUSTER_TOLERATIONS),
        ),
    )
    key, value = MANAGED_LABEL
    labels = {
        key: value,
        TENANT_LABEL: "probe",
        "pod-security.kubernetes.io/enforce": "baseline",
        "pod-security.kubernetes.io/enforce-version": "latest",
    }
    objects = [*probing.probe_namespace(labels), *admission_objects(facts)]
    report = inventory_apply(item=item, cluster=cluster, owner=owner, manifests=objects, force=FORCE)
    return bool(report.changed)


def _proven(client: KubeClient) -> dict[str, Told]:
    """Each piece that can be proven, with what the cluster answered.

    Raises:
        Retryable: it does not answer: nothing is known that was not known before.
    """
    found = {
        Piece.ADMISSION: _admission(client),
        Piece.POD_SECURITY: _asked(client, probing.pod_for_pod_security(), _pod_security),
        Piece.QUOTA: _asked(client, probing.pod_for_quota(), _quota),
        Piece.HAMI: _asked(client, probing.pod_for_hami(), _hami),
    }
    return {piece.value: told for piece, told in found.items()}


Answer = Callable[[KubeError | None, str], Told]


def _asked(client: KubeClient, pod: Mapping[str, object], read: Answer) -> Told:
    """Send a pod as a dry run, and read the refusal, or the scheduler of the pod as it would have been made."""
    try:
        made = client.create_dry_run(pod)
    except Forbidden as error:
        return _told("unknown", f"It can't be tried: {error.sentence}")
    except KubeError as error:
        if isinstance(error, WriteRefused) or (isinstance(error, Retryable) and not isinstance(error, QuotaRefused)):
            raise
        return read(error, "")
    return read(None, str((made.get("spec") or {}).get("schedulerName") or ""))


def _admission(client: KubeClient) -> Told:
    ordinary = _asked(client, probing.good_pod(), _ordinary)
    return ordinary or _asked(client, probing.pod_for_policies(), _policies)


def _ordinary(error: KubeError | None, scheduler: str) -> Told:
    if error is None:
        return {}
    if _rule(error):
        return _told("no", f"An ordinary pod is refused too: {error.message}")
    return _told("unknown", f"An ordinary pod is refused there, so nothing can be told: {error.sentence}")


def _policies(error: KubeError | None, scheduler: str) -> Told:
    if error is None:
        return _told("no", "A pod that our policies forbid was let through: they are not in force.")
    if _rule(error):
        return _told("yes", "A pod that our policies forbid was refused by them.")
    return _told("unknown", f"The forbidden pod was refused, but not by our policies: {error.sentence}")


def _pod_security(error: KubeError | None, scheduler: str) -> Told:
    if isinstance(error, PolicyRefused) and error.policy.startswith("PodSecurity"):
        return _told("yes", 'A pod with a hostPath was refused by the standard "baseline".')
    if error is None or _rule(error):
        return _told("no", 'A pod with a hostPath was not refused by the standard "baseline" of its namespace.')
    return _told("unknown", f"The pod with a hostPath was refused by something else: {error.sentence}")


def _quota(error: KubeError | None, scheduler: str) -> Told:
    if isinstance(error, QuotaRefused):
        return _told("yes", "A pod beyond a namespace's quota was refused.")
    if error is None:
        return _told("no", "A pod beyond a namespace's quota was let through: the quota is not in force.")
    return _told("unknown", f"The pod beyond a quota was refused by something else: {error.sentence}")


def _hami(error: KubeError | None, scheduler: str) -> Told:
    if error is None and scheduler not in ("", "default-scheduler"):
        return _told("yes", f"A pod that asks for a share of a card is given to {scheduler}.")
    if error is None or _rule(error) == "hami-scheduler":
        return _told("no", "A pod that asks for a share of a card is not given to HAMi's scheduler.")
    return _told("unknown", f"The pod that asks for a share was refused: {error.sentence}")


def _rule(error: KubeError) -> str:
    """The rule of ours that refused, if it was one."""
    return refused_by(error.policy, error.message) if isinstance(error, PolicyRefused) else ""


def _nothing(piece: Piece, state: str, sentence: str) -> dict[str, Told]:
    """What is known where the policies could not even be written."""
    found = {each.value: _told("unknown", "Not tried: the policies can't be written.") for each in Piece}
    found[piece.value] = _told(state, sentence)
    return {name: told for name, told in found.items() if name not in {each.value for each in NOT_ASKED}}


def _told(state: str, sentence: str) -> Told:
    return {"state": state, "sentence": sentence}
