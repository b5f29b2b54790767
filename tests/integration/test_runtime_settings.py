"""A change of each honoured broker setting that Kafka changes at run time takes effect in its part of the broker."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import pytest

from odradek.common.errors import ErrorCode
from odradek.controller.config import ControllerConfig
from odradek.coordinator.group.consumer.config import ConsumerGroupConfig
from odradek.log.compaction.config import CleanerConfig
from odradek.log.config import LogConfig
from odradek.log.loading import RecoveryConfig
from odradek.protocol.apis import ApiKey
from odradek.protocol.messages.incremental_alter_configs_request import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from odradek.replica.config import FetcherConfig
from odradek.security.sasl.config import OwnTokenConfig, SaslConfig
from odradek.security.tls.config import TlsConfig
from odradek.server.background.maintenance import MaintenanceConfig
from odradek.server.broker import Broker
from odradek.server.lifecycle.broker_lifecycle import BrokerLifecycleConfig
from odradek.server.network.listeners import ConnectionConfig
from odradek.server.startup.honoured_settings import CONFIG_CLASSES
from odradek.server.transactions.verification import VerificationConfig
from odradek.settings.broker import build_from
from odradek.settings.table import Scope, UpdateMode, broker_synonyms, table
from odradek.testing.node_thread import NodeThread
from tests.support.clients.api_calls import Calls, error_codes
from tests.support.nodes.permissions import node_in_process, port_of
from tests.support.waiting import eventually

pytestmark = pytest.mark.only_ours

# The current configuration in the part of a broker that reads a class.
PARTS: Mapping[type, Callable[[Broker], Any]] = {
    CleanerConfig: lambda broker: broker.cleaner.config,
    ConnectionConfig: lambda broker: broker.dispatcher.config,
    ConsumerGroupConfig: lambda broker: broker.coordinator.consumer_config,
    ControllerConfig: lambda broker: broker.controller and broker.controller._config,
    FetcherConfig: lambda broker: broker._data.replication.fetchers.config,
    LogConfig: lambda broker: broker.log_manager.base_config,
    MaintenanceConfig: lambda broker: broker._jobs.maintenance._config,
    VerificationConfig: lambda broker: broker.transactions.verifier.config,
}
# TLS, SASL and cordoned directories have tests of their own (test_security_at_run_time, test_sasl_settings,
# test_cordoned); the number of threads that load logs is read at start.
OTHERS = (TlsConfig, BrokerLifecycleConfig, SaslConfig, OwnTokenConfig, RecoveryConfig)
VALUES = {
    "compression.type": "zstd",
    "log.cleanup.policy": "compact",
    "log.message.timestamp.type": "LogAppendTime",
    "max.connections.per.ip.overrides": "10.0.0.1:7",
    "log.cleaner.io.buffer.load.factor": "0.5",
    "log.cleaner.io.max.bytes.per.second": "1048576",
    "log.cleaner.min.cleanable.ratio": "0.25",
    "compression.gzip.level": "3",
    "log.segment.bytes": "2097152",
}


def changeable() -> Iterator[tuple[str, type, str]]:
    """Each key, with a class that reads it and the field."""
    known = table(Scope.BROKER)
    for each in CONFIG_CLASSES:
        for item in dataclasses.fields(each):
            spec = item.metadata["option"]
            first = [key for key, _ in broker_synonyms(spec.topic_key)][:1]
            for key in dict.fromkeys([spec.key, *spec.synonyms, *first]):
                if key in known and known[key].mode is not UpdateMode.READ_ONLY:
                    yield key, each, item.name


def test_every_class_with_such_a_setting_is_looked_at() -> None:
    assert {each for _, each, _ in changeable()} <= {*PARTS, *OTHERS}


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[NodeThread]:
    with node_in_process(tmp_path_factory.mktemp("node")) as node:
        yield node


def another_value(key: str) -> str:
    row = table(Scope.BROKER)[key]
    if key in VALUES:
        return VALUES[key]
    default = row.default_value()
    if isinstance(default, bool):
        return str(not default).lower()
    assert default is None or isinstance(default, int), f"{key}: give a value in VALUES"
    # There is no number above one that stands for "no limit".
    return str(default - 1 if default is not None and default > 2**30 else (default or 1) + 1)


@pytest.mark.parametrize(
    ("key", "kind", "field"), [each for each in changeable() if each[1] in PARTS], ids=lambda value: str(value)
)
def test_a_change_is_in_force_and_so_is_its_end(node: NodeThread, key: str, kind: type, field: str) -> None:
    before = getattr(PARTS[kind](node.broker), field)
    value = another_value(key)
    parsed = table(Scope.BROKER)[key].parse(value)
    expected = getattr(build_from(kind, {**node.broker.settings.values, key: parsed}, {key: value}), field)
    assert expected != before, "no other value"

    def change(operation: int, text: str | None) -> None:
        configs = [AlterableConfig(name=key, config_operation=operation, value=text)]
        resource = AlterConfigsResource(resource_type=4, resource_name="", configs=configs)
        with Calls(port_of(node)) as calls:
            request = IncrementalAlterConfigsRequest(resources=[resource])
            answer = calls.request(ApiKey.INCREMENTAL_ALTER_CONFIGS, 1, request)
        assert set(error_codes(answer)) == {ErrorCode.NONE}, answer

    change(0, value)
    eventually(lambda: getattr(PARTS[kind](node.broker), field) == expected)
    if key == "min.insync.replicas":  # whose default for the cluster can be changed and not removed (KIP-966)
        change(0, "1")
    else:
        change(1, None)
    eventually(lambda: getattr(PARTS[kind](node.broker), field) == before)
