"""What keeps tenants apart on a cluster, piece by piece: what is known of each, and what that comes to. Pure.

A piece is *proven* where the cluster itself said so (it refused a pod that was never to be), *declared* where no API
tells and a platform-admin answers for it, *accepted* where it is missing and a platform-admin lives with that.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Literal

State = Literal["yes", "no", "unknown"]


class Piece(StrEnum):
    """The pieces, in the order in which they are shown."""

    ADMISSION = "admission-policies"
    POD_SECURITY = "pod-security"
    QUOTA = "resource-quota"
    NETWORK = "network-policies"
    HAMI = "hami-webhook"


TITLES: Mapping[Piece, str] = {
    Piece.ADMISSION: "admission policies",
    Piece.POD_SECURITY: "Pod Security admission",
    Piece.QUOTA: "resource quota",
    Piece.NETWORK: "network policies",
    Piece.HAMI: "HAMi's webhook",
}
DECLARABLE = frozenset({Piece.NETWORK})
"""What no API tells."""

ONLY_WITH_HAMI = frozenset({Piece.HAMI})

NOT_ASKED: Mapping[Piece, str] = {
    Piece.NETWORK: "Whether the cluster's network plugin enforces NetworkPolicies can't be asked of the API server.",
}
REMEDIES: Mapping[Piece, str] = {
    Piece.ADMISSION: "Use Kubernetes 1.30 or later, and give the portal the rights of the role aifactory-manage.",
    Piece.POD_SECURITY: "Turn the admission plugin PodSecurity on (it is by default since Kubernetes 1.25).",
    Piece.QUOTA: "Turn the admission plugin ResourceQuota on and run kube-controller-manager (both are by default).",
    Piece.NETWORK: "Use a network plugin that enforces them (Calico, Cilium and others), try it, and say so here.",
    Piece.HAMI: "Install HAMi with its mutating webhook, for the namespaces of tenants too.",
}


@dataclass(frozen=True, slots=True)
class Said:
    """What a platform-admin typed about a piece. ``at``: ISO 8601, UTC."""

    text: str
    by: str
    at: str


@dataclass(frozen=True, slots=True)
class PieceState:
    """One piece of one cluster. ``state``: as found, or ``yes`` where it is declared."""

    piece: Piece
    state: State
    sentence: str
    declared: Said | None = None
    accepted: Said | None = None

    @property
    def title(self) -> str:
        """As people call it."""
        return TITLES[self.piece]

    @property
    def remedy(self) -> str:
        """What to do; "" where there is nothing to do."""
        return "" if self.state == "yes" else REMEDIES[self.piece]

    @property
    def holds(self) -> bool:
        """Whether tenants may come as far as this piece goes."""
        return self.state == "yes" or self.accepted is not None


def pieces_of(found: Mapping[str, Any], said: Mapping[str, Any], *, hami: bool) -> list[PieceState]:
    """The pieces of a cluster.

    Args:
        found: ``Cluster.isolation``: ``{"pieces": {name: {"state", "sentence"}}, …}``; empty: never asked.
        said: ``Cluster.isolation_said``: ``{"declared": {name: {text, by, at}}, "accepted": {…}}``.
        hami: whether a pool of the cluster hands out HAMi shares.
    """
    told = found.get("pieces") or {}
    result = []
    for piece in Piece:
        if piece in ONLY_WITH_HAMI and not hami:
            continue
        row = told.get(piece.value) or {}
        state: State = row.get("state", "unknown")
        sentence = row.get("sentence") or NOT_ASKED.get(piece, "The cluster has not been asked yet.")
        declared = _said(said, "declared", piece) if piece in DECLARABLE else None
        if declared is not None:
            state, sentence = "yes", f"{declared.by} answers for it: {declared.text}"
        result.append(PieceState(piece, state, sentence, declared, _said(said, "accepted", piece)))
    return result


def lacking(found: Mapping[str, Any], said: Mapping[str, Any], *, hami: bool) -> tuple[str, ...]:
    """The pieces, as people call them, without which no tenant's pod may come; empty: none is missing."""
    return tuple(each.title for each in pieces_of(found, said, hami=hami) if not each.holds)


def summary(pieces: Iterable[PieceState]) -> tuple[bool, str, str]:
    """(isolated, reason, sentence) for the condition ``Isolated``."""
    rows = list(pieces)
    missing = [each for each in rows if not each.holds]
    if missing:
        told = " ".join(f"{each.sentence} {each.remedy}".strip() for each in missing)
        return False, "Lacks", f"It lacks: {', '.join(each.title for each in missing)}. {told}"
    accepted = [each.title for each in rows if each.state != "yes"]
    if accepted:
        return True, "Accepted", f"Missing, and accepted by a platform-admin: {', '.join(accepted)}."
    declared = [each.title for each in rows if each.declared is not None]
    told = f" Declared, not proven: {', '.join(declared)}." if declared else ""
    return True, "Complete", f"Every piece is there.{told}"


def _said(said: Mapping[str, Any], how: str, piece: Piece) -> Said | None:
    row = (said.get(how) or {}).get(piece.value)
    return Said(**row) if row else None
