"""Manifests that would take long to check: no more of them is looked into than is told or needed."""

from __future__ import annotations

import difflib
from typing import Any

import pytest

from tenants.manifest.parsing import MAX_SELECTORS, parse_manifest
from tenants.manifest.reading import MAX_ERRORS
from tenants.manifest.tree import ManifestInvalid
from tests.unit.tenants.manifests import manifest_data


def test_the_nearest_name_is_sought_for_what_is_told_only(monkeypatch: pytest.MonkeyPatch) -> None:
    sought: list[str] = []
    usual = difflib.get_close_matches

    def counted(word: str, *args: Any, **kwargs: Any) -> list[str]:
        sought.append(word)
        return usual(word, *args, **kwargs)

    monkeypatch.setattr(difflib, "get_close_matches", counted)
    data = manifest_data()
    data["spec"] |= {f"replicasx{number}": 1 for number in range(1_000)}
    with pytest.raises(ManifestInvalid) as refused:
        parse_manifest(data)
    assert len(refused.value.errors) == MAX_ERRORS
    assert len(sought) == MAX_ERRORS


def test_no_more_different_selectors_are_compiled_than_a_manifest_may_have() -> None:
    compiled: list[str] = []
    data = manifest_data()
    (engine,) = data["spec"]["engines"]
    engine["nodeSelector"]["devices"] = [
        {"name": f"d{ask}", "selectors": [{"cel": f"{ask} != {number}"} for number in range(8)]} for ask in range(9)
    ]
    with pytest.raises(ManifestInvalid) as refused:
        parse_manifest(data, check=compiled.append)  # type: ignore[arg-type]  # which answers None, as if all were right
    assert len(compiled) == MAX_SELECTORS
    assert len(refused.value.errors) == 72 - MAX_SELECTORS
    assert "more than 64 different selectors" in refused.value.errors[0].detail
