"""The pod template of an engine's member: devices as the placement grants them, the pod pinned to where they are.

Resource names and annotations are those of NVIDIA's device plugin (``nvidia.com/gpu``, ``nvidia.com/mig-…``) and
of HAMi (``gpumem`` in MiB and ``gpucores`` in percent for each card, ``nvidia.com/use-gpuuuid``); the pod keeps to
Kubernetes' Pod Security Standard "baseline".
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from infra.adapters.kueue import LABEL_QUEUE
from infra.placement.model import ClaimKind, DeviceGrant, Sharing
from infra.pod_devices import GPU, GPU_CORES, GPU_MEMORY, HAMI_SCHEDULER, mig_resource
from tenants.manifest.asking import container_requests
from tenants.manifest.dumping import env_data
from tenants.manifest.tree import Container, EnvVar, Member
from tenants.render.claims import POD_CLAIM
from tenants.render.facts import LABEL_ENGINE, LABEL_GROUP, LABEL_ROLE, PORT, ReplicaFacts

Object = dict[str, Any]

HAMI_CARDS = "nvidia.com/use-gpuuuid"
SHM = "dshm"
# Weights of a large model take minutes to load, and an engine under load answers late: with the default of one
# second probes were seen to flap.
READINESS = {"initialDelaySeconds": 10, "periodSeconds": 10, "timeoutSeconds": 5, "failureThreshold": 3}
GRACE_SECONDS = 60


def pod_template(
    facts: ReplicaFacts,
    engine: str,
    member: Member,
    *,
    sharing: Sharing,
    nodes: Sequence[str],
    grants: Sequence[DeviceGrant],
    cards: Sequence[str],
    group: int,
    pool: str = "",
    claim: str = "",
    env: Sequence[EnvVar] = (),
    serves: bool = True,
) -> Object:
    """A pod template.

    Args:
        nodes: where its devices are reserved; the pods may run on no other.
        grants: what one pod holds (equal for all pods of the template but for the cards' UUIDs).
        cards: HAMi: the UUIDs that are reserved for the template's pods.
        pool: where the nodes are: by it Kueue's flavor is known.
        claim: the ResourceClaimTemplate of its claimed devices, if there are any.
        env: variables put before the manifest's own, which may refer to them.
        serves: whether the engine's container answers requests (a gang's workers don't).
    """
    labels = dict(facts.manifest.replica_labels) | dict(member.template.labels)
    labels |= facts.labels | {LABEL_ENGINE: engine, LABEL_ROLE: member.role.value, LABEL_GROUP: str(group)}
    if facts.queue:
        labels[LABEL_QUEUE] = facts.queue
    annotations = dict(member.template.annotations)
    hami = sharing is Sharing.HAMI and bool(cards)
    if hami:
        annotations[HAMI_CARDS] = ",".join(sorted(cards))
    devices = device_resources(grants, plain_slices=bool(facts.plain_slices.intersection(nodes)))
    metadata: Object = {"labels": labels}
    if annotations:
        metadata["annotations"] = annotations
    spec: Object = {
        "automountServiceAccountToken": False,
        "enableServiceLinks": False,
        "terminationGracePeriodSeconds": GRACE_SECONDS,
        "securityContext": {"seccompProfile": {"type": "RuntimeDefault"}},
        "affinity": _affinity(nodes),
        "tolerations": [{"key": GPU, "operator": "Exists", "effect": "NoSchedule"}],
        "containers": [
            _container(container, member, devices, env=env, serves=serves) for container in member.template.containers
        ],
        "volumes": [{"name": SHM, "emptyDir": {"medium": "Memory"}}],
    }
    if facts.queue and (flavor := facts.queue_selectors.get(pool)):
        spec["nodeSelector"] = dict(flavor)
    if hami:
        spec["schedulerName"] = HAMI_SCHEDULER
    if member.template.image_pull_secrets:
        spec["imagePullSecrets"] = [{"name": name} for name in member.template.image_pull_secrets]
    if claim:
        spec["resourceClaims"] = [{"name": POD_CLAIM, "resourceClaimTemplateName": claim}]
        for container in spec["containers"]:
            if container["name"] == "engine":
                container["resources"]["claims"] = [{"name": POD_CLAIM}]
    return {"metadata": metadata, "spec": spec}


def device_resources(grants: Sequence[DeviceGrant], *, plain_slices: bool = False) -> dict[str, str]:
    """Extended resources of one pod, as quantities. ``plain_slices``: MIG slices are called ``nvidia.com/gpu``."""
    out: dict[str, int] = {}
    for grant in grants:
        if grant.claim is not ClaimKind.PLUGIN or not grant.gpu_type:
            continue
        if grant.profile and not plain_slices:
            name = mig_resource(grant.profile)
            out[name] = out.get(name, 0) + grant.count
            continue
        out[GPU] = out.get(GPU, 0) + grant.count
        if grant.memory_mib:
            # HAMi takes both figures for each card of the container; cores that are not set may be uncapped.
            out[GPU_MEMORY] = max(out.get(GPU_MEMORY, 0), grant.memory_mib)
            out[GPU_CORES] = max(out.get(GPU_CORES, 0), grant.cores)
    return {name: str(amount) for name, amount in sorted(out.items())}


def _container(
    container: Container, member: Member, devices: dict[str, str], *, env: Sequence[EnvVar], serves: bool
) -> Object:
    engine = container.name == "engine"
    cpu, memory = container_requests(container, member.devices)
    devices = devices if engine else {}
    requests = dict(container.requests) | {"cpu": _cpu(cpu), "memory": _memory(memory)} | devices
    limits = dict(container.limits) | devices
    out: Object = {"name": container.name, "image": container.image}
    if container.command:
        out["command"] = list(container.command)
    if container.args:
        out["args"] = list(container.args)
    variables = [env_data(variable) for variable in (*env, *container.env)]
    if variables:
        out["env"] = variables
    out["resources"] = {"requests": requests} | ({"limits": limits} if limits else {})
    out["securityContext"] = {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}}
    if engine:
        out["volumeMounts"] = [{"name": SHM, "mountPath": "/dev/shm"}]  # noqa: S108  # what NCCL and vLLM expect
        if serves:
            out["ports"] = [{"name": "http", "containerPort": PORT, "protocol": "TCP"}]
            out["readinessProbe"] = {"httpGet": {"path": "/health", "port": PORT}} | READINESS
    return out


def _affinity(nodes: Sequence[str]) -> Object:
    # metadata.name is the only field that may be matched, one name a term; terms are alternatives.
    terms = [
        {"matchFields": [{"key": "metadata.name", "operator": "In", "values": [node]}]} for node in sorted(set(nodes))
    ]
    return {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}}


def _cpu(millis: int) -> str:
    return str(millis // 1000) if millis % 1000 == 0 else f"{millis}m"


def _memory(size: int) -> str:
    for suffix, unit in (("Gi", 1024**3), ("Mi", 1024**2)):
        if size % unit == 0:
            return f"{size // unit}{suffix}"
    return str(size)
