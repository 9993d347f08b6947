"""The Helm chart: rendered, checked against production settings, and installed on a real API server."""

from __future__ import annotations

import json
import re
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from controlplane.build import BuildError, programs
from tests.deploy.environment import check_deploy, secret_files
from tests.support.controlplane import ControlPlanes, RealCluster, real_planes
from tests.support.db import ROOT, Clone

__all__ = ["real_planes"]  # a fixture, found by its name

CHART = ROOT / "deploy" / "chart"
NEEDED = {
    "image": {"repository": "registry.example.com/ai-factory-portal"},
    "publicUrl": "https://portal.example.com",
    "existingSecret": "aif",
}
FULL = NEEDED | {
    "oidc": {"issuer": "https://sso.example.com/realms/ai-factory", "clientId": "portal"},
    "ingress": {"enabled": True, "className": "nginx", "tlsSecret": "portal-tls"},
    "metrics": {"enabled": True, "serviceMonitor": True, "alerts": True},
    "settings": {"AIF_LOG_LEVEL": "DEBUG"},
    "localAccounts": False,
    "secretKeyFallbacks": True,
}


def helm(*arguments: str, values: dict[str, Any] | None = None) -> subprocess.CompletedProcess[str]:
    """Run helm with values from standard input."""
    try:
        program = programs()["helm"]
    except BuildError as error:
        pytest.fail(str(error))
    command = [str(program), *arguments, *(["--values", "-"] if values is not None else [])]
    return subprocess.run(
        command, input=json.dumps(values) if values is not None else None, capture_output=True, text=True, check=False
    )


def rendered(values: dict[str, Any]) -> list[dict[str, Any]]:
    """The chart's objects."""
    done = helm("template", "portal", str(CHART), "-n", "portal", "--kube-version", "1.35.4", values=values)
    assert done.returncode == 0, done.stderr
    return [each for each in yaml.safe_load_all(done.stdout) if each]


def workloads(values: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """Process → the pod template's spec."""
    return {
        each["spec"]["template"]["metadata"]["labels"]["app.kubernetes.io/component"]: each["spec"]["template"]["spec"]
        for each in rendered(values)
        if each["kind"] in ("Deployment", "Job")
    }


def settings_of(pod: dict[str, Any], secrets: dict[str, str]) -> dict[str, str]:
    """A pod's environment, its secret files where they lie here."""
    given: dict[str, str] = {}
    for each in pod["containers"][0]["env"]:
        value = each.get("value", "10.0.0.7")
        given[each["name"]] = value.replace("$(AIF_POD_IP)", "10.0.0.7")
    shown = {item["path"]: item["key"] for item in pod["volumes"][0]["secret"]["items"]}
    for name in [name for name in given if name.endswith("_FILE")]:
        assert given[name].removeprefix("/run/secrets/aif/") in shown, f"{name} is not among the secret's files"
        given[name] = secrets[name.removesuffix("_FILE")]
    return given


@pytest.mark.parametrize("values", [NEEDED, FULL], ids=["least", "all"])
def test_every_process_starts_with_settings_that_production_accepts(
    values: dict[str, Any], tmp_path: Path, clone: Clone
) -> None:
    """``check --deploy`` has nothing to say about what the chart gives to each process."""
    secrets = secret_files(tmp_path, clone.url())
    found = workloads(values)
    assert set(found) == {"web", "worker", "beat", "watcher", "migration"}
    environments = {process: settings_of(pod, secrets) for process, pod in found.items()}
    for names in environments.values():
        assert "AIF_SECRET_KEY" not in names
        assert "AIF_DATABASE_URL" not in names
    done = check_deploy(environments["web"])
    assert done.returncode == 0, done.stdout + done.stderr
    shared = environments["web"].items()
    assert all(shared <= environment.items() for environment in environments.values())


def test_only_the_migration_sees_the_owners_address() -> None:
    """The owner of the tables bypasses row-level security, so no process that serves people may log in as it."""
    keys = {
        process: {item["key"] for item in pod["volumes"][0]["secret"]["items"]}
        for process, pod in workloads(FULL).items()
    }
    assert {process for process, names in keys.items() if "AIF_OWNER_DATABASE_URL" in names} == {"migration"}
    assert "AIF_DATABASE_URL" not in keys["migration"]


def test_every_setting_of_the_chart_is_one_that_the_portal_reads() -> None:
    """A misspelt variable would be silently without effect."""
    code = "".join(path.read_text() for path in (ROOT / "portal").rglob("*.py"))
    names = {
        each["name"].removesuffix("_FILE")
        for pod in workloads(FULL).values()
        for each in pod["containers"][0]["env"]
        if each["name"].startswith("AIF_") and each["name"] != "AIF_POD_IP"
    }
    assert {name for name in names if not re.search(rf'"{name}"', code)} == set()


def test_the_alerts_are_the_rules_that_are_tested() -> None:
    """One file is the source, and templates of its texts are Prometheus' own, not helm's."""
    (found,) = [each for each in rendered(FULL) if each["kind"] == "PrometheusRule"]
    assert found["spec"] == yaml.safe_load((CHART / "alerts.yaml").read_text())
    assert sum(len(group["rules"]) for group in found["spec"]["groups"]) > 10
    assert not [each for each in rendered(NEEDED) if each["kind"] in ("PrometheusRule", "ServiceMonitor")]


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        ({"publicUrl": "http://portal.example.com"}, "publicUrl"),
        ({"existingSecret": ""}, "existingSecret"),
        ({"image": {"repository": ""}}, "repository"),
        ({"webb": {}}, "webb"),
        ({"settings": {"AIF_SECRET_KEY": "in clear"}}, "AIF_SECRET_KEY"),
        ({"worker": {"replicas": "two"}}, "worker"),
        ({"oidc": {"issuer": "https://sso.example.com", "clientId": ""}}, "oidc.clientId"),
    ],
)
def test_wrong_values_are_refused(change: dict[str, Any], complaint: str) -> None:
    """What can't work, or would put a secret where it does not belong, does not render."""
    done = helm("template", "portal", str(CHART), "--kube-version", "1.35.4", values=NEEDED | change)
    assert done.returncode != 0
    assert complaint in done.stderr


