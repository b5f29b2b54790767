"""Stock consumers of four kinds behind one small set of words, so that a test about commits is written once."""

from __future__ import annotations

import asyncio
import itertools
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Coroutine
from typing import Any

from confluent_kafka import ConsumerGroupState

from tests.support.clients.confluent import admin
from tests.support.waiting import PATIENCE_S

_numbers = itertools.count(1)
COMMIT_INTERVAL_MS = 200


class StockConsumer(ABC):
    """One member of a group that reads one topic; offsets are by partition."""

    def __init__(self, bootstrap: str, group: str, topic: str) -> None:
        self.bootstrap = bootstrap
        self.group = group
        self.topic = topic
        self.client_id = f"client-{next(_numbers)}"

    @abstractmethod
    def poll(self, limit: int) -> list[tuple[int, int, bytes]]:
        """(partition, offset, value) of at most `limit` records that are there within a moment."""

    @abstractmethod
    def owned(self) -> set[int]:
        """The partitions that it reads now."""

    @abstractmethod
    def commit(self) -> None:
        """Commit what was read, and wait for it."""

    @abstractmethod
    def commit_async(self) -> None:
        """Commit what was read, and do not wait."""

    @abstractmethod
    def seek(self, partition: int, offset: int) -> None: ...

    @abstractmethod
    def seek_to_end(self) -> None:
        """Seek to the end of all its partitions, over the records that are there now."""

    @abstractmethod
    def position(self, partition: int) -> int:
        """The next offset to be read."""

    @abstractmethod
    def committed(self, partition: int) -> int:
        """The committed offset of its group, asked of the broker; -1 where it has none."""

    @abstractmethod
    def end_offset(self, partition: int) -> int:
        """The end offset of the partition, as the client requests it to compute its lag."""

    @abstractmethod
    def close(self) -> None:
        """Leave; without automatic commits nothing is committed by it."""

    def read(self, count: int) -> list[tuple[int, int, bytes]]:
        """Exactly so many records, in as many polls as it takes."""
        found: list[tuple[int, int, bytes]] = []
        deadline = time.monotonic() + PATIENCE_S
        while len(found) < count:
            assert time.monotonic() < deadline, f"{len(found)} of {count} records in {PATIENCE_S:g} s"
            found += self.poll(count - len(found))
        return found

    def settle(self, count: int) -> set[int]:
        """Poll, and drop what comes, until it owns `count` partitions."""
        deadline = time.monotonic() + PATIENCE_S
        while len(owned := self.owned()) != count:
            assert time.monotonic() < deadline, f"owns {owned}, not {count} partitions"
            self.poll(1)
        return owned

    def assigned(self) -> dict[str, set[int]]:
        """The partitions of each member of its group by its client id, as the broker has it; none while they change."""
        client = admin(self.bootstrap)
        group = client.describe_consumer_groups([self.group])[self.group].result(timeout=PATIENCE_S)
        if group.state != ConsumerGroupState.STABLE:
            return {}
        return {each.client_id: {one.partition for one in each.assignment.topic_partitions} for each in group.members}

    def lag(self) -> int:
        """Records that its group has not committed yet."""
        return sum(self.end_offset(number) - max(0, self.committed(number)) for number in self.owned())


class ConfluentConsumer(StockConsumer):
    """librdkafka under confluent-kafka, of either group protocol."""

    protocol = "classic"

    def __init__(
        self, bootstrap: str, group: str, topic: str, *, auto_commit: bool = False, instance_id: str | None = None
    ) -> None:
        from confluent_kafka import Consumer

        super().__init__(bootstrap, group, topic)
        config: dict[str, Any] = {
            "bootstrap.servers": bootstrap,
            "group.id": group,
            "client.id": self.client_id,
            "group.protocol": self.protocol,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": auto_commit,
            "auto.commit.interval.ms": COMMIT_INTERVAL_MS,
        }
        if self.protocol == "classic":
            config |= {"heartbeat.interval.ms": 200, "session.timeout.ms": 30_000}
        if instance_id is not None:
            config["group.instance.id"] = instance_id
        self.consumer = Consumer(config)
        self.consumer.subscribe([topic])

    def poll(self, limit: int) -> list[tuple[int, int, bytes]]:
        found = []
        for message in self.consumer.consume(limit, 0.3):
            assert message.error() is None, message.error()
            found.append((message.partition() or 0, message.offset() or 0, bytes(message.value() or b"")))
        return found

    def owned(self) -> set[int]:
        return {each.partition for each in self.consumer.assignment()}

    def commit(self) -> None:
        for each in self.consumer.commit(offsets=self._positions(), asynchronous=False) or ():
            assert each.error is None, each.error

    def commit_async(self) -> None:
        self.consumer.commit(offsets=self._positions(), asynchronous=True)

    def _positions(self) -> list[Any]:
        """Named, since without offsets librdkafka commits what it has stored by then, and never goes back."""
        return [each for each in self.consumer.position(self.consumer.assignment()) if each.offset >= 0]

    def seek(self, partition: int, offset: int) -> None:
        from confluent_kafka import TopicPartition

        self.consumer.seek(TopicPartition(self.topic, partition, offset))

    def seek_to_end(self) -> None:
        for number in self.owned():
            self.seek(number, self.end_offset(number))

    def position(self, partition: int) -> int:
        from confluent_kafka import TopicPartition

        return self.consumer.position([TopicPartition(self.topic, partition)])[0].offset

    def committed(self, partition: int) -> int:
        from confluent_kafka import TopicPartition

        return max(-1, self.consumer.committed([TopicPartition(self.topic, partition)], timeout=PATIENCE_S)[0].offset)

    def end_offset(self, partition: int) -> int:
        from confluent_kafka import TopicPartition

        return int(self.consumer.get_watermark_offsets(TopicPartition(self.topic, partition), timeout=PATIENCE_S)[1])

    def close(self) -> None:
        self.consumer.close()


