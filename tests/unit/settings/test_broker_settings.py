"""The settings of a node from its properties: defaults, synonyms, providers, and every problem at once."""

from __future__ import annotations

import dataclasses
import re
from pathlib import Path
from typing import Any

import pytest

from odradek.common.errors import ConfigError
from odradek.settings.broker import BrokerSettings, build_from, honoured_keys, resolve
from odradek.settings.config_providers import Sources
from odradek.settings.node import ZERO_CONFIG, parse_overrides, zero_config
from odradek.settings.options import OptionSpec, config, option
from odradek.settings.rules import GUARDS, READ_BY_THE_NODE
from odradek.settings.table import OWN, Scope, table
from odradek.settings.unused import reason_unused
from tools.configuration_page import config_classes, configuration_page, options

FILES = {"/secrets/db.properties": "user=me\npassword=p=1\n", "/keys/token": "t0k3n"}
SOURCES = Sources({"RETENTION": "1234"}, lambda path: FILES[str(path)])


@config
class Retention:
    """Settings with synonyms of other units."""

    retention_ms: int = option("log.retention.ms", topic_key="retention.ms", default=604_800_000, doc="How long.")
    roll_ms: int = option("log.roll.ms", topic_key="segment.ms", default=604_800_000, doc="When to roll.")


def settings(given: dict[str, str] | None = None, *, without: str = "") -> BrokerSettings:
    properties = zero_config(given or {})
    properties.pop(without, None)
    return resolve(properties, SOURCES)


def problems(given: dict[str, str], *, without: str = "") -> list[str]:
    with pytest.raises(ConfigError) as failure:
        settings(given, without=without)
    return failure.value.problems


def test_the_table_is_whole() -> None:
    assert [len(table(scope)) for scope in (Scope.BROKER, Scope.TOPIC, Scope.GROUP)] == [350, 37, 21]


def test_every_default_of_the_table_is_of_its_type() -> None:
    for scope in Scope:
        for row in table(scope).values():
            value = row.default_value()
            if isinstance(value, int | float) and row.name != "controller.quorum.voters":
                assert row.parse(row.default) == value


def test_every_option_has_the_default_of_the_table() -> None:
    values = {name: row.default_value() for name, row in (table(Scope.BROKER) | OWN).items()}
    classes = config_classes()
    assert len(classes) >= 3
    for config_class in classes:
        built: Any = build_from(config_class, values, {})
        plain: Any = config_class()
        for item in dataclasses.fields(config_class):
            spec: OptionSpec = item.metadata["option"]
            assert not spec.key or spec.key in values, f"{config_class.__name__}: Kafka has no setting {spec.key}"
            assert getattr(built, item.name) == getattr(plain, item.name), f"{config_class.__name__}.{item.name}"


def test_the_page_of_settings_describes_each_honoured_one() -> None:
    page = configuration_page()
    assert all(f"| `{name}` |" in page for name in OWN)
    assert all(f"`{name}`" in page for scope in Scope for name in table(scope))
    assert not re.search(r"^\| `[^|]*\|(?:[^|]*\|){4} *\|$", page, re.MULTILINE), "a row without a description"


def test_each_setting_that_nothing_reads_has_a_reason() -> None:
    read = {key for _, key in options(config_classes())} | READ_BY_THE_NODE.keys()
    unread = [name for scope in Scope for name in table(scope) if name not in read]
    assert not [name for name in unread if not reason_unused(name)]
    assert not [name for name in read if reason_unused(name)]
    page = configuration_page()
    assert all(re.search(rf"^\| `{re.escape(name)}` \| [a-z -]+ \| \S", page, re.MULTILINE) for name in unread)
    assert "| `listeners` | list | `PLAINTEXT://:9092` |  | per broker |" in page
    assert "| `node.id` | int | required | [0,...] | at start |" in page


def test_settings_of_a_listener_that_there_is_not_warn() -> None:
    mine = {
        "listeners": "EXTERNAL://:9092,CONTROLLER://:9093",
        "listener.security.protocol.map": "EXTERNAL:SSL,CONTROLLER:SSL,ELSEWHERE:SSL",
        "listener.name.externl.ssl.client.auth": "required",
        "listener.name.externl.ssl.keystore.type": "PEM",
        "listener.name.EXTERNAL.ssl.client.auth": "required",
        "listener.name.external.PLAIN.sasl.jaas.config": "x",
        "listener.name.elsewhere.ssl.keystore.type": "PEM",
        "listener.name.controller.ssl.keystore.type": "PEM",
    }
    mechanism, misspelt, capital = settings(mine).warnings
    assert mechanism.endswith("PLAIN.sasl.jaas.config is not a setting that one listener can have")
    assert misspelt == (
        "listener.name.externl.ssl.client.auth, listener.name.externl.ssl.keystore.type is ignored:"
        " no listener has the name externl; did you mean external, in small letters?"
    )
    assert capital.startswith("listener.name.EXTERNAL.ssl.client.auth is ignored: no listener has the name EXTERNAL;")


