"""The settings classes of all parts of a node; other settings are not honoured, which is logged at the start."""

from __future__ import annotations

from odradek.controller.config import ControllerConfig
from odradek.controller.tokens import DelegationTokenConfig
from odradek.coordinator.group.config import GroupConfig
from odradek.coordinator.group.consumer.config import ConsumerGroupConfig
from odradek.coordinator.group.lag import GroupLagConfig
from odradek.coordinator.transaction.config import TransactionConfig
from odradek.log.compaction.config import CleanerConfig
from odradek.log.config import LogConfig
from odradek.log.loading import RecoveryConfig
from odradek.log.scrub import ScrubConfig
from odradek.raft.config import RaftConfig
from odradek.replica.config import FetcherConfig, ReplicaConfig
from odradek.replica.throttle import ThrottleConfig
from odradek.security.acl.config import AuthorizerConfig
from odradek.security.quota.config import MutationQuotaConfig, QuotaConfig
from odradek.security.sasl.config import AssertionConfig, OwnTokenConfig, SaslConfig, TokenConfig
from odradek.security.sealing import SecretsConfig
from odradek.security.tls.config import TlsConfig
from odradek.server.auto_topic_creation import AutoCreateConfig
from odradek.server.background.maintenance import MaintenanceConfig
from odradek.server.controller_gateway import ChannelConfig
from odradek.server.fetch_session_cache import FetchSessionConfig
from odradek.server.handlers.describe_topic_partitions import PageConfig
from odradek.server.kafka_names.names import MetricNamesConfig
from odradek.server.lifecycle.broker_lifecycle import BrokerLifecycleConfig
from odradek.server.network.listeners import ConnectionConfig
from odradek.server.network.slow_requests import LogLinesConfig
from odradek.server.telemetry.store import TelemetryConfig
from odradek.server.transactions.verification import VerificationConfig
from odradek.settings.broker import honoured_keys
from odradek.settings.options import specs_of
from odradek.settings.table import Scope

# A test holds this list complete.
CONFIG_CLASSES: tuple[type, ...] = (
    AssertionConfig,
    AuthorizerConfig,
    AutoCreateConfig,
    ChannelConfig,
    CleanerConfig,
    ConnectionConfig,
    ControllerConfig,
    DelegationTokenConfig,
    FetcherConfig,
    FetchSessionConfig,
    ConsumerGroupConfig,
    GroupConfig,
    GroupLagConfig,
    LogConfig,
    LogLinesConfig,
    MetricNamesConfig,
    OwnTokenConfig,
    BrokerLifecycleConfig,
    PageConfig,
    QuotaConfig,
    RaftConfig,
    RecoveryConfig,
    ReplicaConfig,
    SaslConfig,
    ScrubConfig,
    SecretsConfig,
    ThrottleConfig,
    TlsConfig,
    TelemetryConfig,
    TokenConfig,
    TransactionConfig,
    MaintenanceConfig,
    MutationQuotaConfig,
    VerificationConfig,
)


def honoured_overrides(scope: Scope) -> frozenset[str]:
    """The keys of topics, or of groups, that this build acts on."""
    specs = specs_of(CONFIG_CLASSES)
    return frozenset(spec.topic_key if scope is Scope.TOPIC else spec.group_key for spec in specs) - {""}


def honoured_settings() -> frozenset[str]:
    """The broker keys that this build acts on."""
    return honoured_keys(CONFIG_CLASSES)