class NewProtocolConsumer(ConfluentConsumer):
    """The same, a member by KIP-848."""

    protocol = "consumer"


class KafkaPythonConsumer(StockConsumer):
    """kafka-python."""

    def __init__(
        self, bootstrap: str, group: str, topic: str, *, auto_commit: bool = False, instance_id: str | None = None
    ) -> None:
        import kafka

        super().__init__(bootstrap, group, topic)
        self.consumer: Any = kafka.KafkaConsumer(
            topic,
            bootstrap_servers=bootstrap,
            group_id=group,
            client_id=self.client_id,
            group_instance_id=instance_id,
            auto_offset_reset="earliest",
            enable_auto_commit=auto_commit,
            auto_commit_interval_ms=COMMIT_INTERVAL_MS,
            heartbeat_interval_ms=200,
            session_timeout_ms=30_000,
        )
        # A leader that joins before it knows the topic assigns nothing, and may not join again.
        self.consumer.partitions_for_topic(topic)

    def _partition(self, number: int) -> Any:
        from kafka import TopicPartition

        return TopicPartition(self.topic, number)

    def poll(self, limit: int) -> list[tuple[int, int, bytes]]:
        answer = self.consumer.poll(timeout_ms=300, max_records=limit)
        return [(each.partition, each.offset, each.value) for records in answer.values() for each in records]

    def owned(self) -> set[int]:
        return {each.partition for each in self.consumer.assignment()}

    def commit(self) -> None:
        self.consumer.commit()

    def commit_async(self) -> None:
        self.consumer.commit_async()

    def seek(self, partition: int, offset: int) -> None:
        self.consumer.seek(self._partition(partition), offset)

    def seek_to_end(self) -> None:
        self.consumer.seek_to_end()
        for number in self.owned():
            self.position(number)  # until then it only means to look where the end is

    def position(self, partition: int) -> int:
        return int(self.consumer.position(self._partition(partition)))

    def committed(self, partition: int) -> int:
        found = self.consumer.committed(self._partition(partition))
        return -1 if found is None else int(found)

    def end_offset(self, partition: int) -> int:
        wanted = self._partition(partition)
        return int(self.consumer.end_offsets([wanted])[wanted])

    def close(self) -> None:
        self.consumer.close()


class AiokafkaConsumer(StockConsumer):
    """aiokafka, with an event loop in a thread of its own."""

    def __init__(
        self, bootstrap: str, group: str, topic: str, *, auto_commit: bool = False, instance_id: str | None = None
    ) -> None:
        super().__init__(bootstrap, group, topic)
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()

        async def start() -> Any:
            import aiokafka

            consumer = aiokafka.AIOKafkaConsumer(
                topic,
                bootstrap_servers=bootstrap,
                group_id=group,
                client_id=self.client_id,
                group_instance_id=instance_id,
                auto_offset_reset="earliest",
                enable_auto_commit=auto_commit,
                auto_commit_interval_ms=COMMIT_INTERVAL_MS,
                heartbeat_interval_ms=200,
                session_timeout_ms=30_000,
            )
            await consumer.start()
            return consumer

        self.consumer: Any = self._run(start())

    def _run(self, work: Coroutine[Any, Any, Any]) -> Any:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(PATIENCE_S)

    def _partition(self, number: int) -> Any:
        from aiokafka import TopicPartition

        return TopicPartition(self.topic, number)

    def poll(self, limit: int) -> list[tuple[int, int, bytes]]:
        answer = self._run(self.consumer.getmany(timeout_ms=300, max_records=limit))
        return [(each.partition, each.offset, each.value) for records in answer.values() for each in records]

    def owned(self) -> set[int]:
        return {each.partition for each in self.consumer.assignment()}

    def commit(self) -> None:
        self._run(self.consumer.commit())

    def commit_async(self) -> None:
        asyncio.run_coroutine_threadsafe(self.consumer.commit(), self._loop)

    def seek(self, partition: int, offset: int) -> None:
        async def seek() -> None:
            self.consumer.seek(self._partition(partition), offset)

        self._run(seek())

    def seek_to_end(self) -> None:
        self._run(self.consumer.seek_to_end())

    def position(self, partition: int) -> int:
        return int(self._run(self.consumer.position(self._partition(partition))))

    def committed(self, partition: int) -> int:
        found = self._run(self.consumer.committed(self._partition(partition)))
        return -1 if found is None else int(found)

    def end_offset(self, partition: int) -> int:
        wanted = self._partition(partition)
        return int(self._run(self.consumer.end_offsets([wanted]))[wanted])

    def close(self) -> None:
        self._run(self.consumer.stop())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()


KINDS: dict[str, type[ConfluentConsumer] | type[KafkaPythonConsumer] | type[AiokafkaConsumer]] = {
    "confluent-kafka": ConfluentConsumer,
    "confluent-kafka, KIP-848": NewProtocolConsumer,
    "kafka-python": KafkaPythonConsumer,
    "aiokafka": AiokafkaConsumer,
}
