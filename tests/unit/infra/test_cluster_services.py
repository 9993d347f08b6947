"""Sites and clusters: who may change them, what is refused, what is kept, what the audit says."""

from collections.abc import Callable
from typing import Any

import pytest
from django.db import transaction

from infra.kube.kubeconfig import Credentials
from infra.models import AppliedObject, Cluster, Site, WatchTarget
from infra.selectors.clusters import cluster_by_slug, cluster_list, site_by_slug, site_list
from infra.services import clusters
from infra.services.clusters import (
    cluster_abandon,
    cluster_connect,
    cluster_pause,
    cluster_resume,
    cluster_rotate_kubeconfig,
    cluster_set_mode,
    cluster_update,
    site_create,
    site_update,
)
from infra.services.preflight import ClusterFacts
from portal.kernel import crypto
from portal.kernel.actors import Actor
from portal.kernel.ids import uuid7
from portal.kernel.models import AuditEvent, WorkItem
from portal.kernel.problems import Conflict, Forbidden, Invalid, NotFound, Problem
from portal.kernel.scoping import system_scope
from tests.support.pki import kubeconfig

pytestmark = pytest.mark.django_db

ADMIN = Actor(kind="user", name="mia", user_id=uuid7(), platform_role="platform-admin")
SERVER = "https://eu-1.example.invalid:6443"
IDENTITY = "11111111-2222-3333-4444-555555555555"


class Fleet:
    """What the probe finds, in the place of clusters."""

    def __init__(self) -> None:
        self.facts = ClusterFacts("v1.35.4", IDENTITY)
        self.asked: list[tuple[Credentials, str, str]] = []

    def probe(self, credentials: Credentials, *, slug: str, mode: str) -> ClusterFacts:
        self.asked.append((credentials, slug, mode))
        return self.facts


@pytest.fixture(autouse=True)
def fleet(monkeypatch: pytest.MonkeyPatch) -> Fleet:
    fleet = Fleet()
    monkeypatch.setattr(clusters, "probe", fleet.probe)
    return fleet


@pytest.fixture
def site() -> Site:
    return site_create(slug="berlin", name="Berlin", actor=ADMIN)


def connect(site: Site, slug: str = "eu-1", **values: Any) -> Cluster:
    given: dict[str, Any] = {"mode": "manage", "kubeconfig": kubeconfig(SERVER), "actor": ADMIN} | values
    return cluster_connect(slug=slug, site=site, **given)


def events(verb: str) -> list[AuditEvent]:
    with system_scope("test"):
        return list(AuditEvent.objects.filter(verb=verb))


def test_sites(site: Site) -> None:
    assert site_update(site=site, name="Berlin West", actor=ADMIN).name == "Berlin West"
    assert [each.slug for each in site_list()] == ["berlin"]
    assert site_by_slug("berlin") == site
    with pytest.raises(Conflict, match="berlin already"):
        site_create(slug="berlin", actor=ADMIN)
    with pytest.raises(NotFound):
        site_by_slug("paris")
    [event] = events("site_update")
    assert (event.before, event.after) == ({"name": "Berlin"}, {"name": "Berlin West"})


@pytest.mark.parametrize("slug", ["", "Eu", "1eu", "eu_1", "eu-", "x" * 41, "new", "é"])
def test_slugs_that_are_refused(slug: str, site: Site) -> None:
    for call in (lambda: site_create(slug=slug, actor=ADMIN), lambda: connect(site, slug)):
        with pytest.raises(Invalid) as caught:
            call()
        assert caught.value.errors[0]["pointer"] == "/slug"


