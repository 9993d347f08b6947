"""Jobs: pods until so many have succeeded, or too many have failed."""

from __future__ import annotations

from collections.abc import Iterable

from simulator.controllers.base import Controller, Key
from simulator.controllers.workloads import active, create_pod, delete_pod, is_ready, pod_from, pods_of
from simulator.errors import ApiError
from simulator.kinds import JOB, POD, Obj
from simulator.objects import condition, controller_of, is_deleting, name_of, namespace_of, unix
from simulator.options import Options
from simulator.store import Change

COMPONENT = "job-controller"


class Jobs(Controller):
    """NonIndexed jobs with parallelism, completions, backoffLimit, suspend and ttlSecondsAfterFinished."""

    name = "jobs"

    def interest(self, change: Change) -> Iterable[Key]:
        obj = change.new.obj
        if change.kind == JOB:
            yield namespace_of(obj), name_of(obj)
        elif change.kind == POD:
            owner = controller_of(obj)
            if owner and owner["kind"] == "Job":
                yield namespace_of(obj), owner["name"]

    def start(self) -> Iterable[Key]:
        return [(namespace_of(job), name_of(job)) for job in self.store.objects(JOB)]

    def reconcile(self, key: Key) -> float | None:
        job = self.registry.find(JOB, *key)
        if job is None or is_deleting(job):
            return None
        if ended := condition(job, "Complete") or condition(job, "Failed"):
            return self._expire(job, ended)
        spec = job["spec"]
        pods = pods_of(self.cluster, job)
        good = [pod for pod in pods if pod["status"].get("phase") == "Succeeded"]
        bad = [pod for pod in pods if pod["status"].get("phase") == "Failed"]
        restarts = sum(
            row.get("restartCount", 0)
            for pod in pods
            if spec["template"]["spec"].get("restartPolicy") == "OnFailure"
            for row in pod["status"].get("containerStatuses") or []
        )
        running = active(pods)
        wanted = spec.get("completions")
        refusal: ApiError | None = None
        verdict: tuple[str, str, str] | None = None
        if len(bad) + restarts > spec["backoffLimit"]:
            verdict = ("Failed", "BackoffLimitExceeded", "Job has reached the specified backoff limit")
        elif (wanted is not None and len(good) >= wanted) or (wanted is None and good and not running):
            verdict = ("Complete", "CompletionsReached", "Reached expected number of succeeded pods")
        if verdict or spec.get("suspend"):
            for pod in running:
                delete_pod(self.cluster, job, pod, COMPONENT)
        else:
            refusal = self._more(job, running, len(good), wanted)
        self._report(job, good, bad, verdict)
        return 1.0 if refusal else None

    def _more(self, job: Obj, running: list[Obj], good: int, wanted: int | None) -> ApiError | None:
        room = job["spec"]["parallelism"]
        if wanted is not None:
            room = min(room, wanted - good)
        elif good:
            room = 0
        for _ in range(room - len(running)):
            pod = pod_from(job, job["spec"]["template"])
            pod["metadata"]["generateName"] = f"{name_of(job)}-"
            refusal = create_pod(self.cluster, job, pod, COMPONENT)
            if refusal:
                return refusal
        return None

    def _report(self, job: Obj, good: list[Obj], bad: list[Obj], verdict: tuple[str, str, str] | None) -> None:
        pods = active(pods_of(self.cluster, job))

        def change(obj: Obj) -> None:
            status, now = obj["status"], self.registry.now()
            if not obj["spec"].get("suspend"):
                status.setdefault("startTime", now)
            counts = {
                "active": len(pods),
                "ready": sum(1 for pod in pods if is_ready(pod)),
                "succeeded": len(good),
                "failed": len(bad),
                "terminating": 0,
            }
            for name, value in counts.items():
                status[name] = value
                if not value and name not in ("ready", "terminating"):
                    del status[name]
            if verdict is None:
                return
            kind, reason, message = verdict
            first = "SuccessCriteriaMet" if kind == "Complete" else "FailureTarget"
            rows = status.setdefault("conditions", [])
            for row in (first, kind):
                rows.append(
                    {
                        "type": row,
                        "status": "True",
                        "lastProbeTime": now,
                        "lastTransitionTime": now,
                        "reason": reason,
                        "message": message,
                    }
                )
            if kind == "Complete":
                status["completionTime"] = now

        self.registry.modify(JOB, namespace_of(job), name_of(job), change, self.options("status"))
        if verdict:
            kind, reason, message = verdict
            text = "Job completed" if kind == "Complete" else message
            word = "Completed" if kind == "Complete" else reason
            self.cluster.event(job, word, text, COMPONENT, warning=kind != "Complete")

    def _expire(self, job: Obj, ended: Obj) -> float | None:
        """ttlSecondsAfterFinished."""
        ttl = job["spec"].get("ttlSecondsAfterFinished")
        if ttl is None:
            return None
        left = unix(ended["lastTransitionTime"]) + float(ttl) * self.cluster.timing.job_ttl_scale - self.now
        if left > 0:
            return left
        self.registry.delete(JOB, namespace_of(job), name_of(job), Options(propagation="Foreground"))
        return None
