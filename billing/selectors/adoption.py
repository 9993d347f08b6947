"""A cluster as it is found: its namespaces with what their pods held this month, whose that is, and what it costs.

Everything is computed from allocations, up to what the watch has proved, so that it is there minutes after a cluster
was connected, before any hour is final. Unmapped namespaces are priced by the default issuer's rates, as if they were
a tenant's. Needs a system scope.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from decimal import Decimal
from fractions import Fraction
from uuid import UUID

from django.db.models import Count, F, Min

from billing.locks import last_usage_seq
from billing.models import BillingAccount, Bucket, DeviceAllocation, Issuer, MeterProgress
from billing.prices import book_of, stored_rates
from billing.rates import RateBook
from billing.rating import UsageSum, rate
from billing.selectors.conservation import CARD_HOUR
from billing.selectors.costs import current_period
from billing.selectors.held import HeldPart, held_parts
from infra.models import Cluster, NamespaceClaim, NamespaceSight, PodObservation, WatchTarget
from portal.kernel.clock import Interval, utcnow
from portal.kernel.money import decimal_from, exact_sum
from tenants.models import Tenant

HOURS_PLACES = 6
TENANT, UNMAPPED, SYSTEM = "tenant", "unmapped", "system"


@dataclass(frozen=True, slots=True)
class Priced:
    """An amount of one issuer. ``amount`` None: nothing of it has a price; ``unpriced``: some of it has none."""

    amount: Decimal | None
    currency: str
    unpriced: bool = False


@dataclass(frozen=True, slots=True)
class Held:
    """Card-hours of a window by bucket, and what the charged part costs (None: nobody bills it, or nothing is due)."""

    tenants: Decimal = Decimal(0)
    starting: Decimal = Decimal(0)
    overhead: Decimal = Decimal(0)
    unattributed: Decimal = Decimal(0)
    cost: Priced | None = None

    @property
    def together(self) -> Decimal:
        """All that was held."""
        return exact_sum([self.tenants, self.starting, self.overhead, self.unattributed])


@dataclass(frozen=True, slots=True)
class NamespaceRow:
    """A namespace of a cluster. ``standing``: tenant, unmapped or system; ``claim``: the open one.

    ``pods``: GPU pods that are there; ``cards``: what they hold now, millionths of a card. ``unmetered``: pods whose
    share can't be computed yet. ``would_cost``: of an unmapped one, if it were a tenant's. ``known_until``: up to when
    the figures go; None: the cluster was not watched yet.
    """

    cluster: Cluster
    namespace: str
    standing: str
    tenant: Tenant | None
    claim: NamespaceClaim | None
    sight: NamespaceSight | None
    pods: int
    cards: int
    unmetered: int
    held: Held
    would_cost: Priced | None
    known_until: datetime | None
    first_seen_at: datetime | None

    @property
    def key(self) -> str:
        """``cluster/namespace``: how forms name it."""
        return f"{self.cluster.slug}/{self.namespace}"


@dataclass(slots=True)
class TenantRow:
    """What a tenant has on a cluster, over all its namespaces there."""

    tenant: Tenant
    namespaces: int = 0
    pods: int = 0
    cards: int = 0
    hours: Decimal = Decimal(0)
    costs: list[Priced] = field(default_factory=list)

    @property
    def cost(self) -> Priced | None:
        """All of it."""
        return priced_sum(self.costs)


@dataclass(frozen=True, slots=True)
class Adoption:
    """One cluster: tenants, then what nobody pays for yet, the dearest first, then the system's."""

    cluster: Cluster
    window: Interval
    known_until: datetime | None
    tenants: tuple[TenantRow, ...]
    unmapped: tuple[NamespaceRow, ...]
    system: tuple[NamespaceRow, ...]
    unattributed: Decimal
    unmetered: int

    @property
    def pods(self) -> int:
        """All GPU pods that are there."""
        return sum(row.pods for row in self.tenants) + sum(row.pods for row in (*self.unmapped, *self.system))

    @property
    def would_cost(self) -> Priced | None:
        """What the unmapped ones would cost together."""
        return priced_sum([row.would_cost for row in self.unmapped if row.would_cost])

    @property
    def unmapped_hours(self) -> Decimal:
        """Card-hours of the unmapped ones."""
        return exact_sum([row.held.together for row in self.unmapped])

    @property
    def overhead(self) -> Decimal:
        """Card-hours of the system namespaces."""
        return exact_sum([row.held.together for row in self.system])


