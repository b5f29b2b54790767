"""What exactly-once copies are checked by: numbered records for each key, and what read_committed sees of the copy."""

from __future__ import annotations

from tests.support.clients import produce_all, read_all

KEYS = 50


def fill_source(bootstrap: str, topic: str, partitions: int, count: int) -> dict[int, list[bytes]]:
    """Write `count` records, numbered in each key; returns the values of each partition in their order."""
    records = [(b"key-%d" % (number % KEYS), b"%d:%d" % (number % KEYS, number // KEYS)) for number in range(count)]
    delivered = produce_all(bootstrap, topic, records, enable_idempotence=True)
    return by_partition(delivered, partitions)


def committed_values(bootstrap: str, topic: str, partitions: int) -> dict[int, list[bytes]]:
    """The values of each partition in their order, up to the last stable offset."""
    return by_partition(read_all(bootstrap, topic, partitions, isolation_level="read_committed"), partitions)


def by_partition(messages: list[object], partitions: int) -> dict[int, list[bytes]]:
    """Sorted by offset, as the order of delivery reports is not that of the partition."""
    found: dict[int, list[tuple[int, bytes]]] = {number: [] for number in range(partitions)}
    for message in messages:
        found[message.partition()].append((message.offset(), message.value()))  # type: ignore[attr-defined]
    return {number: [value for _, value in sorted(each)] for number, each in found.items()}
