"""HTTP to what tells of a cluster (Prometheus, OpenCost): directly, or through the API server's proxy.

Only reads: ``GET``, and ``POST`` of a form where a query is too long for an address. Time and bytes are bounded, no
redirect is followed, the server is verified, and secrets go only into headers::

    with open_endpoint(endpoint) as client:
        reply = client.get("/api/v1/query", [("query", "up")], timeout=10)
"""

from infra.outbound.client import EndpointClient, EndpointError, Reply
from infra.outbound.opening import open_endpoint

__all__ = ["EndpointClient", "EndpointError", "Reply", "open_endpoint"]
