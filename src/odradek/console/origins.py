"""The origin of a request: its host, its origin header, the address of the browser behind proxies, its cookies."""

from __future__ import annotations

import ipaddress
from collections.abc import Sequence
from typing import Any
from urllib.parse import urlsplit

from odradek.common.errors import ConfigError

Network = ipaddress.IPv4Network | ipaddress.IPv6Network
_Address = ipaddress.IPv4Address | ipaddress.IPv6Address
# One home or office has so many bits of IPv6 for itself.
IPV6_PREFIX = 64


def parse_networks(texts: Sequence[str]) -> tuple[Network, ...]:
    """`10.0.0.1`, `10.0.0.0/8` → networks. Raises ConfigError."""
    try:
        return tuple(ipaddress.ip_network(text) for text in texts)
    except ValueError as error:
        raise ConfigError([f"--trusted-proxy: {error}; give an address or a network, as 10.0.0.0/8"]) from None


def read_headers(scope: Any) -> dict[str, str]:
    """By name in small letters; a header that is there more than once is a list with commas."""
    found: dict[str, str] = {}
    for name, value in scope["headers"]:
        key, text = name.decode("latin-1").lower(), value.decode("latin-1")
        found[key] = f"{found[key]},{text}" if key in found and key.startswith("x-forwarded-") else text
    return found


def came_from(scope: Any, headers: dict[str, str], proxies: Sequence[Network]) -> tuple[str, bool]:
    """The address of the browser, and whether there were trusted proxies.

    A proxy appends its neighbour at the right of the list. Entries to the left of the first untrusted one were sent by
    the browser, and are ignored.
    """
    peer = scope["client"][0] if scope.get("client") else ""
    at = _parse(peer)
    if at is None or not _is_in(at, proxies):
        return _counted(at, peer), False
    for text in reversed(headers.get("x-forwarded-for", "").split(",")):
        before = _parse(text.strip())
        if before is None:
            break
        at = before
        if not _is_in(at, proxies):
            break
    return _counted(at, peer), True


def _parse(text: str) -> _Address | None:
    try:
        found = ipaddress.ip_address(text)
    except ValueError:
        return None
    return getattr(found, "ipv4_mapped", None) or found


def _is_in(address: _Address, networks: Sequence[Network]) -> bool:
    return any(address in network for network in networks)


def _counted(address: _Address | None, text: str) -> str:
    if isinstance(address, ipaddress.IPv6Address):
        return str(ipaddress.ip_network((address, IPV6_PREFIX), strict=False))
    return text if address is None else str(address)


def host_name(host: str) -> str:
    """`name:port`, `[::1]:port` → the name."""
    try:
        return (urlsplit(f"//{host}").hostname or "").lower()
    except ValueError:
        return ""


def host_and_port(origin: str) -> str | None:
    """The host and port of an origin, as a host header has them."""
    try:
        return urlsplit(origin).netloc
    except ValueError:
        return None


def local_path(path: str) -> str:
    """A path of the console itself: a redirect leads nowhere else."""
    is_ours = path.startswith("/") and not path.startswith(("//", "/\\")) and path.isprintable() and path.isascii()
    return path if is_ours else "/"


def read_cookie(headers: dict[str, str], wanted: str) -> str | None:
    """The value of one of our cookies."""
    for each in headers.get("cookie", "").split(";"):
        name, _, value = each.partition("=")
        if name.strip() == wanted:
            return value.strip()
    return None
