"""Asking OpenCost about one whole hour that is over.

A running window overstates (windows are rounded out to five minutes, also into the future), a window off the hour
loses what lies beyond its samples, and windows don't add up. So only complete UTC hours are asked, each with its two
instants, and an answer for anything else is refused.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta

from billing.opencost.answers import Allocation, Assets, read_allocation, read_assets, read_version
from billing.opencost.bodies import Refused
from infra.outbound import EndpointClient, EndpointError
from portal.kernel.clock import HOUR, Interval, format_rfc3339, hour_start, utcnow

SETTLED = timedelta(minutes=15)
"""How long after its end an hour is asked: OpenCost's metrics and Prometheus need some minutes."""
TIMEOUT = 30.0
LARGEST = 48 * 1024 * 1024
AGGREGATE = ("namespace", "pod")


@dataclass(frozen=True, slots=True)
class Hour:
    """What OpenCost says of an hour. ``assets`` is None where only they were refused, and ``assets_reason`` says why.

    ``bodies``: the answers as they came, by path.
    """

    window: Interval
    allocation: Allocation
    assets: Assets | None
    assets_reason: str
    bodies: dict[str, bytes]


class OpenCostClient:
    """Questions to one OpenCost, read and checked."""

    def __init__(self, client: EndpointClient) -> None:
        self._client = client

    def hour(self, start: datetime) -> Hour:
        """The allocations and assets of the hour that begins at ``start``.

        Raises:
            ValueError: not the start of a whole hour, or the hour is not over and settled.
            EndpointError: it could not be asked. Refused: its answer can't be used; ``bodies`` is on the exception.
        """
        if start != hour_start(start):
            raise ValueError(f"{format_rfc3339(start)} is no whole hour in UTC.")
        if start + HOUR + SETTLED > utcnow():
            raise ValueError(f"The hour from {format_rfc3339(start)} is not over and settled: it would be overstated.")
        window = Interval(start, start + HOUR)
        asked = ("window", f"{format_rfc3339(window.start)},{format_rfc3339(window.end)}")
        bodies: dict[str, bytes] = {}
        try:
            allocation = self._allocation(window, asked, bodies)
        except Refused as refused:
            raise HourRefused(refused, bodies) from None
        try:
            reply = self._client.get("/assets", [asked], timeout=TIMEOUT, max_bytes=LARGEST)
            bodies["/assets"] = reply.body
            return Hour(window, allocation, read_assets(reply.status, reply.body, window), "", bodies)
        except Refused as refused:
            return Hour(window, allocation, None, refused.sentence, bodies)

    def _allocation(self, window: Interval, asked: tuple[str, str], bodies: dict[str, bytes]) -> Allocation:
        query = [asked, ("aggregate", ",".join(AGGREGATE))]
        reply = self._client.get("/allocation/compute", query, timeout=TIMEOUT, max_bytes=LARGEST)
        if reply.status == 404:  # builds that only have the newer path
            reply = self._client.get("/allocation", query, timeout=TIMEOUT, max_bytes=LARGEST)
        bodies["/allocation/compute"] = reply.body
        return read_allocation(reply.status, reply.body, window, AGGREGATE)

    def version(self) -> str:
        """What the build calls itself; empty where it does not tell."""
        try:
            reply = self._client.get("/installInfo", timeout=10, max_bytes=1024 * 1024)
        except EndpointError:
            return ""
        return read_version(reply.status, reply.body)

    def healthy(self) -> bool:
        """Whether it says that it is well. Raises EndpointError where nothing answers."""
        return self._client.get("/healthz", timeout=10, max_bytes=64 * 1024).status == 200


class HourRefused(Refused):
    """A refused answer with the bodies that came."""

    def __init__(self, why: Refused, bodies: dict[str, bytes]) -> None:
        super().__init__(why.sentence, retry=why.retry)
        self.bodies = bodies
