"""The members of an engine: roles, devices with their shares, pod templates."""

from __future__ import annotations

import re
from collections.abc import Callable
from fractions import Fraction
from typing import Any

from infra.quantity import INT64_MAX, parse_quantity
from infra.shares import PARTS
from tenants.manifest.reading import DNS_LABEL, Errors, Reader, kind_of
from tenants.manifest.tree import Container, DeviceAsk, EnvVar, KeyRef, Member, Pairs, Role, Share, Template

_MIG_PROFILE = re.compile(r"[1-9]g\.[1-9][0-9]{0,3}gb([.+]me)?\Z")
_PERCENT = re.compile(r"(100|[1-9][0-9]?)%\Z")
_ENV_NAME = re.compile(r"[-._a-zA-Z][-._a-zA-Z0-9]*\Z")
_IMAGE = re.compile(r"[a-zA-Z0-9][a-zA-Z0-9._:/-]*(@sha256:[0-9a-f]{64})?\Z")
_RESERVED = ("modelplane.ai/", "aifactory.dev/")
_PLAIN_RESOURCES = ("cpu", "memory", "ephemeral-storage")
# Set by the platform or by HAMi; a workload that sets them itself reaches cards it was not given.
ISOLATION_VARIABLES = frozenset(
    {"NVIDIA_VISIBLE_DEVICES", "CUDA_DISABLE_CONTROL", "LD_PRELOAD", "CUDA_DEVICE_MEMORY_SHARED_CACHE"}
)
FOREIGN_ANNOTATIONS = ("hami.io/", "nvidia.com/", "aifactory.dev/", "modelplane.ai/", "seccomp.", "container.")

SelectorCheck = Callable[[str], tuple[int, int, str] | None]


def read_members(engine: Reader, check: SelectorCheck | None) -> tuple[Member, ...]:
    """The members of an engine; one Standalone where none are listed.

    ``nodeSelector`` and ``template`` of the engine hold for every member that has none of its own.
    """
    errors = engine.errors
    shared_devices = _devices(engine, check) if engine.has("nodeSelector") else None
    shared_template = _template(engine) if engine.has("template") else None
    listed = list(engine.items("members", high=2)) or [(engine.pointer, {})]
    members: list[Member] = []
    for pointer, item in listed:
        reader = Reader(item, pointer, errors, what="a member")
        role = Role(reader.choice("role", tuple(Role), default=Role.STANDALONE))
        nodes = 1
        if reader.has("worker"):
            worker = reader.child("worker")
            nodes = worker.integer("nodes", default=1, low=1, high=63)
            worker.done()
            if role is not Role.WORKER:
                errors.add(reader.at("worker"), f"worker is for role Worker only; this member is {role}.")
        devices = _devices(reader, check) if reader.has("nodeSelector") else shared_devices
        template = _template(reader) if reader.has("template") else shared_template
        if template is None:
            errors.add(pointer, "template is missing; add it with one container called engine.")
            template = Template((Container("engine", ""),))
        reader.done()
        members.append(Member(role, template, devices or (), nodes))
    roles = sorted(member.role for member in members)
    if roles not in ([Role.STANDALONE], [Role.LEADER, Role.WORKER]):
        errors.add(
            engine.at("members"),
            f"members are {', '.join(roles)}; an engine has one Standalone, or one Leader and one Worker.",
        )
    return tuple(sorted(members, key=lambda member: member.role is Role.WORKER))


def _devices(owner: Reader, check: SelectorCheck | None) -> tuple[DeviceAsk, ...]:
    selector = owner.child("nodeSelector")
    asks: list[DeviceAsk] = []
    for pointer, item in selector.items("devices", low=1, high=16):
        reader = Reader(item, pointer, owner.errors, what="a device request")
        name = reader.text("name", required=True, longest=63, pattern=DNS_LABEL, example="gpu")
        if any(ask.name == name for ask in asks):
            owner.errors.add(reader.at("name"), f"two device requests are called {name!r}; name them apart.")
        count = reader.integer("count", default=1, low=1, high=64)
        selectors = _selectors(reader, check)
        share = _share(reader.child("share")) if reader.has("share") else None
        reader.done()
        asks.append(DeviceAsk(name, count, selectors, share))
    selector.done()
    parts = {ask.share for ask in asks if ask.share and (ask.share.memory or ask.share.profile in PARTS)}
    if len(parts) > 1:
        owner.errors.add(
            selector.at("devices"),
            "two requests ask for parts of cards of different sizes; HAMi gives the cards of a pod equal parts. "
            "Ask for one size, with count.",
        )
    return tuple(asks)


