"""Transactional producers of stock clients: commit, abort, offsets inside, and the older of two is fenced."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any, Protocol

import pytest

from tests.support.clients.api_calls import fresh_name
from tests.support.clients.confluent import create_topic
from tests.support.models.exactly_once import ended_values
from tests.support.nodes.cluster import Cluster
from tests.support.nodes.node import Node

TIMEOUT_S = 90.0


class StockProducer(Protocol):
    """A producer that has initialized its transactional id."""

    def begin(self) -> None: ...
    def send(self, topic: str, value: bytes) -> None: ...
    def send_offset(self, topic: str, group: str, offset: int) -> None: ...
    def commit(self) -> None: ...
    def abort(self) -> None: ...
    def close(self) -> None: ...


class Confluent:
    def __init__(self, bootstrap: str, transactional_id: str) -> None:
        from confluent_kafka import Producer

        self.bootstrap = bootstrap
        self.producer = Producer({"bootstrap.servers": bootstrap, "transactional.id": transactional_id})
        self.producer.init_transactions(TIMEOUT_S)

    def begin(self) -> None:
        self.producer.begin_transaction()

    def send(self, topic: str, value: bytes) -> None:
        self.producer.produce(topic, value, partition=0)
        assert self.producer.flush(TIMEOUT_S) == 0

    def send_offset(self, topic: str, group: str, offset: int) -> None:
        from confluent_kafka import Consumer, TopicPartition

        consumer = Consumer({"bootstrap.servers": self.bootstrap, "group.id": group})
        metadata = consumer.consumer_group_metadata()
        self.producer.send_offsets_to_transaction([TopicPartition(topic, 0, offset)], metadata, TIMEOUT_S)
        consumer.close()

    def commit(self) -> None:
        self.producer.commit_transaction(TIMEOUT_S)

    def abort(self) -> None:
        self.producer.abort_transaction(TIMEOUT_S)

    def close(self) -> None:
        del self.producer


class KafkaPython:
    def __init__(self, bootstrap: str, transactional_id: str) -> None:
        import kafka

        self.producer: Any = kafka.KafkaProducer(bootstrap_servers=bootstrap, transactional_id=transactional_id)
        self.producer.init_transactions()

    def begin(self) -> None:
        self.producer.begin_transaction()

    def send(self, topic: str, value: bytes) -> None:
        self.producer.send(topic, value, partition=0).get(TIMEOUT_S)

    def send_offset(self, topic: str, group: str, offset: int) -> None:
        from kafka import TopicPartition
        from kafka.structs import OffsetAndMetadata

        self.producer.send_offsets_to_transaction({TopicPartition(topic, 0): OffsetAndMetadata(offset, "", -1)}, group)

    def commit(self) -> None:
        self.producer.commit_transaction()

    def abort(self) -> None:
        self.producer.abort_transaction()

    def close(self) -> None:
        self.producer.close(timeout=1)


class Aiokafka:
    """aiokafka over an event loop that runs only during calls."""

    def __init__(self, bootstrap: str, transactional_id: str) -> None:
        self._runner = asyncio.Runner()

        async def start() -> Any:
            import aiokafka

            producer = aiokafka.AIOKafkaProducer(bootstrap_servers=bootstrap, transactional_id=transactional_id)
            await producer.start()
            return producer

        self.producer: Any = self._run(start())

    def _run(self, work: Coroutine[Any, Any, Any]) -> Any:
        async def in_time() -> Any:
            async with asyncio.timeout(TIMEOUT_S):
                return await work

        return self._runner.run(in_time())

    def begin(self) -> None:
        self._run(self.producer.begin_transaction())

    def send(self, topic: str, value: bytes) -> None:
        self._run(self.producer.send_and_wait(topic, value, partition=0))

    def send_offset(self, topic: str, group: str, offset: int) -> None:
        from aiokafka import TopicPartition

        self._run(self.producer.send_offsets_to_transaction({TopicPartition(topic, 0): offset}, group))

    def commit(self) -> None:
        self._run(self.producer.commit_transaction())

    def abort(self) -> None:
        self._run(self.producer.abort_transaction())

    def close(self) -> None:
        self._run(self.producer.stop())
        self._runner.close()


KINDS: dict[str, Callable[[str, str], StockProducer]] = {
    "confluent-kafka": Confluent,
    "kafka-python": KafkaPython,
    "aiokafka": Aiokafka,
}
Start = Callable[[str], closing[StockProducer]]


@pytest.fixture(params=list(KINDS))
def start(node: Node, request: pytest.FixtureRequest) -> Iterator[Start]:
    pytest.importorskip({"kafka-python": "kafka"}.get(request.param, request.param.replace("-", "_")))
    yield lambda transactional_id: closing(KINDS[request.param](node.bootstrap, transactional_id))


@pytest.fixture
def topic(node: Node) -> str:
    name = fresh_name("paid")
    create_topic(node.bootstrap, name, 1)
    return name


def committed_offset(node: Node, group: str, topic: str) -> int:
    from confluent_kafka import Consumer, TopicPartition

    consumer = Consumer({"bootstrap.servers": node.bootstrap, "group.id": group, "isolation.level": "read_committed"})
    found: int = consumer.committed([TopicPartition(topic, 0)], timeout=TIMEOUT_S)[0].offset
    consumer.close()
    return found


def test_commits_and_aborts_one_after_the_other(start: Start, node: Node, topic: str) -> None:
    expected = []
    with start(fresh_name("txn")) as producer:
        for number in range(12):
            producer.begin()
            producer.send(topic, b"%d" % number)
            if number % 3 == 2:
                producer.abort()
            else:
                producer.commit()
                expected.append(b"%d" % number)
    assert ended_values(node.bootstrap, topic, 1)[0] == expected


def test_offsets_count_with_their_transaction(start: Start, node: Node, topic: str) -> None:
    group = fresh_name("group")
    with start(fresh_name("txn")) as producer:
        for offset, commit, expected in ((5, True, 5), (9, False, 5), (11, True, 11)):
            producer.begin()
            producer.send(topic, b"x")
            producer.send_offset(topic, group, offset)
            producer.commit() if commit else producer.abort()
            assert committed_offset(node, group, topic) == expected


def test_the_older_of_two_producers_is_fenced(start: Start, node: Node, topic: str) -> None:
    name = fresh_name("txn")
    older = start(name).thing  # type: ignore[attr-defined]  # an attribute of `closing`, in no stub
    older.begin()
    older.send(topic, b"zombie")
    with start(name) as newer:
        newer.begin()
        newer.send(topic, b"mine")
        newer.commit()
        with pytest.raises(Exception, match=r"(?i)fenced|epoch|newer producer|superseded"):
            older.commit()
        newer.begin()
        newer.send(topic, b"again")
        newer.commit()
    older.close()
    assert ended_values(node.bootstrap, topic, 1)[0] == [b"mine", b"again"]


MANY = 40
ROUNDS = 2


@pytest.fixture
def three(tmp_path: Path) -> Iterator[Cluster]:
    made = Cluster(tmp_path, brokers=3)
    try:
        yield made.start()
    finally:
        made.kill()


def test_many_producers_with_several_connections_each_are_all_served(three: Cluster) -> None:
    """aiokafka's have one for InitProducerId, and another, which may be older, for the rest that coordinators do."""
    aiokafka = pytest.importorskip("aiokafka")
    topic = fresh_name("paid")
    create_topic(three.bootstrap_servers, topic, 3)

    async def transact(number: int) -> None:
        producer = aiokafka.AIOKafkaProducer(
            bootstrap_servers=three.bootstrap_servers, transactional_id=f"many-{number}", client_id=f"many-{number}"
        )
        await producer.start()
        try:
            for each in range(ROUNDS):
                await producer.begin_transaction()
                await producer.send_and_wait(topic, b"%d of %d" % (each, number), partition=number % 3)
                await producer.commit_transaction()
        finally:
            await producer.stop()

    async def all_of_them() -> list[BaseException | None]:
        async with asyncio.timeout(TIMEOUT_S):
            return await asyncio.gather(*map(transact, range(MANY)), return_exceptions=True)

    refused = [str(error) for error in asyncio.run(all_of_them()) if error is not None]
    assert not refused, f"{len(refused)} of {MANY}: {refused[:3]}"
    values = ended_values(three.bootstrap_servers, topic, 3)
    for partition, found in values.items():
        writers = range(partition, MANY, 3)
        assert sorted(found) == sorted(b"%d of %d" % (each, number) for number in writers for each in range(ROUNDS))
