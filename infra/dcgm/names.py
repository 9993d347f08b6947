"""Names of dcgm-exporter's metrics (etc/default-counters.csv), and what is particular to some."""

GPU_UTIL = "DCGM_FI_DEV_GPU_UTIL"
"""Percent. A MIG instance has none."""
ENGINE_ACTIVE = "DCGM_FI_PROF_GR_ENGINE_ACTIVE"
"""A ratio, 0 to 1; also of MIG instances. Gone where the profiling module is not loaded."""
FB_USED = "DCGM_FI_DEV_FB_USED"
FB_FREE = "DCGM_FI_DEV_FB_FREE"
FB_RESERVED = "DCGM_FI_DEV_FB_RESERVED"
"""MiB."""
ENERGY = "DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION"
"""mJ since the driver was loaded."""
POWER = "DCGM_FI_DEV_POWER_USAGE"
XID = "DCGM_FI_DEV_XID_ERRORS"
"""The last XID: it stays until the exporter starts again."""

INGESTED = (GPU_UTIL, ENGINE_ACTIVE, FB_USED, FB_FREE, ENERGY, XID)
"""What the telemetry of a cluster is made of."""

PER_PROCESS = frozenset({GPU_UTIL, FB_USED})
"""With virtual GPUs these have a row for each pod with a value of its own (and ``pod_uid``)."""


def is_of_instance(metric: str) -> bool:
    """Whether the row of a MIG instance has the instance's own value. All others (power, energy, clocks, temperature,
    XID) repeat the value of the card in the row of each instance."""
    return metric.startswith(("DCGM_FI_PROF_", "DCGM_FI_DEV_FB_"))