def test_a_cluster_is_connected(site: Site, fleet: Fleet) -> None:
    cluster = connect(
        site,
        name="EU 1",
        labels={"tier": "prod"},
        taints=[{"key": "preview", "effect": "NoSchedule"}],
        system_namespaces=["kube-system", "gpu-operator"],
    )
    stored = cluster_by_slug("eu-1")
    assert (stored.mode, stored.api_server, stored.identity) == ("manage", SERVER, IDENTITY)
    assert stored.kubernetes_version == "v1.35.4"
    assert stored.last_seen_at is not None
    assert stored.taints == [{"key": "preview", "value": "", "effect": "NoSchedule"}]
    assert stored.system_namespaces == ["gpu-operator", "kube-system"]
    assert Credentials.loads(crypto.decrypt(stored.kubeconfig_ciphertext)) == fleet.asked[0][0]
    assert b"token-of-a-service-account" not in bytes(stored.kubeconfig_ciphertext)
    resources = WatchTarget.objects.filter(cluster=cluster).values_list("resource", flat=True)
    assert set(resources) == set(WatchTarget.Resource.values)
    assert WorkItem.objects.get(kind="cluster", object_id=cluster.pk).cluster_id == cluster.pk
    [event] = events("cluster_connect")
    assert event.actor_label == "mia"
    assert "token-of-a-service-account" not in str(event.after)
    assert event.after is not None
    assert event.after["identity"] == IDENTITY


def test_observe_is_what_a_cluster_is_connected_as(site: Site) -> None:
    cluster = cluster_connect(slug="eu-1", site=site, kubeconfig=kubeconfig(SERVER), actor=ADMIN)
    assert cluster.mode == "observe"
    assert not cluster.writable


def test_the_same_cluster_is_not_connected_twice(site: Site, fleet: Fleet) -> None:
    connect(site)
    with pytest.raises(Conflict, match=r"connected already, as eu-1"):
        connect(site, "eu-2")
    fleet.facts = ClusterFacts("v1.35.4", "another")
    with pytest.raises(Conflict, match="a cluster eu-1 already"):
        connect(site)
    connect(site, "eu-2")
    assert [each.slug for each in cluster_list()] == ["eu-1", "eu-2"]


@pytest.mark.parametrize(
    ("values", "pointer"),
    [
        ({"mode": "write"}, "/mode"),
        ({"labels": {"bad key": "x"}}, "/labels"),
        ({"labels": {"a": "x" * 64}}, "/labels"),
        ({"labels": {"a": 5}}, "/labels"),
        ({"labels": {"UPPER.example/a": "x"}}, "/labels"),
        ({"taints": [{"key": "a", "effect": "Sometimes"}]}, "/taints/0/effect"),
        ({"taints": [{"effect": "NoSchedule"}]}, "/taints/0/key"),
        ({"taints": [{"key": "a", "value": "b c", "effect": "NoSchedule"}]}, "/taints/0/value"),
        ({"taints": [{"key": "a", "effect": "NoSchedule", "zeal": "1"}]}, "/taints/0"),
        ({"system_namespaces": ["Kube"]}, "/system_namespaces"),
        ({"name": "x" * 121}, "/name"),
        ({"kubeconfig": kubeconfig("http://eu-1.example.invalid")}, "/kubeconfig"),
        ({"kubeconfig": "{}"}, "/kubeconfig"),
    ],
)
def test_values_that_are_refused_before_any_cluster_is_asked(
    values: dict[str, Any], pointer: str, site: Site, fleet: Fleet
) -> None:
    with pytest.raises(Invalid) as caught:
        connect(site, **values)
    assert caught.value.errors[0]["pointer"] == pointer
    assert caught.value.errors[0]["detail"].endswith((".", ")"))
    assert fleet.asked == []
    assert not Cluster.objects.exists()


def test_an_update_changes_what_is_given_and_says_so(site: Site) -> None:
    cluster = connect(site)
    other = site_create(slug="oslo", actor=ADMIN)
    changed = cluster_update(cluster=cluster, site=other, labels={"tier": "dev"}, actor=ADMIN)
    assert (changed.site.slug, changed.labels, changed.name) == ("oslo", {"tier": "dev"}, "eu-1")
    assert changed.generation == cluster.generation + 1
    [event] = events("cluster_update")
    assert event.before == {"site": "berlin", "labels": {}}
    assert event.after == {"site": "oslo", "labels": {"tier": "dev"}}
    cluster_update(cluster=changed, labels={"tier": "dev"}, actor=ADMIN)
    assert len(events("cluster_update")) == 1, "nothing changed, nothing written down"


