"""Why a deployment waits: one word for programs, one sentence for people, from the scheduler's explanations. Pure."""

from __future__ import annotations

from infra.placement.model import Explanation, Plan, Rule

QUOTA_EXCEEDED = "QuotaExceeded"
NO_CAPACITY = "NoCapacity"
NO_CLUSTER = "NoCluster"
SELECTOR_ERROR = "SelectorError"
SELECTOR_MATCHES_NOTHING = "NoMatchingDevice"
PRICE = "PriceAboveLimit"
OTHER_ZONE = "OtherTrustZone"
NOT_ISOLATED = "NotIsolated"
CACHE_NOT_FOUND = "ModelCacheNotFound"
TENANT_SUSPENDED = "TenantSuspended"
PLACED = "Placed"

# The nearest to a place comes first: what only lacks a free card says more than a label that never matched.
_NEAREST: tuple[tuple[frozenset[Rule], str], ...] = (
    (frozenset({Rule.QUOTA}), QUOTA_EXCEEDED),
    (frozenset({Rule.CAPACITY, Rule.NODE_RESOURCES, Rule.ENGINES, Rule.SEARCH_LIMIT}), NO_CAPACITY),
    (frozenset({Rule.PRICE}), PRICE),
    (frozenset({Rule.ZONE}), OTHER_ZONE),
    (frozenset({Rule.ISOLATION}), NOT_ISOLATED),
    (frozenset({Rule.SELECTOR_ERROR}), SELECTOR_ERROR),
    (frozenset({Rule.SELECTOR, Rule.SHARING}), SELECTOR_MATCHES_NOTHING),
)
_SAID = 3


def waiting_reason(plan: Plan) -> str:
    """``Placed`` where nothing is short; else the rule that stands nearest to a place."""
    if not plan.short:
        return PLACED
    rules = {explanation.rule for explanation in plan.explanations}
    return next((reason for group, reason in _NEAREST if rules & group), NO_CLUSTER)


def waiting_sentence(plan: Plan) -> str:
    """How many are placed, and the reasons of the clusters and pools that stand nearest, by name and number."""
    placed = plan.wanted - plan.short
    head = f"{placed} of {plan.wanted} replicas have a place."
    if not plan.explanations:
        return f"{head} No cluster is connected that the portal may deploy to."
    near = nearest(plan.explanations)
    said = " ".join(_full_stop(explanation.sentence) for explanation in near[:_SAID])
    more = len(plan.explanations) - min(_SAID, len(near))
    rest = f" And {more} other clusters and pools: see the explanation." if more > 0 else ""
    return f"{head} {said}{rest}"


def nearest(explanations: tuple[Explanation, ...]) -> list[Explanation]:
    """The explanations of the rule that stands nearest to a place; all of them where none of the above applies."""
    for group, _ in _NEAREST:
        found = [explanation for explanation in explanations if explanation.rule in group]
        if found:
            return found
    return list(explanations)


def _full_stop(sentence: str) -> str:
    return sentence if sentence.endswith(".") else f"{sentence}."
