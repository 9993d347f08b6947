"""An installation of its own, down to the database server, so that every process of it may be stopped or killed.

with own_portal(tmp_path, fleet) as portal:
    portal.deploy("web", replicas=1)
    portal.kill("worker")
    portal.launch("worker")
    portal.until_ready("web")
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import tempfile
import threading
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

import psycopg

from portal.cli import pgtools
from portal.cli.instance import DATABASE
from portal.cli.postgres import APP, OWNER, SUPERUSER, Postgres
from portal.cli.processes import Child
from portal.cli.supervisor import Part
from tests.support.db import ROOT, Clone, data_folder, migrated_template
from tests.support.instance import RunningPortal, running_portal, wait_for
from tests.support.served import ServedCluster
from tests.unit.tenants.manifests import manifest_data

PATIENCE = 240.0
NAMESPACE = "t-ml-team"
HOPPER = 'device.attributes["gpu.nvidia.com"].architecture == "Hopper"'
# Run by manage.py: the clusters, a tenant with their sites, a price, and the token of a platform-admin.
SET_UP = """
import json, os
from datetime import UTC, datetime, timedelta
from infra.models import Site
from infra.services.clusters import cluster_connect
from infra.services.isolation import isolation_say
from billing.services.setup import issuer_ensure
from portal.accounts.services import token_create, user_create
from portal.kernel.actors import Actor
from tests.support.tenants import make_tenant
system = Actor.system("test")
user = user_create(username="ops", password="correct horse battery staple", platform_role="platform-admin", actor=system)
fleet = json.loads(os.environ["FLEET"])
for name in fleet:
    Site.objects.get_or_create(slug=f"site-{name}", defaults={"name": name})
tenant = make_tenant(sites=tuple(f"site-{name}" for name in fleet))
for name, path in fleet.items():
    site = Site.objects.get(slug=f"site-{name}")
    row = cluster_connect(slug=name, site=site, mode="manage", kubeconfig=open(path).read(), actor=system)
    isolation_say(cluster=row, piece="network-policies", how="declared", text="pods of tests have no network", actor=system)
from tenants.models import Member
from portal.accounts.models import User
Member.objects.create(tenant=tenant, user=User.objects.get(username="ops"), role="owner")
_, text = token_create(user_id=user.pk, name="test", scopes=["read", "write", "platform"],
    expires_at=datetime.now(UTC) + timedelta(days=2), actor=Actor(kind="user", name="ops", user_id=user.pk,
    platform_role="platform-admin"))
print("TOKEN " + text)
"""  # noqa: E501  # a program in a text
QUOTA = """
from infra.models import GPUType
from tenants.models import Tenant
from tests.support.tenants import give_quota
give_quota(Tenant.objects.get(slug="ml-team"), GPUType.objects.get(slug__contains="h100"), 2)
"""


@dataclass
class OwnDatabase:
    """As :class:`tests.support.db.Clone`, as far as a running portal uses one; nobody else's."""

    postgres: Postgres

    def url(self, user: str = APP) -> str:
        """Its address for a role."""
        return self.postgres.url(DATABASE, user)

    def flush(self) -> None:
        """Nothing: it is thrown away."""