def test_the_mode_is_switched_after_the_rights_are_checked(site: Site, fleet: Fleet) -> None:
    cluster = connect(site, mode="observe")
    fleet.asked.clear()
    cluster = cluster_set_mode(cluster=cluster, mode="manage", actor=ADMIN)
    assert cluster.writable
    assert [(slug, mode) for _, slug, mode in fleet.asked] == [("eu-1", "manage")]
    fleet.facts = ClusterFacts("v1.35.4", "another")
    cluster_set_mode(cluster=cluster, mode="observe", actor=ADMIN)
    with pytest.raises(Conflict, match="not cluster eu-1"):
        cluster_set_mode(cluster=Cluster.objects.get(), mode="manage", actor=ADMIN)
    assert len(events("cluster_set_mode")) == 2


def _applied(cluster: Cluster) -> AppliedObject:
    return AppliedObject.objects.create(
        cluster=cluster, owner_kind="replica", owner_id=uuid7(), api_version="apps/v1", kind="Deployment",
        namespace="t-acme", name="web", uid="u", generation=1,
    )  # fmt: skip


def test_a_cluster_with_our_objects_can_not_become_observed(site: Site) -> None:
    cluster = connect(site)
    row = _applied(cluster)
    with pytest.raises(Conflict, match="1 objects"):
        cluster_set_mode(cluster=cluster, mode="observe", actor=ADMIN)
    AppliedObject.objects.filter(pk=row.pk).update(deleted_at="2026-01-01T00:00:00Z")
    assert cluster_set_mode(cluster=cluster, mode="observe", actor=ADMIN).mode == "observe"


def test_pausing_and_resuming(site: Site) -> None:
    cluster = connect(site)
    assert not cluster_pause(cluster=cluster, actor=ADMIN).writable
    cluster_pause(cluster=cluster, actor=ADMIN)
    assert cluster_resume(cluster=cluster, actor=ADMIN).writable
    assert (len(events("cluster_pause")), len(events("cluster_resume"))) == (1, 1)


def test_new_credentials_must_be_of_the_same_cluster(site: Site, fleet: Fleet) -> None:
    cluster = connect(site)
    fresh = kubeconfig("https://new.example.invalid", user={"token": "brand-new-token"})
    rotated = cluster_rotate_kubeconfig(cluster=cluster, kubeconfig=fresh, actor=ADMIN)
    assert rotated.api_server == "https://new.example.invalid"
    assert Credentials.loads(crypto.decrypt(Cluster.objects.get().kubeconfig_ciphertext)).token == "brand-new-token"
    assert "brand-new-token" not in str(events("cluster_rotate_kubeconfig")[0].after)
    fleet.facts = ClusterFacts("v1.35.4", "another")
    with pytest.raises(Conflict, match=f"has the UID another, that of eu-1 is {IDENTITY}"):
        cluster_rotate_kubeconfig(cluster=cluster, kubeconfig=kubeconfig(SERVER), actor=ADMIN)
    assert Cluster.objects.get().api_server == "https://new.example.invalid"


