"""Alert rules and dashboard ask for metrics that there are; Prometheus accepts the rules and they fire as meant."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml
from django.test import Client
from prometheus_client.parser import text_string_to_metric_families

from controlplane.build import cache_folder

DEPLOY = Path(__file__).resolve().parents[2] / "deploy"
RULES = DEPLOY / "chart" / "alerts.yaml"
TESTS = DEPLOY / "prometheus" / "rules.test.yaml"
DASHBOARD = DEPLOY / "grafana" / "portal.json"


def promtool() -> str:
    kept = cache_folder() / "prometheus" / "usr" / "bin" / "promtool"
    found = str(kept) if kept.exists() else shutil.which("promtool")
    if found is None:
        pytest.skip("promtool is not on this machine (python -m controlplane prometheus fetches it)")
    return found


def asked() -> set[str]:
    """Names of metrics in rules and panels, without the suffixes of histograms and infos."""
    rules = [rule["expr"] for group in yaml.safe_load(RULES.read_text())["groups"] for rule in group["rules"]]
    panels = [target["expr"] for panel in json.loads(DASHBOARD.read_text())["panels"] for target in panel["targets"]]
    names = {name for text in rules + panels for name in re.findall(r"\baif_[a-z_]+", text)}
    return {re.sub(r"(_seconds)?_(count|bucket|sum)$", r"\1", name).removesuffix("_info") for name in names}


@pytest.mark.django_db
def test_every_metric_that_is_asked_for_is_told(settings: Any) -> None:
    settings.AIF_METRICS_ALLOW = ["127.0.0.1"]
    families = text_string_to_metric_families(Client().get("/metrics").content.decode())
    told = {family.name.removesuffix("_info") for family in families}
    assert len(asked()) > 15
    assert asked() <= told, asked() - told


def test_every_alert_says_what_and_what_to_do() -> None:
    rules = [rule for group in yaml.safe_load(RULES.read_text())["groups"] for rule in group["rules"]]
    assert len({rule["alert"] for rule in rules}) == len(rules)
    for rule in rules:
        assert rule["labels"]["severity"] in ("page", "ticket"), rule["alert"]
        assert set(rule["annotations"]) == {"summary", "description"}, rule["alert"]
        assert "tenant" not in rule["expr"], "names of tenants are left out unless somebody allows them"


def test_prometheus_takes_the_rules_and_they_fire_as_meant() -> None:
    for command in (["check", "rules", str(RULES)], ["test", "rules", str(TESTS)]):
        done = subprocess.run([promtool(), *command], capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout + done.stderr
