"""Layers of settings, the settings that may be altered, and their descriptions."""

from __future__ import annotations

import re

import pytest

from odradek.common.errors import ConfigError
from odradek.security.sealing import SecretKeys
from odradek.server.startup.honoured_settings import CONFIG_CLASSES
from odradek.settings.broker import resolve
from odradek.settings.config_providers import Sources
from odradek.settings.node import zero_config
from odradek.settings.resources import (
    BROKER,
    CLIENT_METRICS,
    GROUP,
    TOPIC,
    BrokerLayers,
    ConfigEntry,
    ConfigSource,
    ConfigType,
    SettingRules,
    option_docs,
    with_dynamic,
)
from odradek.settings.table import OWN


def rules(**given: str) -> SettingRules:
    properties = zero_config({key.replace("_", "."): value for key, value in given.items()})
    return SettingRules(
        resolve(properties, Sources({}, lambda path: "")), {"retention.ms": "How long."}, sealer=SecretKeys()
    )


def one(entries: list[ConfigEntry], name: str) -> ConfigEntry:
    (entry,) = (entry for entry in entries if entry.name == name)
    return entry


@pytest.mark.parametrize(
    ("resource_type", "name", "settings", "message"),
    [
        (TOPIC, "t", {"nope": "1"}, "Unknown topic config name: nope"),
        (
            TOPIC,
            "t",
            {"segment.bytes": "1"},
            "Invalid value 1 for configuration segment.bytes: Value must be at least 1048576",
        ),
        (TOPIC, "t", {"cleanup.policy": "shred"}, "cleanup.policy"),
        (TOPIC, "t", {"retention.ms": "x"}, "retention.ms"),
        (TOPIC, "t", {"min.compaction.lag.ms": "9", "max.compaction.lag.ms": "8"}, "conflict"),
        (TOPIC, "t", {"min.compaction.lag.ms": "-1"}, "min.compaction.lag.ms"),
        (TOPIC, "t", {"max.compaction.lag.ms": "0"}, "max.compaction.lag.ms"),
        (TOPIC, "t", {"remote.storage.enable": "true"}, "Tiered Storage"),
        (TOPIC, "t", {"leader.replication.throttled.replicas": "1:x"}, "partitionId"),
        (BROKER, "1", {"node.id": "2"}, "Cannot update these configs dynamically: node.id"),
        (BROKER, "", {"listeners": "PLAINTEXT://:1"}, "broker configs must be used: listeners"),
        (
            BROKER,
            "1",
            {"listener.name.in.sasl.server.max.receive.size": "9"},
            "receive.size: listeners must name its listener",
        ),
        (BROKER, "", {"config.providers": "file"}, "Cannot update these configs dynamically: config.providers"),
        (BROKER, "1", {"create.topic.policy.class.name": "x.P"}, "Cannot update these configs dynamically: create"),
        (
            BROKER,
            "",
            {"log.cleaner.min.compaction.lag.ms": "9", "log.cleaner.max.compaction.lag.ms": "8"},
            "log.cleaner.min.compaction.lag.ms=9: must be at most log.cleaner.max.compaction.lag.ms (8)",
        ),
        (BROKER, "1", {"log.retention.ms": "0"}, "must be -1 (unlimited) or at least 1"),
        (BROKER, "", {"ssl.keystore.location": "/k"}, "default cluster level"),
        (BROKER, "1", {"log.retention.ms": "x"}, "log.retention.ms"),
        (BROKER, "", {"max.connections.per.ip.overrides": "here"}, "a list of address:count, and 'here' is not"),
        (GROUP, "g", {"nope": "1"}, "Unknown group config name: nope"),
        (GROUP, "g", {"consumer.session.timeout.ms": "1"}, "group.consumer.min.session.timeout.ms"),
        (GROUP, "g", {"consumer.session.timeout.ms": "99999999"}, "group.consumer.max.session.timeout.ms"),
        (GROUP, "g", {"share.auto.offset.reset": "by_duration:P"}, "by_duration"),
        (CLIENT_METRICS, "m", {"interval.ms": "1"}, "between 100 and 3600000"),
    ],
)
def test_wrong_settings_are_refused(resource_type: int, name: str, settings: dict[str, str], message: str) -> None:
    with pytest.raises(ConfigError, match=re.escape(message)):
        rules().validate(resource_type, name, settings)


@pytest.mark.parametrize(
    ("resource_type", "settings"),
    [(TOPIC, {"min.compaction.lag.ms": "9"}), (BROKER, {"log.cleaner.min.compaction.lag.ms": "9"})],
)
def test_a_setting_that_contradicts_the_file_is_refused(resource_type: int, settings: dict[str, str]) -> None:
    with pytest.raises(ConfigError, match=r"max\.compaction\.lag\.ms \(8\)"):
        rules(log_cleaner_max_compaction_lag_ms="8").validate(resource_type, "", settings)