def test_threads_of_one_listener_are_ignored_with_the_reason() -> None:
    """Kafka has such pools for each listener."""
    given = zero_config({"listener.name.plaintext.num.network.threads": "8"})
    (line,) = (each for each in resolve(given, SOURCES, honoured=frozenset()).warnings if "threads" in each)
    assert line.startswith("listener.name.plaintext.num.network.threads is ignored: one event loop does this work")


@pytest.mark.parametrize("key", GUARDS)
def test_a_class_that_guards_a_cluster_stops_the_start(key: str) -> None:
    with pytest.raises(ConfigError) as failure:
        resolve(zero_config({key: "com.example.Mine"}), SOURCES, honoured=frozenset())
    (problem,) = failure.value.problems
    assert problem.startswith(f"{key}=com.example.Mine: ") and "take it out" in problem


def test_default_settings_are_one_node() -> None:
    node = settings()
    assert (node.node_id, node.roles, node.log_dirs) == (1, {"broker", "controller"}, ["./odradek-data"])
    assert [str(listener) for listener in node.listeners] == [
        "PLAINTEXT://127.0.0.1:9092",
        "CONTROLLER://127.0.0.1:9093",
    ]
    assert node.values["controller.quorum.voters"] == ["1@127.0.0.1:9093"]
    assert node.advertised == ()
    assert node.inter_broker_listener_name == "PLAINTEXT"


def test_overrides_reach_what_follows_from_them() -> None:
    node = settings({"listeners": "PLAINTEXT://:1,CONTROLLER://:2", "node.id": "7", "log.dir": "/d"})
    assert node.values["controller.quorum.voters"] == ["7@127.0.0.1:2"]
    assert node.log_dirs == ["/d"]


@pytest.mark.parametrize(
    ("given", "expected_ms"),
    [
        ({}, 604_800_000),
        ({"log.retention.hours": "2"}, 7_200_000),
        ({"log.retention.hours": "2", "log.retention.minutes": "3"}, 180_000),
        ({"log.retention.hours": "2", "log.retention.minutes": "3", "log.retention.ms": "5"}, 5),
        ({"log.retention.ms": "-1"}, -1),
    ],
)
def test_the_finest_synonym_wins(given: dict[str, str], expected_ms: int) -> None:
    assert settings(given).build(Retention).retention_ms == expected_ms


@pytest.mark.parametrize(("count", "warned"), [(1, False), (2, True), (3, False), (4, True)])
def test_an_even_number_of_voters_is_worth_a_warning(count: int, warned: bool) -> None:
    voters = ",".join(f"{node_id}@h:9093" for node_id in range(1, count + 1))
    reported = [line for line in settings({"controller.quorum.voters": voters}).warnings if "odd number" in line]
    assert bool(reported) is warned


def test_all_problems_are_reported_at_once() -> None:
    reported = problems(
        {"num.partitions": "many", "log.segment.bytes": "-1", "process.roles": "king", "log.retention.ms": "0"}
    )
    for words in (
        ("num.partitions", "many", "int"),
        ("log.segment.bytes", "-1", "at least 1048576"),
        ("process.roles", "king", "broker, controller"),
        ("log.retention.ms", "0", "-1"),
    ):
        assert any(all(word in line for word in words) for line in reported), (words, reported)
    assert all("\n" not in line for line in reported)


