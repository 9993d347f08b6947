"""OpenCost's distortions: the recorded run of the real one (tests/data/recorded, README there) played through ours."""

from __future__ import annotations

from typing import Any

import pytest

from simulator import opencost
from simulator.accounting import Run
from simulator.objects import unix
from tests.unit.simulator.conftest import recorded

DAY = "2026-11-29T16:"

# Namespace → GPU-seconds that the real OpenCost answered, for each window and resolution; None: no row.
ANSWERED: dict[tuple[str, str, str], dict[str, float | None]] = {
    ("35:00", "45:00", "5m"): {
        "team-whole": 3600, "team-short": 300, "team-blink": None, "team-slow": 600, "team-hami": 2400,
        "team-hami-mem": 600, "team-mig": 0, "team-pending": None,
    },
    ("35:00", "40:00", "5m"): {
        "team-whole": 1800, "team-short": 150, "team-blink": None, "team-slow": 300, "team-hami": 1200,
        "team-hami-mem": None, "team-mig": 0,
    },
    ("40:00", "45:00", "5m"): {
        "team-whole": 1800, "team-short": 150, "team-blink": None, "team-slow": 600, "team-hami": 1200,
        "team-hami-mem": 600, "team-mig": 0,
    },
    ("36:10", "43:20", "5m"): {
        "team-whole": 1800, "team-short": 300, "team-blink": None, "team-slow": 600, "team-hami": 1200,
        "team-hami-mem": None, "team-mig": 0,
    },
    ("35:00", "45:00", "1m"): {
        "team-whole": 3600, "team-short": 480, "team-blink": None, "team-slow": 840, "team-hami": 2400,
        "team-hami-mem": 960, "team-mig": 0,
    },
    ("35:00", "45:00", "10s"): {
        "team-whole": 3600, "team-short": 390, "team-blink": 0, "team-slow": 840, "team-hami": 2400,
        "team-hami-mem": 1080, "team-mig": 0,
    },
}  # fmt: skip


def runs() -> list[Run]:
    """The pods of the recorded run as they ran."""
    return [
        Run(
            row["namespace"], row["pod"], row["uid"], row["node"], "main", "", "", {}, 1.0, 1024.0**3,
            float(row["nvidia_gpu_limit"] or 0), unix(row["startedAt"]),
            unix(row["finishedAt"]) if row["finishedAt"] else None,
        )
        for row in recorded("truth.json")["pods"]
        if row["startedAt"]
    ]  # fmt: skip


def ask(start: str, end: str, **more: str) -> list[dict[str, Any]]:
    query = {"window": f"{DAY}{start}Z,{DAY}{end}Z", "aggregate": "namespace", **more}
    question = opencost.Question.read(query, unix(f"{DAY}46:00Z"))
    return opencost.allocation(runs(), question, "lab", {}, [], {})


@pytest.mark.parametrize("case", ANSWERED, ids="-".join)
def test_the_recorded_run(case: tuple[str, str, str]) -> None:
    start, end, resolution = case
    (rows,) = ask(start, end, resolution=resolution)
    for namespace, seconds in ANSWERED[case].items():
        got = rows[namespace]["gpuHours"] * 3600 if namespace in rows else None
        assert got == (None if seconds is None else pytest.approx(seconds, abs=0.05)), namespace


def test_the_shape_is_the_recorded_one() -> None:
    (rows,) = ask("35:00", "45:00")
    real = recorded_row()
    ours = rows["team-hami"]
    assert set(ours) == set(real)
    for key in ("window", "start", "end", "minutes", "gpuCount", "gpuHours", "gpuCost"):
        assert ours[key] == real[key], key


def recorded_row() -> dict[str, Any]:
    """Row team-hami of the real answer for 16:35-16:45 by namespace (opencost-namespace.json), the parts compared."""
    numbers = [
        "cpuCores", "cpuCoreRequestAverage", "cpuCoreUsageAverage", "cpuCoreHours", "cpuCost", "cpuCostAdjustment",
        "cpuCostIdle", "cpuEfficiency", "gpuCostAdjustment", "gpuCostIdle", "gpuEfficiency", "networkTransferBytes",
        "networkReceiveBytes", "networkCost", "networkCrossZoneCost", "networkCrossRegionCost",
        "networkInternetCost", "networkCostAdjustment", "loadBalancerCost", "loadBalancerCostAdjustment", "pvBytes",
        "pvByteHours", "pvCost", "pvs", "pvCostAdjustment", "ramBytes", "ramByteRequestAverage",
        "ramByteUsageAverage", "ramByteHours", "ramCost", "ramCostAdjustment", "ramCostIdle", "ramEfficiency",
        "externalCost", "sharedCost", "totalCost", "totalEfficiency", "lbAllocations", "gpuAllocation", "name",
        "properties",
    ]  # fmt: skip
    return dict.fromkeys(numbers) | {
        "window": {"start": f"{DAY}35:00Z", "end": f"{DAY}45:00Z"},
        "start": f"{DAY}35:00Z",
        "end": f"{DAY}45:00Z",
        "minutes": 10,
        "gpuCount": 4,
        "gpuHours": 0.66667,
        "gpuCost": 1.66667,
    }


def test_steps_and_empty_windows() -> None:
    first, second = ask("35:00", "45:00", step="5m")
    assert first["team-slow"]["gpuHours"] == pytest.approx(300 / 3600, abs=1e-5)
    assert second["team-slow"]["gpuHours"] == pytest.approx(600 / 3600, abs=1e-5)
    assert ask("10:00", "15:00") == [{}]


def test_an_unknown_aggregate_is_one_row_without_a_name() -> None:
    (rows,) = ask("35:00", "45:00", aggregate="nonsense")
    assert list(rows) == [""]


@pytest.mark.parametrize("window", ["", "nonsense", "0m", "2026-11-29T16:45:00Z,2026-11-29T16:35:00Z"])
def test_bad_windows(window: str) -> None:
    with pytest.raises(opencost.BadWindow):
        opencost.Question.read({"window": window}, 0.0)


def test_assets_count_as_opencost_does() -> None:
    def node(name: str, gpus: str, **labels: str) -> dict[str, Any]:
        return {
            "metadata": {"name": name, "labels": labels},
            "status": {"capacity": {"cpu": "192", "memory": "2Ti", "nvidia.com/gpu": gpus}},
        }

    nodes = [node("hami-0000", "80"), node("mig-0000", "0", **{"nvidia.com/gpu.count": "8"}), node("cpu", "0")]
    end = unix(f"{DAY}45:00Z")
    found = opencost.assets(nodes, end - 600, end, "lab", {})
    key = "custom/__undefined__/__undefined__/Compute/lab/Node/Kubernetes/__undefined__/{}"
    assert found[key.format("hami-0000")]["gpuCount"] == 80.0
    assert found[key.format("hami-0000")]["gpuCost"] == 33.333333
    assert found[key.format("hami-0000")]["totalCost"] == 34.997333
    assert found[key.format("mig-0000")]["gpuCost"] == 0.416667
    assert found[key.format("cpu")]["gpuCount"] == 0.0
