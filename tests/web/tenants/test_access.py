"""Who gets which page of a team, and that looking changes nothing."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext

from portal.accounts.models import User
from portal.kernel.models import AuditEvent
from tenants.models import ModelDeployment
from tests.web.tenants.conftest import ROLES, count, text_of

pytestmark = pytest.mark.django_db

READ = ("owner", "developer", "viewer", "finance", "platform-viewer")
WRITE = ("owner", "developer")
PAGES = {
    "/t/ml-team/": READ,
    "/t/ml-team/deployments/": READ,
    "/t/ml-team/deployments.csv": READ,
    "/t/ml-team/deploy/": WRITE,
    "/t/ml-team/deploy/?mode=yaml": WRITE,
    "/t/ml-team/deployments/qwen3-8b/": READ,
    "/t/ml-team/deployments/qwen3-8b/status": READ,
    "/t/ml-team/deployments/qwen3-8b/yaml": READ,
    "/t/ml-team/deployments/qwen3-8b/edit": WRITE,
    "/t/ml-team/deployments/qwen3-8b/scale": WRITE,
    "/t/ml-team/deployments/qwen3-8b/scale?replicas=2": WRITE,
    "/t/ml-team/deployments/qwen3-8b/image": WRITE,
    "/t/ml-team/deployments/qwen3-8b/delete": WRITE,
    "/t/ml-team/quota/": READ,
    "/t/ml-team/members/": READ,
    "/t/ml-team/audit/": ("owner", "platform-viewer"),
}
POSTS = {
    "/t/ml-team/deploy/": WRITE,
    "/t/ml-team/deploy/preview": WRITE,
    "/t/ml-team/deployments/qwen3-8b/edit": WRITE,
    "/t/ml-team/deployments/qwen3-8b/scale": WRITE,
    "/t/ml-team/deployments/qwen3-8b/image": WRITE,
    "/t/ml-team/deployments/qwen3-8b/delete": WRITE,
    "/t/ml-team/members/": ("owner",),
    "/t/ml-team/members/viewer-1/remove": ("owner",),
}


Browsers = Callable[[str], Client]


def test_a_page_is_for_its_roles(browser: Browsers, deployment: ModelDeployment) -> None:
    for role in (*ROLES, "platform-viewer"):
        client = browser(role)
        for path, roles in PAGES.items():
            answer = client.get(path)
            assert answer.status_code == (200 if role in roles else 403), (role, path)
            assert "no-store" in answer["Cache-Control"]


def test_an_outsider_learns_nothing(browser: Browsers, deployment: ModelDeployment) -> None:
    client = browser("outsider")
    for path in PAGES:
        answer, other = client.get(path), client.get(path.replace("ml-team", "no-such-team"))
        assert (answer.status_code, other.status_code) == (404, 404), path
        page, same = (text_of(one).split("Request <code>")[0] for one in (answer, other))
        assert page == same
        assert "qwen3-8b" not in page


def test_somebody_unknown_is_asked_to_sign_in_and_comes_back(deployment: ModelDeployment) -> None:
    for path in PAGES:
        answer = Client().get(path)
        assert answer.status_code == 302
        assert answer["Location"].startswith("/auth/login?next=/t/ml-team/")


def test_a_change_is_for_its_roles(browser: Browsers, deployment: ModelDeployment) -> None:
    for path, roles in POSTS.items():
        for role in (*ROLES, "platform-viewer"):
            if role not in roles:
                answer = browser(role).post(path, {"replicas": "3", "name": "qwen3-8b"})
                assert answer.status_code == 403, (role, path)
        assert browser("outsider").post(path).status_code == 404
        assert Client().post(path).status_code == 302
    assert count(ModelDeployment, replicas=1, deleting_at__isnull=True) == 1


def test_a_refused_change_is_audited(browser: Browsers, deployment: ModelDeployment) -> None:
    browser("viewer").post("/t/ml-team/deployments/qwen3-8b/scale", {"replicas": "3"})
    assert count(AuditEvent, outcome="refused", actor_label="viewer-1") == 1


def test_looking_changes_nothing(owner: Client, deployment: ModelDeployment) -> None:
    for path in (*PAGES, "/", "/account/tokens/"):
        with CaptureQueriesContext(connection) as queries:
            owner.get(path)
        statements = [query["sql"].lstrip().upper() for query in queries]
        assert not [sql for sql in statements if sql.startswith(("INSERT", "UPDATE", "DELETE"))], path


def test_a_form_of_another_site_is_refused(owner: Client, deployment: ModelDeployment) -> None:
    strict = Client(enforce_csrf_checks=True)
    strict.cookies = owner.cookies
    for path in (*POSTS, "/account/tokens/"):
        assert strict.post(path, {"replicas": "3"}).status_code == 403, path


def test_nothing_inline_that_the_policy_would_block(owner: Client, deployment: ModelDeployment) -> None:
    for path in (*PAGES, "/account/tokens/"):
        page = text_of(owner.get(path))
        for forbidden in (" style=", "<style", " onclick", " onchange", "hx-on", "javascript:"):
            assert forbidden not in page, (path, forbidden)


def test_a_deployment_of_another_team_is_not_there(browser: Browsers, deployment: ModelDeployment) -> None:
    client = browser("outsider")
    for part in ("", "status", "yaml", "edit", "scale", "image", "delete"):
        assert client.get(f"/t/team-vision/deployments/qwen3-8b/{part}").status_code == 404, part
    theirs, nobodys = (client.get(f"/t/team-vision/deployments/{name}/status") for name in ("qwen3-8b", "never-was"))
    assert text_of(theirs).replace("qwen3-8b", "never-was") == text_of(nobodys)


def test_the_first_page_is_the_first_team(browser: Browsers) -> None:
    assert browser("viewer").get("/")["Location"] == "/t/ml-team/"


def test_somebody_without_a_team_is_told_what_to_do() -> None:
    client = Client()
    client.force_login(User.objects.create_user("newcomer"))
    answer = client.get("/")
    assert answer.status_code == 200
    assert "in no team yet" in text_of(answer)
    assert "newcomer" in text_of(answer)
