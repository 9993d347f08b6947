"""Ways into a tenant cluster: the kubeconfig for people, which holds no secret, and robots with short-lived tokens."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta

from django.conf import settings

from infra.adapters.oidc import member_kubeconfig
from infra.adapters.vcluster_state import SecretRefused
from infra.credentials import service_account_token
from infra.kube.client import KubeClient
from infra.kube.errors import KubeError
from portal.kernel import audit, workqueue
from portal.kernel.actors import Actor
from portal.kernel.clock import utcnow
from portal.kernel.models import AuditEvent
from portal.kernel.problems import Conflict, Invalid, NotFound, TooManyRequests, Unavailable
from portal.kernel.scoping import tenant_scope
from tenants.models import Robot, Tenant, TenantCluster
from tenants.permissions import Perm, require
from tenants.services.tenants import checked_slug
from tenants.tenantclusters.inside import robot_token as token_from
from tenants.tenantclusters.inside import way_in
from tenants.tenantclusters.profile import sign_in_for
from tenants.tenantclusters.provisioner import OWNER_KIND

SHORTEST_SECONDS = 600
"""What the Kubernetes API takes as the shortest life of a token."""
LONGEST_HOURS = 24
A_MINUTE = timedelta(minutes=1)
MOST_A_MINUTE = 20


@dataclass(frozen=True, repr=False)
class IssuedToken:
    """A robot's token, shown once. ``expires_at`` is the token's own word."""

    token: str
    expires_at: datetime

    def __repr__(self) -> str:
        return f"IssuedToken(…, expires_at={self.expires_at!r})"


def tenant_cluster_kubeconfig(*, row: TenantCluster, actor: Actor) -> str:
    """The kubeconfig for the tenant's people, YAML. It names the identity provider and holds no secret.

    Raises:
        Forbidden: not a member who may use it. Conflict: the tenant is suspended, there is no identity provider, or
            the endpoint's authority is not known yet. TooManyRequests: many were fetched in a minute.
    """
    require(actor, Perm.CLUSTER_USE, row.tenant)
    _require_active(row)
    sign_in = sign_in_for(row.audience)
    if sign_in is None:
        raise Conflict(
            "This platform has no identity provider (AIF_OIDC_ISSUER), so people have no way into tenant clusters. "
            "A robot's token is one."
        )
    if not row.ca_pem:
        raise Conflict(
            f"The tenant cluster on {row.cluster.slug} has not answered yet, so the authority of its endpoint is not "
            "known. Wait until it is Ready."
        )
    with tenant_scope(row.tenant_id):
        _slow_down(row, actor, "tenant_cluster_kubeconfig")
        _record("tenant_cluster_kubeconfig", row, actor, f"{row.name} on {row.cluster.slug}")
    context = f"{row.name}-{row.cluster.slug}"
    return member_kubeconfig(context=context, server=row.endpoint, ca_pem=row.ca_pem, sign_in=sign_in)


def robot_create(*, row: TenantCluster, name: str, role: str, actor: Actor) -> Robot:
    """Make a robot: the reconciler makes its ServiceAccount inside, then tokens can be asked for.

    Raises:
        Invalid: the name or the role can't be used. Conflict: there is one of that name.
    """
    require(actor, Perm.CLUSTER_MANAGE, row.tenant)
    _require_active(row)
    name = checked_slug(name, "/name")
    if role not in Robot.Role.values:
        raise Invalid.field("/role", f"Use one of: {', '.join(Robot.Role.values)}.")
    with tenant_scope(row.tenant_id):
        row = _alive(row)
        if Robot.objects.filter(tenant_cluster=row, name=name, deleted_at__isnull=True).exists():
            raise Conflict(f"There is a robot {name} already. Choose another name, or delete that one first.")
        robot = Robot.objects.create(
            tenant=row.tenant, tenant_cluster=row, name=name, role=role, created_by=actor.label[:150]
        )
        _record("robot_create", row, actor, f"robot {name}", after={"role": role})
        _mark(row)
        return robot


def robot_delete(*, robot: Robot, actor: Actor) -> Robot:
    """Take a robot's access away: its ServiceAccount is deleted, and with it every token of it. Again is no fault."""
    row = _cluster_of(robot)
    require(actor, Perm.CLUSTER_MANAGE, row.tenant)
    with tenant_scope(row.tenant_id):
        robot = Robot.objects.select_for_update(no_key=True, of=("self",)).get(pk=robot.pk)
        if robot.deleting_at is None:
            robot.deleting_at = utcnow()
            robot.save(update_fields=["deleting_at"])
            _record("robot_delete", row, actor, f"robot {robot.name}")
            _mark(row)
        return robot


