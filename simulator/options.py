"""How a verb is to be carried out."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass
class Options:
    """How a verb is to be carried out. `manager` owns what it changes."""

    manager: str = "kube-controller-manager"
    subresource: str = ""
    dry_run: bool = False
    force: bool = False
    strict: bool = False
    propagation: str = ""
    grace: int | None = None
    uid: str = ""
    version: str = ""
    warnings: list[str] = field(default_factory=list)
