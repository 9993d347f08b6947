"""History as kube-state-metrics tells it → pods and nodes, however it is cut into windows."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from infra.evidence import PodEnd
from infra.prometheus.decoding import series_of
from infra.prometheus.selector import selector
from infra.prometheus.types import Series
from infra.retroactive import questions
from infra.retroactive.lives import Life, life_of
from infra.retroactive.names import node_labels_of, resource_of
from infra.retroactive.nodes import NodeHistory, Piece, facts_of, read_nodes
from infra.retroactive.pods import PastContainer, PastPod, dump_pod, gathered, load_pod, merge
from infra.retroactive.reading import Scrapes, read_pods, scrapes, tells_uids
from portal.kernel.clock import epoch_ms
from tests.support.history import MadeHistory, MadeNode, MadePod
from tests.support.promql import Store

T0 = int(datetime(2026, 9, 1, tzinfo=UTC).timestamp())
STEP = 60_000
MINUTE = 60
HOUR = 3600


@dataclass
class Look:
    """What a window told."""

    seen: Scrapes
    pods: dict[str, PastPod]
    nodes: NodeHistory


def look(store: Store, low: int, high: int, *, end: int | None = None, still: frozenset[str] = frozenset()) -> Look:
    """The window from ``low`` to ``high`` (seconds), read as the product reads it."""

    def instant(query: str) -> list[Series]:
        return series_of(store.answer("/api/v1/query", [("query", query), ("time", str(high))]), "test")

    def over(query: str) -> list[Series]:
        params = [("query", query), ("start", str(low)), ("end", str(high)), ("step", str(STEP // 1000))]
        return series_of(store.answer("/api/v1/query_range", params), "test")

    each = questions.over_the_window(selector)
    seen = scrapes(over(each.pop("scraped")), STEP, end=end * 1000 if end else None)
    answers: dict[str, Sequence[Series]] = {name: over(query) for name, query in each.items()}
    step = timedelta(milliseconds=STEP)
    for name, query in questions.at_the_end(selector, timedelta(seconds=high - low) + step, step).items():
        answers[name] = instant(query)
    if not tells_uids(answers):
        answers |= {name: over(query) for name, query in questions.without_uids(selector).items()}
    pods = read_pods(answers, seen)
    held = [(pod.node, pod.scheduled or pod.first, pod.completed or pod.last) for pod in pods.values()]
    return Look(seen, pods, read_nodes(answers, seen, holdings=held, still_there=still))


def looks(history: MadeHistory, cuts: Iterable[int] = ()) -> tuple[dict[str, PastPod], list[Piece]]:
    """The whole history, backwards in windows that end at ``cuts`` (seconds), as a run goes through it."""
    store = history.store()
    pods: dict[str, PastPod] = {}
    pieces: list[Piece] = []
    high = history.end
    for cut in sorted({*(c // 60 * 60 for c in cuts), history.start // 60 * 60}, reverse=True):
        if cut >= high:
            continue
        found = look(store, cut, high, end=history.end if high == history.end else None)
        if found.seen.first is None or found.seen.first >= high * 1000:
            continue  # nothing was scraped: the next window takes this time in as well
        pods = gathered(pods, found.pods)
        pieces += found.nodes.pieces
        high = found.seen.first // 1000
    return pods, joined(pieces)


def joined(pieces: Iterable[Piece]) -> list[Piece]:
    out: list[Piece] = []
    for piece in sorted(pieces, key=lambda one: (one.node, one.start)):
        last = out[-1] if out else None
        if last and (last.node, last.end, last.state) == (piece.node, piece.start, piece.state):
            out[-1] = Piece(piece.node, last.start, piece.end, piece.state)
        else:
            out.append(piece)
    return out


def one_life(history: MadeHistory, uid: str = "u1") -> Life:
    pods, _ = looks(history)
    return life_of(pods[uid], uid=uid, step=STEP)


def pod(uid: str = "u1", **more: object) -> MadePod:
    facts: dict[str, object] = {
        "namespace": "v", "name": f"pod-{uid}", "node": "n1", "scheduled": T0 + 605, "started": T0 + 641, **more
    }  # fmt: skip
    return MadePod(uid, **facts)  # type: ignore[arg-type]


def history(
    *pods: MadePod, hours: int = 2, nodes: Sequence[MadeNode] = (MadeNode("n1"),), **more: object
) -> MadeHistory:
    return MadeHistory(list(nodes), list(pods), T0, T0 + hours * HOUR, **more)  # type: ignore[arg-type]


def at(seconds: int) -> datetime:
    return datetime.fromtimestamp(seconds, UTC)


# --- edges -----------------------------------------------------------------------------------------------------------


def test_a_finished_pod_is_exact() -> None:
    life = one_life(history(pod(end=T0 + 3723, finished=True)))
    assert (life.evidence.scheduled_at, life.evidence.started_at) == (at(T0 + 605), at(T0 + 641))
    assert life.evidence.end == PodEnd(at(T0 + 3723), at(T0 + 3723))
    assert (life.start_error_ms, life.end_error_ms) == (0, 0)
    assert life.evidence.owner is not None
    assert life.evidence.owner.kind == "ReplicaSet"


def test_a_deleted_pod_ends_between_two_scrapes_and_says_so() -> None:
    life = one_life(history(pod(end=T0 + 3723)))
    end = life.evidence.end
    assert end is not None
    # The last scrape that has it is the one at 3720.137; the next would have been 30 s later.
    assert end.proved == at(T0 + 3720) + timedelta(milliseconds=137)
    assert end.proved < at(T0 + 3723) < end.at <= end.proved + timedelta(seconds=90)
    assert end.inferred
    assert life.end_error_ms == (end.at - end.proved) // timedelta(milliseconds=1)


def test_without_times_the_first_scrape_counts_and_the_error_is_a_step() -> None:
    life = one_life(history(pod(end=T0 + 3723), times=False))
    assert life.evidence.scheduled_at == at(T0 + 630) + timedelta(milliseconds=137)
    assert life.start_error_ms == STEP


def test_a_pod_that_is_still_there_has_no_end() -> None:
    life = one_life(history(pod()))
    assert life.evidence.end is not None, "the watch does not know it, so it left before the watch began"
    assert life.evidence.end.at == at(T0 + 2 * HOUR)


def test_a_restarted_container_counts_from_its_first_start() -> None:
    life = one_life(history(pod(restarts=(T0 + 2000, T0 + 4000))))
    assert life.evidence.started_at == at(T0 + 641)


def test_an_init_container_starts_the_clock() -> None:
    made = pod(started=T0 + 1800, init={"nvidia_com_gpu": 2}, init_ran=T0 + 660)
    life = one_life(history(made))
    assert life.evidence.started_at == at(T0 + 660) + timedelta(milliseconds=137)
    assert life.evidence.request("nvidia.com/gpu") == 2, "the pod keeps the larger of both for its life"


def test_an_evicted_pod_ends_with_the_scrape_that_says_so() -> None:
    past = PastPod("u", "v", "p", 1000, 90_000, node="n1", scheduled=500, alive=60_000, terminal=90_000,
                   containers=(PastContainer("main", "main", (("nvidia.com/gpu", "1"),)),))  # fmt: skip
    life = life_of(past, uid="u", step=STEP)
    assert life.evidence.end == PodEnd(at(60), at(90))
    assert life.end_error_ms == 30_000


def test_a_pod_made_again_under_its_name_is_another_one() -> None:
    first, second = (
        pod("u1", name="web-0", end=T0 + 2000),
        pod("u2", name="web-0", scheduled=T0 + 2005, started=T0 + 2010),
    )
    pods, _ = looks(history(first, second))
    assert set(pods) == {"u1", "u2"}
    assert pods["u1"].after is not None
    assert [one.started for one in pods["u2"].containers] == [(T0 + 2010) * 1000]


def test_without_uids_a_pod_is_its_start_time() -> None:
    first = pod("u1", name="web-0", end=T0 + 2000, finished=True, lingers=0)
    second = pod("u2", name="web-0", scheduled=T0 + 2105, started=T0 + 2110, node="n2", end=T0 + 4000, finished=True)
    pods, _ = looks(history(first, second, nodes=[MadeNode("n1"), MadeNode("n2")], uids=False))
    assert set(pods) == {f"v/web-0@{(T0 + 605) * 1000}", f"v/web-0@{(T0 + 2105) * 1000}"}
    lives = [life_of(pods[key], uid=key, step=STEP) for key in sorted(pods)]
    assert [life.evidence.node for life in lives] == ["n1", "n2"]
    assert [life.evidence.started_at for life in lives] == [at(T0 + 641), at(T0 + 2110)]
    ends = [life.evidence.end for life in lives]
    assert ends[0] is not None
    assert ends[0].proved <= at(T0 + 2000) <= ends[0].at
    assert ends[1] == PodEnd(at(T0 + 4000), at(T0 + 4000))


def test_a_cpu_pod_is_nobodys_business() -> None:
    pods, _ = looks(history(pod(requests={"cpu": 4}), pod("u2")))
    assert set(pods) == {"u2"}


# --- gaps, restarts, duplicates ---------------------------------------------------------------------------------------


def test_a_restart_of_prometheus_ends_no_pod_and_is_told() -> None:
    gap = (T0 + 1800, T0 + 3600)
    made = history(pod(end=T0 + 6000, finished=True), gaps=(gap,))
    seen = look(made.store(), T0, T0 + 2 * HOUR).seen
    gaps = seen.gaps(5 * STEP)
    assert len(gaps) == 1
    assert gaps[0][0] <= gap[0] * 1000 + 2 * STEP
    assert abs(gaps[0][1] - gap[1] * 1000) <= STEP
    pods, pieces = looks(made)
    assert life_of(pods["u1"], uid="u1", step=STEP).evidence.end == PodEnd(at(T0 + 6000), at(T0 + 6000))
    assert [(piece.node, piece.end) for piece in pieces] == [("n1", (T0 + 2 * HOUR) // 60 * 60_000)]


def test_a_pod_that_left_in_a_gap_is_proved_to_its_last_scrape() -> None:
    life = one_life(history(pod(end=T0 + 2400), gaps=((T0 + 1800, T0 + 3600),)))
    end = life.evidence.end
    assert end is not None
    assert end.proved == at(T0 + 1770) + timedelta(milliseconds=137)
    assert end.at >= at(T0 + 3600)
    assert life.end_error_ms >= 1800_000, "the gap is in the stated error"


def test_a_pod_that_came_in_a_gap_has_the_gap_as_its_error() -> None:
    made = history(pod(scheduled=T0 + 2400, started=T0 + 2410), gaps=((T0 + 1800, T0 + 3600),), times=False)
    gaps = look(made.store(), T0, T0 + 2 * HOUR).seen.gaps(5 * STEP)
    pods, _ = looks(made)
    assert life_of(pods["u1"], uid="u1", step=STEP, gaps=gaps).start_error_ms == gaps[0][1] - gaps[0][0]


def test_two_servers_are_one_history() -> None:
    pods, pieces = looks(history(pod(end=T0 + 3723, finished=True), replicas=2))
    assert set(pods) == {"u1"}
    assert dict(pods["u1"].containers[0].requests) == {"nvidia.com/gpu": "1"}
    assert [dict(piece.state.capacity) for piece in pieces] == [{"nvidia.com/gpu": "8"}]


# --- however it is cut ------------------------------------------------------------------------------------------------

seconds = st.integers(min_value=0, max_value=2 * HOUR - 1)


@st.composite
def lives(draw: st.DrawFn) -> MadePod:
    start = draw(seconds)
    length = draw(st.integers(min_value=31, max_value=2 * HOUR))
    return MadePod(
        draw(st.uuids()).hex,
        draw(st.sampled_from(["v", "w"])),
        f"p{draw(st.integers(0, 9999))}",
        draw(st.sampled_from(["n1", "n2"])),
        T0 + start,
        T0 + start + draw(st.integers(0, 700)),
        T0 + start + length if draw(st.booleans()) else None,
        finished=draw(st.booleans()),
    )


@given(
    st.lists(lives(), max_size=4, unique_by=lambda one: (one.namespace, one.name)),
    st.lists(seconds, max_size=4),
    st.lists(st.tuples(seconds, st.integers(60, 3000)), max_size=1),
    st.booleans(),
)
def test_any_cut_into_windows_gives_the_same(
    made: list[MadePod], cuts: list[int], gaps: list[tuple[int, int]], times: bool
) -> None:
    gaps_at = tuple((T0 + start, T0 + start + length) for start, length in gaps)
    whole = history(*made, nodes=[MadeNode("n1"), MadeNode("n2")], gaps=gaps_at, times=times)
    assert looks(whole) == looks(whole, [T0 + cut for cut in cuts])


times_or_none = st.none() | st.integers(1, 50)


@st.composite
def sights(draw: st.DrawFn) -> PastPod:
    first = draw(st.integers(0, 50))
    return PastPod(
        "u", "v", "p", first, first + draw(st.integers(0, 50)), draw(st.sampled_from(["", "n1"])), "", "",
        *(draw(times_or_none) for _ in range(8)),
        containers=tuple(
            PastContainer(name, draw(st.sampled_from(["main", "init", "sidecar"])),
                          (("nvidia.com/gpu", str(draw(st.integers(1, 3)))),), draw(times_or_none))
            for name in draw(st.sets(st.sampled_from(["a", "b"])).map(sorted))
        ),
    )  # fmt: skip


@given(sights(), sights(), sights())
def test_merging_knows_no_order(a: PastPod, b: PastPod, c: PastPod) -> None:
    assert merge(a, b) == merge(b, a)
    assert merge(merge(a, b), c) == merge(a, merge(b, c))
    assert merge(a, a) == a
    assert load_pod(dump_pod(a)) == a


def test_two_pods_are_never_merged() -> None:
    with pytest.raises(ValueError, match="two pods"):
        merge(PastPod("u1", "v", "p", 1, 2), PastPod("u2", "v", "p", 1, 2))


# --- nodes ------------------------------------------------------------------------------------------------------------


def test_a_node_that_left_and_one_that_was_lost_and_one_that_was_cordoned() -> None:
    nodes = [
        MadeNode("gone", until=T0 + 3000),
        MadeNode("lost", unknown=(T0 + 1800, T0 + 3600)),
        MadeNode("off", cordoned=(T0 + 1200, T0 + 2400)),
    ]
    _, pieces = looks(history(nodes=nodes))
    found = {name: [piece for piece in pieces if piece.node == name] for name in ("gone", "lost", "off")}
    assert [piece.end for piece in found["gone"]] == [(T0 + 3000) // 60 * 60_000]
    assert [piece.state.ready for piece in found["lost"]] == [True, None, True]
    assert found["lost"][1].start <= (T0 + 1800) * 1000, "lost since it was last seen well"
    assert [piece.state.cordoned for piece in found["off"]] == [False, True, False]


def test_what_a_node_had_is_read_as_a_node_object_is() -> None:
    store = history(nodes=[MadeNode("m1", resources={"nvidia_com_gpu": 6, "nvidia_com_mig_1g_10gb": 14})]).store()
    found = look(store, T0, T0 + HOUR).nodes
    facts = facts_of("m1", "past:m1", found.pieces[0].state, found)
    assert (facts.sharing, facts.product, facts.cards) == ("mig", "NVIDIA-H100-80GB-HBM3", 8)


def test_hami_nodes_are_known_by_their_scheduler() -> None:
    cards = ("GPU-1", "GPU-2")
    node = MadeNode("h1", gpus=2, resources={"nvidia_com_gpu": 20}, hami=cards)
    made = pod(node="h1", requests={"nvidia_com_gpu": 1, "nvidia_com_gpumem": 20_000}, grants=(("GPU-2", 20_000, 30),))
    store = history(made, nodes=[node]).store()
    found = look(store, T0, T0 + HOUR)
    facts = facts_of("h1", "past:h1", found.nodes.pieces[0].state, found.nodes)
    assert (facts.sharing, facts.cards, facts.unavailable) == ("hami", 2, 0)
    life = life_of(found.pods["u1"], uid="u1", step=STEP)
    assert life.evidence.scheduler == "hami-scheduler"
    assert life.evidence.annotation("hami.io/vgpu-devices-allocated") == "GPU-2,NVIDIA,20000,30:;"


def test_names_come_back_as_kubernetes_writes_them() -> None:
    assert resource_of("nvidia_com_gpu") == "nvidia.com/gpu"
    assert resource_of("nvidia_com_mig_1g_10gb") == "nvidia.com/mig-1g.10gb"
    assert resource_of("nvidia_com_mig_1g_10gb_me") == "nvidia.com/mig-1g.10gb.me"
    assert resource_of("nvidia_com_gpumem_percentage") == "nvidia.com/gpumem-percentage"
    assert resource_of("ephemeral_storage") == ""
    assert node_labels_of({"node": "n", "label_nvidia_com_gpu_product": "NVIDIA-L4"}) == {
        "nvidia.com/gpu.product": "NVIDIA-L4"
    }


def test_a_product_is_taken_from_dcgm_where_nodes_have_no_labels() -> None:
    store = history(nodes=[MadeNode("n1", labelled=False)]).store()
    for number in range(8):
        labels = {"Hostname": "n1", "UUID": f"GPU-{number}", "modelName": "NVIDIA H100 80GB HBM3"}
        store.add("DCGM_FI_DEV_GPU_TEMP", labels, (T0 + 60) * 1000, 40)
    found = look(store, T0, T0 + HOUR).nodes
    assert facts_of("n1", "past:n1", found.pieces[0].state, found).product == "NVIDIA-H100-80GB-HBM3"


def test_a_value_that_is_no_number_is_not_known() -> None:
    one = Series({"namespace": "v"}, ((1, None),))
    assert scrapes([one], STEP) == Scrapes()
    assert scrapes([Series({}, ((60_000, Decimal(59)),))], STEP).first == 60_000


def test_a_step_with_an_old_scrape_is_none() -> None:
    old = Series({}, ((600_000, Decimal(360)),))
    assert scrapes([old], STEP).points == ()
    assert epoch_ms(at(1)) == 1000
