"""Who may read the metrics: whoever has the token, or asks from an address that the settings name. Nobody else."""

from __future__ import annotations

from ipaddress import ip_address, ip_network

from django.conf import settings

from portal.kernel import crypto


def may_read(authorization: str, address: str) -> bool:
    """Whether the header ``Authorization`` carries the token, or the peer's address is one that is allowed."""
    scheme, _, given = authorization.partition(" ")
    if (
        settings.AIF_METRICS_TOKEN
        and scheme.lower() == "bearer"
        and crypto.same(given.strip(), settings.AIF_METRICS_TOKEN)
    ):
        return True
    try:
        peer = ip_address(address)
    except ValueError:
        return False  # a socket without addresses, or something that is none
    return any(peer in ip_network(network) for network in settings.AIF_METRICS_ALLOW)
