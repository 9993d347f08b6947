"""Every recorded or published answer of OpenCost has the outcome that is named here."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from billing.opencost.answers import by_namespace, read_allocation, read_assets, read_version
from billing.opencost.bodies import Refused
from billing.opencost.unitcosts import Basis, Priced, Unit, unit_costs
from portal.kernel.clock import Interval, parse_rfc3339

HERE = Path(__file__).resolve()
RECORDED = HERE.parents[2] / "data" / "recorded"
METERING = HERE.parents[2] / "data" / "metering"
SHARED = HERE.parents[4] / "shared" / "data" / "metering"

TEN = Interval(datetime(2026, 11, 29, 16, 35, tzinfo=UTC), datetime(2026, 11, 29, 16, 45, tzinfo=UTC))
NAMES = {"team-whole", "team-short", "team-slow", "team-hami", "team-hami-mem", "team-mig"}


def window_of(path: Path, index: dict[str, Any]) -> Interval:
    entry = index[path.name]
    start, end = entry["query"]["window"].split(",")
    return Interval(parse_rfc3339(start), parse_rfc3339(end))


def index() -> dict[str, Any]:
    return {entry["file"]: entry for entry in json.loads((RECORDED / "opencost-index.json").read_text())}


# file → (rows, Σ gpuHours), or a part of the reason for which it is refused.
OUTCOMES: dict[str, tuple[int, str] | str] = {
    "opencost-namespace.json": (6, "2.08334"),
    "opencost-namespace-asked-later.json": (6, "2.08334"),
    "opencost-namespace-pod.json": (14, "2.08334"),
    "opencost-namespace-pod-resolution-1m.json": (15, "2.30001"),
    "opencost-namespace-first-5m.json": (5, "0.95833"),
    "opencost-namespace-second-5m.json": (6, "1.20834"),
    "opencost-namespace-off-grid.json": (5, "1.08333"),
    "opencost-namespace-resolution-1m.json": (6, "2.3"),
    "opencost-namespace-resolution-10s.json": (7, "2.30833"),
    "opencost-namespace-idle.json": (7, "2.08334"),
    "opencost-pod-step-5m.json": "2 sets",
    "opencost-namespace-step-5m.json": "2 sets",
    "opencost-label-app.json": "is no namespace",
    "opencost-node.json": "is no namespace",
    "opencost-empty-window.json": (0, "0"),
    "opencost-bad-aggregate.json": "does not know the aggregate",
    "opencost-bad-window.txt": "HTTP status 400: Invalid 'window' parameter: illegal window: nonsense",
    "opencost-no-window.txt": "HTTP status 400: Invalid 'window' parameter",
}


@pytest.mark.parametrize("name", sorted(path.name for path in RECORDED.glob("opencost-*")))
def test_each_recorded_answer_has_its_outcome(name: str) -> None:
    if name in ("opencost-index.json", "opencost-assets.json"):
        return  # the list of the others, and the assets: tested below
    entry = index()[name]
    window = TEN if entry["query"].get("window", "nonsense") == "nonsense" else window_of(RECORDED / name, index())
    aggregate = ("namespace", "pod") if entry["query"].get("aggregate") == "namespace,pod" else ("namespace",)
    body = (RECORDED / name).read_bytes()
    outcome = OUTCOMES[name]
    if isinstance(outcome, str):
        with pytest.raises(Refused) as refused:
            read_allocation(entry["status"], body, window, aggregate)
        assert outcome in refused.value.sentence
        return
    found = read_allocation(entry["status"], body, window, aggregate)
    assert len(found.rows) == outcome[0]
    assert found.empty == (outcome[0] == 0)
    assert {type(figure) for row in found.rows for figure in (row.gpu_hours, row.total_cost)} <= {Decimal}
    if outcome[1]:
        assert sum((row.gpu_hours for row in found.rows), Decimal(0)) == Decimal(outcome[1])


def test_an_answer_for_another_window_is_refused() -> None:
    body = (RECORDED / "opencost-namespace.json").read_bytes()
    hour = Interval(datetime(2026, 11, 29, 16, tzinfo=UTC), datetime(2026, 11, 29, 17, tzinfo=UTC))
    with pytest.raises(Refused, match="is for the window from 2026-11-29T16:35:00Z to 2026-11-29T16:45:00Z, but"):
        read_allocation(200, body, hour, ("namespace",))


def test_pods_add_up_to_namespaces_but_for_rounding() -> None:
    pods = read_allocation(200, (RECORDED / "opencost-namespace-pod.json").read_bytes(), TEN)
    spaces = read_allocation(200, (RECORDED / "opencost-namespace.json").read_bytes(), TEN, ("namespace",))
    ours = {row.namespace: row for row in by_namespace(pods.rows)}
    assert set(ours) == {row.namespace for row in spaces.rows} == NAMES
    for row in spaces.rows:
        assert abs(ours[row.namespace].gpu_hours - row.gpu_hours) < Decimal("0.0001")
        assert abs(ours[row.namespace].total_cost - row.total_cost) < Decimal("0.001")


def test_idle_is_no_namespace() -> None:
    body = (RECORDED / "opencost-namespace-idle.json").read_bytes()
    found = read_allocation(200, body, TEN, ("namespace",))
    (idle,) = [row for row in found.rows if row.special]
    assert (idle.special, idle.namespace, idle.gpu_cost) == ("__idle__", "", Decimal("68.95833"))


def test_recorded_assets_give_the_price_that_was_entered() -> None:
    """A HAMi node counts 80 cards and a MIG node one: the price of one is right all the same."""
    assets = read_assets(200, (RECORDED / "opencost-assets.json").read_bytes(), TEN)
    pods = read_allocation(200, (RECORDED / "opencost-namespace-pod.json").read_bytes(), TEN)
    kinds = ("hami", "mig", "whole")
    assert [node.name for node in assets.nodes] == [f"{kind}-000{n}" for kind in kinds for n in (0, 1)]
    types = {node.name: "a100" if node.name.startswith("hami") else "h100" for node in assets.nodes}
    found = {(unit.resource, unit.gpu_type): unit.price for unit in unit_costs(pods, assets, types)}
    assert found == {
        (Priced.CPU, ""): Decimal("0.02"),
        (Priced.GPU, "a100"): Decimal("2.5"),
        (Priced.GPU, "h100"): Decimal("2.5"),
        (Priced.MEMORY, ""): Decimal("0.003"),
    }


def test_without_assets_one_type_of_card_has_the_price_of_its_pods() -> None:
    pods = read_allocation(200, (RECORDED / "opencost-namespace-pod.json").read_bytes(), TEN)
    units = {unit.resource: unit for unit in unit_costs(pods, None, {"whole-0000": "h100"})}
    assert (units[Priced.GPU].price, units[Priced.GPU].basis) == (Decimal("2.5"), Basis.ALLOCATION)
    assert units[Priced.CPU].price == Decimal("0.02")
    two = unit_costs(pods, None, {"whole-0000": "h100", "hami-0000": "a100"})
    assert not [unit for unit in two if unit.resource is Priced.GPU]  # which of the two is not known


# --- files of shared/data/metering ------------------------------------------------------------------------------------


def shared(name: str) -> bytes:
    """A file taken from a public project: read where it lies, never copied."""
    path = SHARED / name
    if not path.exists():
        pytest.skip(f"{name} is not here")
    return path.read_bytes()


def made(name: str) -> bytes:
    return (METERING / name).read_bytes()


def test_allocation_by_namespace_of_the_old_shape() -> None:
    """opencost-allocation-namespace.json: a window that is not aligned, no GPU block, figures as ever: taken."""
    body = shared("opencost-allocation-namespace.json")
    window = Interval(datetime(2023, 7, 12, 11, 2, 46, tzinfo=UTC), datetime(2023, 7, 19, 11, 2, 46, tzinfo=UTC))
    found = read_allocation(200, body, window, ("namespace",))
    system = next(row for row in found.rows if row.namespace == "kube-system")
    assert (system.cpu_cost, system.gpu_hours, system.total_cost) == (Decimal("1.43086"), 0, Decimal("1.52743"))
    assert not any(row.clamped for row in found.rows)


def test_allocation_by_container_in_two_steps() -> None:
    """opencost-allocation-container-two-steps.json: by container, so it is refused where pods were asked for."""
    body = shared("opencost-allocation-container-two-steps.json")
    window = Interval(datetime(2023, 1, 27, 23, tzinfo=UTC), datetime(2023, 1, 28, tzinfo=UTC))
    with pytest.raises(Refused, match="aggregated by something else"):
        read_allocation(200, body, window)
    keys = ("cluster", "node", "namespace", "pod", "container")
    (row,) = read_allocation(200, body, window, keys).rows  # the second step is {}: no data
    assert (row.namespace, row.pod, row.minutes) == ("kubecost", "kubecost-cost-analyzer-5b84f94b7f-9lxx5", 16)
    assert (row.pv_cost, row.lb_cost, row.network_cost) == (Decimal("0.00055"), Decimal("0.003333"), 0)


def test_made_gpu_answer_with_special_rows_and_empty_sets() -> None:
    """opencost-allocation-gpu-made.json: 2 cards for a day, no time, idle and unmounted, {} and null: taken."""
    window = Interval(datetime(2026, 1, 1, tzinfo=UTC), datetime(2026, 1, 2, tzinfo=UTC))
    found = read_allocation(200, made("opencost-allocation-gpu-made.json"), window)
    by_key = {(row.special, row.namespace, row.pod): row for row in found.rows}
    assert by_key["", "tenant-a", "train-0"].gpu_hours == 48
    short = by_key["", "tenant-b", "short"]
    assert (short.minutes, short.gpu_hours, short.gpu_cost) == (0, 0, 0)
    assert by_key["__idle__", "", ""].gpu_cost == 360
    assert by_key["__unmounted__", "", ""].pv_cost == Decimal("1.31507")


def test_negative_minutes_are_refused() -> None:
    """opencost-allocation-negative-minutes.json: −2.45 minutes: refused, never a negative cost."""
    window = Interval(datetime(2026, 9, 19, 5, 44, 57, tzinfo=UTC), datetime(2026, 9, 19, 5, 46, 13, tzinfo=UTC))
    with pytest.raises(Refused, match=r"lasted -2\.45 minutes"):
        read_allocation(200, made("opencost-allocation-negative-minutes.json"), window, ("pod",))


def test_published_assets() -> None:
    """opencost-assets.json: one node, one disk: taken; 0.5 cores for 33.08 h cost 0.307185."""
    window = Interval(datetime(2024, 6, 22, tzinfo=UTC), datetime(2024, 6, 29, tzinfo=UTC))
    assets = read_assets(200, shared("opencost-assets.json"), window)
    assert ([node.name for node in assets.nodes], assets.others) == (["node-a"], 1)
    assert (assets.nodes[0].cpu_cost, assets.nodes[0].gpu_hours) == (Decimal("0.307185"), 0)


def test_cloud_costs_are_no_allocation() -> None:
    """opencost-cloudcost.json: another API's answer: refused."""
    with pytest.raises(Refused):
        read_allocation(200, shared("opencost-cloudcost.json"), TEN)


