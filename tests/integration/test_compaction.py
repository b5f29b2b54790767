"""Compacted topics on a real node: records and committed offsets are right after kill -9 and restarts."""

from __future__ import annotations

import time
import urllib.request
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, TopicPartition

from tests.support.clients.cli import odradek
from tests.support.clients.confluent import create_topic, produce_all, read_all
from tests.support.nodes.node import Node, free_port
from tests.support.waiting import eventually

GROUP = "committers"


@pytest.fixture
def metrics_port() -> int:
    return free_port()


@pytest.fixture
def node(tmp_path: Path, metrics_port: int) -> Iterator[Node]:
    settings = {
        "log.cleaner.backoff.ms": 100,
        "log.cleaner.min.cleanable.ratio": 0.01,
        "log.roll.ms": 200,
        "log.segment.delete.delay.ms": 0,
        "odradek.metrics.listener": f"127.0.0.1:{metrics_port}",
    }
    with Node(tmp_path, settings) as node:
        yield node


def latest(node: Node, topic: str) -> dict[bytes | None, bytes | None]:
    return {message.key(): message.value() for message in read_all(node.bootstrap, topic)}


def committed(node: Node, topic: str) -> dict[int, int]:
    consumer = Consumer({"bootstrap.servers": node.bootstrap, "group.id": GROUP})
    found = consumer.committed([TopicPartition(topic, number) for number in range(2)], timeout=30)
    consumer.close()
    return {each.partition: each.offset for each in found}


def offsets_bytes(node: Node) -> int:
    sizes = 0
    for path in node.data_dir.glob("__consumer_offsets-*/*.log"):
        with suppress(FileNotFoundError):  # compacted while we looked
            sizes += path.stat().st_size
    return sizes


def cleaned_marks(node: Node) -> str:
    path = node.data_dir / "cleaner-offset-checkpoint"
    return path.read_text() if path.exists() else ""


def test_keys_keep_their_last_value_over_kills(node: Node, metrics_port: int) -> None:
    create_topic(node.bootstrap, "kept", cleanup_policy="compact")
    for number in range(6):
        records = [(b"key-%d" % key, b"%d-%d" % (number, key)) for key in range(10)]
        produce_all(node.bootstrap, "kept", records, enable_idempotence=True, compression_type="lz4")
        time.sleep(0.25)
        if number in (2, 4):
            node.kill()
            node.start()
    expected = {b"key-%d" % key: b"5-%d" % key for key in range(10)}
    assert latest(node, "kept") == expected
    # The last round is in the active segment, and the round before it may not be closed for long.
    eventually(lambda: len(read_all(node.bootstrap, "kept")) <= 20, "the log was not compacted")
    assert latest(node, "kept") == expected
    node.kill()
    node.start()
    assert latest(node, "kept") == expected

    def compaction() -> dict[str, Any]:
        (shown,) = odradek(node.bootstrap, "topics", "describe", "--topic", "kept", "--json").json
        state: dict[str, Any] = shown["partitions"][0]["compaction"]
        return state

    # A log is compacted before that is noted: a kill in between has it compacted again.
    eventually(lambda: compaction()["cleaned_offset"] > 0, "no offset was noted")
    assert not compaction()["uncleanable"]
    rows = odradek(node.bootstrap, "topics", "describe", "--topic", "kept").rows
    assert rows[3][-1] == "COMPACTION"
    assert "dirty" in " ".join(rows[4])
    address = f"http://127.0.0.1:{metrics_port}/metrics"
    with urllib.request.urlopen(address, timeout=60) as page:
        text = page.read().decode()
    assert 'odradek_log_dirty_ratio{partition="0",topic="kept"}' in text
    assert "odradek_cleaner_uncleanable_logs 0.0" in text


def test_a_record_without_a_key_is_refused(node: Node) -> None:
    create_topic(node.bootstrap, "keyed", cleanup_policy="compact")
    with pytest.raises(AssertionError, match=r"INVALID_RECORD|Broker failed to validate record"):
        produce_all(node.bootstrap, "keyed", [(None, b"value")])


def test_committed_offsets_survive_compaction_restarts_and_kills(node: Node) -> None:
    create_topic(node.bootstrap, "read", 2)
    consumer = Consumer({"bootstrap.servers": node.bootstrap, "group.id": GROUP})
    for number in range(1, 301):
        if number % 100 == 0:
            time.sleep(0.3)  # a segment ends
        consumer.commit(offsets=[TopicPartition("read", number % 2, number)], asynchronous=False)
    consumer.close()
    expected = {0: 300, 1: 299}
    assert committed(node, "read") == expected
    # A commit takes more than 100 bytes, and of 300 two count; the newest segment stays.
    eventually(lambda: offsets_bytes(node) < 15_000, "__consumer_offsets keeps what was overwritten")
    eventually(lambda: "__consumer_offsets" in cleaned_marks(node), "no offset was noted")
    assert committed(node, "read") == expected
    node.kill()
    node.start()
    assert committed(node, "read") == expected
    node.stop()
    node.start()
    assert committed(node, "read") == expected


def test_compact_and_delete_follow_a_policy_that_changes(node: Node) -> None:
    create_topic(node.bootstrap, "both", cleanup_policy="delete")
    for number in range(4):
        produce_all(node.bootstrap, "both", [(b"a", b"%d" % number), (b"b", b"%d" % number)])
        time.sleep(0.25)
    time.sleep(0.5)
    assert len(read_all(node.bootstrap, "both")) == 8, "nothing is compacted that did not ask for it"
    change = "cleanup.policy=[compact,delete]"
    odradek(node.bootstrap, "configs", "alter", "--topic", "both", "--add-config", change)
    eventually(lambda: len(read_all(node.bootstrap, "both")) <= 4, "the policy changed nothing")
    assert latest(node, "both") == {b"a": b"3", b"b": b"3"}
