"""One cluster's Kubernetes API, as far as the portal uses it: reading (:mod:`infra.kube.reader`) and writing.

Every write first asks the *database* whether it may: a client that was made before somebody switched the
cluster to observe, paused it or pulled the emergency stop writes nothing.
"""

import hashlib
import os
import threading
from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal
from uuid import UUID

from infra.kube.errors import Call, ClusterAbandoned
from infra.kube.guard import require_writable
from infra.kube.kubeconfig import Credentials
from infra.kube.reader import KubeReader, Obj, ObjectList, Page
from infra.kube.transport import READ_TIMEOUT, WRITE_TIMEOUT, Answer, Request
from infra.models import Cluster
from infra.names import FIELD_MANAGER
from portal.kernel import crypto

__all__ = ["WRITE_TIMEOUT", "Applied", "KubeClient", "Obj", "ObjectList", "Page", "Propagation"]

Propagation = Literal["Foreground", "Background", "Orphan"]
MAX_CLIENTS = 64


@dataclass(frozen=True)
class Applied:
    """What an apply left. ``changed`` is ``None`` where no version to compare with was given."""

    object: Obj
    created: bool
    changed: bool | None


class KubeClient(KubeReader):
    """Requests to one cluster. Usable from several threads; not across a fork (:meth:`for_cluster` sees to
    it).

    Args:
        cluster_id: the row that writes are checked against; ``None``: not connected yet, so no writes.
    """

    def __init__(
        self, credentials: Credentials, *, name: str, cluster_id: UUID | None = None, identity: str = ""
    ) -> None:
        super().__init__(credentials, name=name, identity=identity)
        self._cluster_id = cluster_id

    @classmethod
    def for_cluster(cls, cluster: Cluster) -> "KubeClient":
        """The client of a connected cluster: kept while its credentials stay the same, in this process only.

        Raises:
            ClusterAbandoned: its credentials were thrown away.
        """
        return _clients.get(cluster)

    def apply(
        self,
        manifest: Mapping[str, Any],
        *,
        field_manager: str = FIELD_MANAGER,
        force: bool = False,
        dry_run: bool = False,
        known_resource_version: str = "",
    ) -> Applied:
        """Server-side apply of a whole object: a field left out since the last apply is removed.

        Args:
            manifest: without ``resourceVersion`` and ``managedFields``.
            force: take fields over that another manager owns.
            known_resource_version: to tell whether the apply changed anything.

        Raises:
            ApplyConflict: another manager owns fields, and ``force`` is off.
            WriteRefused: the cluster may not be written to.
        """
        metadata = manifest["metadata"]
        unwanted = {"resourceVersion", "managedFields", "uid"} & set(metadata)
        if unwanted:
            raise ValueError(f"A manifest to apply must not carry metadata.{', metadata.'.join(sorted(unwanted))}.")
        kind, namespace, name = manifest["kind"], metadata.get("namespace", ""), metadata["name"]
        call = self._call("apply", kind, namespace, name)
        answer = self._write(
            "PATCH",
            self._resource(manifest["apiVersion"], kind).path(namespace=namespace, name=name),
            call,
            query={"fieldManager": field_manager, "force": force or None},
            body=dict(manifest),
            content_type="application/apply-patch+yaml",
            dry_run=dry_run,
        )
        applied: Obj = self._decode(answer, call)
        created = answer.status == 201
        version = applied["metadata"].get("resourceVersion", "")
        changed = True if created else (version != known_resource_version if known_resource_version else None)
        return Applied(applied, created, changed)

    def create_dry_run(self, manifest: Mapping[str, Any]) -> Obj:
        """Have an object created as a dry run: the server admits or refuses it as it would, and stores nothing.

        Returns:
            The object as it would have been made.

        Raises:
            WriteRefused: the cluster may not be written to: also a dry run takes the right to write.
            KubeError: the server's refusal.
        """
        metadata = manifest["metadata"]
        kind, namespace, name = manifest["kind"], metadata.get("namespace", ""), metadata["name"]
        call = self._call("try to create", kind, namespace, name)
        path = self._resource(manifest["apiVersion"], kind).path(namespace=namespace)
        return self._decode(self._write("POST", path, call, body=dict(manifest), dry_run=True), call)

    def delete(
        self,
        api_version: str,
        kind: str,
        name: str,
        namespace: str = "",
        *,
        uid: str,
        resource_version: str = "",
        propagation: Propagation = "Background",
    ) -> None:
        """Ask for the deletion of exactly this object. It is gone only when a read answers :class:`NotFound`.

        Args:
            uid: a precondition: an object made again under the name is not touched.
            resource_version: a further precondition: nothing changed since it was read.

        Raises:
            NotFound: it is gone already. StaleWrite: a precondition does not hold.
        """
        preconditions = {"uid": uid} | ({"resourceVersion": resource_version} if resource_version else {})
        self._write(
            "DELETE",
            self._resource(api_version, kind).path(namespace=namespace, name=name),
            self._call("delete", kind, namespace, name),
            body={
                "apiVersion": "v1",
                "kind": "DeleteOptions",
                "propagationPolicy": propagation,
                "preconditions": preconditions,
            },
        )

    def patch_metadata(
        self,
        api_version: str,
        kind: str,
        name: str,
        namespace: str = "",
        *,
        uid: str,
        labels: Mapping[str, str | None] | None = None,
        annotations: Mapping[str, str | None] | None = None,
        field_manager: str = FIELD_MANAGER,
    ) -> Obj:
        """Set labels and annotations (``None`` removes one) on exactly this object, by merge patch."""
        call = self._call("label", kind, namespace, name)
        metadata: Obj = {"uid": uid}
        if labels is not None:
            metadata["labels"] = dict(labels)
        if annotations is not None:
            metadata["annotations"] = dict(annotations)
        answer = self._write(
            "PATCH",
            self._resource(api_version, kind).path(namespace=namespace, name=name),
            call,
            query={"fieldManager": field_manager},
            body={"metadata": metadata},
            content_type="application/merge-patch+json",
        )
        return self._decode(answer, call)

    def _write(
        self,
        method: str,
        path: str,
        call: Call,
        *,
        body: Obj,
        query: Mapping[str, str | bool | None] | None = None,
        content_type: str = "application/json",
        dry_run: bool = False,
    ) -> Answer:
        require_writable(self._cluster_id, call)
        # The server gives up when we do, so that no write happens after the lease that covered it.
        full_query = {
            **(query or {}),
            "dryRun": "All" if dry_run else None,
            "timeout": f"{READ_TIMEOUT:.0f}s",
        }
        return self._transport.send(Request(method, path, call, query=full_query, body=body, content_type=content_type))


