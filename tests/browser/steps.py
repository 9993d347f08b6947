"""The steps of the main job, as people do them in a browser: connect, tenant, prices, deploy, drift, close, bill.

Used by the story on simulated clusters (tests/browser/test_story.py) and by the one on real parts
(tests/story/test_real_parts.py). The fleet is tests/browser/fleet.yaml.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path

from playwright.sync_api import Locator

from portal.cli.postgres import SUPERUSER
from portal.kernel.clock import Interval
from tests.browser.person import Person
from tests.support.instance import RunningPortal, wait_for
from tests.support.served import ServedCluster

PASSWORD = "correct horse battery staple"
FLEET = Path(__file__).with_name("fleet.yaml")
ALLOWED = {"alpha": "frankfurt", "beta": "helsinki"}
SITES = {**ALLOWED, "gamma": "oslo"}
NAMESPACE = "t-ml-team"
H100, L4 = "nvidia-h100-80gb-hbm3", "nvidia-l4"
PRICES = {"alpha": (H100, Decimal("1800.00")), "beta": (L4, Decimal("360.00"))}
"""Cluster → its type of card and the price of an hour of it: 0.50 and 0.10 a second, so that no second is lost."""
PEOPLE = """
import os
from portal.accounts.services import user_create
from portal.kernel.actors import Actor
for name, role in (("platform-admin", "platform-admin"), ("ml-developer", "")):
    user_create(username=name, password=os.environ["PASSWORD"], platform_role=role, actor=Actor.system("test"))
"""
MANIFEST = """\
apiVersion: modelplane.ai/v1alpha1
kind: ModelDeployment
metadata: {name: qwen3-8b, namespace: ml-team}
spec:
  replicas: 2
  engines:
  - name: qwen-engine
    members: [{role: Standalone}]
    nodeSelector:
      devices:
      - {name: gpu, count: 1, selectors: [{cel: 'device.capacity["gpu.nvidia.com"].memory.compareTo(quantity("20Gi")) >= 0'}]}
    template:
      spec:
        containers:
        - {name: engine, image: "vllm/vllm-openai:v0.23.0", args: ["--model=Qwen/Qwen3-8B", "--served-model-name=qwen"]}
