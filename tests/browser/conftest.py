"""Chromium, and the processes' lines for a test that fails."""

from __future__ import annotations

import shutil
from collections.abc import Generator, Iterator

import pytest
from playwright.sync_api import Browser, sync_playwright

from tests.support.instance import RunningPortal

ARGUMENTS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]


@pytest.fixture(scope="session")
def chromium() -> Iterator[Browser]:
    """The system's Chromium with a profile of its own, without a window."""
    path = shutil.which("chromium") or shutil.which("google-chrome")
    assert path, "Chromium is missing: install the system package named in scripts/system_packages.py."
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=path, args=ARGUMENTS)
        yield browser
        browser.close()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """A failing test shows what the processes of its instance wrote."""
    report = yield
    if report.failed:
        used = getattr(item, "funcargs", {}).values()
        report.sections += [("the portal's processes", one.log()) for one in used if isinstance(one, RunningPortal)]
    return report