@pytest.mark.parametrize("name", ["opencost-default-pricing.json", "opencost-pricing-schema-mixed-gpu-ondemand.csv"])
def test_files_of_prices_are_no_answers(name: str) -> None:
    """Prices as OpenCost is configured with: its default.json has no data, a CSV is no JSON."""
    body = shared(name)
    if name.endswith(".csv"):
        with pytest.raises(Refused, match="no JSON"):
            read_allocation(200, body, TEN)
    else:
        assert read_allocation(200, body, TEN).empty


def test_node_prices_that_opencost_scaled() -> None:
    """opencost-node-prices.prom: prices of a GPU node that were scaled to 0.0492: metrics, not an answer, refused.

    Such a price comes to us as a unit cost like any other; the page beside OpenCost shows it against ours.
    """
    with pytest.raises(Refused, match="no JSON"):
        read_allocation(200, made("opencost-node-prices.prom"), TEN)


def test_real_answers_in_one_file() -> None:
    """opencost-real-allocation.json: each recorded request with its answer."""
    recorded = json.loads(made("opencost-real-allocation.json"))["requests"]
    window = Interval(datetime(2026, 11, 29, 16, tzinfo=UTC), datetime(2026, 11, 29, 16, 10, tzinfo=UTC))
    seen = {}
    for name, request in recorded.items():
        answer = request["response"]
        status, text = answer.get("http_status", 200), answer.get("body") or json.dumps(answer)
        aggregate = tuple(request["query"].get("aggregate", "").split(","))
        try:
            read = read_assets if request["path"] == "/assets" else read_allocation
            found = read(status, text.encode(), window, *(() if read is read_assets else (aggregate,)))
        except Refused as refused:
            seen[name] = refused.sentence
        else:
            rows = found.nodes if read is read_assets else [row for row in found.rows if not row.special]
            seen[name] = f"{sum((row.gpu_hours for row in rows), Decimal(0)):f}"
    # 10 pods × 1 card and 3 pods × 4 cards for ten minutes, each row rounded; 20 nodes of 16 cards.
    assert {name: seen[name] for name in ("namespace", "namespace_idle", "pod", "assets")} == {
        "namespace": "3.66667",
        "namespace_idle": "3.66667",
        "pod": "3.66671",
        "assets": "53.333326",
    }
    assert "aggregated by something else" in seen["label_app"]
    assert "2 sets" in seen["steps"]
    assert "HTTP status 400: Invalid 'window' parameter: illegal window: nonsense" in seen["bad_window"]


