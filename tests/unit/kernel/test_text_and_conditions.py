"""Small pure parts: storable text, conditions, ids, logs, crypto, entity tags."""

from __future__ import annotations

import json
import logging
import sys
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from portal.kernel import crypto
from portal.kernel.conditions import Condition, drop_condition, get_condition, set_condition
from portal.kernel.etag import etag, require_if_match
from portal.kernel.ids import uuid7
from portal.kernel.logs import JSONFormatter, scrub
from portal.kernel.problems import PreconditionFailed, PreconditionRequired
from portal.kernel.text import find_unstorable, storable

NOW = datetime(2026, 11, 1, tzinfo=UTC)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
)


@given(st.text())
def test_storable_is_what_utf8_without_nul_can_hold(text: str) -> None:
    assert storable(text) == ("\x00" not in text)


@pytest.mark.parametrize("text", ["\x00", "a\ud800", "\udfff"])
def test_unstorable_text_is_found_anywhere(text: str) -> None:
    assert not storable(text)
    assert find_unstorable({"a": [{"b/c": text}]}) == "/a/0/b~1c"
    assert find_unstorable({"a": {text: 1}}) == "/a"


@given(JSON)
def test_finding_walks_any_json(value: object) -> None:
    assert (find_unstorable(value) is None) == ("\\u0000" not in json.dumps(value).replace("\\\\", ""))


def test_depth_is_no_danger() -> None:
    value: object = "x"
    for _ in range(sys.getrecursionlimit() * 3):
        value = [value]
    assert find_unstorable(value) is None


def test_transition_time_moves_with_the_status_only() -> None:
    conditions = set_condition([], Condition("Ready", "False", "Pulling", "1 of 2"), now=NOW)
    conditions = set_condition(conditions, Condition("Placed", "True", "Placed"), now=NOW)
    later = NOW + timedelta(minutes=1)
    conditions = set_condition(conditions, Condition("Ready", "False", "Starting", "2 of 2"), now=later)
    ready = get_condition(conditions, "Ready")
    assert ready is not None
    assert (ready.reason, ready.last_transition_time) == ("Starting", NOW)
    conditions = set_condition(conditions, Condition("Ready", "True", "Ready", observed_generation=3), now=later)
    ready = get_condition(conditions, "Ready")
    assert ready is not None
    assert (ready.status, ready.last_transition_time, ready.observed_generation) == ("True", later, 3)
    assert [condition["type"] for condition in conditions] == ["Ready", "Placed"]
    assert get_condition(drop_condition(conditions, "Ready"), "Ready") is None


def test_ids_sort_by_time() -> None:
    ids = [uuid7() for _ in range(2000)]
    assert len(set(ids)) == 2000
    assert all(one.version == 7 and one.variant == "specified in RFC 4122" for one in ids)
    assert [one.int >> 80 for one in ids] == sorted(one.int >> 80 for one in ids)


def test_encryption_needs_a_key_that_fits(settings) -> None:
    old, new = "b2xkb2xkb2xkb2xkb2xkb2xkb2xkb2xkb2xkb2xkbzE=", "bmV3bmV3bmV3bmV3bmV3bmV3bmV3bmV3bmV3bmV3bjE="
    settings.AIF_ENCRYPTION_KEYS = [old]
    sealed = crypto.encrypt(b"kubeconfig")
    assert b"kubeconfig" not in sealed
    settings.AIF_ENCRYPTION_KEYS = [new, old]
    assert crypto.decrypt(memoryview(sealed)) == b"kubeconfig"
    rotated = crypto.rotate(sealed)
    settings.AIF_ENCRYPTION_KEYS = [new]
    assert crypto.decrypt(rotated) == b"kubeconfig"
    with pytest.raises(crypto.DecryptionError):
        crypto.decrypt(sealed)


def test_digests_depend_on_the_pepper(settings) -> None:
    first = crypto.digest("secret")
    settings.AIF_TOKEN_PEPPER = "another"
    assert crypto.digest("secret") != first
    assert len(first) == 64


@pytest.mark.parametrize(
    ("text", "secret"),
    [
        ("Authorization: Bearer abcdefghijkl", "abcdefghijkl"),
        ("aif_pat_abcd1234_" + "s" * 43 + "_00000000", "s" * 43),
        ("postgresql://aif:hunter2@db/aif", "hunter2"),
        ('{"password": "hunter2hunter2"}', "hunter2hunter2"),
        ("client-key-data: QUJDREVGRw==", "QUJDREVGRw=="),
        ("-----BEGIN RSA PRIVATE KEY-----\nMIIE\n-----END RSA PRIVATE KEY-----", "MIIE"),
    ],
)
def test_logs_lose_secrets(text: str, secret: str) -> None:
    assert secret not in scrub(text)
    record = logging.LogRecord("x", logging.INFO, "x", 1, "%s", (text,), None)
    record.note = text
    assert secret not in JSONFormatter().format(record)


def test_a_log_line_is_one_json_object() -> None:
    try:
        raise ValueError("two\nlines")
    except ValueError:
        record = logging.LogRecord("x", logging.ERROR, "x", 1, "failed\nhere", (), sys.exc_info())
    line = JSONFormatter().format(record)
    assert "\n" not in line
    assert json.loads(line)["message"] == "failed\nhere"


def test_if_match() -> None:
    current = etag(3, 7)
    assert current == '"3-7"'
    for accepted in (current, "*", f'"1-1", {current}'):
        require_if_match({"If-Match": accepted}, current)
    with pytest.raises(PreconditionRequired):
        require_if_match({}, current)
    for refused in ('"3-6"', f"W/{current}"):
        with pytest.raises(PreconditionFailed):
            require_if_match({"If-Match": refused}, current)
