"""Claims that follow rules: what the rules say of a namespace now, and what that changes of its claims.

A claim that somebody set by hand is never touched. Of the others the open one is brought to what the rules say: it
goes on, ends, or gives way, at the instant from which that is so:

* a label became another one, or was removed: when the watch saw it;
* the rule was ended: when it was ended; the namespace is gone: when it was gone;
* a rule that stands before takes over: from its own ``valid_from`` (or since it was moved there).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from fnmatch import fnmatchcase
from uuid import UUID

from django.conf import settings
from django.db.models import Q

from infra.concerned import concerned_by
from infra.models import ClaimRule, Cluster, NamespaceClaim, NamespaceSight, PodObservation
from infra.owners import tenants_by_slug
from infra.services.changes import Changes
from portal.kernel import audit
from portal.kernel.actors import Actor
from portal.kernel.clock import format_rfc3339, parse_rfc3339
from portal.kernel.workqueue import Mark

ACTOR = Actor.system("claim rules")


@dataclass(frozen=True, slots=True)
class Wanted:
    """What a rule gives: from ``since`` on. ``coded_since``: when the cost code that a label says became what it is."""

    rule: ClaimRule
    tenant_id: UUID
    cost_code: str
    since: datetime
    coded_since: datetime | None = None


@dataclass(frozen=True, slots=True)
class Effect:
    """What changed whose a namespace is, from ``start`` until ``end`` (None: until further notice)."""

    cluster_id: UUID
    cluster: str
    namespace: str
    was: UUID | None
    becomes: UUID | None
    start: datetime
    end: datetime | None = None


@dataclass(slots=True)
class Follow:
    """Brings the claims of one cluster to its rules, within a transaction that has locked its changes."""

    cluster: Cluster
    changes: Changes
    rules: Sequence[ClaimRule]
    effects: list[Effect] = field(default_factory=list)

    @classmethod
    def of(cls, cluster: Cluster, changes: Changes) -> Follow:
        """With the rules that reach the cluster, in their order."""
        return cls(cluster, changes, rules_of(cluster))

    def marks(self) -> set[Mark]:
        """What is to be looked at because of what was changed."""
        if not self.effects:
            return set()
        return {Mark("metering", self.cluster.pk, cause="watch"), *concerned_by(self.cluster.pk)}

    def namespace(self, sight: NamespaceSight, *, at: datetime) -> None:
        """Look at one namespace; ``at``: when what the rules look at was seen (or is asked)."""
        if sight.name in self.cluster.system_namespaces:
            return
        live = sight.gone_at is None
        if not live and NamespaceSight.objects.filter(
            cluster=self.cluster, name=sight.name, gone_at__isnull=True
        ).exists():  # fmt: skip
            return  # it was made again under its name; the new one decides
        wanted = wanted_by(self.rules, sight) if live else None
        current = self._open(sight.name)
        if current is None:
            if wanted is not None:
                self._give(sight.name, wanted, wanted.since)
            elif not live:
                self._give_gone(sight)
            return
        if current.source == NamespaceClaim.Source.PORTAL:
            return
        stopped = _stopped(current, sight, at) if wanted is None or wanted.rule.pk != current.rule_id else None
        if wanted is None:
            self._end(current, stopped or at)
        elif (wanted.tenant_id, wanted.cost_code) != (current.tenant_id, current.cost_code):
            recoded = wanted.tenant_id == current.tenant_id and wanted.rule.pk == current.rule_id
            since = (wanted.coded_since or at) if recoded else max(filter(None, (_takes_over(wanted), stopped)))
            self._end(current, since)
            self._give(sight.name, wanted, since)
        elif wanted.rule.pk != current.rule_id:
            current.rule, current.source = wanted.rule, wanted.rule.source
            current.inferred = wanted.rule.kind == ClaimRule.Kind.LABEL
            current.save(update_fields=["rule", "source", "inferred"])

    def unseen(self, name: str, *, at: datetime) -> None:
        """A namespace of which only pods were seen (before it was watched): rules by name reach it."""
        self.namespace(NamespaceSight(cluster=self.cluster, name=name), at=at)

    # ---- inside ------------------------------------------------------------------------------------------

    def _open(self, name: str) -> NamespaceClaim | None:
        rows = NamespaceClaim.objects.filter(cluster=self.cluster, namespace=name, valid_to__isnull=True)
        return rows.select_related("rule").first()

    def _free_from(self, name: str, start: datetime) -> datetime:
        """The first instant from ``start`` on from which no claim holds the namespace any more."""
        ends = NamespaceClaim.objects.filter(
            cluster=self.cluster, namespace=name, valid_to__gt=start
        ).values_list("valid_to", flat=True)  # fmt: skip
        return max([start, *(end for end in ends if end is not None)])

    def _give(self, name: str, wanted: Wanted, start: datetime, end: datetime | None = None) -> None:
        start = self._free_from(name, start)
        if end is not None and end <= start:
            return
        claim = NamespaceClaim.objects.create(
            cluster=self.cluster, namespace=name, tenant_id=wanted.tenant_id, cost_code=wanted.cost_code,
            source=wanted.rule.source, rule=wanted.rule, inferred=wanted.rule.kind == ClaimRule.Kind.LABEL,
            valid_from=start, valid_to=end, created_by=f"rule {wanted.rule}"[:150], changed_seq=self.changes.draw(),
        )  # fmt: skip
        self._tell("namespace_claim_set", claim, None, wanted.tenant_id, start, end)

    def _give_gone(self, sight: NamespaceSight) -> None:
        """A namespace that is gone was somebody's by a rule that begins before: for its time, where it is free."""
        wanted = wanted_by(self.rules, sight)
        assert sight.gone_at is not None  # asked for such alone
        if wanted is not None and wanted.since < sight.gone_at:
            held = NamespaceClaim.objects.filter(
                Q(valid_to__isnull=True) | Q(valid_to__gt=wanted.since), cluster=self.cluster, namespace=sight.name,
            )  # fmt: skip
            if not held.exists():
                self._give(sight.name, wanted, wanted.since, sight.gone_at)

    def _end(self, claim: NamespaceClaim, at: datetime) -> None:
        """End it at that instant; one that would end before it begins is taken back."""
        if at <= claim.valid_from:
            self._tell("namespace_claim_take_back", claim, claim.tenant_id, None, claim.valid_from, None)
            claim_take_back(claim, self.changes)
            return
        claim.valid_to, claim.changed_seq = at, self.changes.draw()
        claim.save(update_fields=["valid_to", "changed_seq"])
        self._tell("namespace_claim_end", claim, claim.tenant_id, None, at, None)

    def _tell(
        self, verb: str, claim: NamespaceClaim, was: UUID | None, becomes: UUID | None, start: datetime,
        end: datetime | None,
    ) -> None:  # fmt: skip
        self.effects.append(
            Effect(self.cluster.pk, self.cluster.slug, claim.namespace, was, becomes, start, end)
        )  # fmt: skip
        audit.record(
            verb, actor=ACTOR, tenant_id=claim.tenant_id, object_kind="namespace_claim", object_id=claim.pk,
            object_name=f"{self.cluster.slug}/{claim.namespace}",
            after={
                "tenant_id": str(claim.tenant_id), "valid_from": format_rfc3339(claim.valid_from),
                "valid_to": format_rfc3339(claim.valid_to) if claim.valid_to else None,
                "cost_code": claim.cost_code, "source": claim.source, "rule": str(claim.rule_id or ""),
            },
        )  # fmt: skip