def _selectors(device: Reader, check: SelectorCheck | None) -> tuple[str, ...]:
    out: list[str] = []
    for pointer, item in device.items("selectors", low=1, high=8):
        reader = Reader(item, pointer, device.errors, what="a selector")
        expression = reader.text(
            "cel", required=True, longest=10_240, example='device.driver == "gpu.nvidia.com"'
        ).strip()
        reader.done()
        if not expression:
            continue
        fault = check(expression) if check is not None else None
        if fault is not None:
            line, column, sentence = fault
            device.errors.add(reader.at("cel"), sentence, offset=(line, column))
        out.append(expression)
    return tuple(out)


def _share(reader: Reader) -> Share | None:
    profile = reader.text("profile", longest=32)
    memory = reader.text("memory", longest=32)
    cores = reader.integer("cores", default=0, low=1, high=100) if reader.has("cores") else None
    reader.done()
    errors = reader.errors
    if bool(profile) == bool(memory):
        errors.add(
            reader.pointer,
            "a share is either memory (20Gi or 25%) with cores in percent, or a profile (1g.10gb or quarter); "
            f"{'both are' if profile else 'neither is'} given.",
        )
        return None
    if profile:
        if cores is not None:
            errors.add(reader.at("cores"), "a profile fixes the cores; leave cores out.")
        if profile not in PARTS and not _MIG_PROFILE.match(profile):
            errors.add(
                reader.at("profile"),
                f"profile {profile!r} is not known; write a MIG profile such as 1g.10gb, or one of {', '.join(PARTS)}.",
            )
            return None
        return Share(profile=profile)
    if _PERCENT.match(memory) is None:
        amount = _quantity(reader, "memory", memory)
        if amount is not None and amount < 2**20:
            errors.add(reader.at("memory"), f"share.memory {memory} is less than 1 MiB; write it like 20Gi or 25%.")
    return Share(memory=memory, cores=cores)


def _template(owner: Reader) -> Template:
    template = owner.child("template")
    metadata = template.child("metadata")
    labels = metadata.labels("labels", reserved=_RESERVED)
    annotations = _annotations(metadata)
    metadata.done()
    spec = template.child("spec")
    containers: list[Container] = []
    for pointer, item in spec.items("containers", low=1, high=4):
        container = _container(Reader(item, pointer, owner.errors, what="a container"))
        if any(other.name == container.name for other in containers):
            owner.errors.add(pointer, f"two containers are called {container.name!r}; name them apart.")
        containers.append(container)
    if containers and all(container.name != "engine" for container in containers):
        owner.errors.add(spec.at("containers"), "no container is called engine; the one that serves the model must be.")
    secrets: list[str] = []
    for pointer, item in spec.items("imagePullSecrets", high=8):
        reader = Reader(item, pointer, owner.errors, what="an image pull secret")
        secrets.append(reader.text("name", required=True, example="registry-login"))
        reader.done()
    spec.done()
    template.done()
    return Template(tuple(containers), labels, annotations, tuple(secrets))


def _annotations(metadata: Reader) -> Pairs:
    reader = metadata.child("annotations")
    pairs: list[tuple[str, str]] = []
    names = reader.names()
    if len(names) > 32:
        metadata.errors.add(reader.pointer, f"annotations has {len(names)} entries; at most 32 are allowed.")
    for name in names[:32]:
        if name.startswith(FOREIGN_ANNOTATIONS):
            reader.raw(name)
            metadata.errors.add(reader.at(name), f"{name!r} is set by the platform; leave it out.")
            continue
        pairs.append((name, reader.text(name, longest=8192)))
    return tuple(sorted(pairs))


