"""The environment that an installation's processes get."""

from __future__ import annotations

from pathlib import Path

import pytest

from portal.cli.instance import Instance, database_of, with_database


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


def test_the_database_is_named_by_a_file_or_by_itself_and_replaced_in_either_case(tmp_path: Path) -> None:
    file = tmp_path / "AIF_DATABASE_URL"
    file.write_text("postgresql://app@db/aif\n")
    env = {"AIF_DATABASE_URL_FILE": str(file), "AIF_LOG_LEVEL": "DEBUG"}
    assert database_of(env) == "postgresql://app@db/aif"
    assert database_of({"AIF_DATABASE_URL": "postgresql://app@db/aif"}) == "postgresql://app@db/aif"
    assert database_of({}) == ""
    assert with_database(env, "postgresql://owner@db/aif") == {
        "AIF_DATABASE_URL": "postgresql://owner@db/aif", "AIF_LOG_LEVEL": "DEBUG",
    }  # fmt: skip
