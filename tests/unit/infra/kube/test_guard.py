"""No write leaves the portal unless the database, asked at that moment, says that it may."""

import datetime as dt
import os
from collections.abc import Callable
from typing import Any

import pytest

from infra.kube import client as client_module
from infra.kube import errors
from infra.kube.client import KubeClient
from infra.kube.kubeconfig import Credentials
from infra.models import Cluster, Site, WriteStop
from portal.kernel import crypto
from portal.kernel.scoping import system_scope
from tests.unit.infra.kube.recorded import Replay, canned, serve

pytestmark = pytest.mark.django_db

CONFIG_MAP = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a", "namespace": "b"}}
WRITES: dict[str, Callable[[KubeClient], Any]] = {
    "apply": lambda client: client.apply(CONFIG_MAP),
    "apply forced": lambda client: client.apply(CONFIG_MAP, force=True),
    "apply as a dry run": lambda client: client.apply(CONFIG_MAP, dry_run=True),
    "create_dry_run": lambda client: client.create_dry_run(CONFIG_MAP),
    "delete": lambda client: client.delete("v1", "ConfigMap", "a", "b", uid="u"),
    "patch_metadata": lambda client: client.patch_metadata("v1", "ConfigMap", "a", "b", uid="u", labels={"x": "y"}),
}
READS = {
    "access_review", "close", "for_cluster", "get", "identity", "list_all", "list_pages", "logs", "require_identity",
    "pod_proxy", "request_token", "rules_review", "service_proxy", "service_proxy_get", "subject", "version", "watch",
}  # fmt: skip


def make_cluster(**values: Any) -> Cluster:
    """A connected cluster whose address nobody answers."""
    site, _ = Site.objects.get_or_create(slug="berlin", defaults={"name": "Berlin"})
    given = {
        "slug": "eu-1",
        "name": "EU 1",
        "site": site,
        "mode": Cluster.Mode.MANAGE,
        "api_server": "https://127.0.0.1:9",
        "kubeconfig_ciphertext": crypto.encrypt(Credentials(server="http://127.0.0.1:9", token="t").dumps()),
        "identity": "11111111-2222-3333-4444-555555555555",
    }
    return Cluster.objects.create(**given | values)


def test_every_public_method_is_known_to_read_or_to_write() -> None:
    public = {name for name in dir(KubeClient) if not name.startswith("_")}
    assert public == READS | {name.split()[0] for name in WRITES}


@pytest.mark.parametrize("write", WRITES)
@pytest.mark.parametrize(
    ("change", "refusal"),
    [
        ({"mode": "observe"}, errors.ObserveOnly),
        ({"paused": True}, errors.ClusterPaused),
        ({"abandoned_at": dt.datetime(2026, 1, 1, tzinfo=dt.UTC)}, errors.ClusterAbandoned),
        (None, errors.ObserveOnly),
    ],
)
def test_a_client_made_before_the_switch_writes_nothing_after_it(
    write: str, change: dict[str, Any] | None, refusal: type[errors.WriteRefused]
) -> None:
    cluster = make_cluster()
    with serve(Replay(canned("api-apply-created.json"))) as replay:
        client = KubeClient(Credentials(server=replay.url), name="eu-1", cluster_id=cluster.pk)
        rows = Cluster.objects.filter(pk=cluster.pk)
        if change is None:
            with system_scope("test"):
                rows.delete()
        else:
            rows.update(**change)
        assert cluster.writable, "the object in memory still says yes"
        with pytest.raises(errors.WriteRefused) as caught:
            WRITES[write](client)
    assert type(caught.value) is refusal
    assert "eu-1" in caught.value.sentence
    assert replay.seen == []


@pytest.mark.parametrize("write", WRITES)
def test_the_emergency_stop_stops_every_write(write: str, settings: Any) -> None:
    cluster = make_cluster()
    settings.AIF_STOP_WRITES = True
    with serve(Replay()) as replay:
        client = KubeClient(Credentials(server=replay.url), name="eu-1", cluster_id=cluster.pk)
        with pytest.raises(errors.ClusterPaused, match="AIF_STOP_WRITES"):
            WRITES[write](client)
    assert replay.seen == []


