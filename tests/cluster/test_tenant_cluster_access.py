"""People reach their tenant cluster with the kubeconfig that the portal hands out: Keycloak's tokens over TLS, real API
servers with structured authentication, kubectl with its plugin for the sign-in."""

from __future__ import annotations

import base64
import json
import os
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import yaml

from portal.accounts.models import User
from portal.kernel.actors import Actor
from tenants.models import Member, TenantCluster
from tenants.services.mappings import mapping_add
from tenants.services.tenantcluster_access import tenant_cluster_kubeconfig
from tests.signin.conftest import ADMIN, Person
from tests.support import oidc_login
from tests.support.controlplane import ControlPlanes
from tests.support.keycloak import Keycloak, keycloak, keycloak_server
from tests.support.standin import StandIn, eventually
from tests.support.tenantclusters import TenantEstate, tenant_estate

__all__ = ["keycloak", "keycloak_server"]  # fixtures, found by their names

pytestmark = [
    pytest.mark.signin, pytest.mark.cluster, pytest.mark.django_db(transaction=True), pytest.mark.timeout(900),
]  # fmt: skip

TOKEN_SECONDS = 20
OURS, OTHERS = "ml-team", "team-vision"


@dataclass
class Desk:
    """Somebody's own machine: kubectl, its plugin, and the kubeconfigs that they were given."""

    kubectl: Path
    folder: Path
    keycloak: Keycloak
    files: dict[str, Path] = field(default_factory=dict)

    def keep(self, name: str, text: str) -> None:
        """Put a kubeconfig on the disk."""
        self.files[name] = self.folder / f"{name}.kubeconfig"
        self.files[name].write_text(text)

    def run(self, username: str, config: str, *words: str) -> subprocess.CompletedProcess[str]:
        """kubectl as that person."""
        return subprocess.run(
            [str(self.kubectl), "--kubeconfig", str(self.files[config]), *words],
            env={
                "PATH": f"{self.folder}:{self.kubectl.parent}:{os.environ['PATH']}",
                "HOME": str(self.folder),
                "AIF_TEST_LOGIN": f"{username}:{self.keycloak.passwords[username]}",
            },
            capture_output=True,
            text=True,
            check=False,
            timeout=60,
        )

    def token(self, username: str, config: str, client: str = "") -> str:
        """What the plugin gives kubectl: the person's ID token. ``client``: asked for in the name of another one."""
        user = yaml.safe_load(self.files[config].read_text())["users"][0]["user"]
        given = oidc_login.arguments(user["exec"]["args"][1:])
        given.oidc_client_id = client or given.oidc_client_id
        return oidc_login.id_token(given, username, self.keycloak.passwords[username])


@pytest.fixture
def made(standin: StandIn, keycloak: Keycloak, settings: Any) -> Iterator[TenantEstate]:
    """Two tenants on one host, whose groups at Keycloak give the roles."""
    keycloak.secure()
    for slug in (OURS, OTHERS):
        keycloak.admin.make_tenant_client(slug)
        keycloak.change_client(f"vc-{slug}", attributes={"access.token.lifespan": str(TOKEN_SECONDS)})
    keycloak.point(settings)
    settings.AIF_TENANT_CLUSTER_OIDC_CA = keycloak.ca_pem
    settings.AIF_VCLUSTER_VERSIONS = ("1.34.0=0.34.7", "1.35.4=0.35.3")
    with tenant_estate(standin, OURS, OTHERS) as found:
        for slug, tenant in found.tenants.items():
            for group, role in (("owners", "owner"), ("developers", "developer")):
                mapping_add(claim="groups", value=f"/{slug}/{group}", tenant=tenant, role=role, actor=ADMIN)
        yield found


@pytest.fixture
def desk(real_planes: ControlPlanes, keycloak: Keycloak, tmp_path: Path) -> Desk:
    oidc_login.install(tmp_path)
    return Desk(Path(real_planes.programs["kubectl"]), tmp_path, keycloak)


def claims(token: str) -> dict[str, Any]:
    middle = token.split(".")[1]
    found: dict[str, Any] = json.loads(base64.urlsafe_b64decode(middle + "=" * (-len(middle) % 4)))
    return found


def both_ready(made: TenantEstate) -> dict[str, TenantCluster]:
    rows = {slug: made.request(slug, cards=2, quota=4) for slug in (OURS, OTHERS)}
    made.until(lambda: all(made.row(row).phase == "Ready" for row in rows.values()), "both Ready")
    return {slug: made.row(row) for slug, row in rows.items()}


