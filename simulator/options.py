"""How a verb is to be carried out."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass
class Options:
    """How a verb is to be carried out. `manager` owns what it changes, `user` asks for it: a controller if not said."""

    manager: str = "kube-controller-manager"
    subresource: str = ""
    dry_run: bool = False
    force: bool = False
    strict: bool = False
    propagation: str = ""
    grace: int | None = None
    uid: str = ""
    version: str = ""
    user: str = "system:serviceaccount:kube-system:controller"
    groups: tuple[str, ...] = ()
    warnings: list[str] = field(default_factory=list)
