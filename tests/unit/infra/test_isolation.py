"""What keeps tenants apart on a cluster: what is known, what is said of it, and what that comes to for placing."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from infra.adapters.admission import AdmissionFacts, admission_objects, namespace_annotations, refused_by, rules
from infra.isolation import DECLARABLE, TITLES, Piece, lacking, pieces_of, summary
from infra.models import Cluster
from infra.placement import place
from infra.placement.answer import Rule
from infra.selectors.isolation import cluster_lacks
from infra.selectors.snapshot import fleet_snapshot
from infra.services.isolation import isolation_check, isolation_say, isolation_set_wanted
from portal.kernel.actors import PLATFORM_ADMIN, PLATFORM_VIEWER, Actor
from portal.kernel.conditions import get_condition
from portal.kernel.models import AuditEvent, WorkItem
from portal.kernel.problems import Conflict, Forbidden, Invalid
from portal.kernel.scoping import system_scope
from tests.support.fleet import ISOLATION, make_cluster, make_node, make_pool
from tests.unit.infra.test_placement import ask

ADMIN = Actor(kind="user", name="platform-admin", platform_role=PLATFORM_ADMIN)
VIEWER = Actor(kind="user", name="viewer", platform_role=PLATFORM_VIEWER)
NETWORK = Piece.NETWORK.value

states = st.sampled_from(["yes", "no", "unknown"])
found_ones = st.dictionaries(
    st.sampled_from([piece.value for piece in Piece]), states.map(lambda state: {"state": state, "sentence": "said"})
)
said_ones = st.dictionaries(
    st.sampled_from(["declared", "accepted"]),
    st.dictionaries(
        st.sampled_from([piece.value for piece in Piece]), st.just({"text": "because", "by": "a", "at": "2026-11-01"})
    ),
)


@given(found_ones, said_ones, st.booleans())
def test_a_piece_holds_only_where_it_is_proven_declared_or_accepted(found: Any, said: Any, hami: bool) -> None:
    for piece in pieces_of({"pieces": found}, said, hami=hami):
        name = piece.piece.value
        proven = found.get(name, {}).get("state") == "yes"
        declared = piece.piece in DECLARABLE and name in said.get("declared", {})
        assert piece.holds == (proven or declared or name in said.get("accepted", {}))
        assert bool(piece.remedy) == (piece.state != "yes")
    missing = lacking({"pieces": found}, said, hami=hami)
    isolated, _, sentence = summary(pieces_of({"pieces": found}, said, hami=hami))
    assert isolated == (not missing)
    assert all(name in sentence for name in missing)
    assert (TITLES[Piece.HAMI] in missing) <= hami


def test_a_cluster_that_was_never_asked_lacks_everything() -> None:
    assert lacking({}, {}, hami=True) == tuple(TITLES.values())
    assert "has not been asked yet" in pieces_of({}, {}, hami=False)[0].sentence


def test_every_rule_says_what_and_what_to_do_and_is_in_a_policy_that_fails_closed() -> None:
    assert len({rule.id for rule in rules()}) == len(rules())
    for rule in rules():
        assert rule.what[0].islower()
        assert rule.remedy[0].isupper()
        assert rule.remedy.endswith((".", ")."))
    objects = admission_objects(AdmissionFacts(portal_user="portal"))
    policies = [each for each in objects if each["kind"] == "ValidatingAdmissionPolicy"]
    bindings = [each for each in objects if each["kind"] == "ValidatingAdmissionPolicyBinding"]
    assert {each["spec"]["failurePolicy"] for each in policies} == {"Fail"}
    assert {each["spec"]["policyName"] for each in bindings} == {each["metadata"]["name"] for each in policies}
    for each in bindings:
        assert each["spec"]["validationActions"] == ["Deny", "Audit"]
        assert each["spec"]["matchResources"]["namespaceSelector"]["matchExpressions"]
    written = sum(len(each["spec"]["validations"]) for each in policies)
    assert written == len(rules())


def test_what_is_allowed_differs_by_cluster_and_is_written_in() -> None:
    facts = AdmissionFacts(portal_user="me", schedulers=("own",), runtime_classes=("kata",), tolerations=("gpu",))
    text = str(admission_objects(facts))
    for word in ("'own'", "'kata'", "'gpu'", "'me'"):
        assert word.replace("'", '"') in text


@pytest.mark.parametrize(
    ("policy", "said", "rule"),
    [
        ("aifactory-pods", "[host-path] web: …", "host-path"),
        ("aifactory-pods", "[of-somebody-else] web", ""),
        ("their-pods", "[host-path] web", ""),
        ("aifactory-pods", "host-path", ""),
    ],
)
def test_a_refusal_is_ours_only_by_policy_and_rule(policy: str, said: str, rule: str) -> None:
    assert refused_by(policy, said) == rule


def test_no_list_no_annotation_an_empty_list_an_empty_one() -> None:
    key = "aifactory.dev/image-registries"
    assert key not in namespace_annotations(registries=None, pin_digests=False, allow_remote_code=False)
    none = namespace_annotations(registries=[], pin_digests=True, allow_remote_code=True)
    assert none[key] == ""
    some = namespace_annotations(registries=["ghcr.io/b/", "a.example"], pin_digests=False, allow_remote_code=False)
    assert some[key] == "a.example,ghcr.io/b"


# ---- services ------------------------------------------------------------------------------------------------------


def bare(**values: Any) -> Cluster:
    """A managed cluster that told all is well, of whose network nobody said anything."""
    return make_cluster("alpha", isolation=ISOLATION, isolation_said={}, **values)


@pytest.mark.django_db
def test_saying_and_taking_back_is_kept_with_name_and_reason() -> None:
    cluster = bare()
    assert cluster_lacks(cluster) == ("network policies",)
    cluster = isolation_say(cluster=cluster, piece=NETWORK, how="accepted", text="a lab, one tenant", actor=ADMIN)
    assert cluster_lacks(cluster) == ()
    condition = get_condition(cluster.conditions, "Isolated")
    assert condition is not None
    assert (condition.status, condition.reason) == ("True", "Accepted")
    cluster = isolation_say(cluster=cluster, piece=NETWORK, how="accepted", text="", actor=ADMIN)
    assert cluster_lacks(cluster) == ("network policies",)
    with system_scope("test"):
        events = AuditEvent.objects.filter(verb="isolation_say").order_by("id")
        assert [event.after["accepted"] for event in events] == ["a lab, one tenant", ""]


@pytest.mark.django_db
def test_what_can_be_proven_is_not_declared_and_a_reason_is_needed() -> None:
    cluster = bare()
    with pytest.raises(Invalid, match="can be proven"):
        isolation_say(cluster=cluster, piece="pod-security", how="declared", text="it is surely there", actor=ADMIN)
    with pytest.raises(Invalid, match="at least 10"):
        isolation_say(cluster=cluster, piece=NETWORK, how="declared", text="yes", actor=ADMIN)
    with pytest.raises(Invalid, match="Use one of"):
        isolation_say(cluster=cluster, piece="walls", how="accepted", text="of no use here", actor=ADMIN)
    for change in (
        lambda: isolation_say(cluster=cluster, piece=NETWORK, how="declared", text="tried by hand", actor=VIEWER),
        lambda: isolation_check(cluster=cluster, actor=VIEWER),
        lambda: isolation_set_wanted(cluster=cluster, wanted=False, actor=VIEWER),
    ):
        with pytest.raises(Forbidden):
            change()
    cluster.refresh_from_db()
    assert cluster.isolation_said == {}


@pytest.mark.django_db
def test_of_an_observed_cluster_nothing_is_said_or_asked() -> None:
    cluster = make_cluster("beta", mode="observe")
    with pytest.raises(Conflict, match="only observed"):
        isolation_say(cluster=cluster, piece=NETWORK, how="declared", text="tried by hand", actor=ADMIN)
    with pytest.raises(Conflict, match="only observed"):
        isolation_check(cluster=cluster, actor=ADMIN)


@pytest.mark.django_db
def test_a_check_is_work_for_the_queue() -> None:
    cluster = bare()
    isolation_check(cluster=cluster, actor=ADMIN)
    assert WorkItem.objects.filter(kind="isolation", object_id=cluster.pk, next_attempt_at__isnull=False).exists()


# ---- placing -------------------------------------------------------------------------------------------------------


@pytest.mark.django_db
def test_nothing_is_placed_on_a_cluster_that_lacks_a_piece_and_the_answer_names_it() -> None:
    lacks = bare()
    make_node(make_pool(cluster=lacks))
    request = replace(ask(), allowed_sites=frozenset({"site-a"}), zone="z")
    plan = place(fleet_snapshot(), request)
    assert not plan.placements
    (why,) = [each for each in plan.explanations if each.cluster == "alpha"]
    assert why.rule is Rule.ISOLATION
    assert why.sentence.startswith("Cluster alpha lacks: network policies.")
    isolation_say(cluster=lacks, piece=NETWORK, how="declared", text="tried by hand", actor=ADMIN)
    assert place(fleet_snapshot(), request).placements


@pytest.mark.django_db
def test_a_place_outside_the_allowed_sites_is_refused_by_name() -> None:
    cluster = make_cluster("alpha", site="helsinki")
    make_node(make_pool(cluster=cluster))
    plan = place(fleet_snapshot(), replace(ask(), allowed_sites=frozenset({"frankfurt"})))
    (why,) = plan.explanations
    assert why.sentence == "Cluster alpha is at site helsinki; the tenant's allowed sites are: frankfurt."
