"""Whatever stands in an address or a form, the answer says what is wrong or shows less; it never is an error of ours.

Every address is asked with odd values under all names that the pages and the REST API read, by who may see it.
"""

from __future__ import annotations

import re
from typing import Any
from urllib.parse import urlencode

import pytest
from django.test import Client

from portal.accounts.models import User
from tests.billing.estate import at
from tests.web import test_isolation
from tests.web.test_isolation import CLOSED, filled

pytestmark = pytest.mark.django_db
world = test_isolation.world

NAMES = (
    "start", "end", "from", "to", "since", "until", "day", "month", "period", "hour", "page", "limit", "cursor",
    "before", "after", "by", "group_by", "order", "q", "search", "site", "cluster", "pool", "gpu_type", "tenant",
    "deployment",
    "namespace", "workload", "node", "sharing", "state", "standing", "reason", "below", "issuer", "currency", "kind",
    "position", "label_key", "pattern", "format", "verb", "actor", "object_kind", "open", "class", "days", "window",
    "valid_from", "read_from",
)  # fmt: skip
ODD = ("9" * 30, "0001-01-01", "9999-12-31T23:59:59-23:59", "9999-12", '"><script>alert(1)</script>')


@pytest.fixture
def people(world: dict[str, Any]) -> list[Client]:
    """An owner of the team, and a platform-admin. A failure of ours is an answer here, not an exception."""
    found = []
    for user in (User.objects.get(username="member"), User.objects.create_user("root", platform_role="platform-admin")):
        client = Client(raise_request_exception=False)
        client.force_login(user)
        found.append(client)
    return found


def test_odd_filters(world: dict[str, Any], people: list[Client]):
    told = []
    with at():
        for name, route in CLOSED:
            who = people[0] if "<slug:tenant>" in route and not route.startswith("platform") else people[1]
            for value in ODD:
                query = urlencode([(each, value) for each in NAMES])
                answer = who.get(f"{filled(route, world['values'])}?{query}")
                if answer.status_code >= 500:
                    told.append(f"{name} {value!r}: {answer.status_code}")
                if "html" in answer.get("Content-Type", "") and b"<script>alert" in answer.content:
                    told.append(f"{name}: it shows {value!r} as it came")
    assert not told, "\n".join(told)


def test_odd_parts_of_addresses(world: dict[str, Any], people: list[Client]):
    told = []
    with at():
        for name, route in CLOSED:
            for part in re.findall(r"<slug:(\w+)>", route):
                for value in ("0000-00", "9999-12", "9" * 40):
                    answer = people[1].get(filled(route, {**world["values"], part: value}))
                    if answer.status_code >= 500:
                        told.append(f"{name} {part}={value}: {answer.status_code}")
    assert not told, "\n".join(told)
