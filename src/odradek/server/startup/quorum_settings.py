"""Reads the settings of the quorum: its voters, its bootstrap servers, and the endpoints of this node's controller."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import cast

from odradek.raft.voters import Endpoint, Voter, VoterSet, parse_static_voters
from odradek.server.network.listeners import ListenerSpec
from odradek.settings.broker import BrokerSettings
from odradek.settings.listeners import WILDCARDS, parse_address


def quorum_voters(settings: BrokerSettings) -> VoterSet:
    """The voters of a static quorum; none where the quorum is a dynamic one (KIP-853)."""
    voters = cast("list[str]", settings["controller.quorum.voters"] or [])
    return parse_static_voters(",".join(voters), settings.first_controller_listener)


def quorum_bootstrap(settings: BrokerSettings) -> list[Endpoint]:
    """`controller.quorum.bootstrap.servers`, which were checked when the settings were read."""
    entries = cast("list[str]", settings["controller.quorum.bootstrap.servers"] or [])
    return [address for entry in entries if (address := parse_address(entry)) is not None]


def controller_endpoints(specs: Iterable[ListenerSpec], me: Voter | None, hostname: str) -> Mapping[str, Endpoint]:
    """The advertised endpoints of this node's controller listeners by name; empty if it is not a controller.

    Args:
        me: this node among the static voters, whose address all others use.
        hostname: the advertised host of listeners that are bound to all interfaces.
    """
    endpoints: dict[str, Endpoint] = {}
    for spec in specs:
        if spec.scope == "controller":
            host, port = spec.advertised or (spec.host, spec.port)
            endpoints[spec.name] = (hostname if host in WILDCARDS else host, port)
    if me is not None:
        endpoints.update({name: endpoint for name, endpoint in me.endpoints.items() if name in endpoints})
    return endpoints
