"""From data or text to a :class:`~tenants.manifest.tree.Manifest`, with every fault named at once.

Two shapes are read: Modelplane's (``spec.template.spec.engines[].members[]``, API ``modelplane.ai/v1alpha1``), and
a flat one (``spec.engines[]``) in which an engine may carry ``nodeSelector`` and ``template`` for all its members.
Limits are those of Modelplane's API, but for ``replicas``, which may be 0 (nothing runs) and up to 100.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from tenants.manifest.loading import Document, load_document
from tenants.manifest.members import read_members
from tenants.manifest.reading import DNS_LABEL, Errors, Reader
from tenants.manifest.tree import Engine, Manifest, ManifestInvalid, Phase, ServingMode, Toleration

API_VERSION = "modelplane.ai/v1alpha1"
KIND = "ModelDeployment"
COST_CODE_ANNOTATION = "aifactory.dev/cost-code"
RESERVED_PREFIXES = ("modelplane.ai/", "aifactory.dev/", "kubernetes.io/", "app.kubernetes.io/managed-by")
MAX_REPLICAS = 100
MAX_SELECTORS = 64

# What a typed compiler says of a selector: None, or (line, column, sentence); line and column from 1.
SelectorCheck = Callable[[str], tuple[int, int, str] | None]


def parse_manifest(source: str | Mapping[str, Any] | Document, *, check: SelectorCheck | None = None) -> Manifest:
    """Read a ModelDeployment from YAML or JSON text, from plain data, or from a loaded document.

    Args:
        check: types each CEL selector; None skips it (a stored spec was checked when it was saved).

    Raises:
        ManifestInvalid: with every fault, each with its JSON pointer and, where a text was given, its line.
    """
    if isinstance(source, str):
        source = load_document(source)
    document = source if isinstance(source, Document) else Document(source)
    errors = Errors(document.positions)
    manifest = _read(document.data, errors, _some(check) if check is not None else None)
    if errors.found:
        raise ManifestInvalid(errors.in_order())
    return manifest


def _some(check: SelectorCheck) -> SelectorCheck:
    """The check, for no more different selectors than a manifest may have: each takes its time."""
    seen: set[str] = set()

    def one(expression: str) -> tuple[int, int, str] | None:
        seen.add(expression)
        if len(seen) > MAX_SELECTORS:
            return 1, 1, f"it is one of more than {MAX_SELECTORS} different selectors, which is more than are read."
        return check(expression)

    return one


def _read(data: Any, errors: Errors, check: SelectorCheck | None) -> Manifest:
    top = Reader(data, "", errors, what="a manifest")
    _expect(top, "apiVersion", API_VERSION)
    _expect(top, "kind", KIND)
    metadata = top.child("metadata")
    name = metadata.text("name", required=True, longest=63, pattern=DNS_LABEL, example="qwen3-8b")
    namespace = metadata.text("namespace", longest=40, pattern=DNS_LABEL, example="ml-team")
    labels = metadata.labels("labels", reserved=RESERVED_PREFIXES)
    annotated_cost_code = _cost_code_annotation(metadata)
    for machine_made in ("uid", "resourceVersion", "generation", "creationTimestamp", "managedFields"):
        metadata.raw(machine_made)  # `kubectl get -o yaml` writes them; they say nothing about what is wanted
    metadata.done()
    top.raw("status")
    spec = top.child("spec")
    if not top.has("spec"):
        errors.add("", "spec is missing; it holds replicas and engines.")
    top.done()

    replicas = spec.integer("replicas", default=1, low=0, high=MAX_REPLICAS)
    cost_code = spec.text("costCode", longest=60)
    if cost_code and annotated_cost_code and cost_code != annotated_cost_code:
        errors.add(
            spec.at("costCode"),
            f"costCode is {cost_code!r}, the annotation {COST_CODE_ANNOTATION} says {annotated_cost_code!r}; "
            "give one of them.",
        )
    body, replica_labels = _body(spec)
    engines = _engines(body, errors, check)
    mode = _serving(body)
    _check_phases(body, engines, mode, errors)
    manifest = Manifest(
        name=name,
        namespace=namespace,
        labels=labels,
        replica_labels=replica_labels,
        replicas=replicas,
        cluster_selector=_cluster_selector(body),
        tolerations=_tolerations(body),
        engines=engines,
        serving_mode=mode,
        model_cache=_model_cache(body),
        cost_code=cost_code or annotated_cost_code,
    )
    body.done()
    if body is not spec:
        spec.done()
    return manifest


def _expect(top: Reader, key: str, wanted: str) -> None:
    value = top.raw(key)
    if value is None:
        top.errors.add("", f"{key} is missing; write {key}: {wanted}.")
    elif value != wanted:
        top.errors.add(top.at(key), f"{key} is {value!r}; only {wanted} is read here.")


def _cost_code_annotation(metadata: Reader) -> str:
    """Annotations of the deployment are not kept, but for the cost code."""
    annotations = metadata.child("annotations")
    for name in annotations.names():
        annotations.raw(name)
    return annotations.text(COST_CODE_ANNOTATION, longest=60)


def _body(spec: Reader) -> tuple[Reader, tuple[tuple[str, str], ...]]:
    """Where engines and what belongs to them stand: ``spec.template.spec``, or ``spec`` itself."""
    if not spec.has("template"):
        return spec, ()
    template = spec.child("template")
    metadata = template.child("metadata")
    replica_labels = metadata.labels("labels", reserved=RESERVED_PREFIXES)
    metadata.done()
    body = template.child("spec")
    template.done()
    if spec.raw("engines") is not None:
        spec.errors.add(
            spec.at("engines"),
            "engines are given here and a template as well; put the engines into spec.template.spec.engines, or "
            "leave spec.template out.",
        )
    return body, replica_labels


def _engines(body: Reader, errors: Errors, check: SelectorCheck | None) -> tuple[Engine, ...]:
    engines: list[Engine] = []
    seen: set[str] = set()
    for pointer, item in body.items("engines", low=1, high=8):
        reader = Reader(item, pointer, errors, what="an engine")
        name = reader.text("name", required=True, longest=63, pattern=DNS_LABEL, example="qwen-engine")
        if name and name in seen:
            errors.add(reader.at("name"), f"two engines are called {name!r}; give each a name of its own.")
        seen.add(name)
        copies = reader.integer("copies", default=1, low=1, high=64)
        phase = reader.choice("phase", tuple(Phase), default="")
        members = read_members(reader, check)
        reader.done()
        if not any(member.devices for member in members):
            errors.add(
                pointer,
                "no member asks for a device; add nodeSelector.devices to the engine or to at least one member.",
            )
        engines.append(Engine(name, members, copies, Phase(phase) if phase else None))
    return tuple(engines)


def _serving(body: Reader) -> ServingMode:
    serving = body.child("serving")
    mode = serving.choice("mode", tuple(ServingMode), default=ServingMode.UNIFIED)
    serving.done()
    return ServingMode(mode)


def _check_phases(body: Reader, engines: tuple[Engine, ...], mode: ServingMode, errors: Errors) -> None:
    phases = sorted(engine.phase for engine in engines if engine.phase)
    if mode is ServingMode.UNIFIED and phases:
        errors.add(
            body.at("engines"),
            "an engine has a phase, which needs serving.mode: PrefillDecode; add that, or leave the phase out.",
        )
    if mode is ServingMode.PREFILL_DECODE and (len(engines) != 2 or phases != [Phase.DECODE, Phase.PREFILL]):
        errors.add(
            body.at("engines"),
            "serving.mode PrefillDecode needs exactly two engines, one with phase: Prefill and one with phase: Decode.",
        )


def _cluster_selector(body: Reader) -> tuple[tuple[str, str], ...]:
    selector = body.child("clusterSelector")
    pairs = selector.labels("matchLabels")
    selector.done()
    return pairs


def _model_cache(body: Reader) -> str:
    reference = body.child("modelCacheRef")
    name = reference.text(
        "name", required=body.has("modelCacheRef"), longest=63, pattern=DNS_LABEL, example="qwen3-8b-cache"
    )
    reference.done()
    return name


def _tolerations(body: Reader) -> tuple[Toleration, ...]:
    out: list[Toleration] = []
    for pointer, item in body.items("tolerations", high=32):
        reader = Reader(item, pointer, body.errors, what="a toleration")
        operator = reader.choice("operator", ("Exists", "Equal"), default="Equal")
        key, value = reader.text("key"), reader.text("value", longest=63)
        effect = reader.choice("effect", ("NoSchedule", "NoExecute"), default="")
        reader.done()
        if operator == "Equal" and not key:
            body.errors.add(pointer, "a toleration with operator Equal needs a key; add it, or use Exists.")
        if operator == "Exists" and value:
            body.errors.add(pointer, "a toleration with operator Exists takes no value; leave the value out.")
        out.append(Toleration(key, operator, value, effect))
    return tuple(out)
