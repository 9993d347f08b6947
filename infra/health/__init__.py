"""What signals of cards and nodes mean: classes of faults, what they do to a bill, when they end. Pure: no Django."""

from infra.health.classes import CREDITED, MEANINGS, WITHHELD, FaultClass, class_names
from infra.health.conditions import Finding, node_findings
from infra.health.gauge import GaugeState, XidEvent, xid_events
from infra.health.xids import XIDS, parse_classes, xid_class, xid_name

__all__ = [
    "CREDITED",
    "MEANINGS",
    "WITHHELD",
    "XIDS",
    "FaultClass",
    "Finding",
    "GaugeState",
    "XidEvent",
    "class_names",
    "node_findings",
    "parse_classes",
    "xid_class",
    "xid_events",
    "xid_name",
]
