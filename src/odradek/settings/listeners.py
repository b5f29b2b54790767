"""The listeners and advertised listeners of a node.

Parses `listeners`, `advertised.listeners` and `listener.security.protocol.map`, and checks Kafka's rules for
combinations of them with KRaft.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from odradek.common.numbers import parse_natural

_LISTENER = re.compile(
    r"^(?P<name>[A-Za-z0-9._-]+)://(?P<host>\[[0-9a-fA-F:.%]+\]|[^:\[\]/]*):(?P<port>-?[0-9]{1,10})$"
)
# Hosts that bind all interfaces, and that no client can dial.
WILDCARDS = ("", "0.0.0.0", "::")  # noqa: S104 - recognized, not bound
LISTENER_PREFIX = "listener.name."
# Settings that Kafka reads with the prefix of a listener: security, authentication, and limits.
OF_LISTENERS = (
    "ssl.",
    "sasl.",
    "connections.max.reauth.ms",
    "max.connections",
    "max.connection.creation.rate",
    "num.network.threads",
    "principal.builder.class",
)
# The mechanism of a node's own logins has no prefix of a listener.
NOT_OF_LISTENERS = (
    "max.connections.per.ip",
    "sasl.mechanism.inter.broker.protocol",
    "sasl.mechanism.controller.protocol",
)
# A mechanism has settings of its own below a listener's; its name is written in lower case.
MECHANISMS = ("plain", "scram-sha-256", "scram-sha-512", "oauthbearer", "gssapi")
OF_MECHANISMS = ("sasl.", "connections.max.reauth.ms")
_PROTOCOLS = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")


@dataclass(frozen=True, slots=True)
class ListenerAddress:
    """One listener.

    Attributes:
        host: "" binds all interfaces; in an advertised one it means "the address that the client dialled".
    """

    name: str
    host: str
    port: int
    security_protocol: str

    def __str__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{self.name}://{host}:{self.port}"


def split_listener_key(key: str) -> tuple[str, str, str]:
    """`listener.name.<name>.[<mechanism>.]<key>` → name, in lower case, mechanism ("" without one), and key.

    A name with a dot in it is not distinguished from the key behind it; as in Kafka, a mechanism stands in lower case.
    """
    name, _, rest = key.removeprefix(LISTENER_PREFIX).partition(".")
    mechanism, _, below = rest.partition(".")
    if mechanism in MECHANISMS:
        return name.lower(), mechanism, below
    return name.lower(), "", rest


def is_listener_key(key: str) -> bool:
    """Whether a broker setting can be set for one listener."""
    return key.startswith(OF_LISTENERS) and not key.startswith(NOT_OF_LISTENERS)


def is_mechanism_key(key: str) -> bool:
    """Whether a setting of a listener can be set for one of its SASL mechanisms."""
    return key.startswith(OF_MECHANISMS)


def listener_values(name: str, given: Mapping[str, str]) -> dict[str, str]:
    """The settings of one listener without their prefix; `<mechanism>.<key>` where they are a mechanism's."""
    prefix = f"{LISTENER_PREFIX}{name.lower()}."
    return {key.removeprefix(prefix): text for key, text in given.items() if key.startswith(prefix)}


def parse_address(text: str) -> tuple[str, int] | None:
    """`host:port` or `[::1]:port`; None for other texts. Without a host it is all interfaces."""
    host, colon, port = text.strip().rpartition(":")
    number = parse_natural(port, 65535)
    if not colon or number is None:
        return None
    return host.removeprefix("[").removesuffix("]"), number


def parse_protocol_map(entries: Sequence[str]) -> tuple[dict[str, str], list[str]]:
    """`NAME:PROTOCOL` entries → protocol by upper-case name, and problems."""
    protocols, problems = {}, []
    for entry in entries:
        name, _, protocol = entry.partition(":")
        if protocol.upper() not in _PROTOCOLS:
            problems.append(f"listener.security.protocol.map: {entry!r} must be NAME:{'|'.join(_PROTOCOLS)}")
        else:
            protocols[name.strip().upper()] = protocol.upper()
    return protocols, problems


def parse_listeners(
    key: str, entries: Sequence[str], protocols: Mapping[str, str], *, unique_ports: bool
) -> tuple[list[ListenerAddress], list[str]]:
    """The listeners of one setting, and a line for each problem."""
    found: list[ListenerAddress] = []
    problems = []
    for entry in entries:
        match = _LISTENER.match(entry)
        if match is None:
            problems.append(f"{key}: {entry!r} must be NAME://host:port")
            continue
        name, host, port = match["name"].upper(), match["host"].strip("[]"), int(match["port"])
        protocol = protocols.get(name)
        if not -1 < port < 65536:
            problems.append(f"{key}: port {port} of {name} must be between 0 and 65535")
        elif protocol is None:
            problems.append(f"{key}: listener {name} has no entry in listener.security.protocol.map")
        elif any(other.name == name for other in found):
            problems.append(f"{key}: each listener must have a name of its own, {name} stands twice")
        elif unique_ports and port and any(other.port == port and _same_family(other.host, host) for other in found):
            problems.append(f"{key}: each listener must have a port of its own, {port} stands twice")
        else:
            found.append(ListenerAddress(name, host, port, protocol))
    return found, problems


def _same_family(one: str, other: str) -> bool:
    """Kafka lets one IPv4 and one IPv6 address share a port."""
    return not one or not other or (":" in one) == (":" in other)