def test_an_abandoned_cluster_keeps_its_rows_and_loses_its_credentials(site: Site) -> None:
    cluster = connect(site)
    _applied(cluster)
    with pytest.raises(Invalid, match="10 characters"):
        cluster_abandon(cluster=cluster, reason="  gone  ", actor=ADMIN)
    result = cluster_abandon(cluster=cluster, reason="The data centre burned down.", actor=ADMIN)
    assert result.leftovers == ["Deployment t-acme/web"]
    row = cluster_by_slug("eu-1")
    assert bytes(row.kubeconfig_ciphertext) == b""
    assert AppliedObject.objects.filter(deleted_at__isnull=True).count() == 1
    assert WatchTarget.objects.filter(cluster=cluster).exists(), "with it the proof of what was watched would go"
    assert list(cluster_list()) == []
    assert list(cluster_list(abandoned=True)) == [row]
    [event] = events("cluster_abandon")
    assert event.after is not None
    assert event.after["leftovers"] == ["Deployment t-acme/web"]
    for again in (
        lambda: cluster_abandon(cluster=row, reason="The data centre burned down.", actor=ADMIN),
        lambda: cluster_resume(cluster=row, actor=ADMIN),
        lambda: cluster_set_mode(cluster=row, mode="manage", actor=ADMIN),
        lambda: cluster_update(cluster=row, name="x", actor=ADMIN),
        lambda: cluster_rotate_kubeconfig(cluster=row, kubeconfig=kubeconfig(SERVER), actor=ADMIN),
    ):
        with pytest.raises(Conflict, match="abandoned"):
            again()
    assert connect(site, "eu-1-again").identity == IDENTITY, "it came back, as another cluster of ours"


def _calls(site: Site, cluster: Cluster) -> dict[str, Callable[[Actor], object]]:
    return {
        "site_create": lambda actor: site_create(slug="oslo", actor=actor),
        "site_update": lambda actor: site_update(site=site, name="x", actor=actor),
        "cluster_connect": lambda actor: connect(site, "eu-9", actor=actor),
        "cluster_update": lambda actor: cluster_update(cluster=cluster, name="x", actor=actor),
        "cluster_set_mode": lambda actor: cluster_set_mode(cluster=cluster, mode="observe", actor=actor),
        "cluster_pause": lambda actor: cluster_pause(cluster=cluster, actor=actor),
        "cluster_resume": lambda actor: cluster_resume(cluster=cluster, actor=actor),
        "cluster_rotate_kubeconfig": lambda actor: cluster_rotate_kubeconfig(
            cluster=cluster, kubeconfig=kubeconfig(SERVER), actor=actor
        ),
        "cluster_abandon": lambda actor: cluster_abandon(cluster=cluster, reason="x" * 20, actor=actor),
    }


NOBODIES = [
    Actor(kind="user", name="member"),
    Actor(kind="user", name="viewer", platform_role="platform-viewer"),
    Actor(kind="user", name="finance", platform_role="platform-finance"),
    Actor(kind="token", name="ci", platform_role="platform-admin", scopes=frozenset({"read", "platform"})),
]


@pytest.mark.parametrize("actor", NOBODIES, ids=lambda actor: actor.name)
def test_only_platform_admins_change_the_fleet(actor: Actor, site: Site, fleet: Fleet) -> None:
    cluster = connect(site)
    fleet.asked.clear()
    before = (Cluster.objects.values().get(), Site.objects.values().get())
    for verb, call in _calls(site, cluster).items():
        with pytest.raises(Forbidden) as caught:
            call(actor)
        assert caught.value.refusal is not None, verb
        assert caught.value.refusal["verb"] == verb
    assert (Cluster.objects.values().get(), Site.objects.values().get()) == before
    assert fleet.asked == []


def test_every_service_is_in_that_test() -> None:
    services = {
        name for name in vars(clusters) if name.startswith(("site_", "cluster_")) and callable(getattr(clusters, name))
    }
    assert services == set(_calls(Site(), Cluster()))


def test_a_service_that_fails_leaves_nothing(site: Site, fleet: Fleet, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*args: object, **kwargs: object) -> None:
        raise Problem("the audit can't be written")

    monkeypatch.setattr("portal.kernel.audit.record", broken)
    with pytest.raises(Problem), transaction.atomic():
        connect(site)
    assert not Cluster.objects.exists()
    assert not WorkItem.objects.filter(kind="cluster").exists()