def _container(reader: Reader) -> Container:
    errors = reader.errors
    name = reader.text("name", required=True, longest=63, pattern=DNS_LABEL, example="engine")
    image = reader.text("image", required=True, longest=1024, pattern=_IMAGE, example="vllm/vllm-openai:v0.23.0")
    command = reader.texts("command", high=64, longest=65_536)
    args = reader.texts("args", high=256, longest=65_536)
    env = tuple(
        _env(Reader(item, pointer, errors, what="a variable")) for pointer, item in reader.items("env", high=128)
    )
    names = [variable.name for variable in env]
    for variable in sorted({one for one in names if names.count(one) > 1}):
        errors.add(reader.at("env"), f"the variable {variable} is set twice; keep one.")
    resources = reader.child("resources")
    requests = _resources(resources, "requests")
    limits = _resources(resources, "limits")
    resources.done()
    for resource, amount in requests:
        limit = dict(limits).get(resource)
        if limit is not None and parse_quantity(amount) > parse_quantity(limit):
            errors.add(resources.pointer, f"{resource}: the request {amount} is above the limit {limit}.")
    reader.done()
    return Container(name, image, command, args, env, requests, limits)


def _env(reader: Reader) -> EnvVar:
    name = reader.text("name", required=True, pattern=_ENV_NAME, example="VLLM_LOGGING_LEVEL")
    if name in ISOLATION_VARIABLES:
        reader.errors.add(reader.at("name"), f"{name} is set by the platform; leave it out.")
    value = reader.text("value", longest=65_536) if reader.has("value") else None
    source = reader.child("valueFrom")
    secret = _key_ref(source, "secretKeyRef")
    config = _key_ref(source, "configMapKeyRef")
    path = None
    if source.has("fieldRef"):
        field = source.child("fieldRef")
        path = field.text("fieldPath", required=True, example="metadata.name")
        field.raw("apiVersion")
        field.done()
    source.done()
    reader.done()
    if sum(part is not None for part in (value, secret, config, path)) > 1:
        reader.errors.add(reader.pointer, f"{name} has more than one of value and valueFrom; keep one.")
    return EnvVar(name, value, secret, config, path)


def _key_ref(source: Reader, key: str) -> KeyRef | None:
    if not source.has(key):
        return None
    reader = source.child(key)
    reference = KeyRef(
        reader.text("name", required=True, example="hf-token"),
        reader.text("key", required=True, example="token"),
        reader.flag("optional"),
    )
    reader.done()
    return reference


def _resources(resources: Reader, key: str) -> Pairs:
    reader = resources.child(key)
    pairs: list[tuple[str, str]] = []
    for resource in reader.names():
        raw: Any = reader.raw(resource)
        if resource not in _PLAIN_RESOURCES:
            resources.errors.add(
                reader.at(resource),
                f"{resource} can't be asked for here; devices go into nodeSelector.devices, and only "
                f"{', '.join(_PLAIN_RESOURCES)} stand in resources.",
            )
            continue
        text = str(raw) if isinstance(raw, int) and not isinstance(raw, bool) else raw
        if not isinstance(text, str):
            resources.errors.add(reader.at(resource), f"{resource} must be a quantity, not {kind_of(raw)}.")
        elif _quantity(reader, resource, text) is not None:
            pairs.append((resource, text))
    return tuple(sorted(pairs))


def _quantity(reader: Reader, key: str, text: str) -> Fraction | None:
    """The amount, or None after a fault was noted."""
    errors: Errors = reader.errors
    try:
        amount = parse_quantity(text)
    except ValueError:
        errors.add(reader.at(key), f"{key} {text!r} is not a quantity; write it like 20Gi, 500m or 2.")
        return None
    if amount <= 0:
        errors.add(reader.at(key), f"{key} {text} is not above zero; ask for something, or leave it out.")
        return None
    if amount > INT64_MAX:  # what Kubernetes counts with; beyond it figures are not even printed
        errors.add(reader.at(key), f"{key} {text[:40]} is more than can be counted; ask for less.")
        return None
    return amount