# --- shapes ----------------------------------------------------------------------------------------------------------

HOUR = Interval(datetime(2026, 11, 3, 14, tzinfo=UTC), datetime(2026, 11, 3, 15, tzinfo=UTC))
GOOD: dict[str, Any] = {
    "name": "a/p", "properties": {"namespace": "a", "pod": "p"},
    "window": {"start": "2026-11-03T14:00:00Z", "end": "2026-11-03T15:00:00Z"},
    "start": "2026-11-03T14:00:00Z", "end": "2026-11-03T15:00:00Z", "minutes": 60, "gpuHours": 1, "gpuCost": 2.5,
    "cpuCoreHours": 4, "cpuCost": 0.08, "ramByteHours": 0, "ramCost": 0, "pvByteHours": 0, "pvCost": 0.1,
    "networkCost": 0.01, "loadBalancerCost": 0,
}  # fmt: skip


def body(**changes: Any) -> bytes:
    row = {key: value for key, value in (GOOD | changes).items() if value != "gone"}
    return json.dumps({"code": 200, "data": [{"a/p": row}]}).encode()


def test_a_good_row_and_its_adjustments() -> None:
    (row,) = read_allocation(200, body(gpuCostAdjustment=-0.5), HOUR).rows
    assert (row.gpu_cost, row.pv_cost) == (Decimal("2.0"), Decimal("0.1"))


