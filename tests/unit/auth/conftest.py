"""The provider made for tests."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from tests.support.provider import FakeProvider, fake_provider


@pytest.fixture
def source(settings: Any) -> Iterator[FakeProvider]:
    """A provider, and the settings that point to it."""
    with fake_provider(settings) as made:
        yield made
