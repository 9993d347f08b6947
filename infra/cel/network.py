"""URLs, IP addresses and networks as selectors read them: k8s.io/apiserver `pkg/cel/library` urls.go, ip.go, cidr.go.

A value of these types is a list of its kind and its text, e.g. `["ip", "10.0.0.1"]`. What cannot be parsed raises
ValueError.
"""

from __future__ import annotations

import ipaddress
from typing import Any, cast
from urllib.parse import urlsplit


def parse_url(text: str) -> str:
    """The text, if it is an absolute URL or path (Go: url.ParseRequestURI)."""
    if not text or any(ord(c) < 0x20 or c in ' \x7f"<>\\^`{|}' for c in text):
        raise ValueError(f"{text[:64]!r} is not a URL")
    parts = urlsplit(text)
    if not (parts.scheme or text.startswith("/")):
        raise ValueError(f"{text[:64]!r} is not an absolute URL")
    _ = parts.port  # raises ValueError for a port that is no number
    return text


def url(value: Any) -> Any:
    """The parts of a URL value."""
    return urlsplit(value[1])


def url_host(value: Any) -> str:
    """Host and port."""
    return cast("str", url(value).netloc.rpartition("@")[2])


def url_hostname(value: Any) -> str:
    """Host without port and brackets."""
    host = url_host(value)
    if host.startswith("["):
        return host[1:].partition("]")[0]
    return host.partition(":")[0]


def url_port(value: Any) -> str:
    """Port as text, or empty."""
    return url_host(value).rpartition("]")[2].partition(":")[2]


def parse_address(text: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address:
    """An address; zones and IPv4 inside IPv6 are refused, as in Kubernetes."""
    if "%" in text:
        raise ValueError(f"IP address {text[:64]!r}: a zone is not allowed")
    address = ipaddress.ip_address(text)
    if address.version == 6 and address.ipv4_mapped is not None:
        raise ValueError(f"IP address {text[:64]!r}: an IPv4 address inside IPv6 is not allowed")
    return address


LINK_LOCAL_MULTICAST: dict[int, Any] = {
    4: ipaddress.ip_network("224.0.0.0/24"),
    6: ipaddress.ip_network("ff02::/16"),
}


def global_unicast(address: ipaddress.IPv4Address | ipaddress.IPv6Address) -> bool:
    """Whether it is a global unicast address in Go's sense, which includes private ones."""
    plain = address.is_unspecified or address.is_loopback or address.is_multicast or address.is_link_local
    return not plain and str(address) != "255.255.255.255"


def parse_network(text: str) -> ipaddress.IPv4Interface | ipaddress.IPv6Interface:
    """An address with the bits of its network, as `cidr()` takes it."""
    address, slash, bits = text.partition("/")
    if not slash or not bits.isascii() or not bits.isdigit() or (len(bits) > 1 and bits[0] == "0"):
        raise ValueError(f"{text[:64]!r} is not a network: an address, a slash and a number of bits are needed")
    parse_address(address)
    return ipaddress.ip_interface(text)


def contains_ip(net: Any, other: Any) -> bool:
    """Whether the network holds the address (text or value)."""
    found = parse_address(other if isinstance(other, str) else other[1])
    network = parse_network(net[1]).network
    return found.version == network.version and found in network


def contains_cidr(net: Any, other: Any) -> bool:
    """Whether the network holds all of the other (text or value)."""
    outer = parse_network(net[1]).network
    inner = parse_network(other if isinstance(other, str) else other[1]).network
    return outer.version == inner.version and inner.subnet_of(cast("Any", outer))