def namespace_rows(clusters: Sequence[Cluster], window: Interval | None = None) -> list[NamespaceRow]:
    """Every namespace of these clusters that has, or had in the window, GPU pods, or is claimed or seen.

    Args:
        window: default: the default issuer's month until now (UTC months where there is no issuer).
    """
    window = window or this_month()
    ids = [cluster.pk for cluster in clusters]
    until = known_until(ids)
    figures = _figures(window, ids, until)
    pods = _live_pods(ids)
    cards = _cards(ids)
    unmetered = _unmetered(ids)
    claims = {
        (row.cluster_id, row.namespace): row
        for row in NamespaceClaim.objects.filter(cluster_id__in=ids, valid_to__isnull=True).select_related(
            "rule__cluster", "rule__site"
        )
    }
    sights = {
        (row.cluster_id, row.name): row
        for row in NamespaceSight.objects.filter(cluster_id__in=ids).order_by(F("gone_at").asc(nulls_last=True))
    }
    first = {
        (row["cluster"], row["namespace"]): row["first"]
        for row in PodObservation.objects.filter(cluster_id__in=ids)
        .values("cluster", "namespace")
        .annotate(first=Min("first_seen_at"))
    }
    tenants = {row.pk: row for row in Tenant.objects.filter(pk__in={claim.tenant_id for claim in claims.values()})}
    found = []
    for cluster in clusters:
        names = {
            name for pk, name in (*figures, *pods, *claims, *first, *unmetered) if pk == cluster.pk
        } | {name for pk, name in sights if pk == cluster.pk and sights[pk, name].gone_at is None}  # fmt: skip
        for name in sorted(names):
            key = (cluster.pk, name)
            claim = claims.get(key)
            standing = SYSTEM if name in cluster.system_namespaces else TENANT if claim else UNMAPPED
            held, would_cost = figures.get(key, (Held(), None))
            found.append(
                NamespaceRow(
                    cluster, name, standing, tenants.get(claim.tenant_id) if claim else None, claim, sights.get(key),
                    pods.get(key, 0), cards.get(key, 0), unmetered.get(key, 0), held, would_cost,
                    until.get(cluster.pk), first.get(key),
                )
            )  # fmt: skip
    return found


def with_gpus(rows: Iterable[NamespaceRow]) -> list[NamespaceRow]:
    """Those whose pods hold, or held in the window, cards: unmapped ones first, the dearest first."""
    order = {UNMAPPED: 0, TENANT: 1, SYSTEM: 2}
    kept = [row for row in rows if row.pods or row.held.together or row.unmetered]
    return sorted(kept, key=lambda row: (order[row.standing], -_weight(row), row.cluster.slug, row.namespace))


def adoption_of(cluster: Cluster, window: Interval | None = None) -> Adoption:
    """What is on a cluster, and whose it is."""
    window = window or this_month()
    rows = with_gpus(namespace_rows([cluster], window))
    tenants: dict[UUID, TenantRow] = {}
    for row in rows:
        if row.standing == TENANT and row.tenant is not None:
            one = tenants.setdefault(row.tenant.pk, TenantRow(row.tenant))
            one.namespaces, one.pods, one.cards = one.namespaces + 1, one.pods + row.pods, one.cards + row.cards
            one.hours = exact_sum([one.hours, row.held.tenants, row.held.starting])
            one.costs += [row.held.cost] if row.held.cost else []
    known = [row for row in rows if row.standing != UNMAPPED]
    return Adoption(
        cluster,
        window,
        known_until([cluster.pk]).get(cluster.pk),
        tuple(sorted(tenants.values(), key=lambda one: (-one.hours, one.tenant.slug))),
        tuple(row for row in rows if row.standing == UNMAPPED),
        tuple(row for row in rows if row.standing == SYSTEM),
        exact_sum([row.held.unattributed for row in known]),
        sum(row.unmetered for row in rows),
    )


def priced_sum(parts: Sequence[Priced]) -> Priced | None:
    """Amounts together; None for none. Of several currencies: the first one's, marked as not all of it."""
    if not parts:
        return None
    currency = parts[0].currency
    same = [part for part in parts if part.currency == currency]
    amounts = [part.amount for part in same if part.amount is not None]
    partly = len(same) < len(parts) or any(part.unpriced or part.amount is None for part in parts)
    return Priced(exact_sum(amounts) if amounts else None, currency, partly)


def held_since(cluster_id: UUID, namespace: str, tenant_id: UUID | None, span: Interval) -> Decimal:
    """Card-hours that a namespace's pods held in a span, charged or not; of one tenant where one is given."""
    parts = held_parts(span, [cluster_id], known_until([cluster_id]), cuts=(), namespace=namespace)
    wanted = [part for part in parts if tenant_id is None or part.tenant_id == tenant_id]
    return _hours(part.usage for part in wanted if part.bucket != Bucket.OVERHEAD)


def this_month() -> Interval:
    """The default issuer's month, until now."""
    now = utcnow()
    issuer = Issuer.objects.filter(is_default=True).first() or Issuer(time_zone="UTC", currency="")
    month = current_period(issuer, now)
    return Interval(month.start, max(now, month.start))


def known_until(cluster_ids: Iterable[UUID]) -> dict[UUID, datetime]:
    """Cluster → the instant up to which its pods and nodes are known; none for one that was never watched."""
    rows = WatchTarget.objects.filter(cluster_id__in=list(cluster_ids)).exclude(
        resource=WatchTarget.Resource.NAMESPACES
    )
    return dict(rows.values_list("cluster_id").annotate(known=Min("watermark")).filter(known__isnull=False).order_by())


# ---- inside ----------------------------------------------------------------------------------------------


