"""Tenants, their people, and their namespaces on clusters."""

from django.conf import settings
from django.db import models
from django.db.models.functions import Now

from infra.models import Cluster, Site
from portal.kernel.scoping import Global, TenantOwned


class Zone(Global):
    """A trust zone: only tenants of one zone may share a card. A tenant alone in its zone is dedicated."""

    slug = models.SlugField(max_length=40, unique=True)
    name = models.CharField(max_length=120)
    created_at = models.DateTimeField(db_default=Now())

    class Meta:
        ordering = ["slug"]

    def __str__(self) -> str:
        return self.slug


class Tenant(Global):
    """A team that pays. Global, because it must be found before a scope can be opened."""

    class State(models.TextChoices):
        ACTIVE = "active", "active"
        SUSPENDED = "suspended", "suspended"

    slug = models.SlugField(max_length=40, unique=True)
    name = models.CharField(max_length=120)
    zone = models.ForeignKey(Zone, on_delete=models.PROTECT, related_name="tenants")
    state = models.CharField(max_length=10, choices=State.choices, default=State.ACTIVE)
    sites = models.ManyToManyField(Site, through="TenantSite", related_name="+")
    cost_code = models.CharField(max_length=60, blank=True)
    cost_code_required = models.BooleanField(default=False)
    image_registries = models.JSONField(
        default=None, null=True, blank=True, help_text="Registries or repositories it may run from; unset: any."
    )
    pin_image_digests = models.BooleanField(default=False, help_text="Images must be given with their digest.")
    allow_remote_code = models.BooleanField(default=False, help_text="--trust-remote-code and the like.")
    free_shares = models.BooleanField(
        default=False, help_text="Shares of cards may state memory and cores of their own, beside the named parts."
    )
    namespace_limits = models.JSONField(
        default=dict, blank=True, help_text='More keys of its namespaces\' ResourceQuota: {"pods": "200"}.'
    )
    generation = models.PositiveBigIntegerField(default=1)
    created_at = models.DateTimeField(db_default=Now())

    class Meta:
        ordering = ["slug"]

    def __str__(self) -> str:
        return self.slug

    @property
    def namespace(self) -> str:
        """The tenant's host namespace on every managed cluster."""
        return f"t-{self.slug}"


class TenantSite(Global):
    """A site that a tenant may use. None at all means none, not every."""

    tenant = models.ForeignKey(Tenant, on_delete=models.CASCADE, related_name="site_rows")
    site = models.ForeignKey(Site, on_delete=models.PROTECT, related_name="+")

    class Meta:
        constraints = [models.UniqueConstraint(fields=["tenant", "site"], name="tenant_site_unique")]


class Member(Global):
    """A user's role in a tenant."""

    class Role(models.TextChoices):
        OWNER = "owner", "owner"
        DEVELOPER = "developer", "developer"
        VIEWER = "viewer", "viewer"
        FINANCE = "finance", "finance"

    class Source(models.TextChoices):
        MANUAL = "manual", "added in the portal"
        IDP = "idp", "from a group at sign-in"

    tenant = models.ForeignKey(Tenant, on_delete=models.CASCADE, related_name="members")
    user = models.ForeignKey(settings.AUTH_USER_MODEL, on_delete=models.CASCADE, related_name="memberships")
    role = models.CharField(max_length=10, choices=Role.choices)
    source = models.CharField(max_length=8, choices=Source.choices, default=Source.MANUAL)
    created_at = models.DateTimeField(db_default=Now())

    class Meta:
        constraints = [models.UniqueConstraint(fields=["tenant", "user"], name="member_unique")]


class TenantNamespace(TenantOwned):
    """A namespace of the tenant on a managed cluster, with its bundle (quota, limits, network, RBAC): ``t-…`` for its
    deployments, ``vc-…`` around its tenant cluster."""

    class Purpose(models.TextChoices):
        DEPLOYMENTS = "deployments", "model deployments"
        TENANT_CLUSTER = "tenant-cluster", "the tenant cluster"

    tenant = models.ForeignKey(Tenant, on_delete=models.PROTECT, related_name="+")
    cluster = models.ForeignKey(Cluster, on_delete=models.PROTECT, related_name="+")
    name = models.CharField(max_length=63)
    purpose = models.CharField(max_length=16, choices=Purpose.choices, default=Purpose.DEPLOYMENTS)
    generation = models.PositiveBigIntegerField(default=1)
    observed_generation = models.PositiveBigIntegerField(default=0)
    conditions = models.JSONField(default=list, blank=True)
    deleting_at = models.DateTimeField(null=True, blank=True)
    created_at = models.DateTimeField(db_default=Now())

    class Meta:
        constraints = [
            models.UniqueConstraint(fields=["tenant", "cluster", "name"], name="tenant_namespace_unique"),
        ]

    @property
    def takes_cards(self) -> bool:
        """Whether cards can be handed over to it: it stays, on a cluster that is managed and not given up."""
        return (
            self.deleting_at is None and self.cluster.mode == Cluster.Mode.MANAGE and self.cluster.abandoned_at is None
        )
