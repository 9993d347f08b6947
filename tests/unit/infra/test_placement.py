"""The scheduler: retain, scale down, fill, spread, sharing modes, and the reasons it gives."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from infra.cel import Device, SelectorError
from infra.placement import (
    Card,
    ClaimKind,
    Cluster,
    DeviceEntry,
    DeviceRequest,
    Effect,
    EngineSpec,
    ExistingReplica,
    FreeVector,
    HamiShare,
    MemberSpec,
    MigShare,
    Mode,
    Node,
    Placement,
    Plan,
    Pool,
    Request,
    Role,
    Rule,
    Sharing,
    Snapshot,
    Taint,
    Toleration,
    free_vector,
    place,
)
from infra.placement.search import Search
from infra.placement.state import Outcome

H100 = Device.of("gpu.nvidia.com", {"architecture": "Hopper"}, {"memory": "81559Mi"})
L40S = Device.of("gpu.nvidia.com", {"architecture": "Ada"}, {"memory": "46068Mi"})
NIC = Device.of("dra.net", {"rdma": True})
MEM = 'device.capacity["gpu.nvidia.com"].memory.compareTo(quantity("{}Gi")) >= 0'


def entry(name: str = "gpu", kind: str = "h100", **more: Any) -> DeviceEntry:
    device, mib = {"h100": (H100, 81_559), "l40s": (L40S, 46_068), "nic": (NIC, None)}[kind]
    return DeviceEntry(name, device, gpu_type="" if kind == "nic" else kind, memory_mib=mib, **more)


def whole(name: str = "pool", free: tuple[int, ...] = (8,), kind: str = "h100", **more: Any) -> Pool:
    nodes = tuple(Node(f"{name}-{i}", FreeVector.of(devices={"gpu": n})) for i, n in enumerate(free))
    return Pool(name, (entry(kind=kind),), Sharing.WHOLE, nodes, **more)


def hami(name: str = "pool", nodes: tuple[tuple[Card, ...], ...] = ()) -> Pool:
    made = tuple(
        Node.hami(f"{name}-{i}", {f"GPU-{name}-{i}-{j}": card for j, card in enumerate(cards)})
        for i, cards in enumerate(nodes)
    )
    return Pool(name, (entry(),), Sharing.HAMI, made)


def card(mib: int = 80_000, cores: int = 100, **more: Any) -> Card:
    return Card("gpu", mib, cores, 80_000, **more)


def cluster(name: str = "c1", *pools: Pool, **more: Any) -> Cluster:
    return Cluster(name, **({"site": "s1", "pools": pools} | more))


def snapshot(*clusters: Cluster) -> Snapshot:
    return Snapshot(clusters)


def ask(replicas: int = 1, count: int = 1, selectors: tuple[str, ...] = (), share: Any = None, **more: Any) -> Request:
    member = MemberSpec(devices=(DeviceRequest("gpu", count, selectors, share),))
    engines = (EngineSpec("e", (member,)),)
    fields: dict[str, Any] = {"name": "d", "replicas": replicas, "engines": engines, "zone": "z1"}
    return Request(**(fields | more))


def rules(plan: Plan) -> dict[tuple[str, str | None], Rule]:
    return {(e.cluster, e.pool): e.rule for e in plan.explanations}


def where(plan: Plan) -> list[tuple[int, str]]:
    return [(p.index, p.cluster) for p in plan.placements]


def only(plan: Plan) -> Placement:
    (placement,) = plan.placements
    return placement


# ------------------------------------------------------------------------------------------------ the ledger


def test_free_vector() -> None:
    assert free_vector({"gpu": 8, "mig": 7}, {"gpu": 3}, {"gpu": 2, "mig": 1}, {"gpu": 1}) == {"gpu": 4, "mig": 6}
    # What is promised and seen counts once; what shrank goes below zero; what is not there is not free.
    assert free_vector({"gpu": 1}, {"gpu": 2}, {"gpu": 2}, {"gpu": 1, "x": 5}) == {"gpu": -2}
    with pytest.raises(ValueError, match=r"reserved\['gpu'\] is -1"):
        free_vector({"gpu": 1}, {"gpu": -1}, {}, {})


# ------------------------------------------------------------------------------------- fill, spread, best fit


def test_replicas_spread_over_clusters_and_indexes_are_the_lowest_free() -> None:
    fleet = snapshot(cluster("b", whole()), cluster("a", whole()), cluster("c", whole()))
    assert where(place(fleet, ask(4))) == [(0, "a"), (1, "b"), (2, "c"), (3, "a")]
    kept = (ExistingReplica(1, "b"), ExistingReplica(3, "a"))
    # All have one then; the fit is tightest where the new one went.
    assert where(place(fleet, ask(4, existing=kept))) == [(0, "c"), (2, "c")]


def test_cards_are_counted_not_nodes() -> None:
    plan = place(snapshot(cluster("c1", whole(free=(8,)))), ask(8))
    assert len(plan.placements) == 8
    assert {p.nodes for p in plan.placements} == {("pool-0",)}
    assert place(snapshot(cluster("c1", whole(free=(8,)))), ask(9)).short == 1


def test_the_tightest_type_is_taken_not_the_first() -> None:
    fleet = snapshot(cluster("c1", whole("big"), whole("small", kind="l40s")))
    assert only(place(fleet, ask(selectors=(MEM.format(40),)))).engines[0].pool == "small"
    assert only(place(fleet, ask(selectors=(MEM.format(60),)))).engines[0].pool == "big"


def test_the_fullest_node_is_taken() -> None:
    plan = place(snapshot(cluster("c1", whole(free=(8, 3, 5)))), ask(count=2))
    assert only(plan).nodes == ("pool-1",)


def test_best_fit_decides_between_clusters_with_equal_counts() -> None:
    fleet = snapshot(cluster("a", whole(free=(8,))), cluster("b", whole(free=(1,))))
    assert where(place(fleet, ask())) == [(0, "b")]


def test_the_same_ask_gives_the_same_plan_in_any_order() -> None:
    pools = [whole("p1", (4, 4)), whole("p2", (2,), "l40s"), whole("p3", (7,))]
    clusters = [cluster("a", *pools), cluster("b", *pools[::-1]), cluster("c", pools[1])]
    plans = [place(snapshot(*order), ask(6)) for order in (clusters, clusters[::-1])]
    assert plans[0] == plans[1]
    flipped = [cluster(c.name, *c.pools[::-1]) for c in clusters]
    assert place(snapshot(*flipped), ask(6)).placements == plans[0].placements


# ------------------------------------------------------------------------------------ retain and scale down


def test_selector_and_label_edits_evict_nothing() -> None:
    fleet = snapshot(cluster("a", whole("p", (0,)), paused=True), cluster("b", mode=Mode.OBSERVE, ready=False))
    kept = (ExistingReplica(0, "a"), ExistingReplica(1, "b", ready=False), ExistingReplica(2, "vanished"))
    request = ask(3, existing=kept, cluster_selector={"x": "y"}, allowed_sites=frozenset(), quota_free={})
    plan = place(fleet, request)
    assert plan.retained == kept
    assert (len(plan.removals), len(plan.placements), len(plan.explanations)) == (0, 0, 0)


def test_no_execute_removes_and_the_replica_is_placed_elsewhere() -> None:
    drained = cluster("a", whole(), taints=(Taint("drain", Effect.NO_EXECUTE, "now"),))
    kept = (ExistingReplica(0, "a"),)
    plan = place(snapshot(drained, cluster("b", whole())), ask(1, existing=kept))
    assert [(r.index, r.rule) for r in plan.removals] == [(0, Rule.TAINT)]
    assert "drain=now:NoExecute" in plan.removals[0].sentence
    # The leaving replica still has index 0.
    assert where(plan) == [(1, "b")]
    tolerating = ask(1, existing=kept, tolerations=(Toleration("drain", "Exists"),))
    assert place(snapshot(drained), tolerating).retained == kept


def test_no_schedule_keeps_and_takes_nothing_new() -> None:
    tainted = cluster("a", whole(), taints=(Taint("k", Effect.NO_SCHEDULE),))
    plan = place(snapshot(tainted), ask(2, existing=(ExistingReplica(0, "a"),)))
    assert len(plan.retained) == 1
    assert rules(plan) == {("a", None): Rule.TAINT}
    assert where(place(snapshot(tainted), ask(1, tolerations=(Toleration(operator="Exists"),)))) == [(0, "a")]


def test_scale_down_takes_the_broken_then_the_crowded_then_the_last() -> None:
    kept = (
        ExistingReplica(0, "a"),
        ExistingReplica(1, "b", ready=False),
        ExistingReplica(2, "a"),
        ExistingReplica(3, "b"),
        ExistingReplica(4, "c"),
    )
    fleet = snapshot(cluster("a", whole()), cluster("b", whole()), cluster("c", whole()))
    removed = [[r.index for r in place(fleet, ask(n, existing=kept)).removals] for n in (4, 3, 2, 0)]
    assert removed == [[1], [1, 2], [1, 2, 4], [0, 1, 2, 3, 4]]
    sentences = {r.index: r.sentence for r in place(fleet, ask(3, existing=kept)).removals}
    assert "is not ready" in sentences[1]
    assert "one of 2 on that cluster" in sentences[2]


def test_fill_can_be_switched_off() -> None:
    plan = place(snapshot(cluster("a", whole())), ask(2, fill=False))
    assert (plan.placements, plan.short) == ((), 2)


# -------------------------------------------------------------------------------------------- a new shape


def test_a_replica_whose_shape_changed_is_placed_anew_with_its_own_cards_free() -> None:
    old = only(place(snapshot(cluster("a", whole(free=(4,)))), ask(count=2)))
    stale = ExistingReplica(0, "a", current=False, engines=old.engines)
    # Two are left beside the two that it holds; four are wanted now.
    plan = place(snapshot(cluster("a", whole(free=(2,))), cluster("b", whole())), ask(count=4, existing=(stale,)))
    assert (where(plan), plan.replaced, plan.retained) == ([(0, "a")], (0,), ())
    # Nowhere fits: it keeps what it has, and what it holds is not given to another.
    plan = place(snapshot(cluster("a", whole(free=(0,)))), ask(2, count=3, existing=(stale,)))
    assert (plan.retained, plan.placements, plan.replaced) == ((stale,), (), ())


def test_quota_counts_what_the_replaced_replica_gives_back() -> None:
    old = only(place(snapshot(cluster("a", whole(free=(4,)))), ask(count=2)))
    stale = ExistingReplica(0, "a", current=False, engines=old.engines)
    fleet = snapshot(cluster("a", whole(free=(6,))))
    request = ask(count=3, existing=(stale,), quota_free={"h100": 1_000_000})
    assert where(place(fleet, request)) == [(0, "a")]
    assert place(fleet, replace(request, quota_free={"h100": 999_999})).retained == (stale,)


def test_hami_and_mig_holdings_are_given_back_too() -> None:
    share = HamiShare(memory_mib=50_000, cores=50)
    old = only(place(snapshot(cluster("a", hami(nodes=((card(),),)))), ask(share=share)))
    left = card(30_000, 50, pods=1, free_slots=9, zone="z1")
    stale = ExistingReplica(0, "a", current=False, engines=old.engines)
    fleet = snapshot(cluster("a", hami(nodes=((left,),))))
    bigger = ask(share=HamiShare(memory_mib=80_000, cores=100), existing=(stale,))
    assert place(fleet, bigger).replaced == (0,)
    mig = Pool("m", (entry(),), Sharing.MIG, (Node("n", FreeVector.of(mig={"1g.10gb": 3})),))
    old = only(place(snapshot(cluster("a", mig)), ask(count=2, share=MigShare("1g.10gb"))))
    stale = ExistingReplica(0, "a", current=False, engines=old.engines)
    less = replace(mig, nodes=(Node("n", FreeVector.of(mig={"1g.10gb": 1})),))
    assert place(snapshot(cluster("a", less)), ask(count=3, share=MigShare("1g.10gb"), existing=(stale,))).replaced


# ------------------------------------------------------------------------------------------ sharing modes


def test_hami_shares_are_pinned_to_a_card_and_charged() -> None:
    pool = hami(nodes=((card(), card(30_000, 100, pods=1, zone="z1")),))
    placement = only(place(snapshot(cluster("c", pool)), ask(share=HamiShare(memory_mib=20_000, cores=25))))
    (grant,) = placement.engines[0].pods[0].grants
    # The card that is in use already is the tighter fit.
    assert grant.cards == ("GPU-pool-0-1",)
    assert (grant.memory_mib, grant.cores, grant.millionths) == (20_000, 25, 250_000)
    assert placement.millionths == {"h100": 250_000}


def test_unset_cores_become_the_percentage_of_the_memory() -> None:
    pool = hami(nodes=((card(),),))
    (grant,) = (
        only(place(snapshot(cluster("c", pool)), ask(share=HamiShare(memory_mib=20_001)))).engines[0].pods[0].grants
    )
    assert (grant.cores, grant.millionths) == (26, 260_000)
    percent = HamiShare(memory_percent=25, cores=25)
    (grant,) = only(place(snapshot(cluster("c", pool)), ask(share=percent))).engines[0].pods[0].grants
    assert (grant.memory_mib, grant.cores) == (20_000, 25)


def test_two_hami_devices_are_two_cards() -> None:
    share = HamiShare(memory_mib=10_000, cores=10)
    plan = place(snapshot(cluster("c", hami(nodes=((card(),), (card(), card()))))), ask(count=2, share=share))
    (grant,) = only(plan).engines[0].pods[0].grants
    assert len(set(grant.cards)) == 2
    assert grant.millionths == 250_000
    alone = place(snapshot(cluster("c", hami(nodes=((card(),), (card(),))))), ask(count=2, share=share))
    assert rules(alone) == {("c", "pool"): Rule.CAPACITY}
    assert "most cards with room on one node is 1 (short by 1)" in alone.explanations[0].sentence


def test_a_card_is_shared_within_a_zone_only() -> None:
    share = HamiShare(memory_mib=1_000, cores=1)
    held = hami(nodes=((card(79_000, 99, pods=1, zone="z2"),),))
    plan = place(snapshot(cluster("c", held)), ask(share=share))
    assert rules(plan) == {("c", "pool"): Rule.ZONE}
    assert "another trust zone" in plan.explanations[0].sentence
    assert place(snapshot(cluster("c", held)), ask(share=share, zone="z2")).short == 0
    # Two deployments of different zones never meet on a card that was empty.
    both = hami(nodes=((card(),),))
    first = place(snapshot(cluster("c", both)), ask(2, share=HamiShare(memory_mib=40_000, cores=50)))
    assert len(first.placements) == 2


def test_slices_of_one_node_stay_in_one_zone() -> None:
    nodes = (Node("n0", FreeVector.of(mig={"1g.10gb": 5}, zone="z2")), Node("n1", FreeVector.of(mig={"1g.10gb": 2})))
    pool = Pool("m", (entry(),), Sharing.MIG, nodes)
    plan = place(snapshot(cluster("c", pool)), ask(3, share=MigShare("nvidia.com/mig-1g.10gb")))
    assert [p.nodes for p in plan.placements] == [("n1",), ("n1",)]
    grant = plan.placements[0].engines[0].pods[0].grants[0]
    assert (grant.profile, grant.millionths) == ("1g.10gb", 142_857)
    assert "1 nodes hold slices of another trust zone" in plan.explanations[0].sentence


def test_slices_published_as_devices_match_by_selector() -> None:
    slice_device = Device.of("gpu.nvidia.com", {"type": "mig", "profile": "1g.10gb"}, {"memory": "9728Mi"})
    slices = DeviceEntry("slice", slice_device, "h100", claim=ClaimKind.DRA, mig_profile="1g.10gb")
    pool = Pool("m", (slices,), Sharing.MIG, (Node("n", FreeVector.of(mig={"1g.10gb": 1})),))
    request = ask(selectors=('device.attributes["gpu.nvidia.com"].type == "mig"',))
    grant = only(place(snapshot(cluster("c", pool)), request)).engines[0].pods[0].grants[0]
    assert (grant.profile, grant.claim, grant.entry) == ("1g.10gb", ClaimKind.DRA, "slice")


def test_a_full_card_takes_no_exclusive_pod() -> None:
    exclusive = HamiShare(memory_mib=10_000, cores=100)
    used = hami(nodes=((card(70_000, 100, pods=1, zone="z1"),),))
    assert place(snapshot(cluster("c", used)), ask(share=exclusive)).short == 1
    full = hami(nodes=((card(70_000, 100, pods=10, free_slots=0, zone="z1"),),))
    plan = place(snapshot(cluster("c", full)), ask(share=HamiShare(memory_mib=1, cores=1)))
    assert "shared by as many pods as they may be" in plan.explanations[0].sentence


def test_the_way_of_sharing_must_fit() -> None:
    fleet = snapshot(cluster("c", whole("w"), hami("h", ((card(),),)), Pool("m", (entry(),), Sharing.MIG, ())))
    for share, fits in ((None, "w"), (HamiShare(memory_mib=1), "h")):
        plan = place(fleet, ask(share=share))
        assert only(plan).engines[0].pool == fits
        assert set(rules(plan).values()) == {Rule.SHARING}
    plan = place(fleet, ask(share=MigShare("1g.10gb")))
    assert rules(plan) == {("c", "w"): Rule.SHARING, ("c", "h"): Rule.SHARING, ("c", "m"): Rule.CAPACITY}
    assert "it hands out whole cards; request gpu wants MIG slices 1g.10gb" in plan.explanations[2].sentence


@pytest.mark.parametrize(
    ("share", "says"),
    [
        ({}, "exactly|either"),
        ({"memory_mib": 1, "memory_percent": 1}, "either"),
        ({"memory_mib": 0}, "at least 1 MiB"),
        ({"memory_percent": 101}, "between 1 and 100"),
        ({"memory_mib": 1, "cores": 101}, "between 0 and 100"),
    ],
)
def test_impossible_shares_are_refused(share: dict[str, int], says: str) -> None:
    with pytest.raises(ValueError, match=says):
        HamiShare(**share)


# ----------------------------------------------------------------------------- engines, members, requests


def pods(count: int, cards: int, role: Role = Role.WORKER, **more: Any) -> MemberSpec:
    return MemberSpec(role, (DeviceRequest("gpu", cards),), count, **more)


def test_engines_in_any_order_find_their_pools() -> None:
    anything = EngineSpec("any", (MemberSpec(devices=(DeviceRequest("gpu", 1),)),))
    big = EngineSpec("big", (MemberSpec(devices=(DeviceRequest("gpu", 1, (MEM.format(60),)),)),))
    fleet = snapshot(cluster("c", whole("small", (1,), "l40s"), whole("large", (1,))))
    for engines in ((anything, big), (big, anything)):
        placement = only(place(fleet, ask(engines=engines)))
        assert {e.engine: e.pool for e in placement.engines} == {"any": "small", "big": "large"}
        assert [e.engine for e in placement.engines] == [e.name for e in engines]


def test_a_choice_that_leaves_no_room_is_taken_back() -> None:
    """The tightest node for the small pod is the only one for the big one, once the other is gone too."""
    engines = (EngineSpec("e", (pods(1, 3, Role.LEADER), pods(2, 2))),)
    plan = place(snapshot(cluster("c", whole(free=(3, 4)))), ask(engines=engines))
    assert sorted((p.role, p.node) for p in only(plan).engines[0].pods) == [
        (Role.LEADER, "pool-0"),
        (Role.WORKER, "pool-1"),
        (Role.WORKER, "pool-1"),
    ]


def test_requests_of_one_pod_are_matched_not_grabbed() -> None:
    """Either card does for the first request, only one for the second."""
    entries = (entry("h", "h100"), entry("l", "l40s"))
    pool = Pool("p", entries, Sharing.WHOLE, (Node("n", FreeVector.of(devices={"h": 1, "l": 1})),))
    requests = (DeviceRequest("any", 1), DeviceRequest("big", 1, (MEM.format(60),)))
    for order in (requests, requests[::-1]):
        plan = place(snapshot(cluster("c", pool)), ask(engines=(EngineSpec("e", (MemberSpec(devices=order),)),)))
        taken = {g.request: g.entry for g in only(plan).engines[0].pods[0].grants}
        assert taken == {"any": "l", "big": "h"}


def test_a_gang_stays_in_one_pool() -> None:
    gang = (EngineSpec("e", (pods(1, 8, Role.LEADER), pods(2, 8))),)
    split = place(snapshot(cluster("c", whole("p1", (8, 8)), whole("p2", (8,)))), ask(engines=gang))
    assert split.short == 1
    assert "there is room for" in split.explanations[0].sentence or "together" in split.explanations[0].sentence
    one = place(snapshot(cluster("c", whole("p1", (8, 8)), whole("p2", (8, 8, 8)))), ask(engines=gang))
    assert only(one).engines[0].pool == "p2"
    assert only(one).nodes == ("p2-0", "p2-1", "p2-2")


def test_workers_pack_or_have_nodes_of_their_own() -> None:
    packed = place(snapshot(cluster("c", whole(free=(8, 8)))), ask(engines=(EngineSpec("e", (pods(4, 2),)),)))
    assert only(packed).nodes == ("pool-0",)
    apart = (EngineSpec("e", (pods(2, 2, distinct_nodes=True),), copies=2),)
    plan = place(snapshot(cluster("c", whole(free=(8, 8)))), ask(engines=apart))
    for copy in (0, 1):
        assert sorted(p.node for p in only(plan).engines[0].pods if p.copy == copy) == ["pool-0", "pool-1"]
    three = (EngineSpec("e", (pods(3, 1, distinct_nodes=True),)),)
    plan = place(snapshot(cluster("c", whole(free=(8, 8)))), ask(engines=three))
    assert "there is room for 2 (short by 1)" in plan.explanations[0].sentence


def test_a_large_gang_is_placed() -> None:
    engines = (EngineSpec("e", (pods(1, 8, Role.LEADER), pods(63, 8)), copies=4),)
    plan = place(snapshot(cluster("c", whole(free=(8,) * 256))), ask(engines=engines))
    assert len(only(plan).nodes) == 256
    assert place(snapshot(cluster("c", whole(free=(8,) * 255))), ask(engines=engines)).short == 1


def test_an_engine_that_fits_nowhere_is_named() -> None:
    engines = (
        EngineSpec("fits", (MemberSpec(devices=(DeviceRequest("gpu", 1),)),)),
        EngineSpec("huge", (MemberSpec(devices=(DeviceRequest("gpu", 9),)),)),
    )
    plan = place(snapshot(cluster("c", whole())), ask(engines=engines))
    assert rules(plan) == {("c", "pool"): Rule.ENGINES}
    assert "huge of the same replica" in plan.explanations[0].sentence
    both = (engines[0], replace(engines[0], name="twin"))
    together = place(snapshot(cluster("c", whole(free=(1,)))), ask(engines=both))
    assert rules(together) == {("c", "pool"): Rule.CAPACITY}
    assert "together" in together.explanations[0].sentence


def test_network_cards_match_too() -> None:
    nic = entry("nic", "nic", claim=ClaimKind.SYNTHETIC)
    pool = Pool("p", (entry(), nic), Sharing.WHOLE, (Node("n", FreeVector.of(devices={"gpu": 8, "nic": 2})),))
    requests = (
        DeviceRequest("gpu", 4, ('device.driver == "gpu.nvidia.com"',)),
        DeviceRequest("nic", 1, ('device.driver == "dra.net"',)),
    )
    placement = only(
        place(snapshot(cluster("c", pool)), ask(engines=(EngineSpec("e", (MemberSpec(devices=requests),)),)))
    )
    assert [(g.request, g.entry, g.claim, g.millionths) for g in placement.engines[0].pods[0].grants] == [
        ("gpu", "gpu", ClaimKind.PLUGIN, 4_000_000),
        ("nic", "nic", ClaimKind.SYNTHETIC, 0),
    ]


def test_cpu_and_memory_count_where_they_are_known() -> None:
    node = Node("n", FreeVector.of(devices={"gpu": 8}, cpu_millis=3_000, memory_bytes=64 << 30))
    pool = Pool("p", (entry(),), Sharing.WHOLE, (node,))
    member = MemberSpec(devices=(DeviceRequest("gpu"),), cpu_millis=2_000, memory_bytes=1 << 30)
    plan = place(snapshot(cluster("c", pool)), ask(2, engines=(EngineSpec("e", (member,)),)))
    assert plan.short == 1
    # The pool took one, and says why it takes no more.
    assert rules(plan) == {("c", "p"): Rule.NODE_RESOURCES}
    plan = place(snapshot(cluster("c", pool)), ask(engines=(EngineSpec("e", (replace(member, cpu_millis=9_000),)),)))
    assert rules(plan) == {("c", "p"): Rule.NODE_RESOURCES}
    assert "9000 millicores of CPU are needed, the most free is 3000" in plan.explanations[0].sentence


def test_a_pod_without_devices_fits_anywhere() -> None:
    engines = (EngineSpec("e", (MemberSpec(Role.LEADER), pods(1, 8))),)
    assert only(place(snapshot(cluster("c", whole())), ask(engines=engines))).nodes == ("pool-0",)


# ------------------------------------------------------------------------------------------- quota, price


def test_quota_is_by_type_and_another_type_will_do() -> None:
    fleet = snapshot(cluster("c", whole("big"), whole("small", kind="l40s")))
    plan = place(fleet, ask(4, quota_free={"l40s": 1_000_000, "h100": 2_000_000}))
    assert [p.millionths for p in plan.placements] == [{"l40s": 1_000_000}, {"h100": 1_000_000}, {"h100": 1_000_000}]
    plan = place(fleet, ask(4, quota_free={"l40s": 500_000}))
    assert rules(plan) == {("c", "big"): Rule.QUOTA, ("c", "small"): Rule.QUOTA}
    sentences = [e.sentence for e in plan.explanations]
    assert "no quota for h100; a replica needs 1 card" in sentences[0]
    assert "needs 1 card of l40s, the quota has 0.5 card left (short by 0.5 card)" in sentences[1]
    assert place(fleet, ask(4, quota_free={})).short == 4
    assert place(fleet, ask(4, quota_free=None)).short == 0


def test_quota_holds_for_all_pods_of_a_replica() -> None:
    gang = (EngineSpec("e", (pods(1, 2, Role.LEADER), pods(2, 2))),)
    fleet = snapshot(cluster("c", whole("big", (8,)), whole("small", (8,), "l40s")))
    request = ask(2, engines=gang, quota_free={"l40s": 5_000_000, "h100": 6_000_000})
    plan = place(fleet, request)
    assert [p.millionths for p in plan.placements] == [{"h100": 6_000_000}]
    assert plan.short == 1
    mixed = (gang[0], EngineSpec("f", (pods(1, 2),)))
    plan = place(fleet, ask(1, engines=mixed, quota_free={"l40s": 2_000_000, "h100": 6_000_000}))
    assert only(plan).millionths == {"l40s": 2_000_000, "h100": 6_000_000}
    plan = place(fleet, ask(1, engines=mixed, quota_free={"h100": 7_000_000}))
    assert rules(plan) == {("c", "big"): Rule.QUOTA, ("c", "small"): Rule.QUOTA}
    assert "does not hold all pods of a replica" in plan.explanations[0].sentence


def test_a_price_that_is_too_high_refuses_a_pool_in_its_own_words() -> None:
    seen: list[Any] = []

    def check(cluster_name: str, pool: str, usage: Any) -> str | None:
        seen.append((cluster_name, pool, dict(usage)))
        return "4.20 EUR an hour is above the ceiling of 3." if pool == "big" else None

    fleet = snapshot(cluster("c", whole("big"), whole("small", kind="l40s")))
    plan = place(fleet, ask(selectors=(), price_check=check))
    assert only(plan).engines[0].pool == "small"
    assert rules(plan) == {("c", "big"): Rule.PRICE}
    assert "above the ceiling" in plan.explanations[0].sentence
    assert ("c", "big", {"h100": 1_000_000}) in seen


# ------------------------------------------------------------------------------------------------ reasons


def test_a_reason_for_each_cluster_and_pool() -> None:
    fleet = snapshot(
        cluster("chosen", whole("p"), whole("q", (0,)), whole("r", zone="z2"), labels={"tier": "prod"}),
        cluster("label", whole(), labels={"tier": "dev"}),
        cluster("nolabel", whole()),
        cluster("observed", whole(), mode=Mode.OBSERVE),
        cluster("paused", whole(), paused=True),
        cluster("site", whole(), site="abroad", labels={"tier": "prod"}),
        cluster("sick", whole(), ready=False, not_ready_reason="no answer for 90 s"),
        cluster("tainted", whole(), taints=(Taint("spot", Effect.NO_SCHEDULE),)),
        cluster("empty", labels={"tier": "prod"}),
    )
    plan = place(fleet, ask(cluster_selector={"tier": "prod"}, allowed_sites=frozenset({"s1", "s2"})))
    assert where(plan) == [(0, "chosen")]
    assert rules(plan) == {
        ("chosen", "q"): Rule.CAPACITY,
        ("chosen", "r"): Rule.ZONE,
        ("label", None): Rule.LABEL,
        ("nolabel", None): Rule.LABEL,
        ("observed", None): Rule.OBSERVE,
        ("paused", None): Rule.PAUSED,
        ("site", None): Rule.SITE,
        ("sick", None): Rule.NOT_READY,
        ("tainted", None): Rule.TAINT,
        ("empty", None): Rule.NO_POOLS,
    }
    said = {e.cluster: e.sentence for e in plan.explanations}
    assert said["label"] == "On cluster label the label tier is 'dev'; the deployment wants tier=prod."
    assert "is not set" in said["nolabel"]
    assert "site abroad; the tenant's allowed sites are: s1, s2" in said["site"]
    assert "no answer for 90 s" in said["sick"]


def test_the_value_that_a_selector_saw_is_told() -> None:
    wanted = (MEM.format(100), 'device.attributes["gpu.nvidia.com"].nope == "x"')
    plan = place(snapshot(cluster("c", whole())), ask(selectors=wanted))
    (reason,) = plan.explanations
    assert reason.rule is Rule.SELECTOR
    assert "memory is 81559Mi" in reason.sentence
    assert reason.facts["seen"] == {"memory": "81559Mi"}


def test_a_selector_that_fails_on_a_device_has_a_reason_of_its_own() -> None:
    broken = ('device.attributes["gpu.nvidia.com"].nope == "x"',)
    (reason,) = place(snapshot(cluster("c", whole())), ask(selectors=broken)).explanations
    assert reason.rule is Rule.SELECTOR_ERROR
    assert "no 'nope' there" in reason.sentence
    # Under DRA an error on one device of a class fails the claim, even where another would do.
    entries = (
        entry("a", claim=ClaimKind.DRA, device_class="gpu"),
        DeviceEntry("b", Device.of("gpu.nvidia.com"), "odd", claim=ClaimKind.DRA, device_class="gpu"),
    )
    node = Node("n", FreeVector.of(devices={"a": 1, "b": 1}))
    pool = Pool("p", entries, Sharing.WHOLE, (node,))
    (reason,) = place(snapshot(cluster("c", pool)), ask(selectors=(MEM.format(40),))).explanations
    assert reason.rule is Rule.SELECTOR_ERROR
    # A device plugin claims no class: the good one is taken.
    plugin = Pool("p", tuple(replace(e, claim=ClaimKind.PLUGIN) for e in entries), Sharing.WHOLE, (node,))
    assert place(snapshot(cluster("c", plugin)), ask(selectors=(MEM.format(40),))).short == 0


def test_an_invalid_selector_raises() -> None:
    with pytest.raises(SelectorError, match="Syntax error"):
        place(snapshot(cluster("c", whole())), ask(selectors=("device.driver ==",)))


def test_numbers_in_the_sentence_of_what_is_short() -> None:
    nodes = (
        Node("a", FreeVector.of(devices={"gpu": 3})),
        Node("b", FreeVector.of(devices={"gpu": 2})),
        Node("c", FreeVector.of(devices={"gpu": 8}), unusable="cordoned"),
    )
    plan = place(snapshot(cluster("c", Pool("p", (entry(),), Sharing.WHOLE, nodes))), ask(count=8))
    assert plan.explanations[0].sentence == (
        "Pool p on cluster c: request gpu needs 8 whole h100 on one node, the most free on one is 3 (short by 5); "
        "5 are free on 2 nodes; 1 node is cordoned."
    )
    assert "capacity (1)" in plan.summary()
    gone = place(snapshot(cluster("c", Pool("p", (entry(),), Sharing.WHOLE, nodes[2:]))), ask())
    assert "no usable node; 1 node is cordoned" in gone.explanations[0].sentence


def test_what_fits_but_was_not_needed_is_ranked() -> None:
    plan = place(snapshot(cluster("a", whole("p"), whole("q")), cluster("b", whole())), ask())
    assert set(rules(plan).values()) == {Rule.RANKED}
    assert plan.summary() == "1 of 1 replicas have a place."
    assert place(Snapshot(()), ask()).summary() == "0 of 1 replicas have a place. No clusters."


def test_the_search_says_when_it_gave_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("infra.placement.search.MAX_STEPS", 2)
    monkeypatch.setattr("infra.placement.search._LEAST_SPARE", -2)
    engines = (EngineSpec("e", (pods(4, 1),)),)
    (reason,) = place(
        snapshot(
            cluster("c", whole()),
        ),
        ask(engines=engines),
    ).explanations
    assert reason.rule is Rule.SEARCH_LIMIT
    assert "it may exist" in reason.sentence


def test_a_hopeless_search_is_not_repeated_on_clusters_that_look_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    """Room for each pod alone, not for all: only a search can tell, and two hundred clusters are one question."""
    engines = (EngineSpec("e", (pods(1, 4, Role.LEADER), pods(5, 3))),)
    searched = []
    run = Search.run

    def counted(self: Search) -> Outcome:
        searched.append(self.state.cluster.name)
        return run(self)

    monkeypatch.setattr(Search, "run", counted)
    fleet = snapshot(*(cluster(f"c{i:03d}", whole(free=(6, 6, 4))) for i in range(200)))
    plan = place(fleet, ask(1, engines=engines))
    assert plan.short == 1
    assert set(rules(plan).values()) == {Rule.CAPACITY}
    assert len(searched) == 1


def test_tolerations_follow_kubernetes() -> None:
    taint = Taint("k", Effect.NO_SCHEDULE, "v")
    for toleration, covers in (
        (Toleration("k", "Equal", "v"), True),
        (Toleration("k", "Equal", "w"), False),
        (Toleration("k", "Exists"), True),
        (Toleration("", "Exists"), True),
        (Toleration("k", "Equal", "v", "NoExecute"), False),
        (Toleration("j", "Exists"), False),
    ):
        assert toleration.covers(taint) is covers, toleration
