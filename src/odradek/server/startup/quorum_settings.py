"""What the settings say of the quorum: its voters, who may know it, and where this node's own controller is dialled."""

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
    """This node's controller listeners by name, as other nodes dial them; empty where it is no controller.

    Args:
        me: this node among the static voters: all others dial that address.
        hostname: stands for a listener that is bound to all interfaces.
    """
    endpoints: dict[str, Endpoint] = {}
    for spec in specs:
        if spec.scope == "controller":
            host, port = spec.advertised or (spec.host, spec.port)
            endpoints[spec.name] = (hostname if host in WILDCARDS else host, port)
    if me is not None:
        endpoints.update({name: endpoint for name, endpoint in me.endpoints.items() if name in endpoints})
    return endpoints
