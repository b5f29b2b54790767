"""DescribeConfigs, AlterConfigs, IncrementalAlterConfigs and ListConfigResources."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from odradek.protocol.apis import ApiKey
from odradek.protocol.messages import alter_configs_request as alter_request
from odradek.protocol.messages import incremental_alter_configs_request as incremental_request
from odradek.protocol.messages.create_topics_request import CreatableTopic, CreatableTopicConfig, CreateTopicsRequest
from odradek.protocol.messages.describe_configs_request import DescribeConfigsRequest, DescribeConfigsResource
from odradek.protocol.messages.describe_configs_response import DescribeConfigsResourceResult, DescribeConfigsResult
from odradek.protocol.messages.list_config_resources_request import ListConfigResourcesRequest
from tests.support.clients.api_calls import Calls, batch, fresh_name, name_of, one
from tests.support.nodes.node import Node
from tests.support.waiting import eventually

TOPIC, BROKER, BROKER_LOGGER, CLIENT_METRICS, GROUP = 2, 4, 8, 16, 32
TOPIC_SOURCE, BROKER_SOURCE, CLUSTER_SOURCE, FILE_SOURCE, DEFAULT_SOURCE = 1, 2, 3, 4, 5
SET, DELETE, APPEND, SUBTRACT = 0, 1, 2, 3
only_ours = pytest.mark.only_ours


@pytest.fixture
def calls(node: Node) -> Iterator[Calls]:
    with Calls(node.port) as connection:
        yield connection


def describe(calls: Calls, kind: int, name: str, *keys: str, version: int = 4, **fields: Any) -> DescribeConfigsResult:
    resource = DescribeConfigsResource(
        resource_type=kind, resource_name=name, configuration_keys=list(keys) if keys else None
    )
    request = DescribeConfigsRequest(resources=[resource], **fields)
    found: DescribeConfigsResult = one(calls.request(ApiKey.DESCRIBE_CONFIGS, version, request).results)
    return found


def setting(calls: Calls, kind: int, name: str, key: str, **fields: Any) -> DescribeConfigsResourceResult:
    found: DescribeConfigsResourceResult = one(describe(calls, kind, name, key, **fields).configs)
    return found


def change(
    calls: Calls, kind: int, name: str, *operations: tuple[str, int, str | None], validate_only: bool = False
) -> tuple[str, str | None]:
    """(name of the error code, its text) of one incremental change."""
    configs = [
        incremental_request.AlterableConfig(name=key, config_operation=operation, value=value)
        for key, operation, value in operations
    ]
    resource = incremental_request.AlterConfigsResource(resource_type=kind, resource_name=name, configs=configs)
    request = incremental_request.IncrementalAlterConfigsRequest(resources=[resource], validate_only=validate_only)
    answer = one(calls.request(ApiKey.INCREMENTAL_ALTER_CONFIGS, 1, request).responses)
    assert (answer.resource_type, answer.resource_name) == (kind, name)
    return name_of(answer.error_code), answer.error_message


def is_written(node: Node, text: str) -> bool:
    return text in node.log_text()


def replace(calls: Calls, kind: int, name: str, settings: dict[str, str | None], *, validate_only: bool = False) -> str:
    configs = [alter_request.AlterableConfig(name=key, value=value) for key, value in settings.items()]
    resource = alter_request.AlterConfigsResource(resource_type=kind, resource_name=name, configs=configs)
    request = alter_request.AlterConfigsRequest(resources=[resource], validate_only=validate_only)
    return name_of(one(calls.request(ApiKey.ALTER_CONFIGS, 2, request).responses).error_code)


class Eventually:
    """A setting that a broker has a moment after the controller has committed it."""

    def __init__(self, calls: Calls, kind: int, name: str, key: str) -> None:
        self._calls = calls
        self._what = (kind, name, key)

    def is_(self, value: str | None, source: int | None = None) -> bool:
        def shown() -> bool:
            found = setting(self._calls, *self._what)
            return found.value == value and source in (None, found.config_source)

        return eventually(shown, self._what)


def await_produce_error(calls: Calls, topic: str, code: str) -> None:
    """Produce batches of 1000 bytes until one gets this error code, as a log has new settings a little later."""
    eventually(lambda: name_of(calls.produce(topic, batch(bytes(1000))).error_code) == code, code)


class TestDescribe:
    def test_a_topic_has_all_settings_with_sources_and_synonyms(self, calls: Calls) -> None:
        topic = calls.create_topic(retention_ms=7000)
        configs = {each.name: each for each in describe(calls, TOPIC, topic, include_synonyms=True).configs}
        assert len(configs) >= 30
        own = configs["retention.ms"]
        assert (own.value, own.config_source, own.read_only, own.is_sensitive) == ("7000", TOPIC_SOURCE, False, False)
        assert (own.synonyms[0].name, own.synonyms[0].source) == ("retention.ms", TOPIC_SOURCE)
        default = configs["max.message.bytes"]
        assert (default.value, default.config_source) == ("1048588", DEFAULT_SOURCE)
        assert [each.name for each in default.synonyms] == ["message.max.bytes"]
        assert configs["cleanup.policy"].value == "delete"

    def test_a_key_speaks_for_itself_alone(self, calls: Calls) -> None:
        """Hours, minutes and ms are three keys for one thing; one that is not set has no value."""
        for key, value in (("log.retention.hours", "168"), ("log.retention.minutes", None), ("log.retention.ms", None)):
            found = setting(calls, BROKER, "1", key, include_synonyms=True)
            assert (found.value, found.config_source) == (value, DEFAULT_SOURCE)
        topic = calls.create_topic()
        for key in ("retention.ms", "segment.ms", "flush.ms", "remote.storage.enable"):
            assert setting(calls, TOPIC, topic, key, include_synonyms=True).synonyms == []

    def test_a_setting_with_several_units_is_shown_as_written(self, tmp_path: Path) -> None:
        settings: dict[str, object] = {"log.retention.hours": 100, "log.retention.minutes": 300, "log.roll.hours": 7}
        hours = [("log.retention.hours", "100", FILE_SOURCE), ("log.retention.hours", "168", DEFAULT_SOURCE)]
        minutes = [("log.retention.minutes", "300", FILE_SOURCE), *hours]
        with Node(tmp_path / "node", settings) as node, Calls(node.port) as calls:

            def shown(kind: int, name: str, key: str) -> tuple[str | None, int, list[tuple[str, str | None, int]]]:
                found = setting(calls, kind, name, key, include_synonyms=True)
                return (
                    found.value,
                    found.config_source,
                    [(each.name, each.value, each.source) for each in found.synonyms],
                )

            topic, other = calls.create_topic(), calls.create_topic(retention_ms=5)
            # No setting with the topic's unit is given: the topic's value is used, and has no synonym.
            assert shown(TOPIC, topic, "retention.ms") == ("18000000", DEFAULT_SOURCE, [])
            assert shown(TOPIC, topic, "segment.ms") == ("25200000", DEFAULT_SOURCE, [])
            assert shown(TOPIC, other, "retention.ms") == ("5", TOPIC_SOURCE, [("retention.ms", "5", TOPIC_SOURCE)])
            assert shown(BROKER, "1", "log.retention.hours") == ("100", FILE_SOURCE, hours)
            assert shown(BROKER, "1", "log.retention.minutes") == ("300", FILE_SOURCE, minutes)
            assert shown(BROKER, "1", "log.retention.ms") == (None, DEFAULT_SOURCE, [])
            answer = calls.request(
                ApiKey.CREATE_TOPICS,
                7,
                CreateTopicsRequest(
                    topics=[CreatableTopic(name=fresh_name(), num_partitions=1, replication_factor=1)],
                    timeout_ms=30_000,
                ),
            )
            made = {each.name: each for each in one(answer.topics).configs}
            assert (made["retention.ms"].value, made["retention.ms"].config_source) == ("18000000", FILE_SOURCE)
            # Once a broker's ms are set the others follow.
            assert change(calls, BROKER, "1", ("log.retention.ms", SET, "123456789")) == ("NONE", None)
            assert change(calls, BROKER, "", ("log.retention.ms", SET, "987654321")) == ("NONE", None)
            assert Eventually(calls, TOPIC, topic, "retention.ms").is_("123456789", BROKER_SOURCE)
            layers = [
                ("log.retention.ms", "123456789", BROKER_SOURCE),
                ("log.retention.ms", "987654321", CLUSTER_SOURCE),
                *minutes,
            ]
            eventually(lambda: shown(TOPIC, topic, "retention.ms")[2] == layers)
            assert shown(TOPIC, topic, "retention.ms") == ("123456789", BROKER_SOURCE, layers)
            assert shown(BROKER, "1", "log.retention.ms") == ("123456789", BROKER_SOURCE, layers)
            own = [("retention.ms", "5", TOPIC_SOURCE), *layers]
            assert shown(TOPIC, other, "retention.ms") == ("5", TOPIC_SOURCE, own)

    def test_only_what_is_asked_for(self, calls: Calls) -> None:
        topic = calls.create_topic()
        found = describe(calls, TOPIC, topic, "segment.bytes", "cleanup.policy", "no.such.key")
        assert sorted(each.name for each in found.configs) == ["cleanup.policy", "segment.bytes"]
        assert all(each.synonyms == [] and each.documentation is None for each in found.configs)

    def test_documentation_and_types_on_request(self, calls: Calls) -> None:
        topic = calls.create_topic()
        found = setting(calls, TOPIC, topic, "retention.ms", include_documentation=True)
        assert len(found.documentation or "") > 20
        assert found.config_type == 5, "LONG"
        assert setting(calls, TOPIC, topic, "cleanup.policy").config_type == 7, "LIST"
        assert setting(calls, TOPIC, topic, "preallocate").config_type == 1, "BOOLEAN"

    def test_this_broker(self, calls: Calls) -> None:
        configs = {each.name: each for each in describe(calls, BROKER, "1").configs}
        assert len(configs) > 250
        assert configs["node.id"].value == "1"
        assert (configs["node.id"].config_source, configs["node.id"].read_only) == (FILE_SOURCE, True)
        assert (configs["num.io.threads"].config_source, configs["num.io.threads"].read_only) == (
            DEFAULT_SOURCE,
            False,
        )

    def test_secrets_are_never_reported(self, tmp_path_factory: pytest.TempPathFactory) -> None:
        settings: dict[str, object] = {"ssl.key.password": "hush-hush"}
        with Node(tmp_path_factory.mktemp("node"), settings) as node, Calls(node.port) as calls:
            found = setting(calls, BROKER, "1", "ssl.key.password", include_synonyms=True)
            assert (found.value, found.is_sensitive, found.config_source) == (None, True, FILE_SOURCE)
            assert [each.value for each in found.synonyms] == [None]
            everything = describe(calls, BROKER, "1", include_synonyms=True)
            assert "hush-hush" not in repr(everything)

    @pytest.mark.parametrize(
        ("kind", "name", "expected"),
        [
            (TOPIC, "no-such-topic", "UNKNOWN_TOPIC_OR_PARTITION"),
            (TOPIC, "no topic", "INVALID_TOPIC_EXCEPTION"),
            (TOPIC, "", "INVALID_TOPIC_EXCEPTION"),
            (BROKER, "2", "INVALID_REQUEST"),
            (BROKER, "one", "INVALID_REQUEST"),
            (BROKER_LOGGER, "2", "INVALID_REQUEST"),
            (GROUP, "", "INVALID_REQUEST"),
            (CLIENT_METRICS, "", "INVALID_REQUEST"),
            (0, "x", "INVALID_REQUEST"),
            (99, "x", "INVALID_REQUEST"),
        ],
    )
    def test_unknown_resources_are_reported(self, calls: Calls, kind: int, name: str, expected: str) -> None:
        found = describe(calls, kind, name)
        assert (name_of(found.error_code), found.configs) == (expected, [])
        assert found.error_message is not None

    def test_a_group_has_settings_before_it_is_there(self, calls: Calls) -> None:
        found = describe(calls, GROUP, fresh_name())
        assert not found.error_code
        assert "consumer.session.timeout.ms" in {each.name for each in found.configs}

    def test_loggers_of_this_broker(self, calls: Calls) -> None:
        found = describe(calls, BROKER_LOGGER, "1")
        assert not found.error_code
        assert found.configs
        assert {each.value for each in found.configs} <= {"FATAL", "ERROR", "WARN", "INFO", "DEBUG", "TRACE", "OFF"}

    @only_ours
    def test_a_level_counts_at_once_and_until_it_is_deleted(self, calls: Calls) -> None:
        def level(name: str = "odradek.server.network.connection") -> str | None:
            return setting(calls, BROKER_LOGGER, "1", name).value

        name = "odradek.server.network.connection"
        assert level() == "INFO"
        assert change(calls, BROKER_LOGGER, "1", (name, SET, "DEBUG"), validate_only=True)[0] == "NONE"
        assert level() == "INFO"
        assert change(calls, BROKER_LOGGER, "1", (name, SET, "DEBUG"))[0] == "NONE"
        assert (level(), level("odradek.server.broker")) == ("DEBUG", "INFO")
        assert change(calls, BROKER_LOGGER, "1", (name, DELETE, None))[0] == "NONE"
        assert level() == "INFO"

    @only_ours
    @pytest.mark.parametrize(
        ("broker", "operation", "expected"),
        [
            ("2", ("odradek", SET, "DEBUG"), "INVALID_REQUEST"),
            ("", ("odradek", SET, "DEBUG"), "INVALID_REQUEST"),
            ("1", ("odradek", APPEND, "DEBUG"), "INVALID_REQUEST"),
            ("1", ("odradek", SET, "LOUD"), "INVALID_CONFIG"),
            ("1", ("odradek", SET, None), "INVALID_CONFIG"),
            ("1", ("odradek", DELETE, None), "INVALID_CONFIG"),
            ("1", ("kafka", SET, "DEBUG"), "INVALID_CONFIG"),
        ],
    )
    def test_an_invalid_level_changes_nothing(
        self, calls: Calls, broker: str, operation: tuple[str, int, str | None], expected: str
    ) -> None:
        good = ("odradek.server.broker", SET, "ERROR")
        assert change(calls, BROKER_LOGGER, broker, good, operation)[0] == expected
        assert setting(calls, BROKER_LOGGER, "1", "odradek.server.broker").value == "INFO"


class TestChangeOfATopic:
    def test_set_and_delete(self, calls: Calls) -> None:
        topic = calls.create_topic()
        config = Eventually(calls, TOPIC, topic, "retention.ms")
        assert change(calls, TOPIC, topic, ("retention.ms", SET, "5000"))[0] == "NONE"
        assert config.is_("5000", TOPIC_SOURCE)
        assert change(calls, TOPIC, topic, ("retention.ms", DELETE, None))[0] == "NONE"
        assert config.is_("604800000", DEFAULT_SOURCE)

    def test_append_and_subtract(self, calls: Calls) -> None:
        topic = calls.create_topic()
        config = Eventually(calls, TOPIC, topic, "cleanup.policy")
        assert change(calls, TOPIC, topic, ("cleanup.policy", APPEND, "compact"))[0] == "NONE"
        assert config.is_("delete,compact")
        assert change(calls, TOPIC, topic, ("cleanup.policy", APPEND, "compact"))[0] == "NONE"
        assert config.is_("delete,compact")
        assert change(calls, TOPIC, topic, ("cleanup.policy", SUBTRACT, "delete"))[0] == "NONE"
        assert config.is_("compact")

    def test_a_changed_topic_setting_takes_effect(self, calls: Calls) -> None:
        topic = calls.create_topic()
        assert change(calls, TOPIC, topic, ("max.message.bytes", SET, "200"))[0] == "NONE"
        assert Eventually(calls, TOPIC, topic, "max.message.bytes").is_("200")
        await_produce_error(calls, topic, "MESSAGE_TOO_LARGE")
        assert change(calls, TOPIC, topic, ("max.message.bytes", DELETE, None))[0] == "NONE"
        assert Eventually(calls, TOPIC, topic, "max.message.bytes").is_("1048588")
        await_produce_error(calls, topic, "NONE")

    @pytest.mark.parametrize(
        ("key", "operation", "value", "expected"),
        [
            ("retention.ms", SET, "soon", "INVALID_CONFIG"),
            ("retention.ms", SET, "-2", "INVALID_CONFIG"),
            ("retention.ms", SET, "9223372036854775808", "INVALID_CONFIG"),
            ("no.such.key", SET, "1", "INVALID_CONFIG"),
            ("retention.ms", APPEND, "5", "INVALID_CONFIG"),
            ("retention.ms", SUBTRACT, "5", "INVALID_CONFIG"),
            ("cleanup.policy", APPEND, "shred", "INVALID_CONFIG"),
            pytest.param("retention.ms", 9, "5", "INVALID_REQUEST", marks=only_ours),  # Kafka trips over it
            ("retention.ms", SET, None, "INVALID_REQUEST"),
        ],
    )
    def test_invalid_settings_are_refused(
        self, calls: Calls, key: str, operation: int, value: str | None, expected: str
    ) -> None:
        topic = calls.create_topic()
        code, text = change(calls, TOPIC, topic, (key, operation, value))
        assert code == expected
        assert text

    def test_the_same_key_twice(self, calls: Calls) -> None:
        topic = calls.create_topic()
        code, _ = change(calls, TOPIC, topic, ("retention.ms", SET, "1"), ("retention.ms", SET, "2"))
        assert code == "INVALID_REQUEST"

    def test_one_that_is_refused_takes_the_others_with_it(self, calls: Calls) -> None:
        topic = calls.create_topic()
        code, _ = change(calls, TOPIC, topic, ("retention.ms", SET, "5000"), ("segment.bytes", SET, "none"))
        assert code == "INVALID_CONFIG"
        assert setting(calls, TOPIC, topic, "retention.ms").config_source == DEFAULT_SOURCE

    def test_compaction_lags_that_contradict_each_other(self, calls: Calls) -> None:
        topic = calls.create_topic(max_compaction_lag_ms=8000)
        code, text = change(calls, TOPIC, topic, ("min.compaction.lag.ms", SET, "9000"))
        assert code == "INVALID_CONFIG"
        assert "max.compaction.lag.ms" in str(text)
        lags: dict[str, str | None] = {"min.compaction.lag.ms": "9000", "max.compaction.lag.ms": "8000"}
        assert replace(calls, TOPIC, topic, lags) == "INVALID_CONFIG"
        assert setting(calls, TOPIC, topic, "min.compaction.lag.ms").config_source == DEFAULT_SOURCE
        assert change(calls, TOPIC, topic, ("min.compaction.lag.ms", SET, "8000"))[0] == "NONE"
        configs = [CreatableTopicConfig(name=name, value=value) for name, value in lags.items()]
        wanted = CreatableTopic(name=fresh_name(), num_partitions=1, replication_factor=1, configs=configs)
        created = one(
            calls.request(ApiKey.CREATE_TOPICS, 5, CreateTopicsRequest(topics=[wanted], timeout_ms=30_000)).topics
        )
        assert name_of(created.error_code) == "INVALID_CONFIG"

    def test_only_checked_is_not_done(self, calls: Calls) -> None:
        topic = calls.create_topic()
        assert change(calls, TOPIC, topic, ("retention.ms", SET, "5000"), validate_only=True)[0] == "NONE"
        assert replace(calls, TOPIC, topic, {"retention.ms": "5000"}, validate_only=True) == "NONE"
        assert setting(calls, TOPIC, topic, "retention.ms").config_source == DEFAULT_SOURCE

    def test_settings_are_looked_at_before_the_topic_is(self, calls: Calls) -> None:
        assert change(calls, TOPIC, fresh_name(), ("no.such.key", SET, "1"))[0] == "INVALID_CONFIG"
        assert change(calls, TOPIC, "..", ("retention.ms", SET, "1"))[0] == "INVALID_TOPIC_EXCEPTION"
        assert change(calls, TOPIC, "", ("retention.ms", SET, "1"))[0] == "INVALID_REQUEST"

    def test_of_no_topic(self, calls: Calls) -> None:
        absent = fresh_name()
        assert change(calls, TOPIC, absent, ("retention.ms", SET, "1"))[0] == "UNKNOWN_TOPIC_OR_PARTITION"
        assert replace(calls, TOPIC, absent, {"retention.ms": "1"}) == "UNKNOWN_TOPIC_OR_PARTITION"

    def test_alter_replaces_all(self, calls: Calls) -> None:
        topic = calls.create_topic(retention_ms=7000, segment_ms=9000)
        assert replace(calls, TOPIC, topic, {"retention.ms": "8000"}) == "NONE"
        assert Eventually(calls, TOPIC, topic, "retention.ms").is_("8000", TOPIC_SOURCE)
        assert setting(calls, TOPIC, topic, "segment.ms").config_source == DEFAULT_SOURCE
        assert replace(calls, TOPIC, topic, {}) == "NONE"
        assert Eventually(calls, TOPIC, topic, "retention.ms").is_("604800000", DEFAULT_SOURCE)

    @pytest.mark.parametrize(
        ("settings", "expected"), [({"retention.ms": "soon"}, "INVALID_CONFIG"), ({"no.such": "1"}, "INVALID_CONFIG")]
    )
    def test_alter_checks(self, calls: Calls, settings: dict[str, str | None], expected: str) -> None:
        topic = calls.create_topic(retention_ms=7000)
        assert replace(calls, TOPIC, topic, settings) == expected
        assert setting(calls, TOPIC, topic, "retention.ms").value == "7000"


class TestChangeOfBrokers:
    def test_of_all_and_of_one(self, calls: Calls) -> None:
        key = "log.cleaner.backoff.ms"
        config = Eventually(calls, BROKER, "1", key)
        assert change(calls, BROKER, "", (key, SET, "11000"))[0] == "NONE"
        assert config.is_("11000", CLUSTER_SOURCE)
        assert change(calls, BROKER, "1", (key, SET, "12000"))[0] == "NONE"
        assert config.is_("12000", BROKER_SOURCE)
        assert change(calls, BROKER, "1", (key, DELETE, None))[0] == "NONE"
        assert config.is_("11000", CLUSTER_SOURCE)
        assert change(calls, BROKER, "", (key, DELETE, None))[0] == "NONE"
        assert config.is_("15000", DEFAULT_SOURCE)

    @only_ours
    def test_the_last_of_thousands_of_changes_is_seen_at_once(self, calls: Calls) -> None:
        """Nodes apply a long change in parts; the one that answers has applied all of it."""
        others = [f"a.plugin.of.ours.{number}" for number in range(3000)]
        key, value = "log.roll.jitter.ms", "77"
        assert change(calls, BROKER, "1", *((each, SET, "x") for each in others), (key, SET, value))[0] == "NONE"
        assert setting(calls, BROKER, "1", key).value == value
        assert change(calls, BROKER, "1", *((each, DELETE, None) for each in [*others, key]))[0] == "NONE"
        assert setting(calls, BROKER, "1", key).value != value

    @only_ours
    def test_an_ignored_setting_is_stored_and_logged(self, calls: Calls, node: Node) -> None:
        topic, key = calls.create_topic(), "remote.fetch.max.wait.ms"
        assert change(calls, BROKER, "1", (key, SET, "77"))[0] == "NONE"
        assert change(calls, TOPIC, topic, ("local.retention.ms", SET, "77"))[0] == "NONE"
        assert Eventually(calls, BROKER, "1", key).is_("77", BROKER_SOURCE)
        assert Eventually(calls, TOPIC, topic, "local.retention.ms").is_("77", TOPIC_SOURCE)
        reported = [line for line in node.log_text().splitlines() if "unsupported dynamic setting ignored" in line]
        assert any(f"setting={key}" in line and "name=1" in line for line in reported), reported
        assert any("setting=local.retention.ms" in line and f"name={topic}" in line for line in reported), reported
        assert change(calls, BROKER, "1", (key, DELETE, None))[0] == "NONE"

    @only_ours
    def test_unsupported_security_settings_are_refused_and_unloaded_ones_warn(self, calls: Calls, node: Node) -> None:
        for key in ("super.users", "authorizer.class.name"):
            name, message = change(calls, BROKER, "1", (key, SET, "User:admin"))
            assert (name, message) == ("INVALID_CONFIG", f"Cannot update these configs dynamically: {key}")
        key = "principal.builder.class"
        name, message = change(calls, BROKER, "1", (key, SET, "com.example.Principals"))
        assert name == "INVALID_CONFIG"
        assert message is not None and "take it out: ssl.principal.mapping.rules" in message
        assert replace(calls, BROKER, "1", {key: "com.example.Principals"}) == "INVALID_CONFIG"
        default = "org.apache.kafka.common.security.authenticator.DefaultKafkaPrincipalBuilder"
        assert change(calls, BROKER, "1", ("principal.builder.class", SET, default))[0] == "NONE"
        secret = "listener.name.plain.plain.sasl.jaas.config"
        name, message = change(calls, BROKER, "1", (secret, SET, "x y;"))
        assert name == "INVALID_CONFIG" and message is not None and "odradek.secret.key.file" in message
        assert "x y;" not in message
        ignored = {"metric.reporters": "com.example.Reporter", "sasl.kerberos.ticket.renew.jitter": "0.5"}
        for key, value in ignored.items():
            assert change(calls, BROKER, "1", (key, SET, value))[0] == "NONE"
            eventually(partial(is_written, node, f"setting={key} of=broker name=1"))
            assert change(calls, BROKER, "1", (key, DELETE, None))[0] == "NONE"
        (line,) = [line for line in node.log_text().splitlines() if "setting=metric.reporters" in line]
        assert "unsupported dynamic setting ignored" in line and "Prometheus" in line
        assert "x y;" not in node.log_text()
        assert change(calls, BROKER, "1", ("principal.builder.class", DELETE, None))[0] == "NONE"

    @only_ours
    def test_listeners_are_set_for_each_broker(self, calls: Calls) -> None:
        before = setting(calls, BROKER, "1", "listeners").value
        assert change(calls, BROKER, "1", ("listeners", SET, "PLAINTEXT://:1"))[0] == "INVALID_REQUEST"
        name, message = change(calls, BROKER, "", ("listeners", SET, str(before)))
        assert name == "INVALID_CONFIG" and message is not None and "broker configs must be used" in message
        assert setting(calls, BROKER, "1", "listeners").value == before

    def test_a_default_of_topics_takes_effect(self, calls: Calls) -> None:
        topic = calls.create_topic()
        assert change(calls, BROKER, "", ("message.max.bytes", SET, "300"))[0] == "NONE"
        try:
            config = Eventually(calls, TOPIC, topic, "max.message.bytes")
            assert config.is_("300", CLUSTER_SOURCE)
            await_produce_error(calls, topic, "MESSAGE_TOO_LARGE")
        finally:
            change(calls, BROKER, "", ("message.max.bytes", DELETE, None))
        assert config.is_("1048588", DEFAULT_SOURCE)

    @pytest.mark.parametrize(
        ("name", "key", "value"),
        [
            ("1", "node.id", "7"),
            ("", "log.dirs", "/tmp/other"),
            ("1", "num.io.threads", "none"),
            ("1", "num.io.threads", "0"),
            ("one", "num.io.threads", "4"),
        ],
    )
    def test_invalid_settings_are_refused(self, calls: Calls, name: str, key: str, value: str) -> None:
        code, text = change(calls, BROKER, name, (key, SET, value))
        assert code in ("INVALID_REQUEST", "INVALID_CONFIG")
        assert text

    @only_ours  # Kafka accepts it, and each broker logs a warning
    def test_compaction_lags_of_brokers_that_contradict_each_other(self, calls: Calls) -> None:
        low, high = "log.cleaner.min.compaction.lag.ms", "log.cleaner.max.compaction.lag.ms"
        code, text = change(calls, BROKER, "", (low, SET, "9000"), (high, SET, "8000"))
        assert code == "INVALID_CONFIG"
        assert f"{low}=9000: must be at most {high} (8000)" in str(text)
        assert not [
            each for each in describe(calls, BROKER, "1", low, high).configs if each.config_source != DEFAULT_SOURCE
        ]

    @pytest.mark.parametrize(("key", "value"), [("interval.ms", "1"), ("no.such.key", "1")])
    def test_client_metrics(self, calls: Calls, key: str, value: str) -> None:
        assert change(calls, CLIENT_METRICS, "x", (key, SET, value))[0] == "INVALID_REQUEST"

    @pytest.mark.parametrize(("kind", "name"), [(0, "x"), (99, "x"), (TOPIC, "")])
    def test_resources_that_do_not_exist(self, calls: Calls, kind: int, name: str) -> None:
        assert change(calls, kind, name, ("retention.ms", SET, "1"))[0] != "NONE"


class TestListResources:
    @staticmethod
    def request(calls: Calls, *kinds: int, version: int = 1) -> tuple[str, set[tuple[int, str]]]:
        answer = calls.request(
            ApiKey.LIST_CONFIG_RESOURCES, version, ListConfigResourcesRequest(resource_types=list(kinds))
        )
        return name_of(answer.error_code), {
            (each.resource_type, each.resource_name) for each in answer.config_resources
        }

    def test_by_type(self, calls: Calls) -> None:
        topic, group = calls.create_topic(), fresh_name()
        assert change(calls, GROUP, group, ("consumer.session.timeout.ms", SET, "50000"))[0] == "NONE"
        assert Eventually(calls, GROUP, group, "consumer.session.timeout.ms").is_("50000")
        assert (TOPIC, topic) in self.request(calls, TOPIC)[1]
        assert self.request(calls, BROKER)[1] == {(BROKER, "1")}
        assert self.request(calls, BROKER_LOGGER)[1] == {(BROKER_LOGGER, "1")}
        assert (GROUP, group) in self.request(calls, GROUP)[1]
        everything = self.request(calls)[1]
        assert {(TOPIC, topic), (BROKER, "1"), (BROKER_LOGGER, "1"), (GROUP, group)} <= everything

    def test_client_metrics_alone_in_version_0(self, calls: Calls) -> None:
        name = fresh_name()
        assert change(calls, CLIENT_METRICS, name, ("interval.ms", SET, "5000"))[0] == "NONE"
        assert Eventually(calls, CLIENT_METRICS, name, "interval.ms").is_("5000")
        code, found = self.request(calls, version=0)
        assert code == "NONE"
        assert (CLIENT_METRICS, name) in found
        assert {kind for kind, _ in found} == {CLIENT_METRICS}

    def test_a_type_that_no_one_knows(self, calls: Calls) -> None:
        assert self.request(calls, 99) == ("UNSUPPORTED_VERSION", set())
