"""Builds the parts that serve requests."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass

from odradek.common.metrics import Metrics
from odradek.coordinator.transaction.config import TransactionConfig
from odradek.metadata.image import MetadataImage
from odradek.security.quota.config import QuotaConfig
from odradek.server.context import BrokerServices
from odradek.server.fetch_session_cache import FetchSessionCache, FetchSessionConfig
from odradek.server.handlers import served_handlers
from odradek.server.lifecycle.controlled_shutdown import ControlledShutdown
from odradek.server.network.connection_quotas import limits_of_listeners
from odradek.server.network.dispatch import Dispatcher, make_dispatcher, make_routes
from odradek.server.network.listeners import ConnectionConfig
from odradek.server.network.slow_requests import LogLinesConfig
from odradek.server.parts.coordinators import CoordinatorParts
from odradek.server.parts.ports import Ports
from odradek.server.parts.quorum import QuorumParts
from odradek.server.parts.replicas import ReplicaParts
from odradek.server.parts.security import SecurityParts
from odradek.server.startup.format import random_id
from odradek.server.telemetry.store import ClientTelemetry, TelemetryConfig
from odradek.settings.broker import BrokerSettings


@dataclass(frozen=True, slots=True, kw_only=True)
class FrontEnd:
    """The parts that serve requests: the services for handlers, and the connections."""

    services: BrokerServices
    dispatcher: Dispatcher
    controlled_shutdown: ControlledShutdown


def build_front_end(
    settings: BrokerSettings,
    ports: Ports,
    cluster_id: str,
    quorum: QuorumParts,
    data: ReplicaParts,
    coordinators: CoordinatorParts,
    security: SecurityParts,
    check_changes: Callable[[MetadataImage, Mapping[str, str | None]], Awaitable[None]],
) -> FrontEnd:
    """The routes are those of the kinds of listeners; ApiVersions is answered from them. For `check_changes` see
    `BrokerServices`."""
    handlers = served_handlers(two_phase=settings.build(TransactionConfig).is_two_phase_served)
    routes = {scope: make_routes(handlers, scope) for scope in ("broker", "controller")}
    transactions = coordinators.transactions
    services = BrokerServices(
        node_id=settings.node_id,
        cluster_id=cluster_id,
        settings=settings,
        setting_rules=quorum.rules,
        clock=ports.clock,
        metrics=Metrics(),
        publisher=quorum.publisher,
        log_manager=data.log_manager,
        cleaner=data.cleaner,
        scrub_counts=data.scrubbing.counts,
        replicas=data.replicas,
        fetch_sessions=FetchSessionCache(settings.build(FetchSessionConfig), ports.random, ports.clock.monotonic_ms),
        producer_ids=transactions.producer_ids,
        controller=quorum.gateway,
        quorum=quorum.raft,
        coordinator=coordinators.groups,
        transactions=transactions.coordinator,
        verifier=transactions.verifier,
        markers=transactions.markers,
        liveness=quorum.liveness,
        suspected_brokers=quorum.suspected_brokers,
        topic_creator=coordinators.topic_creator,
        telemetry=ClientTelemetry(
            settings.build(TelemetryConfig),
            lambda: random_id(ports.random),
            is_on=settings.metrics_address is not None,
        ),
        routes=routes,
        check_changes=check_changes,
        authorizer=security.authorizer,
    )
    dispatcher = make_dispatcher(
        services,
        settings.build(ConnectionConfig),
        routes,
        ports.machine,
        settings.build(QuotaConfig),
        ports.timer,
    )
    dispatcher.change_limits(dispatcher.config, limits_of_listeners(settings))
    slow_ms = settings.build(LogLinesConfig).slow_request_ms
    if slow_ms > 0 or settings.metrics_address is not None:
        dispatcher.time_requests(slow_ms)
    shutdown = ControlledShutdown(dispatcher, settings.node_id, lambda: data.lifecycle.broker_epoch)
    return FrontEnd(services=services, dispatcher=dispatcher, controlled_shutdown=shutdown)
