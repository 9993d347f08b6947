"""The audit: append-only, scoped, without secrets, with refusals."""

from __future__ import annotations

import uuid

import pytest
from django.db import DatabaseError, ProgrammingError, connection, transaction

from portal.kernel import audit
from portal.kernel.actors import Actor, RequestContext, request_context
from portal.kernel.models import AuditEvent
from portal.kernel.scoping import system_scope, tenant_scope

A, B = uuid.UUID(int=1), uuid.UUID(int=2)
ACTOR = Actor(kind="user", name="mia", user_id=uuid.UUID(int=7))


def write(tenant_id: uuid.UUID | None = A, **changes: object) -> None:
    values = {"object_kind": "thing", "object_id": None, "object_name": "x", "actor": ACTOR, "tenant_id": tenant_id}
    audit.record("thing_do", **(values | changes))  # type: ignore[arg-type]


def test_a_tenant_reads_its_own_events_only(db: None) -> None:
    write(A)
    write(B)
    write(None)
    with tenant_scope(A):
        assert [event.tenant_id for event in AuditEvent.objects.all()] == [A]
        with connection.cursor() as cursor:
            cursor.execute("SELECT count(*) FROM kernel_auditevent")
            assert cursor.fetchone() == (1,)
    with system_scope("test"):
        assert AuditEvent.objects.count() == 3


@pytest.mark.parametrize("statement", ["UPDATE kernel_auditevent SET verb = 'x'", "DELETE FROM kernel_auditevent"])
def test_nobody_changes_an_event(db: None, statement: str) -> None:
    write()
    for scope in (tenant_scope(A), system_scope("test")):
        with scope, pytest.raises(ProgrammingError, match="permission denied"), transaction.atomic():
            with connection.cursor() as cursor:
                cursor.execute(statement)


def test_secrets_are_hidden(db: None) -> None:
    write(
        after={
            "kubeconfig": "apiVersion: v1",
            "spec": [{"api_token": "abc", "replicas": 2}],
            "key": b"\x00",
            "password": "",
        }
    )
    with system_scope("test"):
        after = AuditEvent.objects.get().after
    assert after == {
        "kubeconfig": audit.HIDDEN,
        "spec": [{"api_token": audit.HIDDEN, "replicas": 2}],
        "key": audit.HIDDEN,
        "password": "",
    }


@pytest.mark.django_db(transaction=True)
def test_an_event_shares_the_fate_of_its_change_and_a_refusal_does_not() -> None:
    with pytest.raises(ZeroDivisionError), transaction.atomic():
        write()
        raise ZeroDivisionError
    audit.refused(
        "thing_do", actor=ACTOR, tenant_id=A, object_kind="thing", object_id=None, object_name="x", reason="no quota"
    )
    with system_scope("test"):
        event = AuditEvent.objects.get()
    assert (event.outcome, event.reason, event.actor_label) == ("refused", "no quota", "mia")


def test_a_refusal_that_can_not_be_written_stays_a_refusal(db: None, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*args: object, **kwargs: object) -> None:
        raise DatabaseError

    monkeypatch.setattr(audit, "record", fail)
    audit.refused("x", actor=ACTOR, tenant_id=A, object_kind="x", object_id=None, object_name="x", reason="x")


def test_a_persons_system_scope_is_written_down_once_a_request(db: None) -> None:
    context = RequestContext(request_id="req-12345678", remote_address="10.0.0.1", actor=ACTOR)
    with request_context(context):
        for _ in range(3):
            with system_scope("clusters page"):
                pass
    with system_scope("worker: not written down"):
        events = list(AuditEvent.objects.all())
    assert [(event.verb, event.reason, event.request_id) for event in events] == [
        ("system_scope", "clusters page", "req-12345678")
    ]


def test_an_environment_variable_with_a_secret_name_is_hidden():
    """A manifest writes them as name and value, so the key alone tells nothing."""
    env = [
        {"name": "HF_TOKEN", "value": "hf_abc"},
        {"name": "MODEL", "value": "qwen"},
        {"name": "OPENAI_API_KEY", "value": "k"},
    ]
    told = audit.redact({"spec": {"env": env}})["spec"]["env"]
    assert [row["value"] for row in told] == [audit.HIDDEN, "qwen", audit.HIDDEN]
