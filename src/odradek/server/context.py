"""The arguments of handlers: the services of this broker, the connection, the principal, and the version.

`BrokerServices` is filled once by `broker.py`, in the order of the start, and is the only way from a handler to the
rest of the node. `RequestContext` is one request's view of it. Nothing here decides anything.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence, Set
from dataclasses import dataclass
from typing import TYPE_CHECKING

from odradek.common.errors import ApiError, ErrorCode
from odradek.common.ports import Clock
from odradek.metadata.acls import AclOperation
from odradek.metadata.image import MetadataImage
from odradek.metadata.publisher import MetadataPublisher
from odradek.security.acl.audit import AUDITING, DEBUG, audit, audits_allowed

if TYPE_CHECKING:
    from odradek.common.metrics import Metrics
    from odradek.coordinator.group.service import GroupCoordinator
    from odradek.coordinator.transaction.service import TransactionCoordinator
    from odradek.link.measures import LinkMeasures
    from odradek.log.compaction.cleaner import Cleaner
    from odradek.log.manager import LogManager
    from odradek.log.scrub import ScrubCounts
    from odradek.protocol.messages.request_header import RequestHeader
    from odradek.raft.driver import RaftDriver
    from odradek.replica.manager import ReplicaManager
    from odradek.security.acl.authorizer import StandardAuthorizer
    from odradek.server.auto_topic_creation import TopicCreator
    from odradek.server.controller_gateway import ControllerGateway
    from odradek.server.fetch_session_cache import FetchSessionCache
    from odradek.server.lifecycle.liveness import BrokerLiveness
    from odradek.server.lifecycle.suspected_brokers import SuspectedBrokers
    from odradek.server.network.connection import Connection
    from odradek.server.network.dispatch import Route
    from odradek.server.network.request_quotas import Payer
    from odradek.server.network.request_times import RequestTimes
    from odradek.server.telemetry.store import ClientTelemetry
    from odradek.server.transactions.marker_writer import MarkerWriter
    from odradek.server.transactions.producer_ids import ProducerIdBlocks
    from odradek.server.transactions.verification import TransactionVerifier
    from odradek.settings.broker import BrokerSettings
    from odradek.settings.resources import SettingRules

_NONE: Set[str] = frozenset()
ANONYMOUS = "User:ANONYMOUS"


async def _check_nothing(image: MetadataImage, changed: Mapping[str, str | None]) -> None:
    """The context of services without security settings and listeners."""


@dataclass(slots=True, kw_only=True)
class BrokerServices:
    """The parts of a running node.

    Attributes:
        settings: those of the file, overridden by dynamic ones.
        setting_rules: the validation and description of settings.
        publisher: has the newest `MetadataImage`; `image` returns it.
        controller: handles the controller's APIs, on this node or another one.
        quorum: this node's replica of the metadata log; answers the quorum's APIs.
        coordinator: handles the group APIs.
        liveness: detects brokers that die; None if this node is not a controller.
        suspected_brokers: the brokers that may be failing.
        transactions: handles the transaction APIs.
        verifier: verifies that transactions include partitions of this broker.
        markers: writes transaction markers into partitions of this broker.
        topic_creator: creates topics automatically.
        telemetry: the metrics that clients push.
        routes: the handlers, by kind of listener and API key.
        authorizer: decides about permissions; None: every client may do everything.
        check_changes: checks changed security settings and listeners of this node (None deletes a setting); raises
            ConfigError.
        link_measures: the state of links on this broker.
    """

    node_id: int
    cluster_id: str
    settings: BrokerSettings
    setting_rules: SettingRules
    clock: Clock
    metrics: Metrics
    publisher: MetadataPublisher
    log_manager: LogManager
    cleaner: Cleaner
    scrub_counts: ScrubCounts
    replicas: ReplicaManager
    fetch_sessions: FetchSessionCache
    producer_ids: ProducerIdBlocks
    controller: ControllerGateway
    quorum: RaftDriver
    coordinator: GroupCoordinator
    liveness: BrokerLiveness | None
    suspected_brokers: SuspectedBrokers
    transactions: TransactionCoordinator
    verifier: TransactionVerifier
    markers: MarkerWriter
    topic_creator: TopicCreator
    telemetry: ClientTelemetry
    routes: dict[str, dict[int, Route]]
    authorizer: StandardAuthorizer | None = None
    check_changes: Callable[[MetadataImage, Mapping[str, str | None]], Awaitable[None]] = _check_nothing
    link_measures: Callable[[], Sequence[LinkMeasures]] = tuple

    @property
    def image(self) -> MetadataImage:
        """The newest view of the cluster; take it once per request and keep to it."""
        return self.publisher.image


class RequestContext:
    """One request on one connection."""

    __slots__ = (
        "api_key",
        "api_version",
        "broker",
        "client_id",
        "connection",
        "correlation_id",
        "payer",
        "throttle_ms",
        "times",
    )

    def __init__(
        self,
        broker: BrokerServices,
        connection: Connection,
        api_key: int,
        api_version: int,
        correlation_id: int,
        client_id: str,
    ) -> None:
        """`client_id` is the client id of the request; "" if it has none."""
        self.broker = broker
        self.connection = connection
        self.api_key = api_key
        self.api_version = api_version
        self.correlation_id = correlation_id
        self.client_id = client_id
        # The quotas for which the request counts, if any are set, and the throttle time.
        self.payer: Payer | None = None
        self.throttle_ms = 0
        # Of a request that is timed.
        self.times: RequestTimes | None = None

    def throttle(self, throttle_ms: int) -> None:
        """Mute the connection, unless another quota did for longer; the response names the longest of all waits."""
        if throttle_ms > self.throttle_ms:
            self.throttle_ms = throttle_ms
            self.connection.mute(throttle_ms)

    @property
    def client_address(self) -> str:
        """The peer's IP address, without the slash that Kafka puts before it in group descriptions."""
        return self.connection.peer_host

    @property
    def listener_name(self) -> str:
        return self.connection.listener.name

    @property
    def principal(self) -> str:
        """The principal, as `User:name`."""
        return self.connection.principal

    def authorize(self, operation: int, resource_type: int, name: str) -> bool:
        """Whether the client may do it to a resource; the audit log has the decision."""
        authorizer = self.broker.authorizer
        if authorizer is None:
            return True
        kept = self.connection.permissions
        is_kept = kept.epoch is authorizer.epoch and (operation, resource_type, name) in kept.allowed
        if is_kept and (AUDITING.level > DEBUG or not audits_allowed()):
            return True
        allowed = self._decide(authorizer, operation, resource_type, name)
        if allowed:
            kept.add(authorizer.epoch, operation, resource_type, name)
        return allowed

    def readable_topics(self, authorizer: StandardAuthorizer) -> Set[str]:
        """Topics that the client may read, as `authorize` has found and would find without a line in the audit log."""
        kept = self.connection.permissions
        if kept.epoch is authorizer.epoch and (AUDITING.level > DEBUG or not audits_allowed()):
            return kept.readable
        return _NONE

    def _decide(self, authorizer: StandardAuthorizer, operation: int, resource_type: int, name: str) -> bool:
        if not authorizer.is_loaded:
            self._check_may_wait(authorizer, operation)
        principal, host = self.principal, self.client_address
        allowed = authorizer.authorize(principal, host, operation, resource_type, name)
        if not allowed:
            self.broker.metrics.denied(self.api_key)
            self._count_if_no_broker(operation)
        if not allowed or audits_allowed():
            audit(
                authorizer.why(principal, host, operation, resource_type, name),
                principal=principal,
                host=host,
                operation=operation,
                resource_type=resource_type,
                name=name,
                api_key=self.api_key,
                client_id=self.client_id,
            )
        return allowed

    def is_allowed(self, operation: int, resource_type: int, name: str) -> bool:
        """The same without a line in the audit log, for resources that the client did not name, as in a listing."""
        authorizer = self.broker.authorizer
        if authorizer is None:
            return True
        if not authorizer.is_loaded:
            self._check_may_wait(authorizer, operation)
        allowed = authorizer.authorize(self.principal, self.client_address, operation, resource_type, name)
        if not allowed:
            self._count_if_no_broker(operation)
        return allowed

    def _count_if_no_broker(self, denied: int) -> None:
        """Count an inter-broker request for the client's quotas, since the client lacks the permission of brokers."""
        if denied == AclOperation.CLUSTER_ACTION:
            self.payer = self.connection.payer

    def _check_may_wait(self, authorizer: StandardAuthorizer, operation: int) -> None:
        """
        Raises:
            ApiError: NOT_CONTROLLER, while a starting controller has no ACLs yet, and would deny everything: the client
                tries another one. Requests of other nodes are checked at once: without them there is never any
                metadata.
        """
        if operation != AclOperation.CLUSTER_ACTION and not authorizer.is_super_user(self.principal):
            raise ApiError(ErrorCode.NOT_CONTROLLER, "the permissions are not loaded yet")

    @property
    def on_inter_broker_listener(self) -> bool:
        """Whether the request arrived at the inter-broker listener, which clients may use too."""
        return self.connection.listener.name == self.broker.settings.inter_broker_listener_name

    @property
    def on_controller_listener(self) -> bool:
        """Whether the request arrived at a controller listener, which nodes and administrators use."""
        return self.connection.listener.scope == "controller"


class ForwardedContext(RequestContext):
    """A client's request that a broker forwarded in an envelope, with the principal and the address of the client."""

    __slots__ = ("_client_address", "_principal")

    def __init__(self, envelope: RequestContext, header: RequestHeader, principal: str, client_address: str) -> None:
        super().__init__(
            envelope.broker,
            envelope.connection,
            header.request_api_key,
            header.request_api_version,
            header.correlation_id,
            header.client_id or "",
        )
        self._principal = principal
        self._client_address = client_address

    def authorize(self, operation: int, resource_type: int, name: str) -> bool:
        """The client is not that of the connection: nothing is kept with it."""
        authorizer = self.broker.authorizer
        return authorizer is None or self._decide(authorizer, operation, resource_type, name)

    @property
    def client_address(self) -> str:
        return self._client_address

    @property
    def principal(self) -> str:
        return self._principal
