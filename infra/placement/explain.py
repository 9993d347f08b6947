"""Why a pool was not chosen: one sentence with the numbers, and the same as data."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from infra.cel import Answer, Device, Reference, Version, compile_selector
from infra.placement.answer import Explanation, Rule
from infra.placement.fit import MemberMatch, Verdict, card_need, card_refusal
from infra.placement.fleet import DeviceEntry, Sharing
from infra.placement.quota import cards_in, left_of, profile_of
from infra.placement.request import DeviceRequest, HamiShare, MigShare
from infra.placement.state import Asked, ClusterState, Outcome, PoolState, engine_usage, room_in
from infra.shares import CARD, parse_mig

# How far a pool came before it was refused; with several engines the one that came furthest explains the pool.
_PROGRESS = (
    Rule.ZONE,
    Rule.SHARING,
    Rule.SELECTOR,
    Rule.SELECTOR_ERROR,
    Rule.CAPACITY,
    Rule.NODE_RESOURCES,
    Rule.PRICE,
    Rule.QUOTA,
)


def explain_pool(
    asked: Asked, state: ClusterState, pool: PoolState, outcome: Outcome, quota: Mapping[str, int] | None, done: bool
) -> Explanation:
    """Why this pool got no new replica. `outcome`: what the last search on its cluster found; `done`: every replica
    that was wanted has a place."""
    if pool.pool.name in outcome.fitting:
        return _ranked(asked, state, pool, done)
    refusals: list[Explanation] = []
    fitting: list[int] = []
    for engine in range(len(asked.request.engines)):
        refusal = _engine_refusal(asked, engine, state, pool, quota)
        if refusal is None:
            fitting.append(engine)
        else:
            refusals.append(refusal)
    if not fitting:
        return max(refusals, key=lambda explanation: _PROGRESS.index(explanation.rule))
    return _jointly(asked, state, pool, outcome, fitting, done)


def _ranked(asked: Asked, state: ClusterState, pool: PoolState, done: bool) -> Explanation:
    own, cluster, name = state.own, state.cluster.name, pool.pool.name
    elsewhere = "every replica has a place" if done else "others came first"
    sentence = (
        f"Pool {name} on cluster {cluster} fits; {elsewhere}: clusters with fewer replicas of {asked.request.name}, "
        f"then the tightest fit, come first (it has {own})."
    )
    return Explanation(Rule.RANKED, cluster, name, sentence, {"own": own})


def _jointly(
    asked: Asked, state: ClusterState, pool: PoolState, outcome: Outcome, fitting: list[int], done: bool
) -> Explanation:
    if outcome.solution is not None:
        return _ranked(asked, state, pool, done)
    request, cluster, where = asked.request, state.cluster.name, _where(state, pool)
    names = ", ".join(request.engines[engine].name for engine in fitting)
    if outcome.gave_up:
        return Explanation(
            Rule.SEARCH_LIMIT,
            cluster,
            pool.pool.name,
            f"{where} has room for {names}, but no way to place all pods of a replica was found within the limit of "
            "the search; it may exist. Smaller engines are easier to place.",
        )
    if outcome.quota:
        return Explanation(
            Rule.QUOTA,
            cluster,
            pool.pool.name,
            f"{where} has room for {names}, but the free quota does not hold all pods of a replica.",
        )
    if len(fitting) < len(request.engines):
        others = ", ".join(e.name for i, e in enumerate(request.engines) if i not in fitting)
        return Explanation(
            Rule.ENGINES,
            cluster,
            pool.pool.name,
            f"{where} has room for {names}, but {others} of the same replica must be on cluster {cluster} too, and "
            "not all engines fit there.",
        )
    return Explanation(
        Rule.CAPACITY,
        cluster,
        pool.pool.name,
        f"{where} has room for each kind of pod of {names} alone, but not for all pods of a replica together.",
    )


def _where(state: ClusterState, pool: PoolState) -> str:
    return f"Pool {pool.pool.name} on cluster {state.cluster.name}"


def _engine_refusal(
    asked: Asked, engine: int, state: ClusterState, pool: PoolState, quota: Mapping[str, int] | None
) -> Explanation | None:
    request, where, cluster = asked.request, _where(state, pool), state.cluster.name
    if pool.pool.zone not in ("", request.zone):
        return Explanation(
            Rule.ZONE, cluster, pool.pool.name, f"{where} is reserved for another trust zone.", {"zone": pool.pool.zone}
        )
    copies = request.engines[engine].copies
    matches = asked.matches(engine, pool)
    for match in matches:
        if not match.possible:
            rule, text, facts = _no_match(match)
            return Explanation(rule, cluster, pool.pool.name, f"{where}: {text}", facts)
    for match in matches:
        wanted = copies * match.member.pods
        room = room_in(match, pool, wanted, copies)
        if room < wanted:
            rule, text, facts = _no_room(match, pool, wanted, room, copies)
            return Explanation(rule, cluster, pool.pool.name, f"{where}: {text}", facts)
    return _money(asked, engine, state, pool, quota)


def _money(
    asked: Asked, engine: int, state: ClusterState, pool: PoolState, quota: Mapping[str, int] | None
) -> Explanation | None:
    request = asked.request
    if quota is None and request.price_check is None:
        return None
    where, cluster = _where(state, pool), state.cluster.name
    usage = engine_usage(asked, engine, pool)
    if request.price_check is not None:
        refused = request.price_check(cluster, pool.pool.name, cards_in(usage))
        if refused is not None:
            return Explanation(Rule.PRICE, cluster, pool.pool.name, f"{where}: {refused}", dict(cards_in(usage)))
    if quota is None:
        return None
    for gpu_type, amount in cards_in(usage).items():
        left = quota.get(gpu_type)
        if left is None:
            return Explanation(
                Rule.QUOTA,
                cluster,
                pool.pool.name,
                f"{where}: the tenant has no quota for {gpu_type}; a replica needs {_cards(amount)}.",
                {"gpu_type": gpu_type, "needed": amount, "left": None},
            )
        if amount > left:
            return Explanation(
                Rule.QUOTA,
                cluster,
                pool.pool.name,
                f"{where}: a replica needs {_cards(amount)} of {gpu_type}, the quota has {_cards(max(0, left))} left "
                f"(short by {_cards(amount - left)}).",
                {"gpu_type": gpu_type, "needed": amount, "left": left},
            )
    for key, amount in usage.items():
        gpu_type, profile = profile_of(key)
        left = left_of(quota, key)
        if profile and amount > left:
            return Explanation(
                Rule.QUOTA,
                cluster,
                pool.pool.name,
                f"{where}: a replica needs {amount} MIG slices {profile} of {gpu_type}, the quota has {max(0, left)} "
                f"left (short by {amount - max(0, left)}).",
                {"gpu_type": gpu_type, "profile": profile, "needed": amount, "left": left},
            )
    return None


def _cards(millionths: int) -> str:
    """Cards with as many decimals as are needed: 2, 0.25, 0.142857."""
    whole, rest = divmod(millionths, CARD)
    text = f"{whole}.{rest:06d}".rstrip("0").rstrip(".")
    return f"{text} {'card' if millionths <= CARD else 'cards'}"


# ------------------------------------------------------------------------------------------------ no match


def _no_match(match: MemberMatch) -> tuple[Rule, str, dict[str, Any]]:
    for request, row in zip(match.member.devices, match.verdicts, strict=True):
        broken = [v for v in row if v.match is not None and v.match.answer is Answer.EVAL_ERROR]
        if any(v.fits for v in row) and not (broken and not match.possible):
            continue
        if broken:
            v = broken[0]
            assert v.match is not None
            text = (
                f"for request {request.name} the selector {v.selector!r} fails on device {v.entry.name}: "
                f"{v.match.reason}. Kubernetes would refuse the whole claim."
            )
            facts = {"request": request.name, "selector": v.selector, "reason": v.match.reason}
            return Rule.SELECTOR_ERROR, text, facts
        refused = [v for v in row if v.match is not None and v.sharing] or [v for v in row if v.match is not None]
        if any(v.match is None and not v.sharing for v in row) or not refused:
            return Rule.SHARING, _sharing(request, match), {"request": request.name}
        return (
            Rule.SELECTOR,
            "; ".join(_seen(request, v) for v in refused[:3]) + ".",
            {"request": request.name, "selector": refused[0].selector, "seen": seen_values(refused[0])},
        )
    return Rule.SELECTOR, "no device fits.", {}


def _sharing(request: DeviceRequest, match: MemberMatch) -> str:
    if isinstance(request.share, HamiShare):
        wants = "a part of a card (HAMi)"
    elif isinstance(request.share, MigShare):
        wants = f"MIG slices {request.share.profile}"
    else:
        wants = "whole devices"
    gives = {
        Sharing.WHOLE: "whole cards",
        Sharing.MIG: "MIG slices",
        Sharing.HAMI: "parts of cards (HAMi)",
    }[match.shape.sharing]
    return f"it hands out {gives}; request {request.name} wants {wants}."


def _seen(request: DeviceRequest, verdict: Verdict) -> str:
    values = seen_values(verdict)
    seen = ", ".join(f"{name} is {value}" for name, value in values.items())
    return (
        f"device {verdict.entry.name} does not match request {request.name} ({verdict.selector.strip()})"
        f"{': ' + seen if seen else ''}"
    )


def seen_values(verdict: Verdict) -> dict[str, str]:
    """What the failing selector read of the device: name → value as written, or "not set"."""
    return {
        (reference.id or "driver"): _value(verdict.entry.device, reference)
        for reference in compile_selector(verdict.selector).reads
    }


def _value(device: Device, reference: Reference) -> str:
    if reference.kind == "driver":
        return device.driver
    pairs: tuple[tuple[str, Any], ...] = device.attributes if reference.kind == "attributes" else device.capacity
    for name, value in pairs:
        domain, slash, identifier = name.partition("/")
        if (domain, identifier) == (reference.domain, reference.id) or (
            not slash and (device.driver, name) == (reference.domain, reference.id)
        ):
            return value.text if isinstance(value, Version) else str(value)
    return "not set"


# ------------------------------------------------------------------------------------------------- no room


def _no_room(
    match: MemberMatch, pool: PoolState, wanted: int, room: int, copies: int
) -> tuple[Rule, str, dict[str, Any]]:
    nodes = sum(len(names) for names in pool.groups.values())
    unusable: dict[str, int] = {}
    for node in pool.pool.nodes:
        if node.unusable:
            unusable[node.unusable] = unusable.get(node.unusable, 0) + 1
    apart = "".join(f"; {count} {'node is' if count == 1 else 'nodes are'} {why}" for why, count in unusable.items())
    facts: dict[str, Any] = {"wanted": wanted, "room": room, "short": wanted - room, "nodes": nodes} | (
        {"unusable": unusable} if unusable else {}
    )
    if not nodes:
        return Rule.CAPACITY, f"it has no usable node{apart}.", facts
    if wanted > 1 and room:
        apart_from = " on nodes of their own" if match.member.distinct_nodes else ""
        text = (
            f"{wanted} pods of {_ask(match)} each are needed{apart_from}, there is room for {room} (short by "
            f"{wanted - room}) on {nodes} nodes{apart}."
        )
        return Rule.CAPACITY, text, facts
    host = _host(match, pool)
    if host is not None:
        return Rule.NODE_RESOURCES, f"{host}{apart}.", facts
    for index, request in enumerate(match.member.devices):
        answer = _short(match, index, request, pool, nodes)
        if answer is not None:
            rule, text, numbers = answer
            return rule, f"{text}{apart}.", facts | numbers
    return Rule.CAPACITY, f"no node has room for all of {_ask(match)} at once{apart}.", facts


def _ask(match: MemberMatch) -> str:
    return " and ".join(f"{request.count} {request.name}" for request in match.member.devices) or "no device"


def _host(match: MemberMatch, pool: PoolState) -> str | None:
    """A sentence if CPU or memory beside the devices is what is missing."""
    member = match.member
    bare = MemberMatch(
        type(member)(member.role, member.devices, member.pods),
        match.shape,
        match.zone,
        match.verdicts,
        match.candidates,
        match.possible,
    )
    with_devices = [vector for vector in pool.groups if bare.fits(vector)]
    if not with_devices:
        return None
    cpu = max((v.cpu_millis for v in with_devices if v.cpu_millis is not None), default=None)
    memory = max((v.memory_bytes for v in with_devices if v.memory_bytes is not None), default=None)
    parts = []
    if member.cpu_millis is not None and cpu is not None and cpu < member.cpu_millis:
        parts.append(f"{member.cpu_millis} millicores of CPU are needed, the most free is {cpu}")
    if member.memory_bytes is not None and memory is not None and memory < member.memory_bytes:
        parts.append(f"{member.memory_bytes >> 20} MiB of memory are needed, the most free is {memory >> 20}")
    said = "; ".join(parts) or "CPU and memory are free, but not on one node together"
    return f"nodes with the devices free lack the rest: {said}"


def _short(
    match: MemberMatch, index: int, request: DeviceRequest, pool: PoolState, nodes: int
) -> tuple[Rule, str, dict[str, Any]] | None:
    candidates = match.candidates[index]
    if isinstance(request.share, HamiShare):
        return _short_of_cards(match, request, request.share, candidates, pool)
    uncut = _not_cut(match, request, pool) if match.shape.sharing is Sharing.MIG else None
    if uncut is not None:
        return uncut
    most = total = 0
    foreign = 0
    what = ""
    for entry in candidates:
        for vector, names in pool.groups.items():
            if match.shape.sharing is Sharing.MIG and entry.gpu_type:
                profile = request.share.profile if isinstance(request.share, MigShare) else entry.mig_profile
                what = f"MIG slices {parse_mig(profile)}"
                free = dict(vector.mig).get(str(parse_mig(profile)), 0)
                if vector.zone not in ("", match.zone):
                    foreign += len(names)
                    free = 0
            else:
                what = f"whole {entry.gpu_type}" if entry.gpu_type else entry.name
                free = dict(vector.devices).get(entry.name, 0)
            most = max(most, free)
            total += max(0, free) * len(names)
    if most >= request.count:
        return None
    other = f"; {foreign} nodes hold slices of another trust zone" if foreign else ""
    rule = Rule.ZONE if foreign == nodes else Rule.CAPACITY
    short = request.count - most
    text = (
        f"request {request.name} needs {request.count} {what} on one node, the most free on one is {most} (short by "
        f"{short}); {total} are free on {nodes} nodes{other}"
    )
    return rule, text, {"request": request.name, "needed": request.count, "most": most, "total": total, "short": short}


def _not_cut(match: MemberMatch, request: DeviceRequest, pool: PoolState) -> tuple[Rule, str, dict[str, Any]] | None:
    """A sentence if no node of the pool is cut into the profile at all."""
    if not isinstance(request.share, MigShare):
        return None
    wanted = str(parse_mig(request.share.profile))
    offered = sorted({profile for vector in pool.groups for profile, _ in vector.mig})
    if wanted in offered:
        return None
    text = (
        f"its cards are cut into {', '.join(offered) or 'no MIG slices now'}; request {request.name} wants MIG slices "
        f"{wanted}"
    )
    return Rule.SHARING, text, {"request": request.name, "wanted": wanted, "offered": offered}


def _short_of_cards(
    match: MemberMatch,
    request: DeviceRequest,
    share: HamiShare,
    candidates: tuple[DeviceEntry, ...],
    pool: PoolState,
) -> tuple[Rule, str, dict[str, Any]] | None:
    names = {entry.name for entry in candidates}
    refused: dict[str, int] = {}
    most = 0
    cards = best_mib = best_cores = 0
    need = cores = 0
    for vector, group in pool.groups.items():
        fitting = 0
        for card in vector.cards:
            if card.entry not in names:
                continue
            cards += len(group)
            why = card_refusal(card, share, match.zone)
            if not why:
                fitting += 1
                continue
            refused[why] = refused.get(why, 0) + len(group)
            if card.physical_mib > 0:
                need, cores = card_need(card, share)
            if why != "zone":
                best_mib, best_cores = max(best_mib, card.free_mib), max(best_cores, card.free_cores)
        most = max(most, fitting)
    if most >= request.count:
        return None
    reasons = {
        "memory": "have too little memory free",
        "cores": "have too few cores free",
        "slots": "are shared by as many pods as they may be",
        "zone": "are held by another trust zone",
    }
    said = ", ".join(f"{count} {reasons[why]}" for why, count in sorted(refused.items()))
    rule = Rule.ZONE if cards and set(refused) == {"zone"} and not most else Rule.CAPACITY
    if not cards:
        text = f"request {request.name} needs a part of a card, and no card is registered"
    else:
        text = (
            f"request {request.name} needs {request.count} x {need} MiB and {cores} % of the cores, each on a card of "
            f"its own on one node; the most cards with room on one node is {most} (short by {request.count - most}); "
            f"of {cards} cards {said}; the most free on those is {best_mib} MiB and {best_cores} %"
        )
    return (
        rule,
        text,
        {
            "request": request.name,
            "memory_mib": need,
            "cores": cores,
            "needed": request.count,
            "most": most,
            "short": request.count - most,
            "cards": cards,
            "refused": refused,
        },
    )
