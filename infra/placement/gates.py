"""Rules about a whole cluster: may anything new of this request go there at all?"""

from __future__ import annotations

from infra.placement.answer import Explanation, Rule
from infra.placement.fleet import Cluster, Effect, Mode, Taint
from infra.placement.request import Request


def untolerated(cluster: Cluster, request: Request, *effects: Effect) -> Taint | None:
    """The first taint with one of these effects that no toleration covers."""
    for taint in cluster.taints:
        if taint.effect in effects and not any(t.covers(taint) for t in request.tolerations):
            return taint
    return None


def refusal(cluster: Cluster, request: Request) -> Explanation | None:
    """Why nothing new may go to this cluster, or None. The first rule that refuses answers; rules that people can
    change for this deployment come after those that they cannot."""
    name = cluster.name
    if cluster.mode is not Mode.MANAGE:
        return Explanation(
            Rule.OBSERVE, name, None, f"Cluster {name} is only observed; the portal deploys nothing there."
        )
    if request.allowed_sites is not None and cluster.site not in request.allowed_sites:
        allowed = ", ".join(sorted(request.allowed_sites)) or "none"
        return Explanation(
            Rule.SITE,
            name,
            None,
            f"Cluster {name} is at site {cluster.site}; the tenant's allowed sites are: {allowed}.",
            {"site": cluster.site, "allowed": sorted(request.allowed_sites)},
        )
    if cluster.paused:
        return Explanation(Rule.PAUSED, name, None, f"Cluster {name} is paused; it takes nothing until it is resumed.")
    if not cluster.ready:
        why = f": {cluster.not_ready_reason}" if cluster.not_ready_reason else ""
        return Explanation(Rule.NOT_READY, name, None, f"Cluster {name} is not ready{why.rstrip('.')}.")
    if cluster.lacks:
        return Explanation(
            Rule.ISOLATION,
            name,
            None,
            f"Cluster {name} lacks: {', '.join(cluster.lacks)}. Without it tenants are not kept apart, so nothing new "
            "is placed there; a platform-admin can have it set right, or accept the lack with a reason.",
            {"lacks": list(cluster.lacks)},
        )
    taint = untolerated(cluster, request, Effect.NO_SCHEDULE, Effect.NO_EXECUTE) if cluster.taints else None
    if taint is not None:
        shown = f"{taint.key}={taint.value}" if taint.value else taint.key
        return Explanation(
            Rule.TAINT,
            name,
            None,
            f"Cluster {name} has the taint {shown}:{taint.effect}, which the deployment does not tolerate.",
            {"key": taint.key, "value": taint.value, "effect": str(taint.effect)},
        )
    for key, wanted in request.cluster_selector.items():
        has = cluster.labels.get(key)
        if has != wanted:
            seen = f"is {has!r}" if has is not None else "is not set"
            return Explanation(
                Rule.LABEL,
                name,
                None,
                f"On cluster {name} the label {key} {seen}; the deployment wants {key}={wanted}.",
                {"label": key, "wanted": wanted, "has": has},
            )
    if not cluster.pools:
        return Explanation(Rule.NO_POOLS, name, None, f"Cluster {name} has no pool with GPUs of a known type.")
    return None