@dataclass
class OwnPortal:
    """The processes and the means to end them, one by one."""

    running: RunningPortal
    database: OwnDatabase
    fleet: Mapping[str, ServedCluster]
    token: str = ""
    gone: dict[str, Part] = field(default_factory=dict)
    restarted: list[str] = field(default_factory=list)
    _changing: threading.Lock = field(default_factory=threading.Lock)

    def part(self, name: str) -> Part:
        """A part that runs."""
        return next(part for part in self.running.parts if part.name == name)

    def kill(self, name: str, number: int = signal.SIGKILL) -> None:
        """End a part at once; it stays away until it is launched."""
        if name == "postgres":
            pid = self.database.postgres.pid()
            assert pid is not None
            os.kill(pid, number)
            wait_for(lambda: self.database.postgres.pid() is None, "the end of PostgreSQL")
            return
        with self._changing:
            part = self.part(name)
            assert part.child is not None
            self.running.parts.remove(part)
            self.gone[name] = part
        part.child.process.send_signal(number)
        part.child.process.wait(60)

    def launch(self, name: str) -> None:
        """Start a part that was ended."""
        if name == "postgres":
            self.database.postgres.ensure_running()
            return
        if name == "valkey":
            self.running.instance.broker_socket.unlink(missing_ok=True)
        with self._changing:
            part = self.gone.pop(name)
            self._start(part)
            self.running.parts.append(part)

    def look_after(self) -> None:
        """Start again what has ended by itself, as the supervisor does; ``restarted`` keeps what it was."""
        with self._changing:
            for part in self.running.parts:
                if part.child is not None and not part.child.running():
                    self.restarted.append(part.name)
                    self._start(part)

    def _start(self, part: Part) -> None:
        part.child = Child(
            part.name, part.command, env=part.env, cwd=ROOT, say=self.running._say,
            on_parent_death=part.on_parent_death,
        )  # fmt: skip

    def call(self, method: str, path: str, body: Any = None) -> tuple[int, Any]:
        """A REST call as a platform-admin who owns the team: status and answer; 0 where nobody answers."""
        request = urllib.request.Request(  # noqa: S310  # our own address
            self.running.url + path,
            method=method,
            data=None if body is None else json.dumps(body).encode(),
            headers={"Authorization": f"Bearer {self.token}", "Content-Type": "application/json"},
        )
        try:
            with urllib.request.urlopen(request, timeout=60) as answer:  # noqa: S310
                return answer.status, _json(answer.read())
        except urllib.error.HTTPError as error:
            return error.code, _json(error.read())
        except OSError:
            return 0, None

    def deploy(self, name: str, *, replicas: int = 1) -> None:
        """Apply a deployment of whole H100s; it is stored, whatever is down that is not needed for it."""
        manifest = manifest_data(name, cel=HOPPER, replicas=replicas)
        path = f"/api/v1/tenants/ml-team/deployments/{name}"
        status, answer = self.call("PUT", path, manifest)
        assert status in (200, 201, 202), (status, answer)

    def deployment(self, name: str) -> dict[str, Any]:
        """As REST tells it."""
        status, answer = self.call("GET", f"/api/v1/tenants/ml-team/deployments/{name}")
        return dict(answer) if status == 200 else {}

    def until_ready(self, name: str) -> None:
        """Until the deployment is Ready."""
        wait_for(lambda: self.deployment(name).get("phase") == "Ready", f"{name} Ready", patience=PATIENCE)

    def remove(self, name: str) -> None:
        """Delete it, and wait until it is gone."""
        status, answer = self.call("DELETE", f"/api/v1/tenants/ml-team/deployments/{name}")
        assert status in (200, 202, 204), (status, answer)
        wait_for(lambda: not self.deployments_on(name), f"{name} gone from the clusters", patience=PATIENCE)
        wait_for(lambda: not self.deployment(name), f"{name} deleted", patience=PATIENCE)

    def deployments_on(self, name: str = "") -> list[str]:
        """Names of the Deployments in the team's namespaces of all clusters."""
        found = []
        for cluster in self.fleet.values():
            status, answer = cluster.call("GET", f"/apis/apps/v1/namespaces/{NAMESPACE}/deployments")
            if status == 200:
                found += [one["metadata"]["name"] for one in answer["items"]]
        return sorted(one for one in found if one.startswith(name))

    def ask(self, question: str, *values: Any) -> Any:
        """The one value that a question to the database has, asked as the superuser."""
        with psycopg.connect(self.database.url(SUPERUSER)) as connection:
            row = connection.execute(question, values or None).fetchone()  # type: ignore[arg-type]  # a text of the test
            return None if row is None else row[0]

    def until_isolated(self) -> None:
        """Until each cluster has shown that it keeps tenants apart: nothing is placed before."""
        isolated = json.dumps([{"type": "Isolated", "status": "True"}])
        question = "SELECT count(*) FROM infra_cluster WHERE NOT conditions @> %s::jsonb"
        wait_for(lambda: self.ask(question, isolated) == 0, "isolation", patience=PATIENCE)

    def readiness(self) -> dict[str, Any]:
        """What /readyz says, whatever its status; empty where nobody answers."""
        status, answer = self.call("GET", "/readyz")
        return {"code": status, **answer} if status else {}


def _json(raw: bytes) -> Any:
    try:
        return json.loads(raw)
    except ValueError:
        return raw.decode(errors="replace")


def _fill(database: OwnDatabase, folder: Path) -> None:
    """The migrated template's content: migrating anew would take most of the test's time."""
    dumped = folder / "template.dump"
    with migrated_template() as url, psycopg.connect(url) as connection:
        connection.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ
        row = connection.execute("SELECT pg_export_snapshot()").fetchone()
        assert row is not None
        pgtools.dump(url, dumped, snapshot=str(row[0]))
    pgtools.restore(database.url(OWNER), dumped)


@contextmanager
def _supervised(portal: OwnPortal) -> Iterator[None]:
    ended = threading.Event()

    def run() -> None:
        while not ended.wait(0.5):
            portal.look_after()

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()


@contextmanager
def own_portal(fleet: Mapping[str, ServedCluster], *names: str, **settings: str) -> Iterator[OwnPortal]:
    """Started, with these clusters connected, and a team with a quota of two H100."""
    data_folder().mkdir(parents=True, exist_ok=True, mode=0o711)
    folder = Path(tempfile.mkdtemp(prefix="own-", dir=data_folder()))
    folder.chmod(0o711)
    database = OwnDatabase(Postgres(folder / "pg", folder / "run", fsync=False))
    database.postgres.ensure_running()
    chosen = {name: fleet[name] for name in names}
    try:
        database.postgres.prepare(DATABASE)
        _fill(database, folder)
        settings = {"AIF_WATCH_SETTLE_SECONDS": "1", **settings}
        with running_portal(cast("Clone", database), chosen, **settings) as running:
            portal = OwnPortal(running, database, chosen)
            files = json.dumps({name: str(one.kubeconfig) for name, one in chosen.items()})
            said = running.manage("shell", "-c", SET_UP, FLEET=files)
            portal.token = next(line for line in said.splitlines() if line.startswith("TOKEN ")).split()[1]
            running.start()
            wait_for(lambda: portal.readiness().get("code") == 200, "the portal's readiness", patience=PATIENCE)
            seen = "SELECT count(*) FROM infra_node n JOIN infra_gputype t ON t.slug LIKE '%h100%' WHERE n.cards > 0"
            wait_for(lambda: portal.ask(seen), "the nodes", patience=PATIENCE)
            running.manage("shell", "-c", QUOTA)
            portal.until_isolated()
            with _supervised(portal):
                yield portal
            if database.postgres.pid() is None:
                database.postgres.ensure_running()
    finally:
        database.postgres.stop()
        shutil.rmtree(folder, ignore_errors=True)
