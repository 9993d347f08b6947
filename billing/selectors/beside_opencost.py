"""Our card-hours and cost beside OpenCost's: by cluster, namespace and UTC day, each difference taken apart.

Compared are the hours for which OpenCost's answer was taken and ours are final. Everything is computed when the page is
asked for, from what is stored: allocations, evidence of containers, and the rows of the answers.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field
from datetime import date, datetime
from decimal import Decimal
from fractions import Fraction
from uuid import UUID

from django.db.models import Min, Q

from billing.locks import last_usage_seq
from billing.models import Bucket, DeviceAllocation, Issuer, MeterProgress, OpenCostAnswer, OpenCostRow
from billing.opencost.compare import Class, Difference, Run, compare, together
from billing.prices import book_of, stored_rates
from billing.rates import RateBook, RateKey, Resource
from billing.selectors.allocations import overlapping
from billing.selectors.opencost import answers
from infra.evidence import ContainerEvidence
from infra.models import Cluster, NamespaceClaim, PodObservation, WatchSpan, WatchTarget
from infra.models.evidence import EvidenceSource
from infra.pod_devices import ContainerKind
from infra.pod_reading import load_evidence
from portal.kernel.clock import HOUR, Interval, clip
from portal.kernel.money import decimal_from

HELD = (Bucket.TENANTS, Bucket.UNATTRIBUTED, Bucket.OVERHEAD)
"""Buckets of pods that ran; *starting* is not among them, and OpenCost does not count it either."""
MONEY_PLACES = 6


@dataclass(frozen=True, slots=True)
class Beside:
    """A namespace of a cluster on a day. Seconds of cards are exact; amounts to six decimals.

    ``hours``: how many hours are compared. ``our_cost`` is at the rate in force at the start of each hour, of the
    default issuer; None where some of it has no rate. ``price``: the part of the difference in money that is another
    price of a card-hour, not other hours; None where the two can't be compared.
    """

    cluster: str
    namespace: str
    day: date
    tenant_ids: frozenset[UUID]
    hours: int
    found: Difference
    our_cost: Decimal | None
    their_cost: Decimal
    currency: str
    their_currency: str
    price: Decimal | None

    @property
    def our_hours(self) -> Decimal:
        """Card-hours of ours."""
        return _hours(self.found.ours)

    @property
    def their_hours(self) -> Decimal | None:
        """Card-hours of OpenCost; None where it has no row."""
        return None if self.found.theirs is None else _hours(self.found.theirs)

    @property
    def difference(self) -> Decimal:
        """Theirs less ours, in card-hours."""
        return _hours(self.found.difference)

    @property
    def parts(self) -> list[tuple[Class, Decimal]]:
        """The classes with their card-hours, without mere rounding."""
        return [(name, _hours(seconds)) for name, seconds in self.found.parts if name is not Class.ROUNDING]

    @property
    def unexplained(self) -> Decimal:
        """What no evidence explains, in card-hours."""
        return _hours(dict(self.found.parts).get(Class.UNEXPLAINED, Fraction(0)))

    @property
    def has_other_price(self) -> bool:
        """Whether the price of a card-hour differs by more than a thousandth of the cost (and of a cent)."""
        least = max(self.their_cost / 1000, Decimal("0.01"))
        return self.price is not None and abs(self.price) > least

    @property
    def cost_difference(self) -> Decimal | None:
        """Theirs less ours in money; None where currencies differ or ours has no price."""
        if self.our_cost is None or self.currency != self.their_currency:
            return None
        return self.their_cost - self.our_cost


@dataclass(frozen=True, slots=True)
class Page:
    """The rows, and what could not be compared: (cluster, hours without a taken answer) of the window so far."""

    rows: tuple[Beside, ...]
    silent: tuple[tuple[str, int], ...]
    compared: int


@dataclass
class _Cell:
    """What is gathered of one namespace on one day."""

    found: list[Difference] = field(default_factory=list)
    hours: set[datetime] = field(default_factory=set)
    tenants: set[UUID] = field(default_factory=set)
    ours: Fraction = field(default_factory=Fraction)
    unpriced: bool = False
    theirs: Decimal = Decimal(0)
    their_currency: str = ""


def beside_opencost(
    window: Interval,
    *,
    cluster_id: UUID | None = None,
    namespaces: Collection[tuple[UUID, str]] | None = None,
    now: datetime | None = None,
) -> Page:
    """The comparison of a window of whole UTC days. Within a system scope, or the scope of a tenant.

    Args:
        namespaces: only these of (cluster, namespace): a tenant's. None: all.
    """
    taken: dict[UUID, list[OpenCostAnswer]] = defaultdict(list)
    for answer in answers(window, cluster_id=cluster_id):
        taken[answer.cluster_id].append(answer)
    clusters = Cluster.objects.filter(pk__in=taken) if cluster_id is None else Cluster.objects.filter(pk=cluster_id)
    final: dict[UUID, datetime | None] = dict(MeterProgress.objects.values_list("cluster_id", "final_until"))
    issuer = Issuer.objects.filter(is_default=True).first()
    book = book_of(issuer, stored_rates(issuer), window, last_usage_seq()) if issuer else None
    rows: list[Beside] = []
    silent, compared = [], 0
    for cluster in clusters.order_by("slug"):
        until = final.get(cluster.pk)
        both = [answer for answer in taken[cluster.pk] if until is not None and answer.hour < until]
        compared += len(both)
        past = int((min(window.end, until) - window.start) / HOUR) if until is not None else 0
        if past > len(both):
            silent.append((cluster.slug, past - len(both)))
        wanted = None if namespaces is None else {name for pk, name in namespaces if pk == cluster.pk}
        if both and wanted != set():
            rows += _of_cluster(cluster, both, wanted, issuer, book)
    rows.sort(key=lambda row: (-row.day.toordinal(), row.cluster, -abs(row.found.difference), row.namespace))
    return Page(tuple(rows), tuple(silent), compared)


def tenant_namespaces(tenant_id: UUID, window: Interval) -> list[tuple[UUID, str]]:
    """(cluster, namespace) that were a tenant's at some time of a window."""
    rows = NamespaceClaim.objects.filter(
        Q(valid_to__isnull=True) | Q(valid_to__gt=window.start), tenant_id=tenant_id, valid_from__lt=window.end
    )
    return sorted(set(rows.values_list("cluster_id", "namespace")))


