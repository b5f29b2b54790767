"""The request by which a broker registers with the active controller (KIP-631)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING
from uuid import UUID

from odradek.metadata.features import LevelRange
from odradek.protocol.extras import broker_host_fields
from odradek.protocol.messages import broker_registration_request as message
from odradek.settings.listeners import WILDCARDS

if TYPE_CHECKING:
    from odradek.server.network.listeners import ListenerSpec


def registered_listeners(specs: Iterable[ListenerSpec], hostname: str) -> list[message.Listener]:
    """The endpoints that a broker registers.

    Args:
        specs: the node's listeners; those of controllers are left out.
        hostname: the advertised host of listeners that are bound to all interfaces and advertise no address.
    """
    endpoints = []
    for spec in specs:
        if spec.scope == "broker":
            address, port = spec.advertised or (spec.host, spec.port)
            address = hostname if address in WILDCARDS else address
            endpoints.append(
                message.Listener(name=spec.name, host=address, port=port, security_protocol=spec.security_protocol)
            )
    return endpoints


def broker_registration_request(
    node_id: int,
    cluster_id: str,
    incarnation_id: UUID,
    *,
    listeners: list[message.Listener],
    features: Mapping[str, LevelRange],
    rack: str | None,
    host: str | None,
    log_dirs: list[UUID],
    previous_broker_epoch: int,
) -> message.BrokerRegistrationRequest:
    """
    Args:
        host: the machine of this broker; None omits it.
        log_dirs: ids of the directories that are online.
        previous_broker_epoch: of the last clean stop, -1 after an unclean one (KIP-966).
    """
    return message.BrokerRegistrationRequest(
        broker_id=node_id,
        cluster_id=cluster_id,
        incarnation_id=incarnation_id,
        listeners=listeners,
        features=[
            message.Feature(name=name, min_supported_version=levels.min_level, max_supported_version=levels.max_level)
            for name, levels in features.items()
        ],
        rack=rack,
        log_dirs=log_dirs,
        previous_broker_epoch=previous_broker_epoch,
        unknown_tagged_fields=broker_host_fields(host),
    )
