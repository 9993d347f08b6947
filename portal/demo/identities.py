"""The demonstration's people at a real Keycloak: whose account is whose, and which group gives which role."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from portal.accounts.models import User
from portal.auth.oidc.people import identity_link
from portal.kernel.actors import PLATFORM_ADMIN, PLATFORM_FINANCE, PLATFORM_VIEWER, Actor
from tenants.models import GroupMapping, Tenant
from tenants.services.mappings import mapping_add

GROUPS = {"owners": "owner", "developers": "developer"}
"""Below each team's group (deploy/keycloak/realm.json)."""


@dataclass(frozen=True)
class Identities:
    """The issuer, and the subject of each user name (portal.cli.signin writes them)."""

    issuer: str
    subjects: Mapping[str, str]

    @classmethod
    def read(cls, path: Path) -> Identities:
        """From the file."""
        facts = json.loads(path.read_text())
        return cls(facts["issuer"], facts["subjects"])

    def ensure(self, tenants: Mapping[str, Tenant], actor: Actor) -> None:
        """Link the accounts, and add the rules that are missing."""
        for username, sub in self.subjects.items():
            identity_link(user=User.objects.get(username=username), iss=self.issuer, sub=sub, actor=actor)
        known = set(GroupMapping.objects.values_list("claim", "value"))
        for slug, tenant in tenants.items():
            for group, role in GROUPS.items():
                if ("groups", f"/{slug}/{group}") not in known:
                    mapping_add(claim="groups", value=f"/{slug}/{group}", tenant=tenant, role=role, actor=actor)
        for role in (PLATFORM_ADMIN, PLATFORM_FINANCE, PLATFORM_VIEWER):
            if ("realm_access.roles", role) not in known:
                mapping_add(claim="realm_access.roles", value=role, platform_role=role, actor=actor)
