"""A watch's lines as typed events."""

from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum
from typing import Any

from infra.kube.classify import classify_status
from infra.kube.decoding import loads
from infra.kube.errors import Call, Unreachable

INITIAL_EVENTS_END = "k8s.io/initial-events-end"


class EventType(Enum):
    """What happened; ``BOOKMARK`` only says how far the stream is."""

    ADDED = "ADDED"
    MODIFIED = "MODIFIED"
    DELETED = "DELETED"
    BOOKMARK = "BOOKMARK"


@dataclass(frozen=True)
class WatchEvent:
    """One line of a watch.

    ``resource_version`` is where to resume after this event. ``initial_events_end`` is true for the bookmark
    after the present state, where the watch was asked to begin with it.
    """

    type: EventType
    object: dict[str, Any]
    resource_version: str
    initial_events_end: bool = False


def parse_events(lines: Iterator[bytes], call: Call) -> Iterator[WatchEvent]:
    """Events of a watch's lines.

    Raises:
        Gone: an ERROR line with code 410 (the answer itself was a 200): list again.
        KubeError: any other ERROR line, in its class.
        Unreachable: a line that is no event (the stream was cut in the middle of one).
    """
    for line in lines:
        try:
            entry = loads(line)
            kind, thing = entry["type"], entry["object"]
            if kind == "ERROR":
                raise classify_status(thing, call)
            metadata = thing["metadata"]
            event = WatchEvent(
                EventType(kind),
                thing,
                str(metadata["resourceVersion"]),
                (metadata.get("annotations") or {}).get(INITIAL_EVENTS_END) == "true",
            )
        except (ValueError, KeyError, TypeError):
            raise Unreachable(
                call,
                f"The watch on {call.what} of cluster {call.cluster} brought a broken line. It is resumed.",
                cause="broken",
            ) from None
        yield event