def test_the_chart_passes_helms_own_lint() -> None:
    """No warning but the one about an icon."""
    done = helm("lint", "--strict", str(CHART), values=FULL)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.cluster
def test_install_upgrade_uninstall_on_a_real_cluster(real_planes: ControlPlanes, tmp_path: Path) -> None:
    """In a namespace that enforces the strictest Pod Security level; the migration runs before anything else."""
    plane = next(iter(real_planes.values()))
    namespace = f"portal-{tmp_path.name[-12:].lower().replace('_', '-')}".strip("-")
    _namespace(plane, namespace)
    at = ["--kubeconfig", str(plane.kubeconfig), "-n", namespace]
    # Pods of these control planes run in name only: the annotation lets the migration's pod complete.
    values = NEEDED | {"podAnnotations": {"sim.aifactory.dev/run-for": "2s"}, "networkPolicy": {"enabled": True}}
    done = helm("install", "portal", str(CHART), *at, "--wait-for-jobs", "--timeout", "4m", values=values)
    assert done.returncode == 0, done.stderr
    deployments = _items(plane, f"/apis/apps/v1/namespaces/{namespace}/deployments")
    assert {each["metadata"]["name"] for each in deployments} == {
        "portal-web", "portal-worker", "portal-beat", "portal-watcher"
    }  # fmt: skip
    job = plane.call("GET", f"/apis/batch/v1/namespaces/{namespace}/jobs/portal-migration")[1]
    assert job["status"]["succeeded"] == 1
    migrated = job["status"]["completionTime"]
    assert all(each["metadata"]["creationTimestamp"] >= migrated for each in deployments)
    events = _items(plane, f"/api/v1/namespaces/{namespace}/events")
    assert [each["message"] for each in events if "violates PodSecurity" in each.get("message", "")] == []

    values["image"] = NEEDED["image"] | {"tag": "0.2.1"}  # type: ignore[operator]
    done = helm("upgrade", "portal", str(CHART), *at, "--timeout", "4m", values=values)
    assert done.returncode == 0, done.stderr
    web = plane.call("GET", f"/apis/apps/v1/namespaces/{namespace}/deployments/portal-web")[1]
    assert web["spec"]["template"]["spec"]["containers"][0]["image"].endswith(":0.2.1")

    done = helm("uninstall", "portal", *at, "--wait", "--timeout", "4m")
    assert done.returncode == 0, done.stderr
    assert _items(plane, f"/apis/apps/v1/namespaces/{namespace}/deployments") == []


def _namespace(plane: RealCluster, name: str) -> None:
    labels = {"pod-security.kubernetes.io/enforce": "restricted", "pod-security.kubernetes.io/warn": "restricted"}
    manifest = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name, "labels": labels}}
    status, answer = plane.call("POST", "/api/v1/namespaces", manifest)
    assert status == 201, answer
    secret = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "aif"}, "stringData": {"AIF_SECRET_KEY": "x"}}
    status, answer = plane.call("POST", f"/api/v1/namespaces/{name}/secrets", secret)
    assert status == 201, answer


def _items(plane: RealCluster, path: str) -> list[dict[str, Any]]:
    status, answer = plane.call("GET", path)
    assert status == 200, answer
    items: list[dict[str, Any]] = answer["items"]
    return items
