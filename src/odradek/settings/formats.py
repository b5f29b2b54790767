"""Settings with a format of their own, beyond their type and Kafka's table of valid values."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from odradek.common.addresses import address_in
from odradek.common.numbers import INT32_MAX, parse_natural


def per_ip_overrides(text: str) -> dict[str, int]:
    """Read "host:count,host:count"; the count follows the last colon, so that IPv6 addresses pass.

    Kafka resolves host names once, at the start; here an address is given.

    Raises:
        ValueError: an entry without an address or a count.
    """
    limits = {}
    for entry in filter(None, (part.strip() for part in text.split(","))):
        host, _, count_text = entry.rpartition(":")
        count = parse_natural(count_text, INT32_MAX)
        address = address_in(host.strip("[]"))
        if address is None or count is None:
            raise ValueError(f"must be a list of address:count, and {entry!r} is not")
        limits[address] = count
    return limits


def is_principal(text: str) -> bool:
    """Whether a text is `type:name`, as `User:alice`; the name may have colons."""
    kind, _, name = text.partition(":")
    return bool(kind and name)


def super_users(text: str) -> tuple[str, ...]:
    """Read "User:name;User:name", as names may have commas.

    Raises:
        ValueError: one of them is not `type:name`.
    """
    names = tuple(name for part in text.split(";") if (name := part.strip()))
    for name in names:
        if not is_principal(name):
            raise ValueError(f"{name!r} is not a principal: must be User:name, several separated by semicolons")
    return names


STANDARD_AUTHORIZER = "org.apache.kafka.metadata.authorizer.StandardAuthorizer"


def authorizer_class(text: str) -> str:
    """Read the class of an authorizer, by its name in Kafka; "" for none.

    Raises:
        ValueError: another one than the authorizer by ACLs in the metadata log.
    """
    if text not in ("", STANDARD_AUTHORIZER):
        raise ValueError(f"must be {STANDARD_AUTHORIZER}, or empty")
    return text


FORMATS: Mapping[str, Callable[[str], object]] = {
    "authorizer.class.name": authorizer_class,
    "max.connections.per.ip.overrides": per_ip_overrides,
    "super.users": super_users,
}
