"""Sites and clusters: where the cards are, and how we reach them."""

from django.db import models
from django.db.models.functions import Now

from portal.kernel.scoping import Global


class Site(Global):
    """A data centre. A tenant may use only the sites it is allowed."""

    slug = models.SlugField(max_length=40, unique=True)
    name = models.CharField(max_length=120)
    created_at = models.DateTimeField(db_default=Now())

    class Meta:
        ordering = ["slug"]

    def __str__(self) -> str:
        return self.slug


class Cluster(Global):
    """A Kubernetes cluster that was connected with a kubeconfig.

    ``labels`` are what a deployment's ``clusterSelector`` matches, ``taints`` what it must tolerate;
    both are ours, not the cluster's. ``system_namespaces`` is an explicit list: their GPU time is overhead.
    """

    class Mode(models.TextChoices):
        OBSERVE = "observe", "observe (never written to)"
        MANAGE = "manage", "manage"

    slug = models.SlugField(max_length=40, unique=True)
    name = models.CharField(max_length=120)
    site = models.ForeignKey(Site, on_delete=models.PROTECT, related_name="clusters")
    mode = models.CharField(max_length=8, choices=Mode.choices, default=Mode.OBSERVE)
    paused = models.BooleanField(default=False, help_text="While set, nothing is written to the cluster.")
    labels = models.JSONField(default=dict, blank=True)
    taints = models.JSONField(default=list, blank=True)
    system_namespaces = models.JSONField(default=list, blank=True)

    api_server = models.URLField(max_length=400)
    kubeconfig_ciphertext = models.BinaryField(editable=False)
    credential_expires_at = models.DateTimeField(null=True, blank=True)
    credential_issued_at = models.DateTimeField(
        null=True, blank=True, help_text="From when they are good; empty: not known."
    )
    kubernetes_version = models.CharField(max_length=40, blank=True)
    rights = models.JSONField(
        default=dict, blank=True, help_text="infra.rights.RightsReport as JSON; empty: not asked."
    )
    rights_checked_at = models.DateTimeField(
        null=True, blank=True, help_text="Empty: they are asked for at the next probe."
    )
    isolation = models.JSONField(
        default=dict, blank=True, help_text="What keeps tenants apart there, as the cluster told (infra.isolation)."
    )
    isolation_said = models.JSONField(
        default=dict, blank=True, help_text="What platform-admins declared, and what they accepted (infra.isolation)."
    )
    isolation_wanted = models.BooleanField(default=True, help_text="Unset: our admission policies are taken down.")
    identity = models.CharField(
        max_length=64, unique=True, help_text="UID of the namespace kube-system: one cluster is connected once."
    )

    generation = models.PositiveBigIntegerField(default=1)
    conditions = models.JSONField(default=list, blank=True)
    last_seen_at = models.DateTimeField(null=True, blank=True)
    abandoned_at = models.DateTimeField(null=True, blank=True)
    abandoned_reason = models.TextField(blank=True)
    created_at = models.DateTimeField(db_default=Now())

    class Meta:
        ordering = ["slug"]

    def __str__(self) -> str:
        return self.slug

    @property
    def writable(self) -> bool:
        """Whether the portal may write to the cluster now."""
        return self.mode == self.Mode.MANAGE and not self.paused and self.abandoned_at is None