@pytest.mark.parametrize(
    ("given", "named"),
    [
        ({"node.id": "-2"}, "node.id"),
        ({"broker.id": "3", "node.id": "4"}, "broker.id"),
        ({"controller.quorum.voters": "2@h:1"}, "node.id=1"),
        ({"controller.quorum.voters": "here"}, "id@host:port"),
        ({"listeners": "CONTROLLER://:1"}, "not the controller's"),
        ({"listeners": "PLAINTEXT://:1,PLAINTEXT://:2,CONTROLLER://:3"}, "twice"),
        ({"listeners": "PLAINTEXT://:1,CONTROLLER://:1"}, "twice"),
        ({"listeners": "INNER://:1,CONTROLLER://:2"}, "listener.security.protocol.map"),
        ({"listeners": "localhost:1,CONTROLLER://:2"}, "NAME://host:port"),
        ({"listeners": "PLAINTEXT://:99999,CONTROLLER://:2"}, "99999"),
        ({"advertised.listeners": "PLAINTEXT://0.0.0.0:9092"}, "0.0.0.0"),
        ({"advertised.listeners": "OTHER://h:9092"}, "OTHER"),
        ({"listener.security.protocol.map": "PLAINTEXT:MAGIC,CONTROLLER:PLAINTEXT"}, "MAGIC"),
        ({"inter.broker.listener.name": "CONTROLLER"}, "inter.broker.listener.name"),
        ({"inter.broker.listener.name": "NOWHERE"}, "inter.broker.listener.name"),
        ({"process.roles": "broker,broker"}, "twice"),
        ({"group.min.session.timeout.ms": "9", "group.max.session.timeout.ms": "8"}, "group.min.session.timeout.ms=9"),
        ({"group.consumer.heartbeat.interval.ms": "60000"}, "group.consumer"),
        ({"group.consumer.assignors": "uniform,com.example.MyAssignor"}, "com.example.MyAssignor"),
        ({"group.consumer.assignors": ""}, "group.consumer.assignors"),
        ({"group.consumer.assignors": "range,org.apache.kafka.coordinator.group.assignor.RangeAssignor"}, "twice"),
        (
            {"log.cleaner.min.compaction.lag.ms": "9", "log.cleaner.max.compaction.lag.ms": "8"},
            "log.cleaner.min.compaction.lag.ms=9: must be at most log.cleaner.max.compaction.lag.ms (8)",
        ),
        ({"log.roll.ms": "0"}, "log.roll.ms=0: must be at least 1"),
        ({"log.roll.jitter.ms": "-1"}, "log.roll.jitter.ms=-1: must be at least 0"),
        ({"log.segment.bytes": "-5"}, "log.segment.bytes"),
        ({"log.index.size.max.bytes": "-1"}, "log.index.size.max.bytes"),
        ({"log.cleaner.dedupe.buffer.size": "-1"}, "log.cleaner.dedupe.buffer.size"),
        ({"log.cleaner.dedupe.buffer.size": "4194304", "log.cleaner.threads": "4"}, "log.cleaner.threads"),
        ({"log.cleaner.io.max.bytes.per.second": "0"}, "log.cleaner.io.max.bytes.per.second=0.0: must be above 0"),
        ({"log.cleaner.io.buffer.load.factor": "-0.5"}, "log.cleaner.io.buffer.load.factor"),
        ({"queued.max.request.bytes": "5"}, "queued.max.request.bytes"),
        ({"offsets.topic.compression.codec": "9"}, "codec"),
        ({"message.max.bytes": "99999999999"}, "int"),
        ({"auto.create.topics.enable": "yes"}, "true or false"),
        ({"compression.gzip.level": "0"}, "compression.gzip.level"),
    ],
)
def test_impossible_settings_are_refused(given: dict[str, str], named: str) -> None:
    assert any(named in line for line in problems(given)), problems(given)


def test_a_controller_of_a_file_needs_a_listener_of_its_own() -> None:
    given = {**ZERO_CONFIG, "listeners": "PLAINTEXT://:1", "controller.quorum.voters": "1@h:2"}
    with pytest.raises(ConfigError) as failure:
        resolve(given, SOURCES)
    assert failure.value.problems == ["listeners: a controller needs one of controller.listener.names among them"]


@pytest.mark.parametrize("key", ["process.roles", "node.id", "controller.listener.names"])
def test_required_settings_must_be_set(key: str) -> None:
    assert any(line.startswith(key) for line in problems({}, without=key))


def test_secrets_are_not_printed() -> None:
    row = table(Scope.BROKER)["ssl.key.password"]
    assert row.sensitive
    node = settings({"ssl.key.password": "hush"})
    assert not any("hush" in warning for warning in node.warnings)


def test_unknown_and_ignored_keys_warn() -> None:
    given = {"log.retention.mss": "5", "log.cleaner.threads": "7", "num.io.threads": "99", "log.retention.ms": "5"}
    node = resolve(zero_config(given), SOURCES, honoured=honoured_keys([Retention]))
    warned = "\n".join(node.warnings)
    assert "log.retention.mss is ignored; did you mean log.retention.ms?" in warned
    assert "log.cleaner.threads" in warned
    assert "num.io.threads is ignored: one event loop does this work, and there is no pool to size" in warned
    assert len([line for line in node.warnings if "log.retention.ms " in line]) == 0


