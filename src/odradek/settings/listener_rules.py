"""The listeners in a node's settings: addresses, protocols, and Kafka's rules for both with roles and other settings.

The functions get the settings as text (`given`) and as typed values, and report problems in one line each.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import cast

from odradek.settings.listeners import WILDCARDS, ListenerAddress, parse_listeners, parse_protocol_map
from odradek.settings.table import Value


def known_listeners(given: Mapping[str, str], values: Mapping[str, Value]) -> frozenset[str]:
    """The names of all listeners that a node knows, of its own and of others, in lower case."""
    own, controllers = _listener_names(values)
    return frozenset(name.lower() for name in (*own, *controllers, *protocols_of(given, values)[0]))


def protocols_of(given: Mapping[str, str], values: Mapping[str, Value]) -> tuple[dict[str, str], list[str]]:
    """The security protocol of each listener by its name, and problems."""
    map_text = cast(str, values["listener.security.protocol.map"] or "")
    protocols, problems = parse_protocol_map([entry.strip() for entry in map_text.split(",") if entry.strip()])
    if "listener.security.protocol.map" not in given:
        # In Kafka a controller listener is PLAINTEXT if no other listener is secured.
        for name in cast("list[str]", values["controller.listener.names"] or []):
            protocols.setdefault(name.upper(), "PLAINTEXT")
    return protocols, problems


def check_listeners(
    given: Mapping[str, str], values: Mapping[str, Value]
) -> tuple[list[ListenerAddress], list[ListenerAddress], list[str]]:
    protocols, problems = protocols_of(given, values)
    controllers = [name.upper() for name in cast("list[str]", values["controller.listener.names"] or [])]
    listeners, more = parse_listeners(
        "listeners", cast("list[str]", values["listeners"] or []), protocols, unique_ports=True
    )
    problems += more
    advertised, more = parse_listeners(
        "advertised.listeners", cast("list[str]", values["advertised.listeners"] or []), protocols, unique_ports=False
    )
    problems += more
    names = {listener.name for listener in listeners}
    for listener in advertised:
        if listener.name not in names and listener.name not in controllers:
            problems.append(f"advertised.listeners: {listener.name} is not among the listeners")
        elif listener.host and listener.host in WILDCARDS:
            problems.append(
                f"advertised.listeners: {listener.host} is not an address that a client can dial; name a host"
            )
    return listeners, advertised, problems


def check_roles_of_listeners(given: Mapping[str, str], values: Mapping[str, Value]) -> list[str]:
    """The problems of listeners together with process.roles and with the settings that name listeners."""
    return _check_roles(given, values) + _check_inter_broker(values) + _check_early_start(values)


def _listener_names(values: Mapping[str, Value]) -> tuple[set[str], set[str]]:
    """The names of the listeners, and those of controllers' listeners, of this node or of others."""
    controllers = {name.upper() for name in cast("list[str]", values["controller.listener.names"] or [])}
    names = {str(entry).partition("://")[0].upper() for entry in cast("list[str]", values["listeners"] or [])}
    return names, controllers


def _check_roles(given: Mapping[str, str], values: Mapping[str, Value]) -> list[str]:
    problems = []
    roles = cast("list[str]", values["process.roles"] or [])
    names, controllers = _listener_names(values)
    if not given.get("process.roles", "-").strip():
        problems.append("process.roles: must name broker, controller, or both")
    if len(set(roles)) != len(roles):
        problems.append("process.roles: names a role twice")
    if "controller" in roles and controllers and not controllers & names:
        problems.append("listeners: a controller needs one of controller.listener.names among them")
    if roles == ["broker"] and controllers & names:
        problems.append("listeners: a node that is only a broker must not have a controller's listener")
    if roles == ["controller"] and names - controllers:
        problems.append("listeners: a node that is only a controller must have controller listeners alone")
    if "broker" in roles and names and not names - controllers:
        problems.append("listeners: a broker needs a listener that is not the controller's")
    return problems


def _check_inter_broker(values: Mapping[str, Value]) -> list[str]:
    inter_broker = values["inter.broker.listener.name"]
    if not isinstance(inter_broker, str) or "broker" not in cast("list[str]", values["process.roles"] or []):
        return []
    names, controllers = _listener_names(values)
    if inter_broker.upper() in controllers:
        return [f"inter.broker.listener.name={inter_broker}: must not be one of controller.listener.names"]
    if inter_broker.upper() not in names:
        return [f"inter.broker.listener.name={inter_broker}: must be the name of one of the listeners"]
    return []


def _check_early_start(values: Mapping[str, Value]) -> list[str]:
    names, controllers = _listener_names(values)
    named = cast("list[str]", values["early.start.listeners"] or [])
    return [
        f"early.start.listeners: {name} is neither among the listeners nor among controller.listener.names"
        for name in named
        if name.upper() not in names | controllers
    ]
