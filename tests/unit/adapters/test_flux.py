"""HelmReleases: what is written, and what their conditions mean."""

from __future__ import annotations

from typing import Any

import pytest

from infra.adapters.flux import Release, helm_release, read_release, repository


def release(**values: Any) -> Release:
    given: dict[str, Any] = {
        "name": "ml-team",
        "namespace": "aifactory-tenants",
        "target_namespace": "vc-ml-team",
        "service_account": "tenant-installer",
        "repository_url": "https://charts.example",
        "chart": "vcluster",
        "version": "0.35.3",
        "values": {"telemetry": {"enabled": False}},
    }
    return Release(**(given | values))


def said(*conditions: tuple[str, str, str, str], seen: int = 2, history: Any = ()) -> dict[str, Any]:
    return {
        "metadata": {"generation": 2},
        "status": {
            "observedGeneration": seen,
            "conditions": [
                {"type": kind, "status": status, "reason": reason, "message": message}
                for kind, status, reason, message in conditions
            ],
            "history": list(history),
        },
    }


def test_a_chart_repository_is_named_by_the_chart_of_the_release():
    made = helm_release(release())
    spec = made["spec"]
    assert made["metadata"] == {"name": "ml-team", "namespace": "aifactory-tenants"}
    assert (spec["releaseName"], spec["targetNamespace"], spec["storageNamespace"]) == (
        "ml-team", "vc-ml-team", "vc-ml-team",
    )  # fmt: skip
    assert spec["serviceAccountName"] == "tenant-installer"
    assert spec["install"]["createNamespace"] is False
    assert spec["chart"]["spec"] == {
        "chart": "vcluster",
        "version": "0.35.3",
        "sourceRef": {"kind": "HelmRepository", "name": "ml-team"},
    }
    (ignored,) = spec["driftDetection"]["ignore"]
    assert ignored == {"paths": ["/spec/replicas"], "target": {"kind": "StatefulSet"}}
    source = repository(release())
    assert (source["kind"], source["metadata"], source["spec"]["url"]) == (
        "HelmRepository", made["metadata"], "https://charts.example",
    )  # fmt: skip


def test_an_oci_registry_is_an_artifact_of_one_version():
    wanted = release(repository_url="oci://registry.example/charts/")
    source = repository(wanted)
    assert (source["kind"], source["spec"]["url"], source["spec"]["ref"]) == (
        "OCIRepository", "oci://registry.example/charts/vcluster", {"tag": "0.35.3"},
    )  # fmt: skip
    spec = helm_release(wanted)["spec"]
    assert spec["chartRef"] == {"kind": "OCIRepository", "name": "ml-team"}
    assert "chart" not in spec


def test_another_try_is_asked_for_by_annotations():
    annotations = helm_release(release(retry_at="2026-11-30T00:00:00Z"))["metadata"]["annotations"]
    assert set(annotations) == {"reconcile.fluxcd.io/requestedAt", "reconcile.fluxcd.io/resetAt"}


def test_ready_counts_only_for_the_generation_that_was_written():
    ready = ("Ready", "True", "InstallSucceeded", "Helm install succeeded")
    deployed = [{"chartVersion": "0.35.3", "status": "deployed"}, {"chartVersion": "0.34.7", "status": "superseded"}]
    assert read_release(said(ready, history=deployed)).ready
    assert read_release(said(ready, history=deployed)).chart_version == "0.35.3"
    stale = read_release(said(ready, seen=1, history=deployed))
    assert (stale.ready, stale.state) == (False, "working")
    assert read_release({"metadata": {"generation": 1}}).state == "working"


@pytest.mark.parametrize(
    ("condition", "state", "word"),
    [
        (("Ready", "Unknown", "Progressing", "Running 'install' action"), "working", "install"),
        (("Ready", "False", "ProgressingWithRetry", "again"), "working", "again"),
        (("Ready", "False", "InstallFailed", "quota exceeded"), "failed", "could not be installed: quota exceeded"),
        (("Ready", "False", "UpgradeFailed", ""), "failed", "could not be upgraded."),
        (("Ready", "False", "RollbackSucceeded", "x"), "failed", "taken back: x"),
        (("Ready", "False", "SomethingNew", "x"), "failed", "Flux reports SomethingNew: x"),
        (("Ready", "False", "ArtifactFailed", "dial tcp: no route"), "failed", "can't reach the chart registry"),
        (("Ready", "False", "SourceNotReady", "HelmChart is not ready"), "failed", "can't reach the chart registry"),
        (
            ("Ready", "False", "UpgradeFailed", "another operation (install/upgrade/rollback) is in progress"),
            "failed",
            "Have it tried again",
        ),
    ],
)
def test_reasons_become_sentences(condition: tuple[str, str, str, str], state: str, word: str):
    found = read_release(said(condition))
    assert (found.state, word in found.message, found.reason) == (state, True, condition[2])


def test_a_repository_that_fails_is_the_cause_also_where_the_release_only_waits():
    waiting = said(("Ready", "Unknown", "Progressing", "waiting for the chart"))
    source = {
        "metadata": {"generation": 1},
        "status": {
            "observedGeneration": 1,
            "conditions": [
                {"type": "Ready", "status": "False", "reason": "Failed", "message": "lookup charts: no such host"}
            ],
        },
    }
    found = read_release(waiting, source)
    assert found.state == "failed"
    assert found.message == (
        "The host cluster can't reach the chart registry, or the chart is not there: lookup charts: no such host"
    )
    source["status"]["observedGeneration"] = 0
    assert read_release(waiting, source).state == "working"


def test_stalled_is_told_as_given_up():
    found = read_release(
        said(
            ("Ready", "False", "InstallFailed", "no such volume"),
            ("Stalled", "True", "RetriesExceeded", "Failed to install"),
        )
    )
    assert found.reason == "RetriesExceeded"
    assert "given up" in found.message
    assert found.message.endswith("when the cause is gone: Failed to install. no such volume")


def test_what_helm_says_never_carries_a_token():
    found = read_release(said(("Ready", "False", "InstallFailed", "auth: Bearer abcdefgh12345678 refused")))
    assert "abcdefgh12345678" not in found.message