@pytest.mark.parametrize(
    ("resource_type", "name", "settings"),
    [
        (TOPIC, "t", {"min.compaction.lag.ms": "8", "max.compaction.lag.ms": "8"}),
        (BROKER, "1", {"log.cleaner.min.compaction.lag.ms": "8", "log.cleaner.max.compaction.lag.ms": "9"}),
        (TOPIC, "t", {"cleanup.policy": "compact,delete", "retention.ms": "-1", "segment.bytes": "1048576"}),
        (TOPIC, "t", {"leader.replication.throttled.replicas": "*"}),
        (TOPIC, "t", {"follower.replication.throttled.replicas": "0:1,1:2"}),
        (BROKER, "", {"log.retention.ms": "5", "unknown.to.kafka": "x"}),
        (BROKER, "1", {"max.connections.per.ip.overrides": "10.0.0.1:5,[::1]:7"}),
        (BROKER, "1", {"listener.name.internal.ssl.keystore.location": "/k"}),
        (GROUP, "g", {"share.auto.offset.reset": "by_duration:PT1H30M", "share.isolation.level": "read_committed"}),
    ],
)
def test_right_settings_are_taken(resource_type: int, name: str, settings: dict[str, str]) -> None:
    rules().validate(resource_type, name, settings)


def test_each_described_setting_says_what_it_does_or_why_not() -> None:
    settings = resolve(zero_config({}), Sources({}, lambda path: ""))
    described = SettingRules(settings, option_docs(CONFIG_CLASSES), sealer=SecretKeys()).describe_broker()
    found = {each.name: each for each in described}
    assert not [name for name, each in found.items() if not each.documentation]
    assert found["num.io.threads"].documentation.startswith("Has no effect: one event loop does this work")
    assert found["log.retention.hours"].documentation.startswith("Delete segments whose newest record is older")
    assert found["node.id"].read_only and not found["max.connections"].read_only


def test_layers_of_a_topic_setting_in_order() -> None:
    described = rules(log_retention_hours="2").describe_topic(
        {"retention.ms": "1"}, BrokerLayers({"log.retention.ms": "2"}, {"log.retention.ms": "3"})
    )
    entry = one(described, "retention.ms")
    assert (entry.value, entry.source, entry.type) == ("1", ConfigSource.DYNAMIC_TOPIC_CONFIG, ConfigType.LONG)
    assert entry.documentation == "How long."
    assert [(synonym.name, synonym.value, int(synonym.source)) for synonym in entry.synonyms] == [
        ("retention.ms", "1", 1),
        ("log.retention.ms", "2", 2),
        ("log.retention.ms", "3", 3),
        ("log.retention.hours", "2", 4),
        ("log.retention.hours", "168", 5),
    ]


def test_a_topic_takes_what_the_file_says() -> None:
    entry = one(rules(log_segment_bytes="2097152").describe_topic({}), "segment.bytes")
    assert (entry.value, entry.source) == ("2097152", ConfigSource.STATIC_BROKER_CONFIG)
    assert one(rules().describe_topic({}), "segment.bytes").source is ConfigSource.DEFAULT_CONFIG


def test_secrets_and_unknown_settings_of_a_broker_have_no_value() -> None:
    described = rules(ssl_key_password="hush", my_plugin_key="hush").describe_broker()
    for name in ("ssl.key.password", "my.plugin.key"):
        entry = one(described, name)
        assert entry.sensitive
        assert entry.value is None
        assert all(synonym.value is None for synonym in entry.synonyms)
    assert one(described, "node.id").read_only
    assert not one(described, "log.retention.ms").read_only
    assert len(described) == 351 + len(OWN)


def test_a_broker_key_speaks_for_itself_alone() -> None:
    described = rules(log_retention_hours="2").describe_broker()
    hours, ms = one(described, "log.retention.hours"), one(described, "log.retention.ms")
    assert (hours.value, hours.source) == ("2", ConfigSource.STATIC_BROKER_CONFIG)
    assert (ms.value, ms.source, ms.synonyms) == (None, ConfigSource.DEFAULT_CONFIG, ()), "two hours are not two ms"


def test_only_what_is_set_is_described_for_the_cluster() -> None:
    (entry,) = rules().describe_cluster({"log.retention.ms": "9"})
    assert (entry.name, entry.value, entry.source) == (
        "log.retention.ms",
        "9",
        ConfigSource.DYNAMIC_DEFAULT_BROKER_CONFIG,
    )


def test_a_group_falls_back_to_its_broker() -> None:
    described = rules(group_consumer_session_timeout_ms="50000").describe_group({"share.delivery.count.limit": "3"})
    assert one(described, "consumer.session.timeout.ms").value == "50000"
    assert one(described, "share.delivery.count.limit").source is ConfigSource.DYNAMIC_GROUP_CONFIG
    assert len(described) == 21


def test_dynamic_settings_reach_a_running_broker_by_their_mode() -> None:
    node = resolve(zero_config({"log.retention.ms": "1"}), Sources({}, lambda path: ""))
    changed = with_dynamic(
        node,
        BrokerLayers(
            {"log.retention.ms": "3", "node.id": "9", "log.segment.bytes": "rot"},
            {"log.retention.ms": "2", "max.connections.per.ip.overrides": "rot"},
        ),
    )
    assert changed.values["log.retention.ms"] == 3
    assert changed.node_id == 1
    assert changed.values["log.segment.bytes"] == 1 << 30
    assert changed.values["max.connections.per.ip.overrides"] == "", "a broker must not stop over what it cannot read"


def test_defaults_and_lists_for_the_controller() -> None:
    asked = rules(log_cleanup_policy="compact")
    assert asked.default(TOPIC, "cleanup.policy") == "compact"
    assert asked.default(BROKER, "min.insync.replicas") == "1"
    assert asked.default(GROUP, "consumer.heartbeat.interval.ms") == "5000"
    assert asked.is_list(TOPIC, "cleanup.policy")
    assert not asked.is_list(TOPIC, "retention.ms")
