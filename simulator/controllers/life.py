"""The life of one container on a node: pulled, created, running, ready, ended, restarted. Pure: times in, state out."""

from __future__ import annotations

from dataclasses import dataclass

from simulator.clock import Timing
from simulator.kinds import Obj
from simulator.objects import duration, rfc3339, unix

PREFIX = "sim.aifactory.dev/"
PULLING, CREATING, RUNNING, ENDED, BACKOFF, BAD_IMAGE = (
    "pulling",
    "creating",
    "running",
    "ended",
    "backoff",
    "bad-image",
)


@dataclass(frozen=True)
class Plan:
    """What annotations on the pod ask of its containers. Seconds; None: not asked."""

    start_delay: float | None = None
    ready_delay: float | None = None
    run_for: float | None = None
    crash_after: float | None = None
    exit_code: int | None = None

    @classmethod
    def of(cls, annotations: dict[str, str]) -> Plan:
        """Read the annotations; what can't be read counts as not asked."""

        def seconds(name: str) -> float | None:
            try:
                return duration(annotations[PREFIX + name])
            except (KeyError, ValueError):
                return None

        code = annotations.get(PREFIX + "exit-code", "")
        return cls(
            seconds("start-delay"),
            seconds("ready-delay"),
            seconds("run-for"),
            seconds("crash-after"),
            int(code) if code.isdigit() else None,
        )


@dataclass
class Life:
    """One container. `due` is when the next thing happens (unix seconds), None if nothing will by itself."""

    name: str
    image: str
    kind: str
    """`main`, `init` or `sidecar`."""
    state: str = PULLING
    since: float = 0.0
    due: float | None = None
    started_at: float = 0.0
    ended_at: float = 0.0
    exit_code: int = 0
    ready: bool = False
    restarts: int = 0
    last: Obj | None = None
    waiting: str = "ContainerCreating"
    message: str = ""

    def begin(self, now: float, pull: float) -> None:
        """Start to pull the image, which takes so long."""
        self.state, self.since, self.due = PULLING, now, now + pull

    def start(self, now: float, timing: Timing, plan: Plan, ready_delay: float) -> None:
        """The process starts."""
        self.state, self.since, self.started_at = RUNNING, now, now
        self.ready = False
        if self.kind == "init":
            self.due = now + timing.init
            return
        self.due = now + ready_delay
        end = self.ends_at(plan)
        if end is not None:
            self.due = min(self.due, end)

    def ends_at(self, plan: Plan) -> float | None:
        """When the process ends by itself, or None."""
        if self.kind != "main":
            return None
        length = plan.run_for if plan.run_for is not None else plan.crash_after
        return None if length is None else self.started_at + length

    def end(self, now: float, code: int) -> None:
        """The process ends."""
        self.state, self.since, self.ended_at, self.exit_code = ENDED, now, now, code
        self.ready, self.due = False, None

    def back_off(self, now: float, timing: Timing, *, always: bool) -> None:
        """Wait before the next start: not at all after the first end, then twice as long each time."""
        wait = 0.0 if self.restarts == 0 else min(timing.backoff * 2 ** (self.restarts - 1), timing.backoff_cap)
        if self.ended_at - self.started_at > timing.backoff_reset:
            wait = 0.0
        self.last = self.terminated()
        self.state, self.since, self.due = BACKOFF, now, now + wait
        self.waiting = "CrashLoopBackOff"
        self.message = f"back-off {wait:.0f}s restarting failed container={self.name}"
        self.restarts += 1

    def terminated(self) -> Obj:
        """The state `terminated`."""
        return {
            "terminated": {
                "exitCode": self.exit_code,
                "reason": "Completed" if self.exit_code == 0 else "Error",
                "startedAt": rfc3339(self.started_at),
                "finishedAt": rfc3339(self.ended_at),
            }
        }

    def status(self) -> Obj:
        """The row in containerStatuses or initContainerStatuses."""
        if self.state == RUNNING:
            state: Obj = {"running": {"startedAt": rfc3339(self.started_at)}}
        elif self.state == ENDED:
            state = self.terminated()
        else:
            state = {"waiting": {"reason": self.waiting}}
            if self.message:
                state["waiting"]["message"] = self.message
        started = self.state == RUNNING
        return {
            "name": self.name,
            "state": state,
            "lastState": self.last or {},
            "ready": self.state == ENDED and self.exit_code == 0 if self.kind == "init" else self.ready,
            "restartCount": self.restarts,
            "image": self.image,
            "imageID": f"{self.image.split(':')[0]}@sha256:simulated" if self.state in (RUNNING, ENDED) else "",
            "started": started,
        }

    @classmethod
    def from_status(cls, row: Obj, kind: str, image: str) -> Life | None:
        """Read a container back from a saved pod; None if it had not started (it begins anew)."""
        state = row.get("state") or {}
        life = cls(row["name"], image, kind, restarts=row.get("restartCount", 0), last=row.get("lastState") or None)
        if "running" in state:
            life.state, life.ready = RUNNING, bool(row.get("ready"))
            life.started_at = life.since = unix(state["running"]["startedAt"])
            life.due = life.started_at
            return life
        if "terminated" in state:
            ended = state["terminated"]
            life.started_at = unix(ended["startedAt"])
            life.end(unix(ended["finishedAt"]), ended["exitCode"])
            return life
        return None
