"""A ModelDeployment manifest as plain immutable data: what :mod:`tenants.manifest.parsing` makes of a text.

Both shapes of the manifest (flat, and Modelplane's own with ``spec.template.spec``) become this one tree.
Mappings are stored as sorted pairs, so that equal manifests are equal and hash alike.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum

Pairs = tuple[tuple[str, str], ...]


class Role(StrEnum):
    """A member's part in its engine."""

    STANDALONE = "Standalone"
    LEADER = "Leader"
    WORKER = "Worker"


class Phase(StrEnum):
    """Which half of inference an engine serves, with ``serving.mode: PrefillDecode`` only."""

    PREFILL = "Prefill"
    DECODE = "Decode"


class ServingMode(StrEnum):
    """How the engines of a replica work together."""

    UNIFIED = "Unified"
    PREFILL_DECODE = "PrefillDecode"


@dataclass(frozen=True, slots=True)
class KeyRef:
    """A key of a Secret or ConfigMap of the tenant's namespace."""

    name: str
    key: str
    optional: bool = False


@dataclass(frozen=True, slots=True)
class EnvVar:
    """One environment variable: a value, or a reference (at most one of the four)."""

    name: str
    value: str | None = None
    secret_key: KeyRef | None = None
    config_map_key: KeyRef | None = None
    field_path: str | None = None


@dataclass(frozen=True, slots=True)
class Container:
    """A container. ``requests`` and ``limits`` hold cpu, memory and ephemeral-storage as Kubernetes quantities."""

    name: str
    image: str
    command: tuple[str, ...] = ()
    args: tuple[str, ...] = ()
    env: tuple[EnvVar, ...] = ()
    requests: Pairs = ()
    limits: Pairs = ()


@dataclass(frozen=True, slots=True)
class Template:
    """What the pods of a member look like. Exactly one container is called ``engine``; it gets the devices."""

    containers: tuple[Container, ...]
    labels: Pairs = ()
    annotations: Pairs = ()
    image_pull_secrets: tuple[str, ...] = ()

    @property
    def engine(self) -> Container:
        """The container that serves the model."""
        return next(container for container in self.containers if container.name == "engine")


@dataclass(frozen=True, slots=True)
class Share:
    """A part of a card: ``memory`` (a quantity, or a percentage such as ``25%``) with ``cores`` in percent, or
    ``profile`` (a MIG profile such as ``1g.10gb``, or a named part such as ``quarter``)."""

    memory: str = ""
    cores: int | None = None
    profile: str = ""


@dataclass(frozen=True, slots=True)
class DeviceAsk:
    """``count`` devices of one kind for each pod; every selector (CEL) must hold. No share: whole cards."""

    name: str
    count: int = 1
    selectors: tuple[str, ...] = ()
    share: Share | None = None


@dataclass(frozen=True, slots=True)
class Member:
    """The pods of one role. ``nodes`` is the number of workers (1 for the other roles)."""

    role: Role
    template: Template
    devices: tuple[DeviceAsk, ...] = ()
    nodes: int = 1


@dataclass(frozen=True, slots=True)
class Engine:
    """An inference engine: one Standalone member, or a Leader with a Worker; ``copies`` of the whole."""

    name: str
    members: tuple[Member, ...]
    copies: int = 1
    phase: Phase | None = None


@dataclass(frozen=True, slots=True)
class Toleration:
    """Of a cluster's taint, with Kubernetes' meaning."""

    key: str = ""
    operator: str = "Equal"
    value: str = ""
    effect: str = ""


@dataclass(frozen=True, slots=True)
class Manifest:
    """A whole ModelDeployment. ``namespace`` names the tenant by its slug; "" where the manifest leaves it out.

    ``replica_labels`` go onto what each replica becomes (pods, endpoints); ``labels`` onto the deployment.
    """

    name: str
    engines: tuple[Engine, ...]
    namespace: str = ""
    labels: Pairs = ()
    replica_labels: Pairs = ()
    replicas: int = 1
    cluster_selector: Pairs = ()
    tolerations: tuple[Toleration, ...] = ()
    serving_mode: ServingMode = ServingMode.UNIFIED
    model_cache: str = ""
    cost_code: str = ""


@dataclass(frozen=True, slots=True)
class FieldError:
    """One fault: where (JSON pointer; 1-based line and column where the text is known) and a sentence that says
    what is wrong and what to write instead."""

    pointer: str
    detail: str
    line: int | None = None
    column: int | None = None

    def __str__(self) -> str:
        place = f" (line {self.line}, column {self.column})" if self.line else ""
        return f"{self.pointer or '/'}{place}: {self.detail}"

    def as_json(self) -> dict[str, str]:
        """As a problem document carries it (line and column as texts, where they are known)."""
        out = {"pointer": self.pointer, "detail": self.detail}
        if self.line is not None:
            out |= {"line": str(self.line), "column": str(self.column)}
        return out


@dataclass
class ManifestInvalid(Exception):
    """The manifest can't be accepted; ``errors`` names every fault that was found, in the order of the text."""

    errors: list[FieldError] = field(default_factory=list)

    def __str__(self) -> str:
        return "; ".join(map(str, self.errors))
