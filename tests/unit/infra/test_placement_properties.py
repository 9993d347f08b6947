"""What holds for every fleet and every request."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator
from itertools import product

from hypothesis import given, settings
from hypothesis import strategies as st

from infra.cel import Device
from infra.placement import (
    Card,
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
    Plan,
    Pool,
    Request,
    Rule,
    Sharing,
    Snapshot,
    Taint,
    place,
)

SIZES = {"small": 24_576, "large": 81_920}
SELECTORS = (
    (),
    ('device.capacity["gpu.nvidia.com"].memory.compareTo(quantity("40Gi")) >= 0',),
    ('device.attributes["gpu.nvidia.com"].nope == 1',),
)


def entry(kind: str) -> DeviceEntry:
    device = Device.of("gpu.nvidia.com", capacity={"memory": f"{SIZES[kind]}Mi"})
    return DeviceEntry("gpu", device, kind, memory_mib=SIZES[kind])


@st.composite
def pools(draw: st.DrawFn, name: str) -> Pool:
    sharing = draw(st.sampled_from(list(Sharing)))
    kind = draw(st.sampled_from(sorted(SIZES)))
    nodes = []
    for number in range(draw(st.integers(0, 3))):
        cpu = draw(st.sampled_from([None, 2_000, 16_000]))
        why = draw(st.sampled_from(["", "", "", "cordoned"]))
        if sharing is Sharing.HAMI:
            cards = {
                f"{name}-{number}-{i}": Card(
                    "gpu",
                    draw(st.integers(0, SIZES[kind])),
                    draw(st.integers(0, 100)),
                    SIZES[kind],
                    pods=draw(st.integers(0, 2)),
                    free_slots=draw(st.integers(0, 3)),
                    zone=draw(st.sampled_from(["", "z1", "z2"])),
                )
                for i in range(draw(st.integers(0, 3)))
            }
            nodes.append(Node.hami(f"n{number}", cards, cpu_millis=cpu, unusable=why))
            continue
        count = draw(st.integers(0, 8))
        vector = FreeVector.of(
            devices={"gpu": count} if sharing is Sharing.WHOLE else {},
            mig={"1g.10gb": count, "3g.40gb": 1} if sharing is Sharing.MIG else {},
            cpu_millis=cpu,
            zone=draw(st.sampled_from(["", "z1", "z2"])),
        )
        nodes.append(Node(f"n{number}", vector, unusable=why))
    return Pool(name, (entry(kind),), sharing, tuple(nodes), zone=draw(st.sampled_from(["", "", "z1", "z2"])))


@st.composite
def fleets(draw: st.DrawFn) -> Snapshot:
    clusters = []
    for number in range(draw(st.integers(0, 4))):
        made = tuple(draw(pools(f"p{i}")) for i in range(draw(st.integers(0, 3))))
        clusters.append(
            Cluster(
                f"c{number}",
                site=draw(st.sampled_from(["home", "abroad"])),
                pools=made,
                mode=draw(st.sampled_from([Mode.MANAGE, Mode.MANAGE, Mode.OBSERVE])),
                ready=draw(st.sampled_from([True, True, False])),
                paused=draw(st.sampled_from([False, False, True])),
                labels={"tier": draw(st.sampled_from(["prod", "dev"]))},
                taints=draw(
                    st.sampled_from([(), (), (Taint("t", Effect.NO_SCHEDULE),), (Taint("t", Effect.NO_EXECUTE),)])
                ),
            )
        )
    return Snapshot(tuple(clusters))


@st.composite
def members(draw: st.DrawFn) -> MemberSpec:
    share = draw(
        st.sampled_from(
            [
                None,
                None,
                HamiShare(memory_mib=8_000, cores=20),
                HamiShare(memory_percent=50),
                MigShare("1g.10gb"),
                MigShare("3g.40gb"),
            ]
        )
    )
    request = DeviceRequest("gpu", draw(st.integers(1, 3)), draw(st.sampled_from(SELECTORS)), share)
    return MemberSpec(
        devices=(request,),
        pods=draw(st.integers(1, 3)),
        cpu_millis=draw(st.sampled_from([None, 1_000])),
        distinct_nodes=draw(st.booleans()),
    )


@st.composite
def requests(draw: st.DrawFn) -> Request:
    engines = tuple(
        EngineSpec(f"e{i}", tuple(draw(st.lists(members(), min_size=1, max_size=2))), draw(st.integers(1, 2)))
        for i in range(draw(st.integers(1, 2)))
    )
    existing = tuple(
        ExistingReplica(i, draw(st.sampled_from(["c0", "c1", "c9"])), draw(st.booleans()))
        for i in range(draw(st.integers(0, 3)))
    )
    return Request(
        "d",
        draw(st.integers(0, 6)),
        engines,
        existing,
        cluster_selector=draw(st.sampled_from([{}, {}, {"tier": "prod"}])),
        allowed_sites=draw(st.sampled_from([None, frozenset({"home"}), frozenset({"home", "abroad"})])),
        zone="z1",
        quota_free=draw(st.sampled_from([None, {"small": 3_000_000, "large": 2_500_000}, {"small": 10_000_000}])),
    )


def grants(plan: Plan) -> Iterator[tuple]:  # type: ignore[type-arg]
    for placement in plan.placements:
        for engine in placement.engines:
            for pod in engine.pods:
                for grant in pod.grants:
                    yield placement, engine, pod, grant


@settings(max_examples=80, deadline=None)
@given(fleets(), requests())
def test_nothing_is_given_twice_or_to_the_wrong_place(fleet: Snapshot, request: Request) -> None:
    plan = place(fleet, request)
    used: dict[tuple, Counter] = defaultdict(Counter)  # type: ignore[type-arg]
    usage: Counter[str] = Counter()
    for placement, engine, pod, grant in grants(plan):
        cluster = fleet.by_name[placement.cluster]
        pool = next(p for p in cluster.pools if p.name == engine.pool)
        assert cluster.mode is Mode.MANAGE
        assert cluster.ready
        assert not cluster.paused
        assert not cluster.taints
        assert request.allowed_sites is None or cluster.site in request.allowed_sites
        assert all(cluster.labels[k] == v for k, v in request.cluster_selector.items())
        assert pool.zone in ("", "z1")
        node = pool.by_name[pod.node]
        assert not node.unusable
        here = used[placement.cluster, engine.pool, pod.node]
        usage[grant.gpu_type] += grant.millionths
        assert grant.gpu_type == pool.entries[0].gpu_type
        if pool.sharing is Sharing.HAMI:
            assert len(set(grant.cards)) == grant.count
            for uuid in grant.cards:
                card = node.free.cards[node.card_uuids.index(uuid)]
                assert card.zone in ("", "z1")
                here.update({("mib", uuid): grant.memory_mib, ("cores", uuid): grant.cores, ("slots", uuid): 1})
                assert here["mib", uuid] <= card.free_mib
                assert here["cores", uuid] <= card.free_cores
                assert here["slots", uuid] <= card.free_slots
        elif pool.sharing is Sharing.MIG:
            assert node.free.zone in ("", "z1")
            here[grant.profile] += grant.count
            assert here[grant.profile] <= dict(node.free.mig)[grant.profile]
        else:
            here["gpu"] += grant.count
            assert here["gpu"] <= dict(node.free.devices)["gpu"]
    cpu: Counter[tuple] = Counter()  # type: ignore[type-arg]
    for placement in plan.placements:
        for engine in placement.engines:
            for pod in engine.pods:
                cpu[placement.cluster, engine.pool, pod.node] += pod.cpu_millis or 0
    for (cluster_name, pool_name, node_name), taken in cpu.items():
        pool = next(p for p in fleet.by_name[cluster_name].pools if p.name == pool_name)
        free = pool.by_name[node_name].free.cpu_millis
        assert free is None or taken <= free
    if request.quota_free is not None:
        assert all(amount <= request.quota_free.get(gpu_type, 0) for gpu_type, amount in usage.items())


@settings(max_examples=80, deadline=None)
@given(fleets(), requests())
def test_every_replica_is_whole_and_every_refusal_has_a_reason(fleet: Snapshot, request: Request) -> None:
    plan = place(fleet, request)
    for placement in plan.placements:
        assert [e.engine for e in placement.engines] == [e.name for e in request.engines]
        for engine, spec in zip(placement.engines, request.engines, strict=True):
            assert len(engine.pods) == spec.copies * sum(m.pods for m in spec.members)
            for copy in range(spec.copies):
                flags = [(p.node, m.distinct_nodes) for p, m in _members(engine, spec, copy)]
                for node, alone in flags:
                    assert not alone or [n for n, _ in flags].count(node) == 1
    indexes = [r.index for r in plan.retained] + [p.index for p in plan.placements] + [r.index for r in plan.removals]
    assert len(indexes) == len(set(indexes))
    assert len(plan.retained) + len(plan.placements) + plan.short == max(request.replicas, len(plan.retained))
    assert len(plan.retained) <= request.replicas
    if not plan.placements and not plan.short:
        return
    told = {(e.cluster, e.pool) for e in plan.explanations}
    chosen = {(p.cluster, e.pool) for p in plan.placements for e in p.engines}
    for cluster in fleet.clusters:
        for pool in cluster.pools:
            assert {(cluster.name, None), (cluster.name, pool.name)} & (told | chosen)
            if plan.short:
                assert {(cluster.name, None), (cluster.name, pool.name)} & told
    for explanation in plan.explanations:
        assert explanation.cluster in explanation.sentence
        assert explanation.sentence.endswith(".")
        if plan.short:
            assert explanation.rule is not Rule.RANKED


def _members(engine, spec, copy):
    mine = iter([p for p in engine.pods if p.copy == copy])
    for member in spec.members:
        for _ in range(member.pods):
            yield next(mine), member


@settings(max_examples=80, deadline=None)
@given(fleets(), requests(), st.randoms())
def test_equal_asks_get_equal_plans_whatever_the_order(fleet: Snapshot, request: Request, rng: object) -> None:
    plan = place(fleet, request)
    assert place(fleet, request) == plan
    shuffled = list(fleet.clusters)
    rng.shuffle(shuffled)  # type: ignore[attr-defined]
    assert place(Snapshot(tuple(shuffled)), request) == plan


# ------------------------------------------------------------------------------------ complete, by brute force


def fits_by_force(free: list[list[int]], engines: tuple[EngineSpec, ...]) -> bool:
    """Try every assignment of engines to pools and pods to nodes. free: cards by pool and node."""
    for assignment in product(range(len(free)), repeat=len(engines)):
        pods = [
            (pool, member.devices[0].count)
            for engine, pool in zip(engines, assignment, strict=True)
            for member in engine.members
            for _ in range(member.pods * engine.copies)
        ]
        for nodes in product(*(range(len(free[pool])) for pool, _ in pods)):
            left = [list(row) for row in free]
            for (pool, count), node in zip(pods, nodes, strict=True):
                left[pool][node] -= count
            if all(n >= 0 for row in left for n in row):
                return True
    return False


def member(count: int, pods: int) -> MemberSpec:
    return MemberSpec(devices=(DeviceRequest("gpu", count),), pods=pods)


small_engines = st.lists(
    st.lists(st.builds(member, st.integers(1, 4), st.integers(1, 2)), min_size=1, max_size=2), min_size=1, max_size=2
).map(lambda rows: tuple(EngineSpec(f"e{i}", tuple(row)) for i, row in enumerate(rows)))


@settings(max_examples=200, deadline=None)
@given(st.lists(st.lists(st.integers(0, 5), min_size=1, max_size=3), min_size=1, max_size=2), small_engines)
def test_what_fits_is_found(free: list[list[int]], engines: tuple[EngineSpec, ...]) -> None:
    made = tuple(
        Pool(
            f"p{i}",
            (entry("large"),),
            Sharing.WHOLE,
            tuple(Node(f"n{j}", FreeVector.of(devices={"gpu": n})) for j, n in enumerate(row)),
        )
        for i, row in enumerate(free)
    )
    plan = place(Snapshot((Cluster("c", "home", made),)), Request("d", 1, engines))
    assert bool(plan.placements) == fits_by_force(free, engines)
