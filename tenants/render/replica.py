"""The objects of one replica: for each engine its workloads and a Service.

A Standalone engine becomes a Deployment for each distinct pin (the node, with HAMi also the cards): pods of
one Deployment are alike to a scheduler, so only pods with the same pin may share one, or more of them could land
on a node than were reserved there. A gang becomes a LeaderWorkerSet (``leaderworkerset.x-k8s.io/v1``).
"""

from __future__ import annotations

from typing import Any

from infra.names import LABEL_REPLICA
from infra.placement.model import EnginePlacement, PodPlacement
from infra.placement.model import Role as PlacedRole
from tenants.manifest.tree import Engine, EnvVar, Role
from tenants.render.claims import claim_template
from tenants.render.facts import LABEL_ENGINE, LABEL_GROUP, LABEL_ROLE, PORT, ReplicaFacts, service_name
from tenants.render.pods import Object, pod_template

GANG_ENV = (
    EnvVar("MODELPLANE_LEADER_ADDRESS", "$(LWS_LEADER_ADDRESS)"),
    EnvVar("MODELPLANE_RANK", "$(LWS_WORKER_INDEX)"),
)
# Hours: a large image and its weights may take that long on a fresh node, and that is no failure.
PROGRESS_DEADLINE_SECONDS = 6 * 3600


def render_replica(facts: ReplicaFacts) -> list[Object]:
    """Every object that the replica consists of, in the order in which they are applied.

    Raises:
        ValueError: manifest and placement don't belong together (an engine without a place).
    """
    places = {place.engine: place for place in facts.placement.engines}
    objects: list[Object] = []
    for engine in facts.manifest.engines:
        if engine.name not in places:
            raise ValueError(f"engine {engine.name} of replica {facts.index} has no placement")
        objects.append(_service(facts, engine))
        place = places[engine.name]
        objects += _gang(facts, engine, place) if len(engine.members) > 1 else _standalone(facts, engine, place)
    return objects


def _meta(facts: ReplicaFacts, name: str, engine: str) -> Object:
    labels = dict(facts.manifest.replica_labels) | facts.labels | {LABEL_ENGINE: engine}
    return {"name": name, "namespace": facts.namespace, "labels": labels}


def _service(facts: ReplicaFacts, engine: Engine) -> Object:
    selector = {LABEL_REPLICA: str(facts.replica_id), LABEL_ENGINE: engine.name}
    if len(engine.members) > 1:
        selector[LABEL_ROLE] = Role.LEADER.value
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": _meta(facts, service_name(facts, engine.name), engine.name),
        "spec": {
            "type": "ClusterIP",
            "selector": selector,
            "ports": [{"name": "http", "port": PORT, "protocol": "TCP", "targetPort": PORT}],
        },
    }


def _pin(pod: PodPlacement) -> tuple[str, tuple[str, ...]]:
    return pod.node, tuple(sorted(card for grant in pod.grants for card in grant.cards))


def _standalone(facts: ReplicaFacts, engine: Engine, place: EnginePlacement) -> list[Object]:
    groups: dict[tuple[str, tuple[str, ...]], list[PodPlacement]] = {}
    for pod in place.pods:
        groups.setdefault(_pin(pod), []).append(pod)
    claim = claim_template(facts, engine.name, engine.members[0], place.pods[0].grants)
    objects: list[Object] = [claim] if claim else []
    for number, ((node, cards), pods) in enumerate(sorted(groups.items())):
        selector = {LABEL_REPLICA: str(facts.replica_id), LABEL_ENGINE: engine.name, LABEL_GROUP: str(number)}
        template = pod_template(
            facts,
            engine.name,
            engine.members[0],
            sharing=place.sharing,
            pool=place.pool,
            nodes=[node],
            grants=pods[0].grants,
            cards=cards,
            group=number,
            claim=claim["metadata"]["name"] if claim else "",
        )
        spec: dict[str, Any] = {
            "replicas": len(pods),
            "revisionHistoryLimit": 2,
            "progressDeadlineSeconds": PROGRESS_DEADLINE_SECONDS,
            # The cards are all reserved: a surge pod would wait for ever for one more.
            "strategy": {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 0, "maxUnavailable": 1}},
            "selector": {"matchLabels": selector},
            "template": template,
        }
        metadata = _meta(facts, facts.workload(engine.name, number), engine.name)
        objects.append({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": metadata, "spec": spec})
    return objects


def _gang(facts: ReplicaFacts, engine: Engine, place: EnginePlacement) -> list[Object]:
    templates: dict[Role, Object] = {}
    claims: list[Object] = []
    for member in engine.members:
        pods = [pod for pod in place.pods if pod.role is PlacedRole(member.role.value)]
        claim = claim_template(facts, engine.name, member, pods[0].grants)
        claims += [claim] if claim else []
        templates[member.role] = pod_template(
            facts,
            engine.name,
            member,
            sharing=place.sharing,
            pool=place.pool,
            nodes=[pod.node for pod in pods],
            grants=pods[0].grants,
            cards=sorted({card for pod in pods for grant in pod.grants for card in grant.cards}),
            group=0,
            claim=claim["metadata"]["name"] if claim else "",
            env=GANG_ENV,
            serves=member.role is Role.LEADER,
        )
    worker = next(member for member in engine.members if member.role is Role.WORKER)
    spec = {
        "replicas": engine.copies,
        "startupPolicy": "LeaderCreated",
        "rolloutStrategy": {
            "type": "RollingUpdate",
            "rollingUpdateConfiguration": {"maxSurge": 0, "maxUnavailable": 1},
        },
        "leaderWorkerTemplate": {
            "size": 1 + worker.nodes,
            "restartPolicy": "RecreateGroupOnPodRestart",
            "leaderTemplate": templates[Role.LEADER],
            "workerTemplate": templates[Role.WORKER],
        },
    }
    metadata = _meta(facts, facts.workload(engine.name), engine.name)
    gang = {"apiVersion": "leaderworkerset.x-k8s.io/v1", "kind": "LeaderWorkerSet", "metadata": metadata, "spec": spec}
    return [*claims, gang]
