"""Reading the rules for groups, whom they match, and what they gave to somebody."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from uuid import UUID

from portal.accounts.models import Identity
from tenants.claims import matching, read_claim
from tenants.models import GroupGrant, GroupMapping, Member

MOST_PEOPLE = 5_000
"""Identities that are looked through for a page, the last seen first."""


@dataclass
class MappingLine:
    """A rule with the user names of those whose last known claims match it."""

    mapping: GroupMapping
    people: list[str] = field(default_factory=list)


@dataclass(frozen=True)
class ClaimLine:
    """One rule beside one person's claims: what the claim holds, and what came of it.

    ``values`` None: the claim was absent at the last sign-in, so nothing was changed by it.
    """

    mapping: GroupMapping
    values: tuple[str, ...] | None
    matched: str
    grant: GroupGrant | None
    by_hand: str


def mapping_lines() -> list[MappingLine]:
    """All rules, by claim and value, with those who match them. Two queries."""
    lines = [MappingLine(row) for row in GroupMapping.objects.select_related("tenant")]
    rows = Identity.objects.select_related("user").filter(user__is_active=True).order_by("-last_seen_at")
    for identity in rows[:MOST_PEOPLE]:
        found: dict[str, tuple[str, ...] | None] = {}
        for line in lines:
            claim = line.mapping.claim
            if claim not in found:
                found[claim] = read_claim(identity.claims, claim).values
            values = found[claim]
            if values and matching(values, line.mapping) is not None and identity.user.username not in line.people:
                line.people.append(identity.user.username)
    return lines


def claim_lines(user_id: UUID) -> list[ClaimLine]:
    """Every rule beside the person's last known claims. Rules that don't match are told too: that is the answer to
    *why don't I have this role?*"""
    identities = list(Identity.objects.filter(user_id=user_id).order_by("-last_seen_at"))
    grants = {grant.mapping_id: grant for grant in GroupGrant.objects.filter(user_id=user_id)}
    by_hand = {
        member.tenant_id: member.role for member in Member.objects.filter(user_id=user_id, source=Member.Source.MANUAL)
    }
    lines = []
    for mapping in GroupMapping.objects.select_related("tenant"):
        values = _values(identities, mapping.claim)
        matched = matching(values or (), mapping) or ""
        hand = by_hand.get(mapping.tenant_id, "") if mapping.tenant_id else ""
        lines.append(ClaimLine(mapping, values, matched, grants.get(mapping.pk), hand))
    return lines


def own_claim_lines(user_id: UUID) -> list[ClaimLine]:
    """The same, only what matched: a member must not learn of other teams' rules."""
    return [line for line in claim_lines(user_id) if line.grant is not None or line.matched]


def _values(identities: Sequence[Identity], claim: str) -> tuple[str, ...] | None:
    for identity in identities:
        values = read_claim(identity.claims, claim).values
        if values is not None:
            return values
    return None