def ask(made: TenantEstate, slug: str, token: str, path: str) -> int:
    server = made.servers[slug]
    headers = {"Authorization": f"Bearer {token}"}
    return int(server.pool.request("GET", server.server + path, headers=headers, retries=False, timeout=30).status)


def test_people_reach_their_own_tenant_cluster_and_no_other(made: TenantEstate, desk: Desk, keycloak: Keycloak) -> None:
    """Both questions on the same two tenant clusters: making them takes longer than asking."""
    _a_members_token_opens_the_own_one_and_no_other(made, desk, keycloak)
    _who_is_taken_out_of_the_group_is_out_when_the_token_ends(made, desk, keycloak)


def _a_members_token_opens_the_own_one_and_no_other(made: TenantEstate, desk: Desk, keycloak: Keycloak) -> None:
    # A member: signed in at the portal, with the role that the group gives.
    person = Person(keycloak, "ml-developer")
    assert person.sign_in("/").status_code == 302
    user = User.objects.get(username="ml-developer")
    assert Member.objects.get(user=user).role == "developer"
    rows = both_ready(made)
    actor = Actor(kind="user", name=user.username, user_id=user.pk)
    text = tenant_cluster_kubeconfig(row=rows[OURS], actor=actor)
    assert "token:" not in text
    assert "client-key" not in text
    desk.keep("ours", text)

    def who() -> str:
        told = desk.run("ml-developer", "ours", "auth", "whoami", "-o", "json")
        return told.stdout if told.returncode == 0 else ""

    info = json.loads(eventually(who, "the API server knows the person"))["status"]["userInfo"]
    assert info["username"] == f"oidc:{keycloak.user_id('ml-developer')}"
    assert "oidc:/ml-team/developers" in info["groups"]
    told = desk.run("ml-developer", "ours", "create", "configmap", "note", "--from-literal=a=b")
    assert told.returncode == 0, told.stderr
    told = desk.run("ml-developer", "ours", "get", "clusterroles")
    assert told.returncode != 0
    assert "forbidden" in told.stderr

    # The other tenant's API server: neither our token nor our kubeconfig with its address.
    token = desk.token("ml-developer", "ours")
    assert claims(token)["aud"] == "vc-ml-team"
    path = "/api/v1/namespaces/default/configmaps"
    assert ask(made, OURS, token, path) == 200
    assert ask(made, OTHERS, token, path) == 401
    moved = yaml.safe_load(text)
    moved["clusters"][0]["cluster"] = {
        "server": rows[OTHERS].endpoint,
        "certificate-authority-data": base64.b64encode(rows[OTHERS].ca_pem.encode()).decode(),
    }
    desk.keep("moved", yaml.safe_dump(moved))
    # One request: with `get configmaps` kubectl would sign in anew for each try of its discovery.
    told = desk.run("ml-developer", "moved", "get", "--raw", path)
    assert told.returncode != 0
    assert "Unauthorized" in told.stderr or "logged in" in told.stderr, told.stderr
    # The same person's token for another audience opens nothing here either, whatever groups it tells.
    other = desk.token("ml-developer", "ours", client=f"vc-{OTHERS}")
    assert (claims(other)["aud"], claims(other)["groups"]) == (f"vc-{OTHERS}", claims(token)["groups"])
    assert ask(made, OURS, other, path) == 401


def _who_is_taken_out_of_the_group_is_out_when_the_token_ends(
    made: TenantEstate, desk: Desk, keycloak: Keycloak
) -> None:
    # Never seen by the portal: the group alone gives the role.
    path = "/api/v1/namespaces/kube-system/secrets"
    token = eventually(
        lambda: ask(made, OURS, (fresh := desk.token("ml-owner", "ours")), path) == 200 and fresh, "the owner is in"
    )
    keycloak.remove_from_group("ml-owner", "/ml-team/owners")
    after = desk.token("ml-owner", "ours")
    assert "/ml-team/owners" not in claims(after).get("groups", [])
    assert ask(made, OURS, after, path) == 403
    eventually(lambda: ask(made, OURS, token, path) == 401, "the old token ends", seconds=90)
    keycloak.add_to_group("ml-owner", "/ml-team/owners")
    assert ask(made, OURS, desk.token("ml-owner", "ours"), path) == 200
