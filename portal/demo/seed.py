"""The whole demonstration, in order; a second run finds what is there and adds nothing."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

from billing.models import BillingPeriod, Issuer, Rate, RateCard
from billing.services.close import period_close
from billing.services.metering import meter_cluster
from billing.services.periods import periods_ensure
from billing.services.rates import rate_set
from billing.services.setup import issuer_ensure, rates_ensure
from infra.models import Cluster, GPUType
from infra.models.hardware import SharingMode
from infra.services.claims import namespace_claim_set
from portal.demo.fleet import clusters_ensure, list_once
from portal.demo.history import history_tell
from portal.demo.identities import Identities
from portal.demo.opencost import opencost_ensure
from portal.demo.parallel import side_by_side
from portal.demo.people import admin, people_ensure, quotas_ensure, teams_ensure
from portal.demo.tenantclusters import tenant_cluster_ensure
from portal.kernel.actors import Actor
from portal.kernel.clock import period_of, previous_period, utcnow
from portal.kernel.problems import Problem
from tenants.models import Tenant

CLAIMS = {
    ("gpu-fra-1", "t-ml-team"): "ml-team",
    ("gpu-hel-1", "t-ml-team"): "ml-team",
    ("gpu-fra-1", "team-vision"): "team-vision",
    ("gpu-fra-2", "team-lab"): "ml-team",
    ("gpu-hel-1", "team-course"): "team-vision",
}
PRICES = {
    ("H100", SharingMode.WHOLE, ""): "2.95",
    ("H100", SharingMode.MIG, "1g.10gb"): "0.48",
    ("L4", SharingMode.WHOLE, ""): "0.62",
    ("A100", SharingMode.WHOLE, ""): "1.85",
    ("A100", SharingMode.HAMI, ""): "1.85",
}
"""EUR for a card (or a MIG instance) for an hour, by a word of the GPU type's name."""
LATER_PRICE = ("L4", SharingMode.WHOLE, "", "0.55")


def seed(
    fleet: Mapping[str, Mapping[str, Any]],
    logins: Path | None,
    identities: Identities | None = None,
    pool: Mapping[str, Mapping[str, Any]] | None = None,
) -> list[dict[str, str]]:
    """Make or complete the demonstration; the logins to tell.

    Args:
        identities: who is who at the identity provider, where people sign in there: their groups give the roles then.
        pool: API servers that stand in for tenant clusters, by name.
    """
    people = people_ensure(logins, roles=identities is None)
    actor = admin()
    tenants = teams_ensure(actor, members=identities is None)
    if identities is not None:
        identities.ensure(tenants, actor)
    clusters = clusters_ensure(fleet, actor)
    issuer = issuer_ensure(actor=actor, slug="ai-factory", name="AI Factory", currency="EUR", grace_hours=1)
    if clusters and not BillingPeriod.objects.filter(state=BillingPeriod.State.CLOSED).exists():
        _past(tenants, clusters, issuer, actor)
    tenant_cluster_ensure(tenants, clusters, pool or {}, actor)
    return people


def _past(tenants: dict[str, Tenant], clusters: dict[str, Cluster], issuer: Issuer, actor: Actor) -> None:
    now = utcnow().replace(second=0, microsecond=0) - timedelta(minutes=2)
    this_month = period_of(now, issuer.time_zone)
    last_month = previous_period(this_month)
    list_once(clusters)
    quotas_ensure(tenants, actor)
    _prices(issuer, last_month.start, actor)
    for (name, namespace), slug in CLAIMS.items():
        namespace_claim_set(
            cluster=clusters[name],
            namespace=namespace,
            tenant_id=tenants[slug].pk,
            valid_from=last_month.start,
            cost_code=tenants[slug].cost_code,
            actor=actor,
        )

    def tell(name: str) -> None:
        history_tell(name, clusters[name], last_month.start, now)
        while not meter_cluster(clusters[name].pk).done:
            pass

    side_by_side(tell, clusters)
    opencost_ensure(clusters, last_month.start, now, actor)
    periods_ensure(issuer)
    period = BillingPeriod.objects.get(issuer=issuer, starts_at=last_month.start)
    try:
        period_close(period=period, actor=actor)
    except Problem as problem:
        # Within the first hour of a month the last one is not final yet: it stays open, and closes with a click.
        print(f"The last month is not closed: {problem.detail}")  # noqa: T201  # the command's output


def _prices(issuer: Issuer, since: datetime, actor: Actor) -> None:
    card = RateCard.objects.get(issuer=issuer)
    for (word, sharing, profile), price in PRICES.items():
        for gpu_type in GPUType.objects.filter(name__contains=word):
            key = (gpu_type.slug, str(sharing), profile)
            rates_ensure(card, {key: Decimal(price)}, valid_from=since, actor=actor)
    word, sharing, profile, price = LATER_PRICE
    middle = since + timedelta(days=14)
    later = Rate.objects.filter(card=card, valid_from=middle).values("gpu_type")
    for gpu_type in GPUType.objects.filter(name__contains=word).exclude(pk__in=later):
        rate_set(
            card=card,
            gpu_type=gpu_type,
            sharing=str(sharing),
            profile=profile,
            price=Decimal(price),
            valid_from=middle,
            actor=actor,
        )
