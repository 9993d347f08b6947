"""Manifests made ready to apply: whose they are, in which order, and what must not be overwritten.

Nothing here knows the database; :mod:`infra.services.inventory` keeps the books.
"""

import hashlib
import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from infra.kube.client import KubeClient, Obj, Propagation
from infra.kube.errors import (
    ApplyConflict,
    Call,
    FieldConflict,
    ForeignObject,
    NotFound,
    Retryable,
    StaleWrite,
)
from infra.names import LABEL_OWNER, LABEL_OWNER_KIND, MANAGED_BY, owner_labels

Manifest = Mapping[str, Any]

ForcePolicy = Callable[[ApplyConflict], bool]
"""Whether to take over the fields that a conflict names."""

# Kinds that own no other objects, in the order in which the rest needs them.
_ORDER = (
    "Namespace",
    "ResourceQuota",
    "LimitRange",
    "NetworkPolicy",
    "ServiceAccount",
    "Role",
    "RoleBinding",
    "Secret",
    "ConfigMap",
    "PersistentVolumeClaim",
    "Service",
)
_DELETE_TRIES = 3


@dataclass(frozen=True, order=True)
class ObjectKey:
    """What names an object within a cluster."""

    api_version: str
    kind: str
    namespace: str
    name: str

    @classmethod
    def of(cls, manifest: Manifest) -> "ObjectKey":
        metadata = manifest["metadata"]
        return cls(manifest["apiVersion"], manifest["kind"], metadata.get("namespace", ""), metadata["name"])

    def __str__(self) -> str:
        return f"{self.kind} {self.name}" + (f" in namespace {self.namespace}" if self.namespace else "")


@dataclass(frozen=True)
class Owner:
    """For what something is applied: a row of ours (``replica``, ``namespace``), at one generation."""

    kind: str
    id: UUID
    tenant_id: UUID | None
    generation: int

    @property
    def labels(self) -> dict[str, str]:
        """By these the cluster's objects are known as this owner's."""
        return owner_labels(self.kind, self.id, self.tenant_id)


@dataclass(frozen=True)
class Prepared:
    """A manifest with its owner's labels; ``digest`` is the sha256 of exactly this."""

    key: ObjectKey
    manifest: Obj
    digest: str


@dataclass(frozen=True)
class Written:
    """What an apply left in the cluster: ``object``, as the API server answered it.

    ``forced``: fields that were taken back from other managers.
    """

    object: Obj
    created: bool
    changed: bool
    forced: tuple[FieldConflict, ...] = ()

    @property
    def uid(self) -> str:
        """Of the object."""
        return str(self.object["metadata"]["uid"])

    @property
    def resource_version(self) -> str:
        """Of the object, as the apply left it."""
        return str(self.object["metadata"]["resourceVersion"])


@dataclass(frozen=True)
class Remaining:
    """An object whose deletion was asked for and that is still there."""

    key: ObjectKey
    why: str


def never_force(conflict: ApplyConflict) -> bool:
    """Leave every field to the manager that owns it."""
    return False


def force_fields(*prefixes: str) -> ForcePolicy:
    """Take fields back if each that a conflict names is, or lies below, one of ``prefixes`` (``.spec``)."""

    def policy(conflict: ApplyConflict) -> bool:
        return all(_below(field, prefixes) for field in conflict.fields)

    return policy


def _below(field: str, prefixes: tuple[str, ...]) -> bool:
    return any(field == prefix or field.startswith((prefix + ".", prefix + "[")) for prefix in prefixes)


def prepare(manifests: Iterable[Manifest], owner: Owner) -> list[Prepared]:
    """Add the owner's labels, and bring into the order in which objects need each other.

    Raises:
        ValueError: two manifests name the same object.
    """
    prepared: dict[ObjectKey, Prepared] = {}
    for manifest in manifests:
        metadata = manifest["metadata"]
        labelled = {
            **manifest,
            "metadata": {**metadata, "labels": {**(metadata.get("labels") or {}), **owner.labels}},
        }
        key = ObjectKey.of(labelled)
        if key in prepared:
            raise ValueError(f"Two manifests name the same object: {key}.")
        text = json.dumps(labelled, sort_keys=True, separators=(",", ":"))
        prepared[key] = Prepared(key, labelled, hashlib.sha256(text.encode()).hexdigest())
    return sorted(prepared.values(), key=lambda each: rank(each.key))


def rank(key: ObjectKey) -> int:
    """Lower is applied earlier and deleted later."""
    return _ORDER.index(key.kind) if key.kind in _ORDER else len(_ORDER)


