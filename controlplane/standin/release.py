"""One HelmRelease with what follows from it: names, chart, values, what was ordered. Pure."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

from controlplane.api import Obj

GROUP = "/apis/helm.toolkit.fluxcd.io/v2"
FINALIZER = "finalizers.fluxcd.io"
FAIL = "standin.aifactory.dev/fail"
ARTIFACT, INSTALL, STUCK_DELETE = "artifact", "install", "stuck-delete"
_PART = re.compile(r"(\d+(?:\.\d+)?)(ms|s|m|h)")
_SECONDS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0}


def seconds(text: str) -> float:
    """Go's form of a duration (`10m`, `1h30m`) in seconds; 0 for anything else."""
    return sum(float(number) * _SECONDS[unit] for number, unit in _PART.findall(text or ""))


@dataclass(frozen=True)
class Release:
    """Reads an object; never changes it."""

    obj: Obj

    @property
    def spec(self) -> Obj:
        """Its spec."""
        return dict(self.obj.get("spec") or {})

    @property
    def status(self) -> Obj:
        """Its status; empty where there is none yet."""
        return dict(self.obj.get("status") or {})

    @property
    def metadata(self) -> Obj:
        """Its metadata."""
        return dict(self.obj["metadata"])

    @property
    def own_namespace(self) -> str:
        """Where the HelmRelease itself lies."""
        return str(self.metadata["namespace"])

    @property
    def path(self) -> str:
        """Its address on the API server."""
        return f"{GROUP}/namespaces/{self.own_namespace}/helmreleases/{self.metadata['name']}"

    @property
    def generation(self) -> int:
        """Of its spec."""
        return int(self.metadata.get("generation", 1))

    @property
    def deleting(self) -> bool:
        """Whether it is to be uninstalled."""
        return bool(self.metadata.get("deletionTimestamp"))

    @property
    def settled(self) -> bool:
        """Whether its newest wish is deployed."""
        status = self.status
        ready = any(row["type"] == "Ready" and row["status"] == "True" for row in status.get("conditions") or [])
        return ready and status.get("observedGeneration") == self.generation

    @property
    def namespace(self) -> str:
        """Where the chart's objects go."""
        return str(self.spec.get("targetNamespace") or self.own_namespace)

    @property
    def name(self) -> str:
        """Of the Helm release."""
        given = self.spec.get("releaseName")
        target = self.spec.get("targetNamespace")
        return str(given or (f"{target}-{self.metadata['name']}" if target else self.metadata["name"]))[:53]

    @property
    def chart(self) -> str:
        """The chart's name; empty where a chartRef names a source instead."""
        return str(((self.spec.get("chart") or {}).get("spec") or {}).get("chart") or "")

    @property
    def version(self) -> str:
        """The chart's version; empty where a chartRef names a source instead."""
        return str(((self.spec.get("chart") or {}).get("spec") or {}).get("version") or "")

    @property
    def values(self) -> dict[str, Any]:
        """As given."""
        return dict(self.spec.get("values") or {})

    @property
    def account(self) -> str:
        """The user whom Flux acts as; empty: itself."""
        name = self.spec.get("serviceAccountName")
        return f"system:serviceaccount:{self.own_namespace}:{name}" if name else ""

    def ordered(self, what: str) -> bool:
        """Whether the annotation orders this fault."""
        text = (self.metadata.get("annotations") or {}).get(FAIL, "")
        return what in [word.strip() for word in text.split(",")]

    def annotation(self, name: str) -> str:
        """One of Flux's own annotations, `reconcile.fluxcd.io/NAME`."""
        return str((self.metadata.get("annotations") or {}).get(f"reconcile.fluxcd.io/{name}", ""))

    def retries(self, action: str) -> int:
        """How often a failed install or upgrade is tried again."""
        return int(((self.spec.get(action) or {}).get("remediation") or {}).get("retries") or 0)

    @property
    def timeout(self) -> float:
        """Seconds for which the objects are waited for."""
        return seconds(str(self.spec.get("timeout") or "")) or 300.0
