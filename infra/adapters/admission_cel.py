"""What the rules of :mod:`infra.adapters.admission` are made of, in CEL as Kubernetes' admission speaks it.

Each rule is a list of offenders: names of what breaks it, empty for an object that may pass. So one expression decides
and also says where. Expressions keep to the libraries of Kubernetes 1.30 (strings, optional values).
"""

from __future__ import annotations

from dataclasses import dataclass

PREFIX = "aifactory.dev/"


@dataclass(frozen=True, slots=True)
class Rule:
    """``offenders``: a CEL list of strings. ``what`` breaks the rule, and the ``remedy``, are sentences for people."""

    id: str
    offenders: str
    what: str
    remedy: str

    @property
    def variable(self) -> str:
        """The rule's name as CEL takes it."""
        return self.id.replace("-", "_")


@dataclass(frozen=True, slots=True)
class Policy:
    """Rules on the same kinds of objects: (API group, resources), all of version v1.

    ``condition``: what is looked at at all. An object that is being deleted is let go whatever it is.
    """

    name: str
    resources: tuple[tuple[str, list[str]], ...]
    condition: str
    variables: tuple[tuple[str, str], ...]
    rules: tuple[Rule, ...]


ANNOTATIONS = "object.metadata.?annotations.orValue({})"
OLD_ANNOTATIONS = "oldObject.metadata.?annotations.orValue({})"
LABELS = "object.metadata.?labels.orValue({})"
NAMESPACE = "namespaceObject.metadata.?annotations.orValue({})"
NEW = "request.operation == 'CREATE'"
# What says which card a pod gets, or claims to be HAMi's own record of it.
PINS = "k in ['nvidia.com/use-gpuuuid', 'nvidia.com/nouse-gpuuuid', 'nvidia.com/vgpu-mode'] || k.startsWith('hami.io/')"
TRUSTED = (
    "request.userInfo.username in variables.trusted_users || "
    "variables.trusted_prefixes.exists(p, request.userInfo.username.startsWith(p))"
)