def robot_token(*, robot: Robot, actor: Actor, seconds: int | None = None) -> IssuedToken:
    """Ask the tenant cluster for a token of a robot, to be shown once.

    This asks a cluster while somebody waits, as only the probe at connecting and the reading of logs do otherwise:
    a token that is made by a reconciler would have to be kept until it is fetched. This one is never stored, in no
    form. Two requests, each bounded by the client's own timeouts; no transaction is open, and nothing is tried again.

    Args:
        seconds: wanted life; ``None``: the longest that the platform allows.

    Raises:
        Invalid: a life that is too short or too long. Conflict: the tenant is suspended, the tenant cluster does not
            run, or the robot is not there yet. Unavailable: a cluster did not answer.
    """
    row = _cluster_of(robot)
    require(actor, Perm.CLUSTER_MANAGE, row.tenant)
    _require_active(row)
    life = _checked_life(seconds)
    if row.desired == TenantCluster.Desired.PAUSED or row.deleting_at is not None:
        raise Conflict(f"The tenant cluster on {row.cluster.slug} does not run, so it makes no token. Resume it first.")
    if robot.ready_at is None or robot.deleting_at is not None:
        raise Conflict(f"Robot {robot.name} is not there (yet). Wait until the list says it is ready.")
    with tenant_scope(row.tenant_id):
        _slow_down(row, actor, "robot_token")
    token = _asked(row, robot, life)
    told = service_account_token(token)
    if told is None:
        raise Unavailable(f"The tenant cluster on {row.cluster.slug} answered without a token. Try again later.")
    with tenant_scope(row.tenant_id):
        Robot.objects.filter(pk=robot.pk).update(token_issued_at=utcnow(), token_expires_at=told.expires_at)
        _record("robot_token", row, actor, f"robot {robot.name}", after={"ends": told.expires_at.isoformat()})
    return IssuedToken(token, told.expires_at)


def longest_life() -> int:
    """Seconds that a robot's token may live at most."""
    return min(settings.AIF_TENANT_CLUSTER_TOKEN_HOURS, LONGEST_HOURS) * 3600


def _asked(row: TenantCluster, robot: Robot, life: int) -> str:
    try:
        secret = KubeClient.for_cluster(row.cluster).get("v1", "Secret", f"vc-{row.name}", row.namespace)
        with way_in(secret, host=row.cluster, name=row.name, endpoint=row.endpoint) as (client, _):
            return token_from(client, robot, life)
    except SecretRefused as error:
        raise Conflict(str(error)) from None
    except KubeError as error:
        raise Unavailable(f"No token could be had: {error.sentence}") from None


def _checked_life(seconds: int | None) -> int:
    longest = longest_life()
    life = longest if seconds is None else seconds
    if not SHORTEST_SECONDS <= life <= longest:
        raise Invalid.field("/seconds", f"A token lives {SHORTEST_SECONDS} to {longest} seconds here, not {life}.")
    return life


def _require_active(row: TenantCluster) -> None:
    if row.tenant.state != Tenant.State.ACTIVE:
        raise Conflict(f"Tenant {row.tenant.slug} is suspended: nobody gets a way into its clusters.")


def _slow_down(row: TenantCluster, actor: Actor, verb: str) -> None:
    since = utcnow() - A_MINUTE
    lately = AuditEvent.objects.filter(tenant_id=row.tenant_id, verb=verb, actor_id=actor.id, at__gte=since)
    if lately.count() >= MOST_A_MINUTE:
        raise TooManyRequests(f"More than {MOST_A_MINUTE} of these in a minute. Keep the one you have.", retry_after=60)


def _cluster_of(robot: Robot) -> TenantCluster:
    with tenant_scope(robot.tenant_id):
        rows = TenantCluster.objects.select_related("tenant", "cluster")
        return rows.get(pk=robot.tenant_cluster_id)


def _alive(row: TenantCluster) -> TenantCluster:
    rows = TenantCluster.objects.select_for_update(of=("self",), no_key=True).select_related("tenant", "cluster")
    found = rows.filter(pk=row.pk, deleting_at__isnull=True, deleted_at__isnull=True).first()
    if found is None:
        raise NotFound(f"The tenant cluster of {row.tenant.slug} on {row.cluster.slug} is gone, or being deleted.")
    return found


def _mark(row: TenantCluster) -> None:
    workqueue.mark(OWNER_KIND, row.pk, cluster_id=row.cluster_id, tenant_id=row.tenant_id)


def _record(verb: str, row: TenantCluster, actor: Actor, name: str, after: dict[str, str] | None = None) -> None:
    audit.record(
        verb,
        actor=actor,
        tenant_id=row.tenant_id,
        object_kind="tenantcluster",
        object_id=row.pk,
        object_name=name,
        after=after,
    )