class _Clients:
    """The clients of this process, the least used closed first. After a fork the child begins with none."""

    def __init__(self) -> None:
        self.forget()

    def forget(self) -> None:
        """Drop all without closing: the connections belong to the parent process."""
        self._lock = threading.Lock()
        self._kept: OrderedDict[tuple[UUID, str], KubeClient] = OrderedDict()

    def get(self, cluster: Cluster) -> KubeClient:
        ciphertext = bytes(cluster.kubeconfig_ciphertext)
        if not ciphertext:
            raise ClusterAbandoned(
                Call(cluster.slug, "reach"), f"Cluster {cluster.slug} has no credentials: it was abandoned."
            )
        key = (cluster.id, hashlib.sha256(ciphertext).hexdigest())
        with self._lock:
            client = self._kept.get(key)
            if client is None:
                credentials = Credentials.loads(crypto.decrypt(ciphertext))
                client = KubeClient(credentials, name=cluster.slug, cluster_id=cluster.id, identity=cluster.identity)
                self._kept[key] = client
                for old in [old for old in self._kept if old[0] == cluster.id and old != key]:
                    self._kept.pop(old).close()
            self._kept.move_to_end(key)
            while len(self._kept) > MAX_CLIENTS:
                self._kept.popitem(last=False)[1].close()
            return client


_clients = _Clients()
os.register_at_fork(after_in_child=_clients.forget)
