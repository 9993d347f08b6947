"""Every page in Chromium: no complaint of the browser, no barrier for people, no overflow on a small screen.

The instance is the demonstration's: three simulated clusters, two teams, a closed month and a running one. The pages
are found as people find them, by following links, and compared with the URL map: a page without a link to it fails, and
a new page is looked at without anybody adding it here.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any
from urllib.parse import urlsplit
from uuid import uuid4

import pytest
from django.urls import get_resolver, resolve
from playwright.sync_api import Browser

from portal.cli.instance import ROOT
from tests.browser.person import Person
from tests.browser.steps import MANIFEST
from tests.support.db import Clone
from tests.support.instance import RunningPortal, running_portal
from tests.support.simulator import simulator
from tests.web.test_isolation import patterns

pytestmark = [pytest.mark.browser, pytest.mark.slow, pytest.mark.timeout(900)]

AXE = (ROOT / "node_modules" / "axe-core" / "axe.min.js").read_text()
RUN_AXE = """async (rules) => {
  const only = rules.length ? {runOnly: {type: "rule", values: rules}} : {};
  const found = await axe.run(document, {resultTypes: ["violations"], ...only});
  const why = (node) => `${node.html.slice(0, 160)} (${[...node.any, ...node.all, ...node.none][0]?.message})`;
  return found.violations.filter((one) => ["serious", "critical"].includes(one.impact))
    .map((one) => `${one.id}: ${one.help}: ${one.nodes.map(why).slice(0, 3).join(" ")}`);
}"""
OVERFLOW = """() => {
  const room = document.documentElement.clientWidth;
  if (document.documentElement.scrollWidth <= room) { return []; }
  const clipped = (element) => element.parentElement.closest(".table-responsive, .manifest-text, [data-canvas]");
  const found = [...document.querySelectorAll("body *")]
    .filter((one) => one.getBoundingClientRect().right > room + 1 && !clipped(one))
    .map((one) => one.outerHTML.slice(0, 160)).slice(0, 3);
  return found.length ? found : ["something that can't be told"];
}"""
LINKS = """() => [...document.querySelectorAll("a[href]")].map((one) => one.href)"""
WIDE, NARROW = {"width": 1280, "height": 900}, {"width": 390, "height": 844}
ALSO = (
    "/t/ml-team/deploy/?mode=yaml",
    "/t/ml-team/deployments/qwen3-8b/edit?mode=form",
    "/t/ml-team/deployments/?phase=Failed",
    "/platform/rates/?gpu_type=nvidia-l4#new",
    "/auth/signed-in",
    "/auth/signed-out",
)
"""States of pages that the first visit does not show, and pages that only follow signing in or out."""


@pytest.fixture(scope="module")
def demo(clone: Clone, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[RunningPortal, dict[str, str]]]:
    """The demonstration, running, and the passwords of its people."""
    with simulator(tmp_path_factory.mktemp("simulator")) as fleet:
        with running_portal(clone, fleet, demo=True, AIF_WATCH_SETTLE_SECONDS="1") as running:
            told = running.manage("demo_seed", "--fleet", str(running.fleet_file())).splitlines()[-1]
            running.start()
            running.wait_ready()
            yield running, {one["username"]: one["password"] for one in json.loads(told)["logins"]}


@pytest.fixture
def portal(demo: tuple[RunningPortal, dict[str, str]]) -> RunningPortal:
    """The instance."""
    return demo[0]


@pytest.fixture
def owner(demo: tuple[RunningPortal, dict[str, str]], chromium: Browser) -> Iterator[Person]:
    """The owner of the ML team, signed in."""
    yield from _signed_in(demo, chromium, "ml-owner")


@pytest.fixture
def admin(demo: tuple[RunningPortal, dict[str, str]], chromium: Browser) -> Iterator[Person]:
    """The platform-admin, signed in."""
    yield from _signed_in(demo, chromium, "platform-admin")


def _signed_in(demo: tuple[RunningPortal, dict[str, str]], chromium: Browser, name: str) -> Iterator[Person]:
    running, passwords = demo
    person = Person(chromium, running.url, viewport=WIDE, color_scheme="light", reduced_motion="reduce")
    person.sign_in(name, passwords[name])
    yield person
    person.context.close()


def test_every_page_is_sound(portal: RunningPortal, owner: Person, admin: Person) -> None:
    page = owner.go("/t/ml-team/deploy/?mode=yaml")
    page.get_by_label("ModelDeployment").fill(MANIFEST)
    owner.send(page.locator("#deploy-form .card-footer"), {}, "Deploy")
    page.locator("#live [role=status]", has_text="Ready").wait_for()

    faults: list[str] = []
    seen: set[str] = set()
    for person, start in ((owner, "/t/ml-team/"), (admin, "/platform/")):
        for address in crawl(person, start, seen):
            faults += [f"{address}: {fault}" for fault in look(person)]
        faults += person.complaints
    for address in ALSO:
        person = admin if address.startswith("/platform/") else owner
        person.go(address)
        seen.add(resolve(urlsplit(address).path).view_name)
        faults += [f"{address}: {fault}" for fault in look(person)]
    assert not faults, "\n".join(faults)
    assert len(seen) > 30, seen
    unseen = [(name, route) for name, route, _ in patterns(get_resolver()) if is_page(name, route) and name not in seen]
    assert [name for name, route in unseen if answers_with_a_page(admin, route)] == [], "no link leads there"
    assert portal.errors == []


def test_what_is_not_there_and_signing_in_are_sound_too(
    portal: RunningPortal, admin: Person, chromium: Browser
) -> None:
    response = admin.page.goto("/t/nobody/")
    assert response is not None
    assert response.status == 404
    stranger = Person(chromium, portal.url, viewport=WIDE, color_scheme="light")
    stranger.go("/auth/login")
    assert look(admin) + look(stranger) == []
    assert stranger.complaints == []
    assert [text for text in admin.complaints if "404" not in text] == []
    stranger.context.close()


def test_a_token_is_made_with_the_keyboard_alone(owner: Person) -> None:
    page = owner.go("/account/tokens/")
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.className") == "skip-link"
    assert page.locator(".skip-link").bounding_box()["x"] >= 0, "it comes into view"  # type: ignore[index]
    page.keyboard.press("Enter")
    assert page.evaluate("document.activeElement.id") == "main"
    tab_to(owner, "name")
    page.keyboard.type("pipeline")
    tab_to(owner, "Make the token")
    with page.expect_navigation():
        page.keyboard.press("Enter")
    assert page.get_by_label("The token", exact=True).input_value().startswith("aif_pat_")
    assert page.locator("th", has_text="pipeline").count() == 1
    assert owner.complaints == []


def tab_to(person: Person, what: str) -> None:
    """Press Tab until the field of that name, or the button of that text, has the focus. It must be seen to have it."""
    page = person.page
    for _ in range(60):
        page.keyboard.press("Tab")
        now = page.evaluate("document.activeElement.name || document.activeElement.textContent.trim()")
        if now == what:
            style = page.evaluate("getComputedStyle(document.activeElement).outlineStyle")
            shadow = page.evaluate("getComputedStyle(document.activeElement).boxShadow")
            assert style != "none" or shadow != "none", f"nobody sees that {what} has the focus"
            return
    raise AssertionError(f"Tab does not lead to {what}")


def crawl(person: Person, start: str, seen: set[str]) -> Iterator[str]:
    """Follow links from page to page, one address of each page that is not in ``seen`` yet; the addresses opened."""
    waiting = [start]
    while waiting:
        address = waiting.pop(0)
        name = resolve(urlsplit(address).path).view_name
        if name in seen:
            continue
        seen.add(name)
        person.go(address)
        yield address
        for link in person.page.evaluate(LINKS):
            parts = urlsplit(link)
            if f"{parts.scheme}://{parts.netloc}" == person.url and not parts.path.endswith(".csv"):
                name = resolve(parts.path).view_name
                if name not in seen and "download" not in parts.query and is_page(name, parts.path):
                    waiting.append(parts.path)


def look(person: Person) -> list[str]:
    """What is wrong with the page that is open: in light and dark, wide and narrow."""
    page = person.page
    page.evaluate(AXE)
    found: list[Any] = page.evaluate(RUN_AXE, [])
    page.emulate_media(color_scheme="dark")
    page.locator("html[data-bs-theme=dark]").wait_for(state="attached")
    found += [f"dark: {fault}" for fault in page.evaluate(RUN_AXE, ["color-contrast"])]
    page.set_viewport_size(NARROW)  # type: ignore[arg-type]
    if page.evaluate(OVERFLOW):
        page.wait_for_timeout(500)  # a chart is drawn anew when the window has kept its size for a moment
    found += [f"wider than the screen: {element}" for element in page.evaluate(OVERFLOW)]
    page.set_viewport_size(WIDE)  # type: ignore[arg-type]
    page.emulate_media(color_scheme="light")
    page.locator("html[data-bs-theme=light]").wait_for(state="attached")
    return found


def is_page(name: str, path: str) -> bool:
    """Whether people open it: no API, no probe, no file."""
    return ":" in name and "api/" not in path and not path.endswith(".csv")


def answers_with_a_page(person: Person, route: str) -> bool:
    """Whether a GET gives a whole page: not where only POST is allowed, nor a part of a page, nor another address."""
    values = {"tenant": "ml-team", "slug": "ml-team", "name": "qwen3-8b", "issuer": "ai-factory", "action": "pause"}

    def value(match: re.Match[str]) -> str:
        kind, _, name = match[1].rpartition(":")
        return str(uuid4()) if kind == "uuid" else values.get(name, "none")

    path = re.sub(r"<([^>]+)>", value, re.sub(r"\(\?P<(\w+)>[^)]*\)", r"<\1>", route))
    answer = person.context.request.get(f"/{path}", max_redirects=0)
    return answer.status == 200 and "<html" in answer.text()
