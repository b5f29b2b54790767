"""Builds the background jobs of a broker."""

from __future__ import annotations

from dataclasses import dataclass

from odradek.coordinator.group.lag import GroupLagConfig
from odradek.link.service import LinkService
from odradek.server.background.certificates import CertificateRenewal
from odradek.server.background.cleaning import CleaningJobs
from odradek.server.background.group_lag import GroupLagJob
from odradek.server.background.loop_watch import LoopWatch
from odradek.server.background.maintenance import Maintenance, MaintenanceConfig
from odradek.server.background.scrubbing import Scrubbing
from odradek.server.background.token_keys import TokenKeys
from odradek.server.controller_gateway import ControllerGateway
from odradek.server.network.dispatch import Dispatcher
from odradek.server.parts.coordinators import CoordinatorParts
from odradek.server.parts.link_groups import LinkGroups
from odradek.server.parts.ports import Ports
from odradek.server.parts.replicas import ReplicaParts
from odradek.server.parts.security import SecurityParts
from odradek.server.parts.sources import Sources
from odradek.settings.broker import BrokerSettings


@dataclass(frozen=True, slots=True, kw_only=True)
class Jobs:
    """Retention, flushes and checkpoints; the cleaner's; the scrub; renewed certificates; links to other clusters."""

    maintenance: Maintenance
    cleaning: CleaningJobs
    scrubbing: Scrubbing
    certificates: CertificateRenewal
    token_keys: TokenKeys
    group_lag: GroupLagJob
    loop_watch: LoopWatch
    links: LinkService

    def start(self) -> None:
        """Begin all but the keys of tokens, by which other nodes may log in before this one has joined them."""
        self.maintenance.start()
        self.cleaning.start()
        self.scrubbing.start()
        self.certificates.start()
        self.group_lag.start()
        self.loop_watch.start()


def build_jobs(
    settings: BrokerSettings,
    ports: Ports,
    data: ReplicaParts,
    coordinators: CoordinatorParts,
    gateway: ControllerGateway,
    dispatcher: Dispatcher,
    security: SecurityParts,
) -> Jobs:
    """Build the jobs. The scrub belongs to the replicas already; its metrics are shown with those of the jobs."""
    group_lag = GroupLagJob(
        settings.build(GroupLagConfig),
        ports.clock,
        coordinators.groups,
        data.replicas,
        lambda: dispatcher.services.image,
        coordinators.transactions.peers,
        is_shown=settings.metrics_address is not None,
    )
    link_groups = LinkGroups(
        coordinators.groups,
        group_lag,
        broker_id=settings.node_id,
        listener_name=settings.inter_broker_listener_name,
    )
    return Jobs(
        maintenance=Maintenance(
            settings.build(MaintenanceConfig), ports.clock, ports.disk, data.log_manager, data.replicas, dispatcher
        ),
        cleaning=CleaningJobs(data.cleaner, data.replicas.storage_failed),
        scrubbing=data.scrubbing,
        certificates=CertificateRenewal(security.contexts, ports.clock),
        token_keys=TokenKeys(security.logins.token_checks(), ports.disk, ports.fetch, ports.clock),
        group_lag=group_lag,
        links=LinkService(
            ports.clock,
            Sources(ports, security.dynamic.keys),
            data.replicas,
            gateway.request,
            link_groups,
            broker_id=settings.node_id,
        ),
        loop_watch=LoopWatch(ports.timer, ports.cpu_timer, is_shown=settings.metrics_address is not None),
    )