"""  # noqa: E501  # as people paste it
DEPLOYMENTS = f"/apis/apps/v1/namespaces/{NAMESPACE}/deployments"
SERVICES = f"/api/v1/namespaces/{NAMESPACE}/services"


def connect(admin: Person, cluster: ServedCluster, kubeconfig: Path | None = None) -> None:
    """The site, then the cluster in mode manage, with that kubeconfig (its administrator's if none is given)."""
    page = admin.go("/platform/clusters/connect")
    site = SITES[cluster.name]
    admin.send(page.locator("form[action='/platform/sites/']"), {"Short name": site, "Name": site.title()}, "Add")
    values = {
        "Short name": cluster.name, "Name": cluster.name, "Site": site, "Mode": "manage",
        "Kubeconfig": (kubeconfig or cluster.kubeconfig).read_text(),
    }  # fmt: skip
    admin.send(form_with(admin, "Connect"), values, "Connect")
    assert page.url.endswith(f"/platform/clusters/{cluster.name}/")
    page = admin.go(f"/platform/clusters/{cluster.name}/isolation")
    said = {
        "Piece": "network-policies", "What you say": "declared",
        "What was tried, or why it is accepted": "Its pods stand in for real ones and have no network.",
    }  # fmt: skip
    admin.send(page.locator("form.card[action$='/isolation/say']"), said, "Store")


def await_nodes(admin: Person, name: str) -> None:
    """Until the page of the cluster shows its cards."""
    admin.go(f"/platform/clusters/{name}/")
    admin.reload_until(lambda text: f"{name}-" in text and "nvidia" in text, f"the nodes of {name}")


def make_tenant(admin: Person) -> None:
    """Zone, tenant with its allowed sites, quota on two types of cards."""
    page = admin.go("/platform/tenants/")
    admin.send(page.locator("form[action='/platform/zones/create']"), {"Short name": "research"}, "Make it")
    values: dict[str, str | bool] = {
        "Short name": "ml-team", "Name": "ML team", "Trust zone": "research", "Cost code": "CC-4711",
        **dict.fromkeys(ALLOWED.values(), True),
    }  # fmt: skip
    admin.send(page.locator("form[action='/platform/tenants/create']"), values, "Make it")
    for gpu_type in (H100, L4):
        admin.send(form_with(admin, "Set the quota"), {"GPU type": gpu_type, "Limit, cards": "2"}, "Set the quota")


def add_member(admin: Person, username: str) -> None:
    """By hand, on the tenant's page, which is open."""
    admin.send(form_with(admin, "Add"), {"User name": username, "Role": "developer"}, "Add")
    assert username in admin.text()


def set_prices(admin: Person, since: datetime) -> None:
    """An issuer that leaves no grace after the month, and a price for each type from the month's start on."""
    admin.go("/platform/rates/")
    values = {"Short name": "factory", "Name": "AI Factory", "Currency": "EUR", "Time zone": "UTC", "Grace, hours": "0"}
    admin.send(form_with(admin, "Set up"), values, "Set up")
    for gpu_type, price in PRICES.values():
        values = {"GPU type": gpu_type, "Mode": "whole", "Price": str(price), "From": f"{since:%Y-%m-%d}"}
        admin.send(admin.page.locator("form#new"), values, "Set the price")
    assert "1 800.00" in admin.text()


def deploy(developer: Person, *also: str) -> None:
    """Paste the manifest, read what would happen (``also`` says more of it), press Deploy."""
    page = developer.page

    def previewed() -> str:
        developer.go("/t/ml-team/deploy/?mode=yaml")
        page.get_by_label("ModelDeployment").fill(MANIFEST)
        page.locator("#preview").get_by_text("It fits.").wait_for()
        page.locator("#preview summary").first.click()
        text = developer.text("#preview")
        # A cluster that did not answer in time, on a busy machine, is left out until it does.
        return "" if "can't be reached" in text else text

    told: str = wait_for(previewed, "a preview with every cluster there")
    assert "2 160.00 EUR" in told, told
    for sentence in (
        f"0 of 2 cards of {H100} are taken, 1 afterwards.",
        f"0 of 2 cards of {L4} are taken, 1 afterwards.",
        *also,
        f"on alpha in namespace {NAMESPACE}",
        f"on beta in namespace {NAMESPACE}",
    ):
        assert sentence in told, told
    developer.send(page.locator("#deploy-form .card-footer"), {}, "Deploy")
    assert page.url.endswith("/t/ml-team/deployments/qwen3-8b/")


def await_ready(developer: Person) -> None:
    """The page shows it by itself."""
    page = developer.page
    page.locator("#live [role=status]", has_text="Ready").wait_for()
    told = developer.text("#live")
    assert "2 of 2" in told
    rows = page.locator("section[aria-labelledby=replicas] tbody tr").all_inner_texts()
    assert sorted(next(name for name in SITES if name in row) for row in rows) == list(ALLOWED)


def charges_so_far(developer: Person) -> Decimal:
    """The running total of the bills page, as soon as there is one; usage and the team's home page tell of it too."""

    def total() -> Decimal:
        return sum((amount(one) for one in developer.page.locator(".figure").all()), Decimal(0))

    developer.go("/t/ml-team/bills/")
    developer.reload_until(lambda text: total() > 0, "charges of the open hour")
    found = total()
    developer.go("/t/ml-team/usage/")
    developer.go("/t/ml-team/")
    assert total() > 0
    return found


def repair_drift(portal: RunningPortal, developer: Person) -> None:
    """Somebody scales the Deployment to nothing and deletes the Service, on the cluster itself: both come back."""
    cluster = portal.clusters["alpha"]
    deployment, service = objects(cluster)
    code, answer = cluster.call("PATCH", deployment, {"spec": {"replicas": 0}}, media="application/merge-patch+json")
    assert code == 200, answer
    assert cluster.call("DELETE", service)[0] == 200
    wait_for(lambda: not cluster.call("GET", f"/api/v1/namespaces/{NAMESPACE}/pods")[1]["items"], "the end of the pod")
    portal.tick("tenants.resync")

    def back() -> bool:
        found = cluster.call("GET", deployment)[1]
        return cluster.call("GET", service)[0] == 200 and found.get("status", {}).get("readyReplicas") == 1

    wait_for(back, "the Deployment and the Service that drifted")
    developer.go("/t/ml-team/deployments/qwen3-8b/")
    told = developer.reload_until(lambda text: "State\nReady" in text, "both replicas Ready again")
    assert "Changed by somebody on the cluster and taken back: .spec.replicas (tests)." in told, told


def delete(developer: Person) -> None:
    """By typing its name; the page says when every cluster has nothing of it left."""
    page = developer.go("/t/ml-team/deployments/qwen3-8b/delete")
    developer.send(form_with(developer, "Delete qwen3-8b"), {"Type its name to delete it": "qwen3-8b"}, "Delete")
    page.get_by_text("qwen3-8b is gone").wait_for()
    # The last look at its state is answered with 404, which browsers write to the console.
    assert all("404" in text for text in developer.complaints), developer.complaints
    developer.complaints.clear()
    assert "Nothing is deployed yet" in developer.go("/t/ml-team/deployments/").locator("main").inner_text()


def cost(runs: Mapping[str, Mapping[str, tuple[datetime, datetime]]], month: Interval) -> Decimal:
    """By hand: seconds that each cluster's pods ran within the month (by cluster and uid) × the price of a second."""
    expected = Decimal(0)
    for name, (_, price) in PRICES.items():
        for start, end in runs[name].values():
            seconds = int((min(end, month.end) - min(start, month.end)).total_seconds())
            expected += price * seconds / 3600
    assert expected == expected.quantize(Decimal("0.01")), "the prices are such that nothing is rounded"
    return expected


def skip_to(portal: RunningPortal, instant: datetime) -> None:
    """Switch the portal off, and on again at that instant; then wait until the clusters have told until then."""
    portal.restart(ahead=instant - datetime.now(UTC))

    def told() -> bool:
        with portal.clone.connect(SUPERUSER) as connection:
            row = connection.execute("SELECT min(watermark) FROM infra_watchtarget").fetchone()
        return row is not None and isinstance(row[0], datetime) and row[0] >= instant

    # A real API server sends a bookmark about once a minute: until the first nothing is proved, and the second may be
    # needed for what kubelets report late.
    wait_for(told, "what the clusters tell until the month's end", patience=300)
    portal.manage("meter", "--cluster", "all")


def close(admin: Person, label: str) -> Decimal:
    """Close the month; the total of all bills."""
    page = admin.go("/platform/bills/")
    page.get_by_role("link", name=label).first.click()
    assert "Nothing is in the way." in admin.text()
    button = f"Close {label}"
    admin.send(form_with(admin, button), {"Type the period to close it": label}, button)
    assert f"{label} is closed. 1 bill was made." in admin.text()
    return amount(page.locator(".figure"))


def read_bill(developer: Person, label: str, expected: Decimal) -> None:
    """The bill, its two lines, and the pods that a line is made of."""
    page = developer.go("/t/ml-team/bills/")
    page.get_by_role("link", name=f"{label}-ml-team").click()
    told = developer.text()
    assert f"{expected:.2f}" in told, told
    for word in (H100, L4, "qwen3-8b", "CC-4711"):
        assert word in told, told
    page.locator("tbody tr", has_text=H100).get_by_role("link").first.click()
    assert page.locator("tbody tr", has_text="qwen3-8b").count() == 2, "the pod before the drift and the one after it"


def form_with(person: Person, button: str) -> Locator:
    """The form that has this button."""
    return person.page.locator("form", has=person.page.get_by_role("button", name=button, exact=True))


def amount(figure: Locator) -> Decimal:
    """The number of a figure such as ``1 234.50 EUR``."""
    text = figure.inner_text()
    digits = "".join(sign for sign in text if sign.isdigit() or sign == ".")
    return Decimal(digits or "0")


def objects(cluster: ServedCluster) -> list[str]:
    """The paths of the tenant's Deployments and Services on a cluster, Deployments first."""
    found = []
    for path in (DEPLOYMENTS, SERVICES):
        code, answer = cluster.call("GET", path)
        assert code == 200, answer
        found += [f"{path}/{item['metadata']['name']}" for item in answer["items"]]
    return found


def held(portal: RunningPortal) -> int:
    """How many reservations are not released."""
    with portal.clone.connect(SUPERUSER) as connection:
        row = connection.execute("SELECT count(*) FROM infra_reservation WHERE released_at IS NULL").fetchone()
    assert row is not None
    return int(str(row[0]))
