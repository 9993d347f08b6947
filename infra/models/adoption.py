"""What was seen of namespaces, the rules that give them to tenants, and what stands behind a pod's owner."""

from django.db import models
from django.db.models.functions import Now

from infra.models.clusters import Cluster, Site
from portal.kernel.scoping import Global


class NamespaceSight(Global):
    """A namespace as it was seen; one made again under its name is another row (another ``uid``).

    ``labels`` holds the keys that are kept (:func:`infra.services.claim_rules.kept_labels`) and nothing else.
    ``labels_since``: key → RFC 3339, when the watch saw that it became what it is (also: that it was removed). No
    entry: it was so when the key was first looked at; since when is not known. ``kept``: the keys that were looked at.
    """

    cluster = models.ForeignKey(Cluster, on_delete=models.PROTECT, related_name="namespaces")
    name = models.CharField(max_length=63)
    uid = models.CharField(max_length=64)
    labels = models.JSONField(default=dict, blank=True)
    labels_since = models.JSONField(default=dict, blank=True)
    kept = models.JSONField(default=list, blank=True)
    created_at = models.DateTimeField(null=True, blank=True, help_text="What the cluster says.")
    resource_version = models.CharField(max_length=40, blank=True)
    first_seen_at = models.DateTimeField()
    gone_at = models.DateTimeField(null=True, blank=True)
    gone_inferred_after = models.DateTimeField(
        null=True, blank=True, help_text="Set when it was missing after a relist: last proof that it was there."
    )

    class Meta:
        constraints = [models.UniqueConstraint(fields=["cluster", "uid"], name="namespace_sight_unique")]
        indexes = [models.Index(fields=["cluster", "name"], name="namespace_sight_by_name")]

    def __str__(self) -> str:
        return self.name


class ClaimRule(Global):
    """Gives namespaces to tenants: by a label of theirs, or by their name. Ordered; the first that matches wins.

    ``tenant_id`` is empty where ``by_slug`` says that the label's value is the tenant's slug. ``valid_from``: no claim
    of the rule begins earlier. A rule is never changed but moved (``moved_at``: it overtakes others from then on) and
    ended (``ended_at``): what it gave until then stays given.
    """

    class Kind(models.TextChoices):
        LABEL = "label", "by a label"
        NAME = "name", "by the name"

    position = models.PositiveIntegerField(help_text="Lower comes first.")
    kind = models.CharField(max_length=8, choices=Kind.choices)
    cluster = models.ForeignKey(Cluster, on_delete=models.PROTECT, null=True, blank=True, related_name="claim_rules")
    site = models.ForeignKey(Site, on_delete=models.PROTECT, null=True, blank=True, related_name="claim_rules")
    label_key = models.CharField(max_length=317, blank=True)
    label_value = models.CharField(max_length=63, blank=True)
    by_slug = models.BooleanField(default=False)
    pattern = models.CharField(max_length=120, blank=True, help_text="Of the namespace's name: * and ? stand for more.")
    tenant_id = models.UUIDField(null=True, blank=True)
    cost_code = models.CharField(max_length=60, blank=True)
    cost_code_label = models.CharField(max_length=317, blank=True, help_text="A label whose value is the cost code.")
    valid_from = models.DateTimeField()
    moved_at = models.DateTimeField(null=True, blank=True)
    ended_at = models.DateTimeField(null=True, blank=True)
    created_by = models.CharField(max_length=150)
    created_at = models.DateTimeField(db_default=Now())

    class Meta:
        ordering = ["position", "created_at"]
        constraints = [
            models.CheckConstraint(
                condition=models.Q(by_slug=True, tenant_id__isnull=True)
                | models.Q(by_slug=False, tenant_id__isnull=False),
                name="claim_rule_one_tenant",
            ),
            models.CheckConstraint(
                condition=models.Q(cluster__isnull=True) | models.Q(site__isnull=True), name="claim_rule_one_place"
            ),
            models.CheckConstraint(
                condition=models.Q(kind="label")
                | (models.Q(by_slug=False) & (models.Q(cluster__isnull=False) | models.Q(site__isnull=False))),
                name="claim_rule_name_has_place",
            ),
        ]

    @property
    def source(self) -> str:
        """Of the claims that it makes: a value of ``NamespaceClaim.Source``."""
        return "label" if self.kind == self.Kind.LABEL else "rule"

    def __str__(self) -> str:
        """``team = ml`` or ``ml-* on alpha``, as a sentence's part."""
        place = self.cluster.slug if self.cluster else f"site {self.site.slug}" if self.site else ""
        value = "the tenant's short name" if self.by_slug else self.label_value
        what = f"{self.label_key} = {value}" if self.kind == self.Kind.LABEL else self.pattern
        return f"{what} on {place}" if place else what


class OwnerSight(Global):
    """The object that controls a pod's controller, as far as it could be read.

    ``uid`` is the controller's (a Job's, a ReplicaSet's). ``state``: ``seen`` (``parent_*`` is what its owner reference
    says; empty: nobody owns it), ``forbidden`` (our rights don't reach it) or ``gone`` (it was no longer there).
    """

    class State(models.TextChoices):
        SEEN = "seen", "seen"
        FORBIDDEN = "forbidden", "not readable"
        GONE = "gone", "gone before it could be read"

    cluster = models.ForeignKey(Cluster, on_delete=models.CASCADE, related_name="+")
    uid = models.CharField(max_length=64)
    kind = models.CharField(max_length=63)
    namespace = models.CharField(max_length=63)
    name = models.CharField(max_length=253)
    parent_kind = models.CharField(max_length=63, blank=True)
    parent_name = models.CharField(max_length=253, blank=True)
    state = models.CharField(max_length=10, choices=State.choices)
    seen_at = models.DateTimeField()

    class Meta:
        constraints = [models.UniqueConstraint(fields=["cluster", "uid"], name="owner_sight_unique")]
