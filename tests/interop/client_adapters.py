"""Each foreign Python client, and kcat, behind the same two functions: write records, read a topic in a group.

Written for a process of its own (`python -m tests.interop.client_adapters CLIENT write|read BOOTSTRAP TOPIC …`): one
client's threads, event loop or warnings do not reach another's.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import subprocess
import sys
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

READ_TIMEOUT_S = 100.0


@dataclass(frozen=True, slots=True, order=True)
class Entry:
    """One record as every client can express it; `key` and `value` are text or absent."""

    key: str | None
    value: str | None
    headers: tuple[tuple[str, str], ...] = ()

    def as_json(self) -> list[Any]:
        return [self.key, self.value, [list(pair) for pair in self.headers]]

    @staticmethod
    def of(key: Any, value: Any, headers: Iterable[tuple[str, Any]] | None) -> Entry:
        pairs = tuple((name, text(content) or "") for name, content in headers or ())
        return Entry(text(key), text(value), pairs)


def text(content: Any) -> str | None:
    return bytes(content).decode() if isinstance(content, bytes | bytearray | memoryview) else content


def encoded(content: str | None) -> bytes | None:
    return None if content is None else content.encode()


def write_confluent(bootstrap: str, topic: str, entries: list[Entry], codec: str) -> None:
    from confluent_kafka import Producer

    producer = Producer({"bootstrap.servers": bootstrap, "compression.type": codec, "enable.idempotence": True})
    for entry in entries:
        headers: list[tuple[str, str | bytes | None]] = [(name, content.encode()) for name, content in entry.headers]
        producer.produce(topic, key=encoded(entry.key), value=encoded(entry.value), headers=headers)
    assert producer.flush(100) == 0, "not all records were acknowledged"


def read_confluent(bootstrap: str, topic: str, group: str, count: int) -> list[Entry]:
    from confluent_kafka import Consumer

    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": group, "auto.offset.reset": "earliest"})
    consumer.subscribe([topic])
    found: list[Entry] = []
    deadline = time.monotonic() + READ_TIMEOUT_S
    while len(found) < count and time.monotonic() < deadline:
        for message in consumer.consume(1000, timeout=0.5):
            assert message.error() is None, message.error()
            headers = message.headers() or []
            assert isinstance(headers, list)
            found.append(Entry.of(message.key(), message.value(), headers))
    consumer.close()
    return found


def write_kafka_python(bootstrap: str, topic: str, entries: list[Entry], codec: str) -> None:
    from kafka import KafkaProducer

    producer = KafkaProducer(bootstrap_servers=bootstrap, compression_type=None if codec == "none" else codec)
    for entry in entries:
        headers = [(name, content.encode()) for name, content in entry.headers]
        producer.send(topic, key=encoded(entry.key), value=encoded(entry.value), headers=headers)
    producer.flush(100)
    producer.close()


def read_kafka_python(bootstrap: str, topic: str, group: str, count: int) -> list[Entry]:
    from kafka import KafkaConsumer

    consumer = KafkaConsumer(topic, bootstrap_servers=bootstrap, group_id=group, auto_offset_reset="earliest")
    found: list[Entry] = []
    deadline = time.monotonic() + READ_TIMEOUT_S
    while len(found) < count and time.monotonic() < deadline:
        for records in consumer.poll(timeout_ms=500).values():
            found.extend(Entry.of(record.key, record.value, record.headers) for record in records)
    consumer.close()
    return found


def write_aiokafka(bootstrap: str, topic: str, entries: list[Entry], codec: str) -> None:
    from aiokafka import AIOKafkaProducer

    async def write() -> None:
        async with AIOKafkaProducer(
            bootstrap_servers=bootstrap, compression_type=None if codec == "none" else codec, enable_idempotence=True
        ) as producer:
            for entry in entries:
                headers = [(name, content.encode()) for name, content in entry.headers]
                await producer.send(topic, key=encoded(entry.key), value=encoded(entry.value), headers=headers)
            await producer.flush()

    asyncio.run(write())


def read_aiokafka(bootstrap: str, topic: str, group: str, count: int) -> list[Entry]:
    from aiokafka import AIOKafkaConsumer

    async def read() -> list[Entry]:
        found: list[Entry] = []
        async with AIOKafkaConsumer(
            topic, bootstrap_servers=bootstrap, group_id=group, auto_offset_reset="earliest"
        ) as consumer:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(READ_TIMEOUT_S):
                    while len(found) < count:
                        for records in (await consumer.getmany(timeout_ms=500)).values():
                            found.extend(Entry.of(record.key, record.value, record.headers) for record in records)
        return found

    return asyncio.run(read())


def write_kcat(bootstrap: str, topic: str, entries: list[Entry], codec: str) -> None:
    headers = [argument for name, content in entries[0].headers for argument in ("-H", f"{name}={content}")]
    lines = "".join(f"{entry.key or ''}|{entry.value or ''}\n" for entry in entries)
    # -Z: an empty key or value is null.
    command = ["kcat", "-P", "-b", bootstrap, "-t", topic, "-K", "|", "-Z", "-z", codec, *headers]
    subprocess.run(command, input=lines, text=True, check=True, timeout=100)


def read_kcat(bootstrap: str, topic: str, group: str, count: int) -> list[Entry]:
    settings = ["-X", "auto.offset.reset=earliest", "-X", "session.timeout.ms=10000"]
    command = ["kcat", "-b", bootstrap, *settings, "-J", "-q", "-c", str(count), "-G", group, topic]
    done = subprocess.run(command, capture_output=True, text=True, timeout=READ_TIMEOUT_S)
    assert done.returncode == 0, done.stderr
    found = []
    for line in done.stdout.splitlines():
        record = json.loads(line)
        flat = record.get("headers") or []
        found.append(Entry.of(record["key"], record["payload"], list(zip(flat[::2], flat[1::2], strict=True))))
    return found


WRITERS: dict[str, Callable[[str, str, list[Entry], str], None]] = {
    "confluent-kafka": write_confluent,
    "kafka-python": write_kafka_python,
    "aiokafka": write_aiokafka,
    "kcat": write_kcat,
}
READERS: dict[str, Callable[[str, str, str, int], list[Entry]]] = {
    "confluent-kafka": read_confluent,
    "kafka-python": read_kafka_python,
    "aiokafka": read_aiokafka,
    "kcat": read_kcat,
}


def main() -> None:
    client, action, bootstrap, topic, *rest = sys.argv[1:]
    if action == "write":
        codec = rest[0]
        entries = [
            Entry(key, value, tuple((name, content) for name, content in headers))
            for key, value, headers in json.load(sys.stdin)
        ]
        WRITERS[client](bootstrap, topic, entries, codec)
    else:
        group, count = rest
        json.dump([entry.as_json() for entry in READERS[client](bootstrap, topic, group, int(count))], sys.stdout)


if __name__ == "__main__":
    main()
