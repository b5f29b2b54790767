"""IP addresses in one form, so that they can be compared as texts."""

from __future__ import annotations

from ipaddress import IPv6Address, ip_address


def plain_address(text: str) -> str:
    """The normalized form of an address, of IPv4 within IPv6 the IPv4 address; any other text is unchanged."""
    return address_in(text) or text


def address_in(text: str) -> str | None:
    """The same, and None for any other text."""
    try:
        address = ip_address(text.partition("%")[0])
    except ValueError:
        return None
    mapped = address.ipv4_mapped if isinstance(address, IPv6Address) else None
    return str(mapped or address)
