"""The dynamic settings that are logged as ignored."""

from __future__ import annotations

import pytest

from odradek.metadata.delta import MetadataDelta
from odradek.metadata.image import MetadataImage
from odradek.protocol.messages.config_record import ConfigRecord
from odradek.server.startup.ignored_settings import MAX_LINES, IgnoredSettings
from odradek.settings.table import Scope

TOPIC, BROKER, CLIENT_METRICS, GROUP = 2, 4, 16, 32
OURS = IgnoredSettings(1, lambda: {"x", "controller"})


@pytest.mark.parametrize(
    ("kind", "name", "settings", "ignored"),
    [
        (TOPIC, "t", {"remote.log.copy.disable": "true", "retention.ms": "5"}, ["remote.log.copy.disable"]),
        (TOPIC, "t", {"local.retention.ms": "7", "preallocate": "true"}, ["local.retention.ms", "preallocate"]),
        (TOPIC, "t", {"local.retention.ms": "-2", "preallocate": "false"}, []),
        (TOPIC, "t", {"unclean.leader.election.enable": "true", "min.insync.replicas": "2"}, []),
        (TOPIC, "t", {"leader.replication.throttled.replicas": "*", "cleanup.policy": "compact"}, []),
        (BROKER, "1", {"remote.fetch.max.wait.ms": "1"}, ["remote.fetch.max.wait.ms"]),
        (BROKER, "", {"a.plugin.of.ours": "x", "num.io.threads": "3"}, ["a.plugin.of.ours", "num.io.threads"]),
        (BROKER, "1", {"log.retention.ms": "9", "leader.replication.throttled.rate": "5"}, []),
        (BROKER, "1", {"replica.alter.log.dirs.io.max.bytes.per.second": "5"}, []),
        (BROKER, "1", {"listener.name.x.ssl.keystore.location": "/k", "listener.name.controller.ssl.key.password": "p"},
         []),
        (BROKER, "1", {"listener.name.y.ssl.keystore.location": "/k"}, ["listener.name.y.ssl.keystore.location"]),
        (BROKER, "1", {"listener.name.X.ssl.keystore.location": "/k"}, ["listener.name.X.ssl.keystore.location"]),
        (BROKER, "1", {"listener.name.x.num.network.threads": "8"}, ["listener.name.x.num.network.threads"]),
        (BROKER, "1", {"odradek.drain.until.ms": "-1"}, []),
        (BROKER, "2", {"remote.fetch.max.wait.ms": "1"}, []),
        (GROUP, "g", {"consumer.session.timeout.ms": "50000", "share.isolation.level": "read_committed"},
         ["share.isolation.level"]),
        (CLIENT_METRICS, "m", {"interval.ms": "1000"}, []),
    ],
)  # fmt: skip
def test_only_what_changes_something_and_is_not_honoured(
    kind: int, name: str, settings: dict[str, str], ignored: list[str]
) -> None:
    assert [key for _, key in OURS.find([(kind, name)], {(kind, name): settings})] == ignored


def test_one_key_of_many_topics_is_one_line() -> None:
    configs = {(TOPIC, name): {"preallocate": "true"} for name in ("b", "a", "c")}
    assert OURS.find(configs, configs) == {(Scope.TOPIC, "preallocate"): ["a", "b", "c"]}
    assert OURS.find([(TOPIC, "gone")], configs) == {}


def test_thousands_of_keys_are_some_lines_and_a_number(caplog: pytest.LogCaptureFixture) -> None:
    delta = MetadataDelta(MetadataImage())
    for number in range(MAX_LINES + 1000):
        record = ConfigRecord(resource_type=BROKER, resource_name="", name=f"a.plugin.of.ours.{number}", value="x")
        delta.replay(record)
    OURS.on_metadata(delta, delta.apply(1, 1))
    lines = [(each.getMessage(), vars(each)["fields"]) for each in caplog.records]
    assert len(lines) == MAX_LINES + 1
    assert lines[-1] == ("more unsupported dynamic settings ignored", {"count": 1000})
