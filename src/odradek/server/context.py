"""What a handler is given: the services of this broker, the connection, and who asks in which version.

`BrokerServices` is filled once by `broker.py`, in the order of the start, and is the only way from a handler to the rest
of the node. `RequestContext` is one request's view of it. Nothing here decides anything.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any
from uuid import UUID

from odradek.common.ports import Clock, Disk
from odradek.metadata.image import MetadataImage
from odradek.metadata.publisher import MetadataPublisher

if TYPE_CHECKING:
    from random import Random

    from odradek.common.metrics import Metrics
    from odradek.log.manager import LogManager
    from odradek.protocol.framing import RequestHeader
    from odradek.replica.manager import ReplicaManager
    from odradek.server.connection import Connection
    from odradek.server.fetch_sessions import FetchSessionCache
    from odradek.server.listeners import ListenerSpec
    from odradek.server.producer_ids import ProducerIdBlocks

ANONYMOUS = "User:ANONYMOUS"


@dataclass(slots=True, kw_only=True)
class BrokerServices:
    """The parts of a running node.

    Attributes:
        settings: the node's resolved settings (`common.settings.BrokerSettings`).
        publisher: holds the newest `MetadataImage`; `image` is the short way to it.
        controller: what answers the controller's APIs (`controller.service.ControllerService`, one method per API).
        coordinator: what answers the group APIs (`coordinator.service.CoordinatorService`).
        raft: the driver of the metadata quorum, for DescribeQuorum and the like.
        listeners: by name, those that clients may dial; the controller's listener is not among them.
    """

    node_id: int
    cluster_id: str
    settings: Any
    clock: Clock
    disk: Disk
    random: Random
    metrics: Metrics
    publisher: MetadataPublisher
    log_manager: LogManager
    replicas: ReplicaManager
    fetch_sessions: FetchSessionCache
    producer_ids: ProducerIdBlocks
    controller: Any
    coordinator: Any = None
    raft: Any = None
    directory_ids: dict[str, UUID] = field(default_factory=dict)
    listeners: dict[str, ListenerSpec] = field(default_factory=dict)
    handlers: Any = None

    @property
    def image(self) -> MetadataImage:
        """The newest view of the cluster; take it once per request and keep to it."""
        return self.publisher.image


class RequestContext:
    """One request on one connection."""

    __slots__ = ("broker", "connection", "header")

    def __init__(self, broker: BrokerServices, connection: Connection, header: RequestHeader) -> None:
        self.broker = broker
        self.connection = connection
        self.header = header

    @property
    def api_key(self) -> int:
        return self.header.api_key

    @property
    def api_version(self) -> int:
        return self.header.api_version

    @property
    def correlation_id(self) -> int:
        return self.header.correlation_id

    @property
    def client_id(self) -> str:
        """What the client calls itself; "" where it gave no name."""
        return self.header.client_id or ""

    @property
    def client_address(self) -> str:
        """The peer's IP address, as Kafka writes it into group descriptions, without the slash."""
        return self.connection.peer_host

    @property
    def listener_name(self) -> str:
        return self.connection.listener.name

    @property
    def principal(self) -> str:
        """Who asks, as `User:name`."""
        return self.connection.principal