def apply_one(
    client: KubeClient,
    wanted: Prepared,
    owner: Owner,
    *,
    uid: str,
    force: ForcePolicy,
    before_write: Callable[[], None],
) -> Written:
    """Apply one object, after a look at what is there under its name.

    Between the look and the write somebody may still create an object; server-side apply without force then
    takes no field of it that somebody set, and the next look finds whose it is.

    Args:
        uid: of the object that we made before, if any: it is ours even if somebody took our labels away.
        before_write: called right before each request that writes; raises to stop.

    Raises:
        ForeignObject: an object of this name is there that is not this owner's.
        ApplyConflict: other managers own fields, and ``force`` leaves them to them.
        Retryable: the object of before is still being deleted.
    """
    live = _look(client, wanted.key)
    version = ""
    if live is not None:
        metadata = live["metadata"]
        if metadata["uid"] != uid and not is_owners(live, owner):
            raise _foreign(client, wanted.key, live)
        if metadata.get("deletionTimestamp"):
            raise Retryable(
                _call(client, "apply", wanted.key),
                f"{wanted.key} on cluster {client.name} is still being deleted; it is made again when it is gone.",
            )
        version = metadata["resourceVersion"]
    before_write()
    forced: tuple[FieldConflict, ...] = ()
    try:
        applied = client.apply(wanted.manifest, known_resource_version=version)
    except ApplyConflict as conflict:
        if not force(conflict):
            raise
        forced = conflict.conflicts
        before_write()
        applied = client.apply(wanted.manifest, force=True, known_resource_version=version)
    return Written(applied.object, applied.created, applied.changed is not False, forced)


def delete_one(
    client: KubeClient,
    key: ObjectKey,
    owner: Owner,
    *,
    uid: str,
    propagation: Propagation,
    before_write: Callable[[], None],
) -> Remaining | None:
    """Have one object deleted; ``None`` when the cluster answered that it is gone.

    An object under the name that is neither the one we made (``uid``) nor labelled as this owner's is
    somebody else's: ours is gone, theirs stays.
    """
    for _ in range(_DELETE_TRIES):
        live = _look(client, key)
        if live is None or not (live["metadata"]["uid"] == uid or is_owners(live, owner)):
            return None
        metadata = live["metadata"]
        if metadata.get("deletionTimestamp"):
            return Remaining(key, _why_still_there(live))
        before_write()
        try:
            client.delete(
                key.api_version,
                key.kind,
                key.name,
                key.namespace,
                uid=metadata["uid"],
                resource_version=metadata["resourceVersion"],
                # Waiting for dependents means a finalizer and a round of the garbage collector: not for these.
                propagation="Background" if key.kind in _ORDER else propagation,
            )
        except NotFound:
            return None
        except StaleWrite:
            continue
        live = _look(client, key)
        return None if live is None else Remaining(key, _why_still_there(live))
    return Remaining(key, "it changes all the time; deleting it is tried again")


def is_owners(live: Manifest, owner: Owner) -> bool:
    """Whether the labels of an object say that it was made for this owner."""
    labels = live["metadata"].get("labels") or {}
    return all(labels.get(key) == owner.labels[key] for key in (MANAGED_BY, LABEL_OWNER_KIND, LABEL_OWNER))


def _look(client: KubeClient, key: ObjectKey) -> Obj | None:
    try:
        return client.get(key.api_version, key.kind, key.name, key.namespace, metadata_only=True)
    except NotFound:
        return None


def _call(client: KubeClient, verb: str, key: ObjectKey) -> Call:
    return Call(client.name, verb, key.kind, key.namespace, key.name)


def _foreign(client: KubeClient, key: ObjectKey, live: Manifest) -> ForeignObject:
    labels = live["metadata"].get("labels") or {}
    if labels.get(LABEL_OWNER):
        whose = f"it belongs to the portal's {labels.get(LABEL_OWNER_KIND, 'object')} {labels[LABEL_OWNER]}"
    else:
        managers = {entry.get("manager", "") for entry in live["metadata"].get("managedFields") or []} - {""}
        by = f" (written by {', '.join(sorted(managers))})" if managers else ""
        whose = f"the portal did not make it{by}"
    return ForeignObject(
        _call(client, "apply", key),
        f"There is a {key} on cluster {client.name} already, and {whose}. It is not overwritten: delete it "
        "or give it another name.",
    )


def _why_still_there(live: Manifest) -> str:
    finalizers = live["metadata"].get("finalizers") or []
    if finalizers:
        return f"it waits for the finalizers {', '.join(sorted(finalizers))}"
    return "the cluster is still deleting it"
