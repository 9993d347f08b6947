"""What a follower believes: errors, other clusters, empty lists and silence end nothing."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import uuid4

import pytest

from infra.evidence import PodEvidence
from infra.kube.errors import Call, Forbidden, Gone, KubeError, Unreachable, WrongCluster
from infra.kube.reader import Page
from infra.kube.watching import EventType, WatchEvent
from infra.watcher.follower import Follower
from infra.watcher.items import Connected, Failed, Item, Listed, Seen, Unreadable
from infra.watcher.targets import Held
from portal.kernel.clock import time_source

T0 = datetime(2026, 11, 29, 12, tzinfo=UTC)
CALL = Call("alpha", "watch")


def pod(name: str = "p", version: int = 10, *, gpus: str = "1", **more: Any) -> dict[str, Any]:
    return {
        "metadata": {"name": name, "namespace": "team", "uid": f"uid-{name}", "resourceVersion": str(version)},
        "spec": {"containers": [{"name": "main", "resources": {"limits": {"nvidia.com/gpu": gpus}}}]},
        "status": {"phase": "Running"},
    } | more


def event(kind: str, thing: dict[str, Any]) -> WatchEvent:
    return WatchEvent(EventType(kind), thing, thing["metadata"]["resourceVersion"])


def bookmark(version: int) -> WatchEvent:
    return event("BOOKMARK", {"metadata": {"resourceVersion": str(version)}})


@dataclass
class Script:
    """A source that answers as it was told, and a clock that it moves."""

    lists: list[list[Page] | KubeError] = field(default_factory=list)
    streams: list[list[WatchEvent | KubeError | timedelta]] = field(default_factory=list)
    wrong: bool = False
    there: set[str] = field(default_factory=set)
    now: datetime = T0
    asked: list[str] = field(default_factory=list)

    def confirm_cluster(self) -> None:
        if self.wrong:
            raise WrongCluster(CALL, "another cluster")

    def pages(self) -> Iterator[Page]:
        self.asked.append("list")
        answer = self.lists.pop(0)
        if isinstance(answer, KubeError):
            raise answer
        yield from answer

    def events(self, resource_version: str) -> Iterator[WatchEvent]:
        self.asked.append(f"watch {resource_version}")
        for step in self.streams.pop(0) if self.streams else []:
            if isinstance(step, KubeError):
                raise step
            if isinstance(step, timedelta):
                self.now += step
            else:
                yield step

    def is_gone(self, namespace: str, name: str, uid: str) -> bool:
        return name not in self.there

    def lease_renewed_at(self, node: str) -> datetime | None:
        return None


class Items(list[Item]):
    """A sink that keeps everything."""

    def put(self, item: Item) -> None:
        self.append(item)

    def of(self, kind: type) -> list[Any]:
        return [item for item in self if isinstance(item, kind)]


@dataclass
class Scene:
    script: Script
    items: Items
    follower: Follower
    live: list[tuple[str, str, str]]

    def run(self) -> float:
        with time_source(lambda: self.script.now):
            return self.follower.run_once()


@pytest.fixture
def scene() -> Callable[..., Scene]:
    def build(script: Script, *, version: str = "", proof: datetime | None = None) -> Scene:
        items, live = Items(), list[tuple[str, str, str]]()
        held = Held(uuid4(), uuid4(), "pods", 1, version, proof)
        return Scene(script, items, Follower(held, script, items, lambda: live), live)

    return build


Build = Callable[..., Scene]


def test_list_then_watch_then_resume(scene: Build) -> None:
    pages = [Page([pod("a"), pod("cpu", gpus="0")], "20"), Page([pod("b")], "20")]
    stage = scene(Script(lists=[pages], streams=[[event("MODIFIED", pod("a", 21)), bookmark(25)], []]))
    stage.run()
    stage.run()
    assert stage.script.asked == ["list", "watch 20", "watch 25"]
    (listed,) = stage.items.of(Listed)
    assert {sight.name for sight in listed.sights} == {"a", "b"}
    assert listed.uids == {"uid-a", "uid-b", "uid-cpu"}, "what does not concern us is still known to be there"
    assert [(item.resource_version, item.proof) for item in stage.items.of(Seen)] == [("21", T0), ("25", T0)]


def test_a_list_that_begins_anew_forgets_what_it_had(scene: Build) -> None:
    pages = [Page([pod("a")], "20"), Page([pod("b")], "30", restarted=True)]
    stage = scene(Script(lists=[pages]))
    stage.run()
    assert stage.items.of(Listed)[0].uids == {"uid-b"}


@pytest.mark.parametrize(
    "error", [Unreachable(CALL, "no answer", cause="timeout"), Forbidden(CALL, "no right", status=403)]
)
def test_an_error_is_told_and_waited_for_and_ends_nothing(scene: Build, error: KubeError) -> None:
    stage = scene(Script(lists=[error, error, [Page([pod()], "20")]]))
    first, second = stage.run(), stage.run()
    assert 0.5 <= first <= 1.0 <= second <= 2.0
    assert [item.failures for item in stage.items.of(Failed)] == [1, 2]
    assert stage.items.of(Failed)[0].reason == type(error).__name__
    assert not stage.items.of(Listed)
    assert stage.run() == 0.0
    assert stage.items.of(Connected)
    assert stage.follower.failures == 0


def test_a_broken_stream_resumes_where_it_was(scene: Build) -> None:
    broken = Unreachable(CALL, "cut", cause="broken")
    stage = scene(Script(streams=[[event("ADDED", pod(version=31)), broken], []]), version="30", proof=T0)
    stage.run()
    stage.run()
    assert stage.script.asked == ["watch 30", "watch 31"]


def test_only_410_lists_again(scene: Build) -> None:
    stage = scene(Script(lists=[[Page([pod()], "90")]], streams=[[Gone(CALL, "too old")], []]), version="30", proof=T0)
    assert stage.run() == 0.0
    stage.run()
    assert stage.script.asked == ["watch 30", "list", "watch 90"]
    assert stage.items.of(Listed)[0].reason.startswith("410")


def test_a_server_whose_lists_are_always_outdated_is_not_hammered(scene: Build) -> None:
    stage = scene(Script(lists=[[Page([pod()], "9")]] * 4, streams=[[Gone(CALL, "too old")]] * 4))
    assert [stage.run() > 0 for _ in range(4)] == [False, True, True, True]


def test_another_clusters_answers_are_not_listened_to(scene: Build) -> None:
    stage = scene(Script(wrong=True))
    stage.run()
    assert stage.script.asked == []
    assert stage.items.of(Failed)[0].reason == "WrongCluster"


def test_an_empty_list_is_not_believed_while_something_is_there(scene: Build) -> None:
    stage = scene(Script(lists=[[Page([], "20")], [Page([], "21")]], there={"p"}))
    stage.live.append(("team", "p", "uid-p"))
    stage.run()
    assert not stage.items.of(Listed)
    assert "came empty, but team/p is there" in stage.items.of(Failed)[0].sentence
    stage.script.there.clear()  # now the server denies it by name
    stage.run()
    assert stage.items.of(Listed)[0].uids == frozenset()


def test_what_comes_after_a_pause_is_old_news_until_a_bookmark(scene: Build) -> None:
    stream: list[WatchEvent | KubeError | timedelta] = [
        event("DELETED", pod("a", 31)), bookmark(32), timedelta(seconds=3), event("DELETED", pod("b", 33)),
    ]  # fmt: skip
    stage = scene(Script(streams=[stream], now=T0 + timedelta(minutes=5)), version="30", proof=T0)
    stage.run()
    late, mark, live = stage.items.of(Seen)
    assert isinstance(late.sight, PodEvidence)
    assert isinstance(live.sight, PodEvidence)
    assert (late.sight.gone_inferred_after, late.proof) == (T0, None)
    assert mark.proof == T0 + timedelta(minutes=5)
    assert (live.sight.gone_inferred_after, live.proof) == (None, T0 + timedelta(minutes=5, seconds=3))


def test_after_a_short_pause_nothing_is_old_news(scene: Build) -> None:
    script = Script(streams=[[event("DELETED", pod("a", 31))]], now=T0 + timedelta(seconds=4))
    stage = scene(script, version="30", proof=T0)
    stage.run()
    (seen,) = stage.items.of(Seen)
    assert seen.sight.gone_inferred_after is None
    assert seen.proof == T0 + timedelta(seconds=4)


def test_an_object_that_cannot_be_read_is_passed_over_and_told(scene: Build) -> None:
    bad = pod("bad", 31) | {"spec": {"containers": [{"name": "m", "resources": {"limits": {"nvidia.com/gpu": "x"}}}]}}
    stage = scene(Script(lists=[[Page([bad, pod("a")], "20")]], streams=[[event("ADDED", bad)]]))
    stage.run()
    (listed,) = stage.items.of(Listed)
    assert "uid-bad" in listed.uids, "it is there, so it does not end"
    sentences = [item.sentence for item in stage.items.of(Unreadable)]
    assert len(sentences) == 2
    assert all(sentence.startswith("Passed over: pod team/bad (uid-bad)") for sentence in sentences)
