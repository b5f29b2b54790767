"""AlterReplicaLogDirs: replicas move between the directories of a node while they are written; a node that is killed in
the middle goes on, and nothing acknowledged is lost."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Producer

from odradek.common.errors import ErrorCode
from odradek.protocol.apis import ApiKey
from odradek.protocol.messages.alter_replica_log_dirs_request import (
    AlterReplicaLogDir,
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirTopic,
)
from odradek.protocol.messages.delete_topics_request import DeleteTopicsRequest
from odradek.protocol.messages.describe_log_dirs_request import DescribeLogDirsRequest
from odradek.protocol.messages.describe_log_dirs_response import DescribeLogDirsPartition
from odradek.protocol.messages.incremental_alter_configs_request import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from tests.support.clients.api_calls import Calls, batch, name_of
from tests.support.clients.confluent import Acknowledged, read_all
from tests.support.nodes.node import Node
from tests.support.waiting import PATIENCE_S, eventually

RATE = "replica.alter.log.dirs.io.max.bytes.per.second"
BROKER = 4
MAX_UNANSWERED = 10_000


@pytest.fixture
def node(tmp_path: Path) -> Iterator[Node]:
    dirs = f"{tmp_path / 'one'},{tmp_path / 'two'}"
    with Node(tmp_path / "node", {"log.dirs": dirs, "log.segment.delete.delay.ms": 100}) as running:
        yield running
        running.kill()
        assert "Traceback" not in running.log_text()


def move(calls: Calls, topic: str, log_dir: object, partition: int = 0, version: int = 2) -> str:
    topics = [AlterReplicaLogDirTopic(name=topic, partitions=[partition])]
    request = AlterReplicaLogDirsRequest(dirs=[AlterReplicaLogDir(path=str(log_dir), topics=topics)])
    (answer,) = calls.request(ApiKey.ALTER_REPLICA_LOG_DIRS, version, request).results
    assert answer.topic_name == topic and [each.partition_index for each in answer.partitions] == [partition]
    return name_of(answer.partitions[0].error_code)


def where(calls: Calls, topic: str, partition: int = 0) -> dict[str, DescribeLogDirsPartition]:
    """The files of a partition in each directory, by the last part of its path."""
    answer = calls.request(ApiKey.DESCRIBE_LOG_DIRS, 4, DescribeLogDirsRequest(topics=None))
    return {
        Path(result.log_dir).name: found
        for result in answer.results
        for each in result.topics
        for found in each.partitions
        if (each.name, found.partition_index) == (topic, partition)
    }


def home(calls: Calls, topic: str, partition: int = 0) -> str:
    (name,) = [name for name, found in where(calls, topic, partition).items() if not found.is_future_key]
    return name


def wait_until_moved(calls: Calls, topic: str, target: str, partition: int = 0) -> None:
    def is_there() -> bool:
        found = where(calls, topic, partition)
        return list(found) == [target] and not found[target].is_future_key

    eventually(is_there, lambda: f"{topic} did not come to {target}: {where(calls, topic, partition)}")


def wait_until_begun(calls: Calls, topic: str, target: str) -> None:
    """Wait until a part of it is copied."""
    eventually(lambda: target in (found := where(calls, topic)) and found[target].partition_size > 0)


def throttle(calls: Calls, rate: int | None) -> None:
    change = AlterableConfig(name=RATE, config_operation=0 if rate else 1, value=str(rate) if rate else None)
    resource = AlterConfigsResource(resource_type=BROKER, resource_name="1", configs=[change])
    request = IncrementalAlterConfigsRequest(resources=[resource])
    (answer,) = calls.request(ApiKey.INCREMENTAL_ALTER_CONFIGS, 1, request).responses
    assert answer.error_code == 0, answer.error_message


def other(name: str) -> str:
    return "two" if name == "one" else "one"


def directories(tmp_path: Path, topic: str) -> dict[str, list[str]]:
    return {name: sorted(path.name for path in (tmp_path / name).glob(f"{topic}-0*")) for name in ("one", "two")}


def kept(tmp_path: Path, topic: str) -> dict[str, list[str]]:
    """The same without what is about to be removed."""
    found = directories(tmp_path, topic)
    return {where: [name for name in names if not name.endswith("-delete")] for where, names in found.items()}


class Writers:
    """Idempotent producers that write until they are stopped; every acknowledged record is looked for then."""

    def __init__(self, node: Node, topic: str, *, value_bytes: int = 200) -> None:
        self._node, self._topic, self._value_bytes = node, topic, value_bytes
        self._stop = threading.Event()
        self.reported = Acknowledged()
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self) -> None:
        settings = {"bootstrap.servers": self._node.bootstrap, "enable.idempotence": True, "linger.ms": 2}
        producer = Producer(settings | {"reconnect.backoff.max.ms": 200, "message.timeout.ms": 120_000})
        number = 0
        while not self._stop.is_set():
            for _ in range(20):
                value = b"%08d" % number + bytes(self._value_bytes)
                producer.produce(self._topic, value, partition=0, on_delivery=self.reported.on_delivery)
                number += 1
            producer.poll(0.005)
            while len(producer) > MAX_UNANSWERED:  # the node is down, perhaps for long
                producer.poll(0.1)
        assert producer.flush(PATIENCE_S) == 0, "records were neither acknowledged nor refused"

    def finish(self) -> None:
        """Stop, and compare what was acknowledged with what is read."""
        self._stop.set()
        self._thread.join(2 * PATIENCE_S)
        assert not self.reported.refused, self.reported.refused[:3]
        assert len(self.reported.values) > 500, "it hardly wrote: this run proves nothing"
        found = [(message.value(), message.offset()) for message in read_all(self._node.bootstrap, self._topic, 1)]
        places = {value: offset for value, offset in found if value is not None}
        assert len(places) == len(found), "stored twice"
        assert [value for value, _ in found] == sorted(places), "in order"
        lost = [value for value, (_, offset) in self.reported.values.items() if places.get(value) != offset]
        assert not lost, f"{len(lost)} acknowledged records are not where they were acknowledged"


def test_a_replica_moves_while_it_is_written(node: Node, tmp_path: Path) -> None:
    with Calls(node.port) as calls:
        topic = calls.create_topic(segment_bytes=1 << 20)
        writers = Writers(node, topic)
        try:
            for _ in range(3):
                time.sleep(0.7)
                target = other(home(calls, topic))
                assert move(calls, topic, tmp_path / target, version=1) == "NONE"
                wait_until_moved(calls, topic, target)
                assert kept(tmp_path, topic) == {target: [f"{topic}-0"], other(target): []}
        finally:
            writers.finish()
    node.kill()
    node.start()
    with Calls(node.port) as calls:
        calls.wait_for_leaders(topic, 1)
        wait_until_moved(calls, topic, target)
    writers.finish()


def test_a_move_is_throttled_reported_and_taken_back(node: Node, tmp_path: Path) -> None:
    with Calls(node.port) as calls:
        topic = calls.create_topic()
        for _ in range(30):
            assert calls.produce(topic, batch(bytes(100_000))).error_code == 0
        source = home(calls, topic)
        throttle(calls, 20_000)  # the first piece at once, the second a minute later
        assert move(calls, topic, tmp_path / other(source)) == "NONE"
        wait_until_begun(calls, topic, other(source))
        found = where(calls, topic)
        assert found[other(source)].is_future_key and not found[source].is_future_key
        assert found[other(source)].offset_lag > 10
        assert 0 < found[other(source)].partition_size < found[source].partition_size
        assert move(calls, topic, tmp_path / other(source)) == "NONE", "asked again, it goes on"
        assert where(calls, topic)[other(source)].partition_size >= found[other(source)].partition_size
        assert move(calls, topic, tmp_path / source) == "NONE", "back: it stays where it is"
        assert list(where(calls, topic)) == [source]
        assert not [name for name in directories(tmp_path, topic)[other(source)] if name.endswith("-future")]
        assert calls.produce(topic, batch(b"x")).error_code == 0
        assert move(calls, topic, tmp_path / other(source)) == "NONE"
        throttle(calls, None)
        wait_until_moved(calls, topic, other(source))
        assert calls.list_end(topic) == 31


@pytest.mark.parametrize("kills", [2])
def test_a_node_that_is_killed_in_the_middle_of_a_move_goes_on(node: Node, tmp_path: Path, kills: int) -> None:
    with Calls(node.port) as calls:
        topic = calls.create_topic(segment_bytes=1 << 20)
        for _ in range(40):
            assert calls.produce(topic, batch(bytes(100_000))).error_code == 0
        source = home(calls, topic)
        throttle(calls, 20_000)  # a piece of four at once after each start, the next a minute later
        assert move(calls, topic, tmp_path / other(source)) == "NONE"
    with Calls(node.port) as calls:
        assert calls.list_end(topic) == 40
    sizes = []
    for _ in range(kills):
        with Calls(node.port) as calls:
            wait_until_begun(calls, topic, other(source))
        node.kill()
        node.start()
        with Calls(node.port) as calls:
            calls.wait_for_leaders(topic, 1)
            sizes.append(where(calls, topic)[other(source)].partition_size)
    assert sizes[0] > 0 and sizes == sorted(sizes), "what was copied is kept"
    with Calls(node.port) as calls:
        throttle(calls, None)
        wait_until_moved(calls, topic, other(source))
        assert calls.list_end(topic) == 40


def test_kills_at_any_moment_of_many_moves_lose_nothing(node: Node, tmp_path: Path) -> None:
    with Calls(node.port) as calls:
        topic = calls.create_topic(segment_bytes=1 << 20)
    writers = Writers(node, topic)
    try:
        for number in range(5):
            with Calls(node.port) as calls:
                calls.wait_for_leaders(topic, 1)
                target = "two" if number % 2 else "one"
                assert move(calls, topic, tmp_path / target) == "NONE"
            time.sleep(0.03 * (number % 4) + 0.005 * number)
            node.kill()
            node.start()
        time.sleep(0.5)
    finally:
        writers.finish()
    with Calls(node.port) as calls:
        assert move(calls, topic, tmp_path / "two") == "NONE"
        wait_until_moved(calls, topic, "two")
    assert kept(tmp_path, topic) == {"one": [], "two": [f"{topic}-0"]}


def test_a_topic_that_is_deleted_takes_its_copy_along(node: Node, tmp_path: Path) -> None:
    with Calls(node.port) as calls:
        topic = calls.create_topic()
        for _ in range(10):
            assert calls.produce(topic, batch(bytes(100_000))).error_code == 0
        throttle(calls, 10_000)
        assert move(calls, topic, tmp_path / other(home(calls, topic))) == "NONE"
        time.sleep(0.2)
        calls.request(ApiKey.DELETE_TOPICS, 4, DeleteTopicsRequest(topic_names=[topic], timeout_ms=10_000))
        eventually(lambda: directories(tmp_path, topic) == {"one": [], "two": []})


def test_impossible_moves_are_refused_as_kafka_does(node: Node, tmp_path: Path) -> None:
    with Calls(node.port) as calls:
        topic = calls.create_topic()
        assert move(calls, topic, tmp_path / "three") == "LOG_DIR_NOT_FOUND"
        assert move(calls, topic, "relative") == "LOG_DIR_NOT_FOUND"
        assert move(calls, "none-such", tmp_path / "one") == "UNKNOWN_TOPIC_OR_PARTITION"
        assert move(calls, topic, tmp_path / "one", partition=9) == "UNKNOWN_TOPIC_OR_PARTITION"
        assert move(calls, topic, tmp_path / home(calls, topic)) == "NONE", "it is there"
        assert calls.produce(topic, batch(b"x")).error_code == ErrorCode.NONE