@pytest.mark.parametrize("data", [{"code": 200}, {"code": 200, "data": None}, {"code": 200, "data": []},
                                  {"code": 200, "data": [{}, None]}, {"data": [{}]}])  # fmt: skip
def test_no_data(data: dict[str, Any]) -> None:
    assert read_allocation(200, json.dumps(data).encode(), HOUR).empty


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"gpuHours": None}, "gpuHours of a/p is null"),
        ({"gpuHours": "gone"}, "gpuHours of a/p is missing"),
        ({"gpuHours": float("nan")}, "no number"),
        ({"gpuCost": float("inf")}, "no number"),
        ({"gpuHours": -1}, "gpuHours of a/p is negative"),
        ({"gpuCostAdjustment": -3}, "negative with its adjustment"),
        ({"end": "2026-11-03T13:59:00Z"}, "before it starts"),
        ({"start": "soon"}, "no instant"),
        ({"window": None}, "has no window"),
        ({"window": {"start": "2026-11-03T14:00:00Z", "end": "2026-11-03T15:05:00Z"}}, "was asked for"),
        ({"properties": {"namespace": "b", "pod": "p"}}, "aggregated by something else"),
        ({"properties": {}}, "aggregated by something else"),
    ],
)
def test_rows_that_are_refused(changes: dict[str, Any], reason: str) -> None:
    with pytest.raises(Refused) as refused:
        read_allocation(200, body(**changes), HOUR)
    assert reason in refused.value.sentence


def test_a_row_that_reaches_beyond_the_window_is_cut_and_marked() -> None:
    (row,) = read_allocation(200, body(start="2026-11-03T13:55:00Z", end="2026-11-03T15:05:00Z"), HOUR).rows
    assert (row.lasted, row.clamped) == (HOUR, True)


@pytest.mark.parametrize(
    ("status", "text", "reason", "retry"),
    [
        (500, '{"code":500,"message":"Error: boom"}', "HTTP status 500: Error: boom", True),
        (200, '{"code":500,"message":"Error: boom"}', "code 500: Error: boom", True),
        (200, "<html><title>Sign in</title></html>", "a web page", True),
        (302, "", "HTTP status 302", False),
        (504, "<html>504 Gateway Time-out</html>", "504 Gateway Time-out", True),
        (200, "", "no JSON", True),
        (200, "[1]", "no JSON object", True),
        (200, "[" * 100_000, "no JSON", True),
        (400, "Invalid window\n", "Invalid window", False),
        (200, '{"code":200,"data":["x"]}', "no list of maps", True),
    ],
)
def test_broken_answers_are_refused_with_a_sentence(status: int, text: str, reason: str, retry: bool) -> None:
    with pytest.raises(Refused) as refused:
        read_allocation(status, text.encode(), HOUR)
    assert reason in refused.value.sentence
    assert refused.value.retry is retry


def test_version_where_the_build_tells() -> None:
    assert read_version(200, b'{"code":200,"data":{"version":"1.118"}}') == "1.118"
    assert read_version(404, b"404 page not found") == ""
    assert read_version(200, b"<html>") == ""


def test_a_price_of_nothing_is_no_price() -> None:
    """A family of machines without a price costs 0 (opencost#2215): unknown, not free."""
    found = read_allocation(200, body(gpuCost=0), HOUR)
    assert not [unit for unit in unit_costs(found, None, {"n": "h100"}) if unit.resource is Priced.GPU]


def test_an_hour_too_thin_to_tell_has_no_unit_cost() -> None:
    thin = read_allocation(200, body(gpuHours=0.00002, gpuCost=0.00005), HOUR)
    assert not [unit for unit in unit_costs(thin, None, {"n": "h100"}) if unit.resource is Priced.GPU]
    (unit,) = [u for u in unit_costs(read_allocation(200, body(), HOUR), None, {"n": "h100"}) if u.resource == "gpu"]
    assert unit == Unit(Priced.GPU, "h100", Decimal("2.5"), Decimal(1), Basis.ALLOCATION)
