"""All kubelets of a cluster: what happens to a pod once it is bound to a node."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from simulator.cluster import Cluster
from simulator.controllers.base import Controller, Key
from simulator.controllers.life import (
    BACKOFF,
    BAD_IMAGE,
    CREATING,
    ENDED,
    PREFIX,
    PULLING,
    RUNNING,
    Life,
    Plan,
)
from simulator.devices import NoDevices
from simulator.errors import ApiError
from simulator.kinds import NODE, POD, Obj
from simulator.objects import annotations_of, duration, is_deleting, name_of, namespace_of, rfc3339, uid_of
from simulator.options import Options
from simulator.resources import FINISHED
from simulator.store import Change

COMPONENT = "kubelet"


@dataclass
class Sandbox:
    """A pod as its kubelet knows it."""

    node: str
    begun: float
    plan: Plan
    lives: list[Life]
    ip: str = ""
    stop_at: float | None = None
    gone_at: float | None = None


class Kubelets(Controller):
    """Drives the containers of bound pods and writes pod status."""

    name = "kubelets"

    def __init__(self, cluster: Cluster) -> None:
        super().__init__(cluster)
        self.sandboxes: dict[str, Sandbox] = {}
        self._images: set[tuple[str, str]] = set()
        self._address = 0

    def interest(self, change: Change) -> Iterable[Key]:
        pod = change.new.obj
        if change.kind != POD:
            return
        if change.type == "DELETED" or pod["status"].get("phase") in FINISHED:
            self._free(pod)
        if change.type == "DELETED":
            self.sandboxes.pop(uid_of(pod), None)
        elif pod["spec"].get("nodeName"):
            yield namespace_of(pod), name_of(pod)

    def _free(self, pod: Obj) -> None:
        devices = self.cluster.devices.get(pod["spec"].get("nodeName", ""))
        if devices is not None:
            devices.free(uid_of(pod))

    def start(self) -> Iterable[Key]:
        return [(namespace_of(p), name_of(p)) for p in self.store.objects(POD) if p["spec"].get("nodeName")]

    def wake_node(self, node: str) -> list[Key]:
        """The pods to look at when the node is back."""
        return [(namespace_of(pod), name_of(pod)) for pod in self.cluster.pods.on_node(node)]

    def reconcile(self, key: Key) -> float | None:
        pod = self.registry.find(POD, *key)
        if pod is None or not pod["spec"].get("nodeName"):
            return None
        node = pod["spec"]["nodeName"]
        if self.cluster.broken.get(node) == "lost" or self.store.get(NODE, "", node) is None:
            return None
        sandbox = self.sandboxes.get(uid_of(pod))
        if is_deleting(pod):
            return self._stop(pod, sandbox)
        if pod["status"].get("phase") in FINISHED:
            return None
        if sandbox is None:
            sandbox = self._admit(pod)
            if sandbox is None:
                return None
        self._advance(pod, sandbox)
        self._write(pod, sandbox)
        due = [life.due for life in sandbox.lives if life.due is not None]
        return min(due) - self.now if due else None

    # --- starting ----------------------------------------------------------------------------------------

    def _admit(self, pod: Obj) -> Sandbox | None:
        node = pod["spec"]["nodeName"]
        devices = self.cluster.devices.get(node)
        if devices is not None:
            try:
                devices.assign(pod)
            except NoDevices as error:
                self._reject(pod, str(error))
                return None
        lives = []
        rows = {
            row["name"]: row
            for group in ("initContainerStatuses", "containerStatuses")
            for row in pod["status"].get(group) or []
        }
        for group, usual in (("initContainers", "init"), ("containers", "main")):
            for container in pod["spec"].get(group) or []:
                kind = "sidecar" if group == "initContainers" and container.get("restartPolicy") == "Always" else usual
                image = container.get("image", "")
                row = rows.get(container["name"])
                known = Life.from_status(row, kind, image) if row else None
                if known is not None:
                    self._images.add((node, image))
                lives.append(known or Life(container["name"], image, kind))
        sandbox = Sandbox(node, self.now, Plan.of(annotations_of(pod)), lives, pod["status"].get("podIP", ""))
        self.sandboxes[uid_of(pod)] = sandbox
        return sandbox

    def _reject(self, pod: Obj, message: str) -> None:
        def change(obj: Obj) -> None:
            obj["status"] |= {
                "phase": "Failed",
                "reason": "UnexpectedAdmissionError",
                "message": message,
                "startTime": self.registry.now(),
            }

        self._modify(pod, change)
        self.cluster.event(pod, "UnexpectedAdmissionError", message, COMPONENT, warning=True)

    def _pull(self, pod: Obj, sandbox: Sandbox, life: Life) -> None:
        timing, now = self.cluster.timing, self.now
        tag = life.image.rsplit("/", 1)[-1].partition(":")[2] or "latest"
        present = (sandbox.node, life.image) in self._images
        pull = 0.0 if present and tag not in self.cluster.spec.bad_tags else timing.pull
        if sandbox.plan.start_delay is not None and life.restarts == 0:
            pull = max(sandbox.plan.start_delay - timing.create, 0.0)
        life.begin(now, pull)
        life.waiting, life.message = "ContainerCreating", ""
        if pull and not present:
            self.cluster.event(pod, "Pulling", f'Pulling image "{life.image}"', COMPONENT)

    def _pulled(self, pod: Obj, sandbox: Sandbox, life: Life) -> None:
        tag = life.image.rsplit("/", 1)[-1].partition(":")[2] or "latest"
        if tag in self.cluster.spec.bad_tags:
            text = (
                f'failed to pull and unpack image "{life.image}": failed to resolve reference "{life.image}": not found'
            )
            self.cluster.event(pod, "Failed", f'Failed to pull image "{life.image}": {text}', COMPONENT, warning=True)
            life.state, life.waiting, life.message = BAD_IMAGE, "ErrImagePull", text
            life.due = self.now + min(self.cluster.timing.pull, 1.0)
            return
        if (sandbox.node, life.image) in self._images:
            text = f'Container image "{life.image}" already present on machine'
        else:
            took = f"{self.now - life.since:.3f}s"
            text = f'Successfully pulled image "{life.image}" in {took} ({took} including waiting)'
        self.cluster.event(pod, "Pulled", text, COMPONENT)
        self._images.add((sandbox.node, life.image))
        life.state, life.due = CREATING, self.now + self.cluster.timing.create

    def _started(self, pod: Obj, sandbox: Sandbox, life: Life) -> None:
        timing, plan = self.cluster.timing, sandbox.plan
        life.start(self.now, timing, plan, timing.ready if plan.ready_delay is None else plan.ready_delay)
        self.cluster.event(pod, "Created", "Container created", COMPONENT)
        self.cluster.event(pod, "Started", "Container started", COMPONENT)

    # --- going on ----------------------------------------------------------------------------------------

    def _advance(self, pod: Obj, sandbox: Sandbox) -> None:
        images = {
            c["name"]: c.get("image", "")
            for group in ("initContainers", "containers")
            for c in pod["spec"].get(group) or []
        }
        for life in self._in_turn(sandbox):
            if images.get(life.name, life.image) != life.image:
                life.image = images[life.name]
                if life.state == RUNNING:
                    life.end(self.now, 143)
                else:
                    life.due, life.since = None, 0.0
                    life.state = PULLING
            for _ in range(6):
                if not self._step(pod, sandbox, life):
                    break

    def _in_turn(self, sandbox: Sandbox) -> Iterable[Life]:
        """The containers whose turn it is: init containers one after the other, then the main ones."""
        for life in sandbox.lives:
            if life.kind == "main":
                break
            yield life
            if life.kind == "init" and not (life.state == ENDED and life.exit_code == 0):
                return
            if life.kind == "sidecar" and not life.started_at:
                return
        yield from (life for life in sandbox.lives if life.kind == "main")

    def _step(self, pod: Obj, sandbox: Sandbox, life: Life) -> bool:
        """Let the next thing happen if it is due; True if something did."""
        now = self.now
        if life.state == PULLING and life.due is None:
            self._pull(pod, sandbox, life)
            return True
        if life.state == ENDED:
            if life.kind == "init" and life.exit_code == 0:
                return False
            if not self._restarts(pod, life):
                return False
            life.back_off(now, self.cluster.timing, always=True)
            if life.due and life.due > now:
                text = f"Back-off restarting failed container {life.name} in pod {name_of(pod)}"
                self.cluster.event(pod, "BackOff", text, COMPONENT, warning=True)
            return True
        if life.due is None or life.due > now:
            return False
        if life.state == PULLING:
            self._pulled(pod, sandbox, life)
        elif life.state == CREATING:
            self._started(pod, sandbox, life)
        elif life.state == BACKOFF:
            self._pull(pod, sandbox, life)
        elif life.state == BAD_IMAGE:
            life.waiting, life.message = "ImagePullBackOff", f'Back-off pulling image "{life.image}"'
            life.due = None
            text = f'Back-off pulling image "{life.image}"'
            self.cluster.event(pod, "BackOff", text, COMPONENT)
        elif life.state == RUNNING:
            self._run_on(sandbox, life)
        return True

    def _run_on(self, sandbox: Sandbox, life: Life) -> None:
        plan, now = sandbox.plan, self.now
        if life.kind == "init":
            life.end(now, 0)
            return
        end = life.ends_at(plan)
        if end is not None and now >= end:
            code = plan.exit_code
            if code is None:
                code = 0 if plan.run_for is not None else 1
            life.end(end, code)
            return
        delay = self.cluster.timing.ready if plan.ready_delay is None else plan.ready_delay
        if not life.ready and now < life.started_at + delay:
            life.due = life.started_at + delay  # read back from a saved state, not ready yet
            return
        life.ready = True
        life.due = end

    def _restarts(self, pod: Obj, life: Life) -> bool:
        policy = pod["spec"].get("restartPolicy", "Always")
        if life.kind == "sidecar" or policy == "Always":
            return life.kind != "init" or life.exit_code != 0
        return policy == "OnFailure" and life.exit_code != 0

    # --- ending ------------------------------------------------------------------------------------------

    def _stop(self, pod: Obj, sandbox: Sandbox | None) -> float | None:
        """SIGTERM, the end a moment later, then the object goes: three MODIFIED before DELETED."""
        timing, now = self.cluster.timing, self.now
        if sandbox is None:
            sandbox = self._admit(pod) if pod["status"].get("phase") not in FINISHED else None
        running = [life for life in sandbox.lives if life.state == RUNNING] if sandbox else []
        if sandbox is not None and sandbox.stop_at is None:
            given = annotations_of(pod).get(PREFIX + "stop-delay", "")
            try:
                delay = duration(given) if given else timing.stop
            except ValueError:
                delay = timing.stop
            grace = float(pod["metadata"].get("deletionGracePeriodSeconds", 30))
            sandbox.stop_at = now + (min(delay, grace) if running else 0.0)
            for life in running:
                self.cluster.event(pod, "Killing", f"Stopping container {life.name}", COMPONENT)
        if sandbox is not None and sandbox.stop_at is not None and now < sandbox.stop_at:
            return sandbox.stop_at - now
        if sandbox is not None and sandbox.gone_at is None:
            for life in running:
                life.end(now, 143)
            sandbox.gone_at = now + timing.gone
            if running or pod["status"].get("containerStatuses"):
                self._write(pod, sandbox, stopping=True)
        if sandbox is not None and sandbox.gone_at is not None and now < sandbox.gone_at:
            return sandbox.gone_at - now
        try:
            self.registry.delete(POD, namespace_of(pod), name_of(pod), Options(grace=0, uid=uid_of(pod)))
        except ApiError:
            return None
        return None

    # --- status ------------------------------------------------------------------------------------------

    def _modify(self, pod: Obj, change: Callable[[Obj], None]) -> None:
        options = Options(manager="kubelet", subresource="status")
        self.registry.modify(POD, namespace_of(pod), name_of(pod), change, options)

    def _write(self, pod: Obj, sandbox: Sandbox, *, stopping: bool = False) -> None:
        if not sandbox.ip:
            self._address += 1
            sandbox.ip = f"10.244.{self._address // 250 % 250}.{self._address % 250 + 1}"
        node = self.cluster.node(sandbox.node)
        host = next(
            (a["address"] for a in (node or {}).get("status", {}).get("addresses", []) if a["type"] == "InternalIP"),
            "127.0.0.1",
        )
        inits = [life for life in sandbox.lives if life.kind != "main"]
        mains = [life for life in sandbox.lives if life.kind == "main"]
        started = any(life.started_at for life in sandbox.lives)

        def change(obj: Obj) -> None:
            status = obj["status"]
            status["phase"] = self._phase(obj, sandbox, stopping)
            status["hostIP"] = host
            status["hostIPs"] = [{"ip": host}]
            status.setdefault("startTime", rfc3339(sandbox.begun))
            if started:
                status["podIP"] = sandbox.ip
                status["podIPs"] = [{"ip": sandbox.ip}]
            if inits:
                status["initContainerStatuses"] = [life.status() for life in inits]
            status["containerStatuses"] = [self._shown(life, inits) for life in mains]
            status["conditions"] = self._conditions(obj, sandbox, started, stopping)

        self._modify(pod, change)

    def _shown(self, life: Life, inits: list[Life]) -> Obj:
        row = life.status()
        waiting = row["state"].get("waiting")
        ordinary = [i for i in inits if i.kind == "init"]
        if waiting and life.due is None and any(i.state != ENDED for i in ordinary):
            waiting["reason"] = "PodInitializing"
        return row

    def _phase(self, pod: Obj, sandbox: Sandbox, stopping: bool) -> str:
        mains = [life for life in sandbox.lives if life.kind == "main"]
        if stopping:
            return "Failed" if any(life.exit_code for life in mains if life.state == ENDED) else "Succeeded"
        if any(life.kind == "init" and not (life.state == ENDED and life.exit_code == 0) for life in sandbox.lives):
            failed = [i for i in sandbox.lives if i.kind == "init" and i.state == ENDED and i.exit_code]
            return "Failed" if failed and pod["spec"].get("restartPolicy") == "Never" else "Pending"
        if all(life.state == ENDED and not self._restarts(pod, life) for life in mains):
            return "Failed" if any(life.exit_code for life in mains) else "Succeeded"
        return "Running" if any(life.started_at for life in mains) else "Pending"

    def _conditions(self, pod: Obj, sandbox: Sandbox, started: bool, stopping: bool) -> list[Obj]:
        before = {row["type"]: row for row in pod["status"].get("conditions") or []}
        mains = [life for life in sandbox.lives if life.kind == "main"]
        waiting = [i.name for i in sandbox.lives if i.kind == "init" and not (i.state == ENDED and i.exit_code == 0)]
        waiting += [i.name for i in sandbox.lives if i.kind == "sidecar" and not i.started_at]
        unready = [life.name for life in mains if not life.ready]
        done = pod["status"]["phase"] == "Succeeded" and not stopping
        text = f"containers with unready status: [{' '.join(unready)}]" if unready else ""
        reason = "PodCompleted" if done else "ContainersNotReady"
        fine = not unready and not waiting
        rows = [
            ("PodReadyToStartContainers", started, "", ""),
            (
                "Initialized",
                not waiting,
                "ContainersNotInitialized",
                f"containers with incomplete status: [{' '.join(waiting)}]",
            ),
            ("Ready", fine, reason, "" if done else text),
            ("ContainersReady", fine, reason, "" if done else text),
        ]
        out = []
        for kind, holds_true, why, message in rows:
            value = "True" if holds_true else "False"
            row: Obj = {"type": kind, "status": value, "lastProbeTime": None, "lastTransitionTime": ""}
            if not holds_true and why:
                row["reason"] = why
                if message:
                    row["message"] = message
            known = before.get(kind)
            same = known is not None and known["status"] == value
            row["lastTransitionTime"] = known["lastTransitionTime"] if known and same else self.registry.now()
            out.append(row)
        if "PodScheduled" in before:
            out.append(before["PodScheduled"])
        return out
