"""Reading one cluster's Kubernetes API: allowed on every connected cluster."""

import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal
from urllib.parse import quote

from infra.kube.access import Review
from infra.kube.decoding import loads
from infra.kube.errors import ApiMissing, Call, Gone, Permanent, WrongCluster
from infra.kube.kubeconfig import Credentials
from infra.kube.resources import BUILT_IN, Resource, discovery_path, from_discovery
from infra.kube.transport import READ_TIMEOUT, Answer, Request, Transport
from infra.kube.watching import WatchEvent, parse_events

Obj = dict[str, Any]

PAGE_SIZE = 500
_LIST_RESTARTS = 3
_IDENTITY_SECONDS = 60.0
_METADATA_LIST = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1"
_METADATA = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1"
_AUTHORIZATION = "/apis/authorization.k8s.io/v1"


@dataclass(frozen=True)
class Page:
    """A part of a list. ``restarted``: the list began anew here; drop the pages before."""

    items: list[Obj]
    resource_version: str
    restarted: bool = False


@dataclass(frozen=True)
class ObjectList:
    """A whole list, and the version at which a watch goes on."""

    items: list[Obj]
    resource_version: str


class KubeReader:
    """Requests to one cluster that change nothing. Usable from several threads, not across a fork.

    Args:
        name: what errors call the cluster (its slug).
        identity: UID of the namespace ``kube-system`` as connected, for :meth:`require_identity`.
    """

    def __init__(self, credentials: Credentials, *, name: str, identity: str = "") -> None:
        self.name = name
        self._identity = identity
        self._identity_seen = float("-inf")
        self._transport = Transport(credentials, name=name)
        self._discovered: dict[str, dict[str, Resource]] = {}

    def close(self) -> None:
        """Close idle connections."""
        self._transport.close()

    def version(self) -> Obj:
        """``{"major": "1", "minor": "35", "gitVersion": "v1.35.4", …}``"""
        return self._json("GET", "/version", self._call("read the version"))

    def identity(self) -> str:
        """UID of the namespace ``kube-system``: the same for as long as it is the same cluster."""
        return str(self.get("v1", "Namespace", "kube-system")["metadata"]["uid"])

    def require_identity(self) -> None:
        """Make sure (once a minute) that the address still leads to the cluster that was connected.

        Raises:
            WrongCluster: it leads to another one: its 404s say nothing about our objects.
        """
        if time.monotonic() - self._identity_seen < _IDENTITY_SECONDS:
            return
        seen = self.identity()
        if seen != self._identity:
            raise WrongCluster(
                self._call("identify", "Namespace", "", "kube-system"),
                f"The address of cluster {self.name} now leads to another cluster (kube-system has the UID "
                f"{seen}, it was {self._identity}). Nothing is read as deleted and nothing written; rotate "
                "the kubeconfig or abandon the cluster.",
            )
        self._identity_seen = time.monotonic()

    def get(self, api_version: str, kind: str, name: str, namespace: str = "", *, metadata_only: bool = False) -> Obj:
        """One object.

        Raises:
            NotFound: there is none. ``ApiMissing``: the cluster does not know the kind.
        """
        call = self._call("get", kind, namespace, name)
        path = self._resource(api_version, kind).path(namespace=namespace, name=name)
        return self._json("GET", path, call, accept=_METADATA if metadata_only else "application/json")

    def list_pages(
        self,
        api_version: str,
        kind: str,
        *,
        namespace: str = "",
        label_selector: str = "",
        field_selector: str = "",
        limit: int = PAGE_SIZE,
        metadata_only: bool = False,
    ) -> Iterator[Page]:
        """All objects of a kind, ``limit`` at a time and all of one version.

        When the version is compacted away in mid-list, the list begins anew (``Page.restarted``).

        Raises:
            Gone: that happened three times; ask for larger pages.
        """
        call = self._call("list", kind, namespace)
        path = self._resource(api_version, kind).path(namespace=namespace)
        token = ""
        restarts = 0
        restarted = False
        while True:
            query: dict[str, str | int | bool | None] = {
                "limit": limit,
                "continue": token,
                "labelSelector": label_selector,
                "fieldSelector": field_selector,
            }
            accept = _METADATA_LIST if metadata_only else "application/json"
            try:
                answer = self._json("GET", path, call, query=query, accept=accept)
            except Gone:
                if not token or restarts == _LIST_RESTARTS:
                    raise
                restarts += 1
                token, restarted = "", True
                continue
            items: list[Obj] = answer.get("items") or []
            for item in items:
                # In a list, objects of built-in kinds come without saying what they are.
                item.setdefault("apiVersion", api_version)
                item.setdefault("kind", kind)
            metadata = answer["metadata"]
            yield Page(items, str(metadata.get("resourceVersion") or ""), restarted)
            restarted = False
            token = metadata.get("continue") or ""
            if not token:
                return

    def list_all(
        self,
        api_version: str,
        kind: str,
        *,
        namespace: str = "",
        label_selector: str = "",
        field_selector: str = "",
        limit: int = PAGE_SIZE,
        metadata_only: bool = False,
    ) -> ObjectList:
        """As :meth:`list_pages`, all pages together."""
        items: list[Obj] = []
        version = ""
        for page in self.list_pages(
            api_version,
            kind,
            namespace=namespace,
            label_selector=label_selector,
            field_selector=field_selector,
            limit=limit,
            metadata_only=metadata_only,
        ):
            items = [*page.items] if page.restarted else items + page.items
            version = page.resource_version
        return ObjectList(items, version)

    def watch(
        self,
        api_version: str,
        kind: str,
        *,
        resource_version: str,
        namespace: str = "",
        label_selector: str = "",
        field_selector: str = "",
        timeout_seconds: int = 300,
        inactivity_seconds: float = 90.0,
        initial_events: bool = False,
        metadata_only: bool = False,
    ) -> Iterator[WatchEvent]:
        """Events after ``resource_version`` until the server ends the stream, which it does after
        ``timeout_seconds``.

        The end is no error: go on from the last event's ``resource_version``. Events may repeat.

        Args:
            inactivity_seconds: the longest time without event or bookmark (a bookmark comes about every
            minute). initial_events: begin with the present state as ADDED events and a bookmark that ends it.

        Raises:
            Gone: the version is too old: list again, never reuse it.
            Unreachable: the stream broke (``cause`` ``broken``) or was silent for too long (``timeout``).
        """
        call = self._call("watch", kind, namespace)
        request = Request(
            "GET",
            self._resource(api_version, kind).path(namespace=namespace),
            call,
            query={
                "watch": True,
                "allowWatchBookmarks": True,
                "resourceVersion": resource_version,
                "timeoutSeconds": timeout_seconds,
                "labelSelector": label_selector,
                "fieldSelector": field_selector,
                "sendInitialEvents": True if initial_events else None,
                "resourceVersionMatch": "NotOlderThan" if initial_events else None,
            },
            accept=_METADATA if metadata_only else "application/json",
            read_timeout=inactivity_seconds,
        )
        yield from parse_events(self._transport.lines(request), call)

    def logs(
        self,
        namespace: str,
        pod: str,
        *,
        container: str = "",
        tail_lines: int = 500,
        limit_bytes: int = 256 * 1024,
        previous: bool = False,
        since_seconds: int | None = None,
        timestamps: bool = False,
    ) -> str:
        """The end of a container's log: at most ``tail_lines`` lines and ``limit_bytes`` bytes."""
        request = Request(
            "GET",
            BUILT_IN["v1", "Pod"].path(namespace=namespace, name=pod, subresource="log"),
            self._call("read the log of", "Pod", namespace, pod),
            query={
                "container": container,
                "tailLines": tail_lines,
                "limitBytes": limit_bytes,
                "previous": previous or None,
                "sinceSeconds": since_seconds,
                "timestamps": timestamps or None,
            },
            accept="*/*",
            max_bytes=limit_bytes,
        )
        return self._transport.send(request).body.decode("utf-8", "replace")

    def service_proxy_get(
        self,
        namespace: str,
        service: str,
        port: int | str,
        path: str,
        query: Mapping[str, str] | None = None,
        *,
        scheme: Literal["http", "https"] = "http",
        max_bytes: int = 32 * 1024 * 1024,
        read_timeout: float = READ_TIMEOUT,
    ) -> bytes:
        """GET an address of a service through the API server: metrics of clusters reachable in no other way.

        Raises:
            Permanent: the answer has more than ``max_bytes`` bytes.
        """
        target = f"https:{service}:{port}" if scheme == "https" else f"{service}:{port}"
        base = BUILT_IN["v1", "Service"].path(namespace=namespace, name=target, subresource="proxy")
        call = self._call("read from", "Service", namespace, service)
        request = Request(
            "GET",
            f"{base}/{quote(path.lstrip('/'))}",
            call,
            query=query or {},
            accept="*/*",
            read_timeout=read_timeout,
            max_bytes=max_bytes,
        )
        answer = self._transport.send(request)
        if not answer.complete:
            raise Permanent(call, f"{call.what} on cluster {self.name} answered with more than {max_bytes} bytes.")
        return answer.body

    def service_proxy(
        self,
        namespace: str,
        service: str,
        port: int | str,
        path: str,
        pairs: Sequence[tuple[str, str]] = (),
        *,
        scheme: Literal["http", "https"] = "http",
        headers: Mapping[str, str] | None = None,
        max_bytes: int = 32 * 1024 * 1024,
        read_timeout: float = READ_TIMEOUT,
    ) -> Answer:
        """As :meth:`service_proxy_get`, but any HTTP answer of the service is an answer, whatever its status.

        Args:
            pairs: the query; a key may come several times.
            headers: more headers. The API server passes them on, but never ``Authorization``.
            read_timeout: seconds for each part of the answer; the whole of it may take twice as many.

        Raises:
            KubeError: the API server refused, found no such service, or nothing answered behind it.
        """
        target = f"https:{service}:{port}" if scheme == "https" else f"{service}:{port}"
        call = self._call("read from", "Service", namespace, service)
        return self._relayed("Service", target, call, path, pairs, headers or {}, max_bytes, read_timeout)

    def pod_proxy(
        self, namespace: str, pod: str, port: int | str, path: str, *, max_bytes: int, read_timeout: float
    ) -> Answer:
        """As :meth:`service_proxy`, of one pod: an exporter that runs on each node."""
        call = self._call("read from", "Pod", namespace, pod)
        return self._relayed("Pod", f"{pod}:{port}", call, path, (), {}, max_bytes, read_timeout)

    def access_review(self, review: Review) -> bool:
        """Whether our credentials have the right. Asks with a SelfSubjectAccessReview, which stores
        nothing."""
        body = {
            "apiVersion": "authorization.k8s.io/v1",
            "kind": "SelfSubjectAccessReview",
            "spec": {"resourceAttributes": review.attributes()},
        }
        path = f"{_AUTHORIZATION}/selfsubjectaccessreviews"
        answer = self._json("POST", path, self._call("check the right to", str(review)), body=body)
        return bool((answer.get("status") or {}).get("allowed"))

    def subject(self) -> str:
        """Who the cluster says we are: ``system:serviceaccount:aifactory:portal``. By a SelfSubjectReview, which stores
        nothing (Kubernetes 1.28 and later)."""
        body = {"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"}
        call = self._call("ask who we are")
        answer = self._json("POST", "/apis/authentication.k8s.io/v1/selfsubjectreviews", call, body=body)
        return str(((answer.get("status") or {}).get("userInfo") or {}).get("username") or "")

    def request_token(self, namespace: str, name: str, *, seconds: int, audiences: Sequence[str]) -> str:
        """A new token of a service account, by a TokenRequest: an answer and nothing else, the server stores no object
        of it. (kubernetes, pkg/registry/core/serviceaccount/storage/token.go.)

        Args:
            seconds: wanted life, at least 600; the server may give less or more.
            audiences: as the token in use has them.

        Raises:
            Forbidden: the credentials lack ``create serviceaccounts/token``.
        """
        body = {
            "apiVersion": "authentication.k8s.io/v1",
            "kind": "TokenRequest",
            "spec": {"expirationSeconds": max(600, seconds), "audiences": list(audiences)},
        }
        path = f"/api/v1/namespaces/{quote(namespace, safe='')}/serviceaccounts/{quote(name, safe='')}/token"
        call = self._call("ask for a new token of", "ServiceAccount", namespace, name)
        return str((self._json("POST", path, call, body=body).get("status") or {}).get("token") or "")

    def rules_review(self, namespace: str) -> list[Obj]:
        """The rules of our credentials in a namespace, as far as the cluster's authorizers can list them."""
        body = {
            "apiVersion": "authorization.k8s.io/v1",
            "kind": "SelfSubjectRulesReview",
            "spec": {"namespace": namespace},
        }
        path = f"{_AUTHORIZATION}/selfsubjectrulesreviews"
        answer = self._json("POST", path, self._call("list the rights in", "Namespace", "", namespace), body=body)
        rules: list[Obj] = (answer.get("status") or {}).get("resourceRules") or []
        return rules

    # ---- inside ------------------------------------------------------------------------------------------

    def _call(self, verb: str, kind: str = "", namespace: str = "", name: str = "") -> Call:
        return Call(self.name, verb, kind, namespace, name)

    def _relayed(
        self,
        kind: str,
        target: str,
        call: Call,
        path: str,
        pairs: Sequence[tuple[str, str]],
        headers: Mapping[str, str],
        max_bytes: int,
        read_timeout: float,
    ) -> Answer:
        base = BUILT_IN["v1", kind].path(namespace=call.namespace, name=target, subresource="proxy")
        request = Request(
            "GET",
            f"{base}/{quote(path.lstrip('/'))}",
            call,
            accept="*/*",
            read_timeout=read_timeout,
            total_timeout=2 * read_timeout,
            max_bytes=max_bytes,
            headers=headers,
            pairs=pairs,
            relayed=True,
        )
        return self._transport.send(request)

    def _json(
        self,
        method: str,
        path: str,
        call: Call,
        *,
        query: Mapping[str, str | int | bool | None] | None = None,
        body: Obj | None = None,
        accept: str = "application/json",
    ) -> Obj:
        request = Request(method, path, call, query=query or {}, body=body, accept=accept)
        return self._decode(self._transport.send(request), call)

    def _decode(self, answer: Answer, call: Call) -> Obj:
        try:
            decoded = loads(answer.body)
        except ValueError:
            decoded = None
        if not isinstance(decoded, dict) or not answer.complete:
            raise ApiMissing(
                call,
                f"What answers at the address of cluster {self.name} does not speak the Kubernetes API "
                f"(asked for {call.what}). Check the address in the kubeconfig.",
                status=answer.status,
            )
        return decoded

    def _resource(self, api_version: str, kind: str) -> Resource:
        known = BUILT_IN.get((api_version, kind)) or self._discovered.get(api_version, {}).get(kind)
        if known is not None:
            return known
        call = self._call("look up", kind)
        found = from_discovery(api_version, self._json("GET", discovery_path(api_version), call))
        self._discovered[api_version] = found
        if kind not in found:
            raise ApiMissing(
                call,
                f"Cluster {self.name} has no kind {kind} in {api_version}. Install the CRD that provides it.",
            )
        return found[kind]
