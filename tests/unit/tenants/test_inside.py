"""Inside a tenant cluster, whose administrators may put anything there: who edits where, and how much is read."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, cast

import pytest

from infra.kube.client import KubeClient
from infra.kube.reader import Page
from portal.kernel.workqueue import Claimed
from tenants.tenantclusters.access import (
    EDITORS,
    KEEP_OUT,
    LABELS,
    Access,
    Subjects,
    access_manifests,
    editors_manifest,
    is_the_teams,
)
from tenants.tenantclusters.inside import MOST, _apply_editors, look

Obj = dict[str, Any]
ACCESS = Access({"developer": Subjects(("dev",), ("/team/devs",))}, {"ci": "edit", "root": "cluster-admin"})


class Item:
    """A run whose lease never ends."""

    def require(self, seconds: float) -> None:
        pass


ITEM = cast("Claimed", Item())


class Server:
    """Namespaces with their bindings; what was written."""

    def __init__(self, namespaces: Mapping[str, Mapping[str, str]], bindings: Mapping[str, Obj]) -> None:
        self.namespaces, self.bindings = dict(namespaces), dict(bindings)
        self.going: set[str] = set()
        self.writes: list[tuple[str, str]] = []

    def list_pages(self, api_version: str, kind: str, **_: Any) -> Iterator[Page]:
        if kind == "Namespace":
            yield Page(
                [
                    {"metadata": {"name": name, "labels": labels, **self._going(name)}}
                    for name, labels in sorted(self.namespaces.items())
                ],
                "1",
            )
        else:
            assert kind == "RoleBinding"
            yield Page(list(self.bindings.values()), "1")

    def _going(self, name: str) -> Obj:
        return {"deletionTimestamp": "2026-11-30T00:00:00Z"} if name in self.going else {}

    def apply(self, manifest: Obj, *, force: bool) -> None:
        namespace = manifest["metadata"]["namespace"]
        self.writes.append(("apply", namespace))
        self.bindings[namespace] = manifest | {"metadata": {**manifest["metadata"], "uid": "u"}}

    def delete(self, api_version: str, kind: str, name: str, namespace: str, *, uid: str) -> None:
        assert (kind, name, uid) == ("RoleBinding", EDITORS, "u")
        self.writes.append(("delete", namespace))
        del self.bindings[namespace]

    def bring(self, access: Access) -> list[tuple[str, str]]:
        self.writes.clear()
        _apply_editors(ITEM, cast("KubeClient", self), access)
        return self.writes


def test_nobody_but_administrators_may_act_as_a_service_account_everywhere():
    """``edit`` in all namespaces would be a token of every robot and every controller away from everything."""
    for one in access_manifests(ACCESS):
        if one["kind"] == "ClusterRoleBinding" and one["metadata"]["name"] != "aifactory-robot-root":
            assert one["roleRef"]["name"] in ("view", "cluster-admin")
            assert one["roleRef"]["name"] == "view" or one["subjects"] == []


@pytest.mark.parametrize("namespace", ["kube-system", "kube-public", "aifactory-robots"])
def test_in_namespaces_of_the_clusters_own_nobody_edits(namespace: str):
    assert not is_the_teams(namespace, {})
    assert is_the_teams(namespace.replace("-", "x"), {})


def test_editors_are_bound_in_the_teams_namespaces_and_follow_what_changes():
    key, value = KEEP_OUT
    server = Server({"default": {}, "kube-system": {}, "aifactory-robots": {}, "argo": {key: value}, "web": {}}, {})
    assert server.bring(ACCESS) == [("apply", "default"), ("apply", "web")]
    assert [one["name"] for one in server.bindings["web"]["subjects"]] == ["oidc:dev", "oidc:/team/devs", "ci"]
    assert server.bring(ACCESS) == [], "what is as wanted is not written again"
    # Somebody is bound there whom the portal did not let in, and a namespace is closed.
    server.bindings["web"]["subjects"].append({"kind": "User", "name": "oidc:gone"})
    server.namespaces["default"] = {key: value}
    assert server.bring(ACCESS) == [("apply", "web"), ("delete", "default")]
    server.namespaces["new"] = {}
    server.going = {"web"}
    assert server.bring(ACCESS) == [("apply", "new")], "a namespace that is being deleted takes nothing"
    server.going = set()
    assert server.bring(Access()) == [("delete", "web"), ("delete", "new")]
    assert editors_manifest(Access(), "web") is None


def test_bindings_of_other_names_are_left_alone():
    theirs = {"metadata": {"name": "their-own", "namespace": "web", "labels": LABELS, "uid": "t"}}
    server = Server({"web": {}}, {"theirs": theirs})
    server.bring(Access())
    assert server.bindings == {"theirs": theirs}


class Flood:
    """A tenant cluster with pods and events without end, each with much in it."""

    def __init__(self) -> None:
        self.sent = 0

    def version(self) -> Obj:
        return {"gitVersion": "v1.35.0"}

    def list_pages(self, api_version: str, kind: str, *, limit: int, **_: Any) -> Iterator[Page]:
        while True:
            yield Page([_much(number) for number in range(self.sent, self.sent + limit)], "1")
            self.sent += limit


def _much(number: int) -> Obj:
    return {
        "metadata": {"name": f"p-{number}", "namespace": "default", "annotations": {"big": "x" * 1000}},
        "status": {"phase": "Pending"},
        "reason": "SyncError",
        "involvedObject": {"kind": "Pod", "namespace": "default", "name": f"p-{number - MOST}"},
        "message": "the host says no",
    }


def test_however_much_there_is_only_so_much_is_read():
    flood = Flood()
    found = look(cast("KubeClient", flood))
    assert (found.nodes, found.pods) == (MOST, MOST)
    assert flood.sent < 3 * MOST, "a list is left as soon as it is enough"
    assert 0 < len(found.refused) <= MOST
    assert len(found.as_json()["refused"]) == 20