def _weight(row: NamespaceRow) -> Decimal:
    cost = row.would_cost or row.held.cost
    return cost.amount if cost is not None and cost.amount is not None else row.held.together


def _figures(
    window: Interval, ids: Sequence[UUID], until: Mapping[UUID, datetime]
) -> dict[tuple[UUID, str], tuple[Held, Priced | None]]:
    issuers = _Issuers(window)
    parts = held_parts(window, ids, until, cuts=issuers.cuts, hourly=issuers.hourly, shapes=issuers.shapes)
    together: dict[tuple[UUID, str], list[HeldPart]] = defaultdict(list)
    for part in parts:
        together[part.cluster_id, part.namespace].append(part)
    found = {}
    for key, some in together.items():
        buckets: dict[str, list[HeldPart]] = defaultdict(list)
        for part in some:
            buckets[part.bucket].append(part)
        hours = {name: _hours(part.usage for part in buckets[name]) for name in Bucket.values}
        nobodys = [part.usage for part in buckets[Bucket.UNATTRIBUTED] if part.tenant_id is None]
        found[key] = (
            Held(
                hours[Bucket.TENANTS], hours[Bucket.STARTING], hours[Bucket.OVERHEAD], hours[Bucket.UNATTRIBUTED],
                issuers.cost(buckets[Bucket.TENANTS]),
            ),
            issuers.would_cost(nobodys) if nobodys else None,
        )  # fmt: skip
    return found


def _hours(sums: Iterable[UsageSum]) -> Decimal:
    return decimal_from(Fraction(sum(one.charged for one in sums), CARD_HOUR), HOURS_PLACES)


class _Issuers:
    """The issuers with their rates: who bills whom, at what price, in one window."""

    def __init__(self, window: Interval) -> None:
        self._window = window
        self._books: dict[UUID, RateBook] = {}
        self._issuers = list(Issuer.objects.all())
        self._rates = {issuer.pk: stored_rates(issuer) for issuer in self._issuers}
        self._default = next((issuer for issuer in self._issuers if issuer.is_default), None)
        accounts = dict(BillingAccount.objects.values_list("tenant_id", "issuer_id"))
        by_id = {issuer.pk: issuer for issuer in self._issuers}
        self._of = {tenant_id: by_id[issuer_id] for tenant_id, issuer_id in accounts.items()}
        every = [one for rates in self._rates.values() for one in rates]
        self.cuts = {edge for one in every for edge in (one.valid_from, one.valid_to) if edge is not None}
        self.hourly = any(one.hourly for one in every)
        self.shapes = any(
            one.included_cpu_millicores is not None or one.included_memory_mib is not None for one in every
        )

    def cost(self, parts: Sequence[HeldPart]) -> Priced | None:
        """What tenants' parts cost; None where nobody bills them."""
        by_issuer: dict[UUID, list[UsageSum]] = defaultdict(list)
        for part in parts:
            issuer = self._of.get(part.tenant_id, self._default) if part.tenant_id else None
            if issuer is not None:
                by_issuer[issuer.pk].append(part.usage)
        one = {issuer.pk: issuer for issuer in self._issuers}
        return priced_sum([self._rated(one[pk], sums) for pk, sums in by_issuer.items()])

    def would_cost(self, sums: Sequence[UsageSum]) -> Priced | None:
        """At the default issuer's rates; None where there is no issuer."""
        return self._rated(self._default, sums) if self._default is not None else None

    def _rated(self, issuer: Issuer, sums: Sequence[UsageSum]) -> Priced:
        book = self._books.get(issuer.pk)
        if book is None:
            book = book_of(issuer, self._rates[issuer.pk], self._window, last_usage_seq(), stand_in=True)
            self._books[issuer.pk] = book
        lines = rate(sums, book)
        amounts = [line.amount for line in lines if line.amount is not None]
        return Priced(
            exact_sum(amounts) if amounts else None, issuer.currency, any(not line.is_priced for line in lines)
        )


def _live_pods(ids: Sequence[UUID]) -> dict[tuple[UUID, str], int]:
    rows = PodObservation.objects.filter(cluster_id__in=ids, ended_at__isnull=True, gone_at__isnull=True)
    counted = rows.values_list("cluster_id", "namespace").annotate(pods=Count("pk")).order_by()
    return {(pk, name): pods for pk, name, pods in counted}


def _cards(ids: Sequence[UUID]) -> dict[tuple[UUID, str], int]:
    rows = DeviceAllocation.objects.filter(cluster_id__in=ids, ended_at__isnull=True)
    found: dict[tuple[UUID, str], int] = defaultdict(int)
    for pk, name, share in rows.values_list("cluster_id", "namespace", "share"):
        found[pk, name] += share
    return found


def _unmetered(ids: Sequence[UUID]) -> dict[tuple[UUID, str], int]:
    found: dict[tuple[UUID, str], int] = defaultdict(int)
    for pk, entries in MeterProgress.objects.filter(cluster_id__in=ids).values_list("cluster_id", "unmetered"):
        for entry in entries.values():
            found[pk, entry["namespace"]] += 1
    return found
