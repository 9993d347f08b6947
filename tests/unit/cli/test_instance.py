"""The environment that an installation's processes get."""

from __future__ import annotations

from pathlib import Path

import pytest

from portal.cli.instance import Instance


@pytest.fixture
def instance(tmp_path: Path) -> Instance:
    instance = Instance(tmp_path / "data")
    instance.prepare()
    return instance


def test_settings_of_the_caller_do_not_reach_it(instance: Instance, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AIF_DATABASE_URL", "postgresql://elsewhere")
    env = instance.environment(port=8000, demo=False)
    assert str(instance.data) in env["AIF_DATABASE_URL"]


def test_bytecode_that_may_not_lie_beside_the_source_is_kept_in_the_data_folder(
    instance: Instance, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("PYTHONPYCACHEPREFIX", raising=False)
    monkeypatch.setenv("PYTHONDONTWRITEBYTECODE", "1")
    env = instance.environment(port=8000, demo=False)
    assert (env["PYTHONDONTWRITEBYTECODE"], env["PYTHONPYCACHEPREFIX"]) == ("", str(instance.data / "bytecode"))


def test_otherwise_bytecode_is_python_s_own_affair(instance: Instance, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PYTHONPYCACHEPREFIX", raising=False)
    monkeypatch.delenv("PYTHONDONTWRITEBYTECODE", raising=False)
    assert "PYTHONPYCACHEPREFIX" not in instance.environment(port=8000, demo=False)
    monkeypatch.setenv("PYTHONDONTWRITEBYTECODE", "1")
    monkeypatch.setenv("PYTHONPYCACHEPREFIX", "/elsewhere")
    env = instance.environment(port=8000, demo=False)
    assert (env["PYTHONDONTWRITEBYTECODE"], env["PYTHONPYCACHEPREFIX"]) == ("1", "/elsewhere")