@pytest.mark.parametrize(
    ("key", "warning"),
    [
        ("ssl.keystore.locatoin", "is ignored; did you mean ssl.keystore.location?"),
        ("sasl.enabled.mechanism", "is ignored; did you mean sasl.enabled.mechanisms?"),
        ("listener.name.plaintext.log.dirs", "is ignored: log.dirs is not a setting that one listener can have"),
        (
            "listener.name.plaintext.sasl.mechanism.inter.broker.protocol",
            "is ignored: sasl.mechanism.inter.broker.protocol is not a setting that one listener can have",
        ),
    ],
)
def test_misspelt_secrets_and_settings_of_one_listener_warn(key: str, warning: str) -> None:
    (line,) = settings({key: "x"}).warnings
    assert key in line
    assert warning in line


@pytest.mark.parametrize(
    ("variable", "is_allowed"),
    [
        ("${file:/secrets/db.properties:password}", True),
        ("${file:/other/../secrets/./db.properties:password}", True),
        ("${file:/allowed/../secrets/db.properties:password}", True),
        ("${file:/secrets/../keys/token:password}", False),
        ("${file:/secrets/../secrets2/db.properties:password}", False),
        ("${directory:/secrets/../keys:token}", False),
        ("${directory:/secrets/..:keys}", False),
    ],
)
def test_no_path_leads_out_of_what_a_provider_may_read(variable: str, is_allowed: bool) -> None:
    given = {
        "config.providers": "file,directory",
        "config.providers.file.class": "org.apache.kafka.common.config.provider.FileConfigProvider",
        "config.providers.file.param.allowed.paths": "/nowhere,/secrets/",
        "config.providers.directory.class": "org.apache.kafka.common.config.provider.DirectoryConfigProvider",
        "config.providers.directory.param.allowed.paths": "/secrets",
        "ssl.key.password": variable,
    }
    if is_allowed:
        assert settings(given).values["ssl.key.password"] == "p=1"
    else:
        assert any("allowed.paths" in line for line in problems(given)), problems(given)


def test_providers_replace_variables() -> None:
    given = {
        "config.providers": "env,file,directory",
        "config.providers.env.class": "org.apache.kafka.common.config.provider.EnvVarConfigProvider",
        "config.providers.file.class": "org.apache.kafka.common.config.provider.FileConfigProvider",
        "config.providers.directory.class": "org.apache.kafka.common.config.provider.DirectoryConfigProvider",
        "log.retention.ms": "${env:RETENTION}",
        "ssl.key.password": "${file:/secrets/db.properties:password}",
        "broker.rack": "r-${directory:/keys:token}-${other:x}",
    }
    node = settings(given)
    assert node.values["log.retention.ms"] == 1234
    assert node.values["ssl.key.password"] == "p=1"
    assert node.values["broker.rack"] == "r-t0k3n-${other:x}"


def test_a_variable_that_cannot_be_had_stops_the_start() -> None:
    given = {
        "config.providers": "env",
        "config.providers.env.class": "org.apache.kafka.common.config.provider.EnvVarConfigProvider",
        "log.retention.ms": "${env:NOWHERE}",
    }
    assert any("NOWHERE" in line for line in problems(given))


def test_overrides_are_pairs() -> None:
    assert parse_overrides(["a=1", "b=x=y", "a=2"]) == {"a": "2", "b": "x=y"}
    with pytest.raises(ConfigError, match="key=value"):
        parse_overrides(["a"])


def test_the_file_that_kafka_ships_has_no_problem() -> None:
    shipped = {
        "process.roles": "broker,controller",
        "node.id": "1",
        "controller.quorum.bootstrap.servers": "localhost:9093",
        "listeners": "PLAINTEXT://:9092,CONTROLLER://:9093",
        "inter.broker.listener.name": "PLAINTEXT",
        "advertised.listeners": "PLAINTEXT://localhost:9092,CONTROLLER://localhost:9093",
        "controller.listener.names": "CONTROLLER",
        "listener.security.protocol.map": "CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT,SSL:SSL",
        "log.dirs": str(Path("/tmp/kraft-combined-logs")),
        "num.io.threads": "8",
    }
    node = resolve(shipped, SOURCES, honoured=frozenset())
    assert node.warnings == ()
    assert [listener.name for listener in node.listeners] == ["PLAINTEXT", "CONTROLLER"]