def _of_cluster(
    cluster: Cluster, taken: Sequence[OpenCostAnswer], wanted: set[str] | None, issuer: Issuer | None,
    book: RateBook | None,
) -> list[Beside]:  # fmt: skip
    whole = Interval(min(one.hour for one in taken), max(one.hour for one in taken) + HOUR)
    watched = WatchSpan.objects.filter(target__cluster=cluster, target__resource=WatchTarget.Resource.PODS)
    watched_from = watched.aggregate(first=Min("started_at"))["first"]
    allocations = _allocations(cluster, whole, wanted)
    running = _running(cluster, allocations, whole)
    by_answer: dict[UUID, dict[tuple[str, str], OpenCostRow]] = defaultdict(dict)
    found = OpenCostRow.objects.filter(answer__in=[one.pk for one in taken], special="")
    for row in found if wanted is None else found.filter(namespace__in=wanted):
        by_answer[row.answer_id][row.namespace, row.pod] = row
    cells: dict[tuple[date, str], _Cell] = defaultdict(_Cell)
    for answer in taken:
        hour = Interval(answer.hour, answer.hour + HOUR)
        runs = _runs(hour, allocations, running)
        theirs = by_answer[answer.pk]
        for key in sorted({*runs, *(key for key in theirs if key[1])}):
            their = theirs.get(key)
            seconds = Fraction(their.gpu_hours) * 3600 if their is not None else None
            one = compare(hour, [run for run, _ in runs.get(key, [])], seconds, watched_from=watched_from)
            if not one.ours and not one.theirs:
                continue
            cell = cells[hour.start.date(), key[0]]
            cell.found.append(one)
            cell.hours.add(hour.start)
            cell.theirs += their.gpu_cost if their is not None else Decimal(0)
            cell.their_currency = answer.currency
            for run, allocation in runs.get(key, []):
                _price(cell, run, allocation, hour, book)
    currency = issuer.currency if issuer else ""
    return [_row(cluster.slug, key, cell, currency) for key, cell in cells.items()]


