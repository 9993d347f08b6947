"""What credentials may do on a cluster, right by right, as plain data. Pure: no Django, no cluster."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from infra.kube.access import NOT_NEEDED, OPTIONAL, Review, rules_of, whys

Need = Literal["required", "optional", "not needed"]
_SOMEBODY = "--serviceaccount=aifactory:portal"


@dataclass(frozen=True, slots=True)
class Right:
    """One right. ``held``: the API server's answer. ``command``: what gives it, for a shell; empty where it is held or
    not wanted."""

    verb: str
    resource: str
    why: str
    need: Need
    held: bool
    command: str = ""

    def __str__(self) -> str:
        return f"{self.verb} {self.resource}"


@dataclass(frozen=True, slots=True)
class RightsReport:
    """All rights that were asked for in a mode. ``subject``: who the cluster says we are ("" = it did not say)."""

    mode: str
    rights: tuple[Right, ...]
    subject: str = ""

    @property
    def missing(self) -> tuple[Right, ...]:
        """Required and not held."""
        return tuple(right for right in self.rights if right.need == "required" and not right.held)

    @property
    def lacking(self) -> tuple[Right, ...]:
        """Optional and not held."""
        return tuple(right for right in self.rights if right.need == "optional" and not right.held)

    @property
    def excess(self) -> tuple[Right, ...]:
        """Held and not needed: the credentials could do more than the portal ever does in this mode."""
        return tuple(right for right in self.rights if right.need == "not needed" and right.held)

    @property
    def complete(self) -> bool:
        """Nothing that is required is missing."""
        return not self.missing

    @property
    def could_write(self) -> bool:
        """Some right that is held and not needed changes things."""
        return any(right.verb not in ("get", "list", "watch") for right in self.excess)

    def dump(self) -> dict[str, Any]:
        """As JSON, for storage and the API."""
        names = ("verb", "resource", "why", "need", "held", "command")
        return {
            "mode": self.mode,
            "subject": self.subject,
            "rights": [{name: getattr(right, name) for name in names} for right in self.rights],
        }

    @classmethod
    def load(cls, data: Mapping[str, Any]) -> RightsReport | None:
        """The inverse of :meth:`dump`; None for an empty one."""
        if not data:
            return None
        return cls(data["mode"], tuple(Right(**row) for row in data["rights"]), data.get("subject", ""))


def rights_report(
    mode: str, may: Callable[[Review], bool], subject: Callable[[], str], *, also: Mapping[Review, str] | None = None
) -> RightsReport:
    """Ask for each right.

    Args:
        may: asks the cluster for one.
        subject: asks it who we are; called once, and only where something is missing.
        also: further optional rights with what they are for (metrics through the API server's proxy).
    """
    wanted: list[tuple[Review, str, Need]] = [(review, why, "required") for review, why in whys(rules_of(mode)).items()]
    required = {review for review, _, _ in wanted}
    optional = {**whys(OPTIONAL), **(also or {})}
    wanted += [(review, why, "optional") for review, why in optional.items() if review not in required]
    if mode == "observe":
        wanted += [(review, why, "not needed") for review, why in whys(NOT_NEEDED).items()]
    held = {review: may(review) for review, _, _ in wanted}
    ask = any(not held[review] for review, _, need in wanted if need != "not needed")
    who = subject() if ask else ""
    return RightsReport(
        mode,
        tuple(
            Right(
                review.verb, str(review).removeprefix(f"{review.verb} "), why, need, held[review],
                "" if held[review] or need == "not needed" else kubectl(review, mode, who),
            )
            for review, why, need in wanted
        ),
        who,
    )  # fmt: skip


def kubectl(review: Review, mode: str, subject: str = "") -> str:
    """The line that gives this one right to the subject (a name as the API server tells it)."""
    name = "-".join(
        filter(None, ["aifactory", mode, review.verb, review.resource, review.subresource, review.namespace])
    )
    role, where = ("role", f" -n {review.namespace}") if review.namespace else ("clusterrole", "")
    which = f" --resource-name={shlex.quote(review.name)}" if review.name else ""
    return (
        f"kubectl create {role} {name}{where} --verb={review.verb} --resource={review.kubectl_resource}{which} && "
        f"kubectl create {role}binding {name}{where} --{role}={name} {_whom(subject)}"
    )


def bind_line(mode: str, subject: str = "") -> str:
    """The line that gives all rights of a mode, once its ClusterRole is there."""
    role = f"aifactory-{mode}"
    return (
        f"kubectl apply -f deploy/clusterroles/{mode}.yaml && "
        f"kubectl create clusterrolebinding {role} --clusterrole={role} {_whom(subject)}"
    )


def sentence(rights: Iterable[Right]) -> str:
    """``get pods, watch nodes``"""
    return ", ".join(str(right) for right in rights)


def _whom(subject: str) -> str:
    if not subject:
        return _SOMEBODY
    parts = subject.split(":")
    if subject.startswith("system:serviceaccount:") and len(parts) == 4:
        return f"--serviceaccount={parts[2]}:{parts[3]}"
    return f"--user={shlex.quote(subject)}"
