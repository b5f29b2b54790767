"""Builds the quorum parts of a node: the metadata log, its subscribers, and the controller that writes it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from uuid import UUID

from odradek.client.controller_channel import ControllerChannel
from odradek.controller.config import ControllerConfig
from odradek.controller.service import ControllerService
from odradek.controller.tokens import DelegationTokenConfig
from odradek.metadata.features import supported_features
from odradek.metadata.publisher import MetadataPublisher
from odradek.raft.config import RaftConfig
from odradek.raft.driver import RaftDriver
from odradek.raft.metadata_log import DIRECTORY as METADATA_LOG
from odradek.raft.peers import QuorumPeers
from odradek.raft.snapshot import read_bootstrap
from odradek.raft.voters import ReplicaKey
from odradek.security.quota.config import MutationQuotaConfig
from odradek.server.controller_gateway import ChannelConfig, ControllerGateway
from odradek.server.lifecycle.controller_registration import ControllerRegistration, controller_registration_request
from odradek.server.lifecycle.liveness import BrokerLiveness
from odradek.server.lifecycle.suspected_brokers import SuspectedBrokers
from odradek.server.mutation_quotas import MutationQuotas
from odradek.server.network.listeners import ListenerSpec
from odradek.server.parts.ports import Ports
from odradek.server.parts.security import SecurityParts
from odradek.server.startup.format import Storage, random_id
from odradek.server.startup.honoured_settings import CONFIG_CLASSES
from odradek.server.startup.quorum_settings import controller_endpoints, quorum_bootstrap, quorum_voters
from odradek.settings.broker import BrokerSettings
from odradek.settings.resources import SettingRules, option_docs


@dataclass(frozen=True, slots=True, kw_only=True)
class QuorumParts:
    """The metadata log, and the parts that depend on it.

    Attributes:
        controller, liveness: None if this node is not a controller.
        gateway: sends requests to the active controller.
    """

    rules: SettingRules
    publisher: MetadataPublisher
    suspected_brokers: SuspectedBrokers
    controller: ControllerService | None
    liveness: BrokerLiveness | None
    raft: RaftDriver
    gateway: ControllerGateway
    controller_registration: ControllerRegistration


def build_quorum(
    settings: BrokerSettings,
    ports: Ports,
    storage: Storage,
    specs: Mapping[str, ListenerSpec],
    security: SecurityParts,
    *,
    on_failed: Callable[[BaseException], None],
) -> QuorumParts:
    """`on_failed` is called if the metadata log is lost or inconsistent: this is fatal."""
    rules = SettingRules(settings, option_docs(CONFIG_CLASSES), sealer=security.dynamic.keys)
    publisher = MetadataPublisher(storage.cluster_id)

    def on_active() -> None:
        if liveness is not None:
            liveness.on_controller_active()

    controller: ControllerService | None = None
    metadata_dir = Path(settings.metadata_log_dir)
    if "controller" in settings.roles:
        controller = ControllerService(
            ports.clock,
            ports.random,
            settings.build(ControllerConfig),
            rules,
            cluster_id=storage.cluster_id,
            bootstrap=read_bootstrap(ports.disk, metadata_dir),
            token_config=settings.build(DelegationTokenConfig),
            on_active=on_active,
            on_failed=on_failed,
        )
    voters = quorum_voters(settings)
    endpoints = controller_endpoints(specs.values(), voters.get(settings.node_id), ports.hostname)
    raft = RaftDriver(
        ports.disk,
        ports.clock,
        ports.random,
        metadata_dir / METADATA_LOG,
        me=ReplicaKey(settings.node_id, storage.directory_ids.get(metadata_dir, UUID(int=0))),
        voters=voters,
        cluster_id=storage.cluster_id,
        config=settings.build(RaftConfig),
        publisher=publisher,
        peers=QuorumPeers(ports.network, settings.node_id, security.to_controllers),
        bootstrap=quorum_bootstrap(settings),
        listener_name=settings.first_controller_listener,
        endpoints=endpoints,
        on_elected=controller.elected if controller is not None else lambda leader_epoch: None,
        on_resigned=controller.resigned if controller is not None else lambda: None,
        on_leader_change=lambda _: gateway.leader_changed(),
        on_failed=on_failed,
    )
    liveness: BrokerLiveness | None = None
    if controller is not None:
        controller.attach(raft)
        liveness = BrokerLiveness(ports.network, controller, publisher, settings.node_id)
    gateway = _build_gateway(settings, ports, controller, raft, security)
    registration = controller_registration_request(
        settings.node_id, random_id(ports.random), specs.values(), endpoints, supported_features()
    )
    return QuorumParts(
        rules=rules,
        publisher=publisher,
        suspected_brokers=SuspectedBrokers(ports.clock),
        controller=controller,
        liveness=liveness,
        raft=raft,
        gateway=gateway,
        controller_registration=ControllerRegistration(gateway, registration),
    )


def _build_gateway(
    settings: BrokerSettings,
    ports: Ports,
    controller: ControllerService | None,
    raft: RaftDriver,
    security: SecurityParts,
) -> ControllerGateway:
    """Build the gateway. Forwarded requests of clients have a connection of their own, as in Kafka, so that a heartbeat
    does not wait for the creation of many topics."""
    config = settings.build(ChannelConfig)

    def channel(name: str) -> ControllerChannel:
        return ControllerChannel(
            ports.network,
            raft.leader,
            client_id=f"{name}-{settings.node_id}",
            connect_timeout_ms=config.connect_timeout_ms,
            request_timeout_ms=config.answer_timeout_ms,
            security=security.to_controllers,
        )

    mutations = MutationQuotas(settings.build(MutationQuotaConfig))
    return ControllerGateway(
        controller, channel("broker"), channel("forwarding"), ports.clock, lambda: raft.leads, mutations
    )
