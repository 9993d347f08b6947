"""What whoever is on call looks at first: is writing stopped, do clusters answer, how long are credentials good."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Literal

from django.conf import settings
from django.db import connection

from infra.credentials import renew_at, warn_from
from infra.models import Cluster, WriteStop
from infra.selectors.clusters import cluster_list
from portal.kernel.conditions import get_condition

SEEN_SECONDS = 180
"""A cluster that was not reached for so long (three probes) counts as not reached, whatever its condition says."""


@dataclass(frozen=True, slots=True)
class Stopped:
    """All writing is stopped. ``by_setting``: through the environment, so nobody can resume it from a page."""

    by: str
    reason: str
    at: datetime | None
    by_setting: bool = False


def write_stop() -> Stopped | None:
    """Whether all writing to clusters is stopped, by whom and why; ``None``: it is not."""
    if settings.AIF_STOP_WRITES:
        return Stopped("the setting AIF_STOP_WRITES", "it is set for this process", None, by_setting=True)
    row = WriteStop.objects.first()
    return None if row is None else Stopped(row.stopped_by, row.reason, row.stopped_at)


@dataclass(frozen=True, slots=True)
class ClusterPart:
    """One cluster as a part of the installation. ``reached`` ``None``: not known (not asked yet, or not lately)."""

    cluster: Cluster
    reached: bool | None
    message: str


def cluster_parts(now: datetime) -> list[ClusterPart]:
    """Each connected cluster, and whether its API server answered lately. Asks the database alone."""
    return [_part(cluster, now) for cluster in cluster_list()]


def _part(cluster: Cluster, now: datetime) -> ClusterPart:
    condition = get_condition(cluster.conditions, "Reachable")
    if condition is None:
        return ClusterPart(cluster, None, "It has not been asked yet.")
    if condition.status == "False":
        return ClusterPart(cluster, False, condition.message or condition.reason)
    if cluster.last_seen_at is None or now - cluster.last_seen_at > timedelta(seconds=SEEN_SECONDS):
        return ClusterPart(cluster, None, condition.message or "It was not reached lately: no worker probes it.")
    return ClusterPart(cluster, True, "")


@dataclass(frozen=True, slots=True)
class CredentialState:
    """How long a cluster's credentials are good.

    ``state``: ``expired``, ``soon`` (past the warning), ``good``, ``unknown`` (they do not say when they end).
    ``renew_at``: when the portal renews them by itself; ``None``: it does not, and why is in ``told``.
    """

    cluster: Cluster
    state: Literal["expired", "soon", "good", "unknown"]
    warn_from: datetime | None
    renew_at: datetime | None
    told: str


def credential_states(now: datetime) -> list[CredentialState]:
    """Each connected cluster's credentials, those that end first before the others."""
    found = [_credentials(cluster, now) for cluster in cluster_list()]
    return sorted(found, key=lambda one: one.cluster.credential_expires_at or datetime.max.replace(tzinfo=now.tzinfo))


def _credentials(cluster: Cluster, now: datetime) -> CredentialState:
    condition = get_condition(cluster.conditions, "CredentialsRenewed")
    told = "" if condition is None else condition.message or condition.reason
    renews = condition is not None and condition.status == "True"
    ends, issued = cluster.credential_expires_at, cluster.credential_issued_at
    if ends is None:
        return CredentialState(cluster, "unknown", None, None, told)
    warn = warn_from(issued, ends)
    state: Literal["expired", "soon", "good"] = "expired" if ends <= now else "soon" if warn <= now else "good"
    return CredentialState(cluster, state, warn, renew_at(issued, ends) if renews else None, told)


def database_clock() -> datetime:
    """Now, by the database's clock, which leases and heartbeats are written with."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT now()")
        row = cursor.fetchone()
    assert row is not None  # a SELECT without FROM has one row
    now: datetime = row[0]
    return now