def claim_take_back(claim: NamespaceClaim, changes: Changes) -> None:
    """The claim never was: its row goes, and metering looks at the pods of its time again."""
    pods = PodObservation.objects.filter(
        Q(ended_at__isnull=True) | Q(ended_at__gt=claim.valid_from), cluster=claim.cluster_id, namespace=claim.namespace
    )
    for pk in pods.order_by("uid").values_list("pk", flat=True):
        PodObservation.objects.filter(pk=pk).update(changed_seq=changes.draw())
    claim.delete()


def rules_of(cluster: Cluster) -> list[ClaimRule]:
    """The rules that reach a cluster, the first to be asked first."""
    here = Q(cluster=cluster) | Q(site=cluster.site_id) | Q(cluster__isnull=True, site__isnull=True)
    return list(ClaimRule.objects.filter(here, ended_at__isnull=True).select_related("cluster", "site"))


def wanted_by(rules: Iterable[ClaimRule], sight: NamespaceSight) -> Wanted | None:
    """What the first rule that matches gives; None: none does."""
    for rule in rules:
        tenant_id = _tenant(rule, sight)
        if tenant_id is None:
            continue
        since = max(filter(None, (rule.valid_from, _since(rule, sight))))
        key = rule.cost_code_label or settings.AIF_COST_CODE_LABEL
        code = rule.cost_code or sight.labels.get(key, "")[:60]
        coded = sight.labels_since.get(key) if not rule.cost_code else None
        return Wanted(rule, tenant_id, code, since, parse_rfc3339(coded) if coded else None)
    return None


def _tenant(rule: ClaimRule, sight: NamespaceSight) -> UUID | None:
    if rule.kind == ClaimRule.Kind.NAME:
        return rule.tenant_id if fnmatchcase(sight.name, rule.pattern) else None
    value = sight.labels.get(rule.label_key)
    if value is None:
        return None
    if rule.by_slug:
        return tenants_by_slug([value]).get(value)
    return rule.tenant_id if value == rule.label_value else None


def _since(rule: ClaimRule, sight: NamespaceSight) -> datetime | None:
    """Since when what the rule looks at is so; None: as long as is known."""
    if rule.kind == ClaimRule.Kind.NAME:
        return None
    at = sight.labels_since.get(rule.label_key)
    return parse_rfc3339(at) if at else sight.created_at


def _takes_over(wanted: Wanted) -> datetime:
    return max(filter(None, (wanted.since, wanted.rule.moved_at)))


def _stopped(claim: NamespaceClaim, sight: NamespaceSight, at: datetime) -> datetime | None:
    """From when the claim's own rule gives it no longer; None: it still would."""
    rule = claim.rule
    if rule is None:
        return None
    if sight.gone_at is not None:
        return sight.gone_at
    if rule.ended_at is not None:
        return rule.ended_at
    if _tenant(rule, sight) == claim.tenant_id:
        return None
    changed = sight.labels_since.get(rule.label_key) if rule.kind == ClaimRule.Kind.LABEL else None
    return parse_rfc3339(changed) if changed else at
