"""Listeners that change while a node runs: `listeners` and `listener.security.protocol.map` as dynamic settings.

A listener may be added, removed, or bound to another address, and one that exists keeps its protocol. Controllers'
listeners and the inter-broker listener must stay: the quorum has the addresses of the former, and the brokers connect
to each other by the latter. Apache Kafka 4.3 moves no listener, and removes none that is advertised. Source: KIP-226.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace

from odradek.settings.broker import BrokerSettings
from odradek.settings.listener_rules import check_listeners, check_roles_of_listeners
from odradek.settings.listeners import LISTENER_PREFIX, ListenerAddress, split_listener_key
from odradek.settings.table import OWN, Scope, setting

LISTENERS, PROTOCOL_MAP = "listeners", "listener.security.protocol.map"


def with_listeners(settings: BrokerSettings) -> BrokerSettings:
    """The settings with the addresses that their values name; unchanged if these cannot be parsed."""
    listeners, advertised, problems = check_listeners(settings.explicit, settings.values)
    if problems:
        return settings
    return replace(settings, listeners=tuple(listeners), advertised=tuple(advertised))


def listener_change_problems(present: BrokerSettings, new: BrokerSettings) -> list[str]:
    """One line for each reason why a change from the listeners of `present` to those of `new` is refused."""
    problems = unusable_listeners(present, new)
    after = {each.name: each.security_protocol for each in new.listeners}
    problems += [
        _protocol_problem(each.name)
        for each in present.listeners
        if after.get(each.name, each.security_protocol) != each.security_protocol
    ]
    return list(dict.fromkeys(problems))


def unusable_listeners(present: BrokerSettings, new: BrokerSettings) -> list[str]:
    """One line for each reason why a running node with the listeners of `present` cannot go on with those of `new`.

    Another protocol of a client listener is none: a node that starts, or that gets two changes at once, removes the
    listener and adds it again.
    """
    listeners, _, problems = check_listeners(new.explicit, new.values)
    problems += check_roles_of_listeners(new.explicit, new.values)
    if problems:
        return problems
    before = {each.name: each for each in present.listeners}
    after = {each.name: each for each in listeners}
    problems += [
        f"{LISTENERS}: {name} is a controller's listener, and changes only with a restart"
        for name in sorted(present.controller_listener_names)
        if _address(before.get(name)) != _address(after.get(name))
    ]
    peers = sorted(present.controller_listener_names)
    if "broker" in present.roles:
        peers.append(present.inter_broker_listener_name)
    problems += [
        _protocol_problem(name)
        for name in peers
        if present.security_protocol_of(name) != new.security_protocol_of(name)
    ]
    if "broker" in present.roles and present.inter_broker_listener_name != new.inter_broker_listener_name:
        problems.append(
            f"{LISTENERS}: brokers connect to each other by {present.inter_broker_listener_name}, which must stay"
        )
    return problems


def _protocol_problem(name: str) -> str:
    return f"Security protocol cannot be updated for existing listener {name}"


def fixed_key_problems(present: BrokerSettings, new: BrokerSettings, changed: Mapping[str, str | None]) -> list[str]:
    """One line for each changed setting of a listener that stays, if it is read only when that listener is bound."""
    after = {each.name for each in new.listeners}
    names = {each.name.lower() for each in present.listeners if each.name in after}
    return [
        f"{key} cannot be updated dynamically for existing listener {split_listener_key(key)[0].upper()}, "
        "restart the broker or create a new listener for the update"
        for key, text in changed.items()
        if is_fixed_listener_key(key) and split_listener_key(key)[0] in names and text != present.explicit.get(key)
    ]


def is_fixed_listener_key(key: str) -> bool:
    """Whether a setting of one listener is read only when that listener is bound."""
    if not key.startswith(LISTENER_PREFIX):
        return False
    base = split_listener_key(key)[2]
    row = setting(Scope.BROKER, base) or OWN.get(base)
    return row is not None and row.is_fixed


def names_in(listeners: str) -> frozenset[str]:
    """The names of the listeners in a value of `listeners`, in lower case."""
    return frozenset(entry.partition("://")[0].strip().lower() for entry in listeners.split(","))


def changes_listeners(keys: Iterable[str]) -> bool:
    """Whether one of these settings adds, removes or moves listeners, or is read when a listener is bound."""
    return any(key in (LISTENERS, PROTOCOL_MAP) or key.startswith(LISTENER_PREFIX) for key in keys)


def _address(listener: ListenerAddress | None) -> str:
    return "" if listener is None else str(listener)
