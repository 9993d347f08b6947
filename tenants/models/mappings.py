"""Groups of the identity provider as roles: the rules, and what they gave to whom. Global: used at sign-in."""

from __future__ import annotations

from django.conf import settings
from django.db import models
from django.db.models.functions import Now

from portal.kernel.scoping import Global
from tenants.models.tenants import Member, Tenant


class GroupMapping(Global):
    """A rule: whoever's claim holds the value has the role, in a tenant or on the platform (one of the two)."""

    class Match(models.TextChoices):
        EXACT = "exact", "exactly"
        PREFIX = "prefix", "it, and what is below it"

    claim = models.CharField(max_length=200, help_text="Where the values are: groups, realm_access.roles, …")
    match = models.CharField(max_length=8, choices=Match.choices, default=Match.EXACT)
    value = models.CharField(max_length=400)
    tenant = models.ForeignKey(Tenant, on_delete=models.CASCADE, null=True, blank=True, related_name="group_mappings")
    role = models.CharField(max_length=10, choices=Member.Role.choices, blank=True, default="")
    platform_role = models.CharField(max_length=20, blank=True, default="")
    created_by = models.CharField(max_length=200)
    created_at = models.DateTimeField(db_default=Now())

    class Meta:
        ordering = ["claim", "value", "id"]
        constraints = [
            models.UniqueConstraint(
                fields=["claim", "match", "value", "tenant"], nulls_distinct=False, name="group_mapping_unique"
            ),
            models.CheckConstraint(
                condition=models.Q(tenant__isnull=False, platform_role="") & ~models.Q(role="")
                | models.Q(tenant__isnull=True, role="") & ~models.Q(platform_role=""),
                name="group_mapping_gives_one_role",
            ),
        ]

    def __str__(self) -> str:
        return f"{self.claim}: {self.value}{'/…' if self.match == self.Match.PREFIX else ''}"

    @property
    def gives(self) -> str:
        """For people: ``owner in ml-team``, ``platform-admin``."""
        return self.platform_role or f"{self.role} in {self.tenant.slug if self.tenant else '?'}"


class GroupGrant(Global):
    """What a rule gave a person: the value of the claim that matched, as long as the claim holds it.

    ``in_force`` is False where a role that was given by hand stands in its place, or a higher one.
    """

    user = models.ForeignKey(settings.AUTH_USER_MODEL, on_delete=models.CASCADE, related_name="group_grants")
    mapping = models.ForeignKey(GroupMapping, on_delete=models.CASCADE, related_name="grants")
    value = models.CharField(max_length=400)
    in_force = models.BooleanField(default=False)
    since = models.DateTimeField(db_default=Now())

    class Meta:
        ordering = ["since", "id"]
        constraints = [models.UniqueConstraint(fields=["user", "mapping"], name="group_grant_unique")]

    def __str__(self) -> str:
        return f"{self.value} → {self.mapping_id}"