def _allocations(cluster: Cluster, whole: Interval, wanted: set[str] | None) -> list[DeviceAllocation]:
    rows = DeviceAllocation.objects.filter(overlapping(whole), cluster=cluster, bucket__in=HELD)
    if wanted is not None:
        rows = rows.filter(namespace__in=wanted)
    return list(rows.select_related("gpu_type").order_by("namespace", "pod_name", "pod_uid", "resource", "ordinal"))


def _running(cluster: Cluster, allocations: Iterable[DeviceAllocation], whole: Interval) -> dict[str, Interval]:
    """When the main containers of pods ran that began or ended within; of all others nothing has to be known."""
    edged = {
        row.pod_uid
        for row in allocations
        if row.started_at > whole.start or (row.ended_at is not None and row.ended_at < whole.end)
    }
    found = {}
    for row in PodObservation.objects.filter(cluster=cluster, uid__in=edged).only("uid", "evidence"):
        try:
            containers = load_evidence(row.evidence).containers
        except ValueError:
            continue
        interval = _main(containers, whole)
        if interval is not None:
            found[row.uid] = interval
    return found


def _main(containers: Iterable[ContainerEvidence], whole: Interval) -> Interval | None:
    mains = [one for one in containers if one.kind is ContainerKind.MAIN and one.first_started_at is not None]
    if not mains:
        return None
    start = min(one.first_started_at for one in mains if one.first_started_at is not None)
    ended = all(one.state == "terminated" and one.last_finished_at is not None for one in mains)
    ends = [one.last_finished_at for one in mains if one.last_finished_at is not None]
    end = max(ends) if ended else max(whole.end, start)
    return Interval(start, max(start, end))


def _runs(
    hour: Interval, allocations: Iterable[DeviceAllocation], running: dict[str, Interval]
) -> dict[tuple[str, str], list[tuple[Run, DeviceAllocation]]]:
    found: dict[tuple[str, str], list[tuple[Run, DeviceAllocation]]] = defaultdict(list)
    for row in allocations:
        held = clip(Interval(row.started_at, max(row.started_at, row.ended_at or hour.end)), hour)
        if held is None or held.is_empty:
            continue
        ran = None
        if row.pod_uid in running:
            ran = clip(running[row.pod_uid], held) or Interval(held.start, held.start)
        weak = row.source == EvidenceSource.RETROACTIVE or (row.first_day and row.started_at > hour.start)
        run = Run(row.pod_uid, row.sharing, 1, row.exact_share, held, ran, weak)
        found[row.namespace, row.pod_name].append((run, row))
    return found


def _price(cell: _Cell, run: Run, row: DeviceAllocation, hour: Interval, book: RateBook | None) -> None:
    """What the run costs at the rate in force where it begins."""
    if row.tenant_id is not None:
        cell.tenants.add(row.tenant_id)
    slug = row.gpu_type.slug if row.gpu_type else ""
    key = RateKey(Resource.GPU, slug, row.sharing, row.profile)
    at = Interval(run.held.start, run.held.start)
    rate = book.for_segment(key, at) if book is not None else None
    price = rate.unit_price if rate is not None else None
    cards = Fraction(row.share, 1_000_000)
    if rate is not None and rate.hourly and book is not None:
        cost, _ = book.costs.find(key, str(row.cluster_id), hour.start)
        price = Fraction(cost.price) * (1 + Fraction(rate.margin)) if cost else None
    elif row.sharing == "mig":
        cards = Fraction(1)  # an instance has a price of its own
    if price is None:
        cell.unpriced = True
    else:
        cell.ours += price * cards * Fraction(run.held.ms, 3_600_000)


def _row(cluster: str, key: tuple[date, str], cell: _Cell, currency: str) -> Beside:
    found = together(cell.found)
    ours = None if cell.unpriced else decimal_from(cell.ours, MONEY_PLACES)
    price = None
    if ours is not None and currency == cell.their_currency and found.ours:
        at_ours = (found.theirs or Fraction(0)) * cell.ours / found.ours
        price = cell.theirs - decimal_from(at_ours, MONEY_PLACES)
    return Beside(
        cluster, key[1], key[0], frozenset(cell.tenants), len(cell.hours), found, ours, cell.theirs, currency,
        cell.their_currency, price,
    )  # fmt: skip


def _hours(seconds: Fraction) -> Decimal:
    return decimal_from(seconds / 3600, 6)