@pytest.mark.parametrize("write", WRITES)
def test_the_switch_stops_every_write_of_clients_that_were_there_before(write: str) -> None:
    cluster = make_cluster()
    with serve(Replay(canned("api-apply-created.json"))) as replay:
        client = KubeClient(Credentials(server=replay.url), name="eu-1", cluster_id=cluster.pk)
        row = WriteStop.objects.create(stopped_by="ml-admin", reason="the wrong image is rolling out")
        with pytest.raises(errors.ClusterPaused, match="ml-admin: the wrong image is rolling out"):
            WRITES[write](client)
        assert replay.seen == []
        row.delete()
        if write == "apply":
            WRITES[write](client)
            assert replay.seen, "after the row is gone it writes again"


@pytest.mark.parametrize("write", WRITES)
def test_a_cluster_that_is_not_connected_is_never_written_to(write: str) -> None:
    with serve(Replay()) as replay, pytest.raises(errors.ObserveOnly):
        WRITES[write](KubeClient(Credentials(server=replay.url), name="new-one"))
    assert replay.seen == []


def test_a_managed_cluster_is_written_to_and_an_observed_one_is_read() -> None:
    """The guard does not simply refuse everything."""
    cluster = make_cluster()
    with serve(Replay(canned("api-apply-created.json"), canned("api-version.json"))) as replay:
        client = KubeClient(Credentials(server=replay.url), name="eu-1", cluster_id=cluster.pk)
        assert client.apply(CONFIG_MAP).created
        Cluster.objects.filter(pk=cluster.pk).update(mode=Cluster.Mode.OBSERVE)
        assert client.version()
    assert [method for method, *_ in replay.seen] == ["PATCH", "GET"]


def test_one_client_per_cluster_until_its_credentials_change() -> None:
    cluster = make_cluster()
    first = KubeClient.for_cluster(cluster)
    assert KubeClient.for_cluster(Cluster.objects.get(pk=cluster.pk)) is first
    cluster.kubeconfig_ciphertext = crypto.encrypt(Credentials(server="http://127.0.0.1:9", token="new").dumps())
    second = KubeClient.for_cluster(cluster)
    assert second is not first
    assert [key for key in client_module._clients._kept if key[0] == cluster.pk] == [
        key for key, kept in client_module._clients._kept.items() if kept is second
    ]


def test_the_least_used_client_goes_first(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client_module, "MAX_CLIENTS", 2)
    monkeypatch.setattr(client_module, "_clients", client_module._Clients())
    one, two, three = (make_cluster(slug=f"c{number}", identity=f"id-{number}") for number in range(3))
    kept = KubeClient.for_cluster(one)
    dropped = KubeClient.for_cluster(two)
    assert KubeClient.for_cluster(one) is kept
    KubeClient.for_cluster(three)
    assert KubeClient.for_cluster(one) is kept
    assert KubeClient.for_cluster(two) is not dropped


def test_a_child_process_begins_without_the_parent_s_connections() -> None:
    cluster = make_cluster()
    KubeClient.for_cluster(cluster)
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        os.write(write, str(len(client_module._clients._kept)).encode())
        os._exit(0)
    os.waitpid(child, 0)
    assert os.read(read, 10) == b"0"
    assert len(client_module._clients._kept) > 0


def test_an_abandoned_cluster_has_no_client() -> None:
    with pytest.raises(errors.ClusterAbandoned):
        KubeClient.for_cluster(make_cluster(kubeconfig_ciphertext=b""))


def test_an_address_that_leads_to_another_cluster_is_found_out_and_asked_once_a_minute() -> None:
    namespace = canned("api-namespace-terminating.json")
    uid = "a9b1ba42-c7c4-43c3-9e46-1a3664f62e41"
    with serve(Replay(namespace, namespace)) as replay:
        good = KubeClient(Credentials(server=replay.url), name="eu-1", identity=uid)
        good.require_identity()
        good.require_identity()
        assert len(replay.seen) == 1
        with pytest.raises(errors.WrongCluster) as caught:
            KubeClient(Credentials(server=replay.url), name="eu-1", identity="another").require_identity()
    assert uid in caught.value.sentence
