"""Two sites: one is killed whole under traffic, and a group goes on at the other, by its offsets and by time.

python -m examples.two_sites --orders 20000
"""

from __future__ import annotations

import json
import sys
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, Producer, TopicPartition

from examples.sites import await_true, odradek, parser_of, print_report
from examples.topics import TIMEOUT_S, create_topic, records
from odradek.testing.processes import ProcessCluster

TOPIC = "orders"
GROUP = "billing"
LINK = "from-east"
PARTITIONS = 3
CHUNK = 100
COMMIT_EVERY = 5  # chunks: what a consumer has done since its last commit is done again wherever it goes on
LINK_SETTINGS = (
    "consumer.offset.sync.enable=true",
    "consumer.offset.sync.ms=1000",
    f'consumer.offset.group.filters={{"groupFilters": [{{"name": "{GROUP}", "filterType": "INCLUDE"}}]}}',
)


@dataclass
class Report:
    """Numbers of orders: what each site had, and what the group did where.

    Attributes:
        acknowledged: by either site.
        at_west: how often each is in the topic of the site that is left.
        done: by the group at the site that died.
        read: what the group reads at the other site, by the way in which it found its place there.
    """

    acknowledged: set[int] = field(default_factory=set)
    at_west: Counter[int] = field(default_factory=Counter)
    done: set[int] = field(default_factory=set)
    read: dict[str, Counter[int]] = field(default_factory=dict)

    @property
    def lost(self) -> set[int]:
        """The records that had not come over when the site died."""
        return self.acknowledged - set(self.at_west)

    def missed(self, way: str) -> set[int]:
        """The records at the remaining site that the group processed at neither."""
        return set(self.at_west) - self.done - set(self.read[way])

    def again(self, way: str) -> set[int]:
        """The records that the group processed at both sites."""
        return self.done & set(self.read[way])

    @property
    def holds(self) -> bool:
        """Whether nothing is missed by either way, and nothing is in the topic twice."""
        return not any(self.missed(way) for way in self.read) and set(self.at_west.values()) == {1}

    def __str__(self) -> str:
        lines = [
            f"{len(self.acknowledged):,} orders acknowledged, {self.at_west.total():,} at west, "
            f"{len(self.lost):,} lost with east; {len(self.done):,} done at east"
        ]
        for way in self.read:
            lines.append(f"by {way:9}: {len(self.missed(way)):,} missed, {len(self.again(way)):,} read again")
        return "\n".join(lines)


def main() -> int:
    parser = parser_of("two_sites", __doc__)
    parser.add_argument("--orders", type=int, default=20_000, help="made at east before it is killed")
    parser.add_argument("--brokers", type=int, default=3, help="of each site")
    parser.add_argument("--settled", action="store_true", help="kill east once all has come over, offsets as well")
    given = parser.parse_args()
    return print_report(given.folder, lambda folder: run(folder, given.orders, given.brokers, settled=given.settled))


def run(folder: Path, orders: int, brokers: int, *, settled: bool = False) -> Report:
    """Start both sites, kill east in the midst of its work, and go on at west."""
    settings = {
        "default.replication.factor": brokers,
        "offsets.topic.replication.factor": brokers,
        "offsets.topic.num.partitions": 1,
        "min.insync.replicas": min(2, brokers),
        "group.initial.rebalance.delay.ms": 0,
    }
    with (
        ProcessCluster(folder / "west", brokers=brokers, settings=settings) as west,
        ProcessCluster(folder / "east", brokers=brokers, settings=settings) as east,
    ):
        create_topic(east.bootstrap_servers, TOPIC, PARTITIONS)
        odradek(west, "create", LINK, "--source", east.bootstrap_servers, *_set(LINK_SETTINGS))
        odradek(west, "mirror", LINK, TOPIC)
        report = Report()
        at_ms = work_at_east(east, west, orders, report, settled=settled)
        print("kill -9 of all nodes of east", flush=True)
        east.kill()
        odradek(west, "failover", LINK, "--yes")
        produce(west.bootstrap_servers, range(orders + CHUNK, orders + 2 * CHUNK), report)
        report.at_west.update(map(number_of, records(west.bootstrap_servers, TOPIC)))
        report.read["timestamp"] = read_from(west.bootstrap_servers, at_ms)
        report.read["offset"] = read_on(west.bootstrap_servers)
        return report


def _set(settings: tuple[str, ...]) -> list[str]:
    return [word for setting in settings for word in ("--set", setting)]


def work_at_east(
    east: ProcessCluster, west: ProcessCluster, orders: int, report: Report, *, settled: bool = False
) -> int:
    """Make orders, and have the group do all but the last CHUNK; it has a place at west, too, from its first commit on.

    Returns:
        The time in milliseconds up to which the group has done all, in every partition.
    """
    consumer = group_at(east.bootstrap_servers, "earliest")
    consumer.subscribe([TOPIC])
    last_ms: dict[int, int] = {}
    try:
        for chunk, first in enumerate(range(0, orders, CHUNK), start=1):
            produce(east.bootstrap_servers, range(first, min(first + CHUNK, orders)), report)
            do_orders(consumer, len(report.acknowledged), report, last_ms)
            if chunk % COMMIT_EVERY == 1:
                committed = consumer.commit(asynchronous=False)
                if chunk == 1:
                    await_offsets(west, committed)
        # Acknowledged at east, and perhaps not over yet: a link is asynchronous.
        produce(east.bootstrap_servers, range(orders, orders + CHUNK), report)
        if settled:
            await_offsets(west, consumer.commit(asynchronous=False))
            await_records(west, consumer)
        return min(last_ms[number] for number in range(PARTITIONS))
    finally:
        consumer.close()


def do_orders(consumer: Consumer, count: int, report: Report, last_ms: dict[int, int]) -> None:
    """Read until the group has done so many orders."""
    deadline = time.monotonic() + TIMEOUT_S
    while len(report.done) < count:
        if time.monotonic() > deadline:
            raise TimeoutError(f"{len(report.done):,} orders of {count:,} are read after {TIMEOUT_S:g} s")
        for message in consumer.consume(CHUNK, 0.1):
            error = message.error()
            if error is None:
                report.done.add(number_of(message))
                last_ms[message.partition() or 0] = message.timestamp()[1]
            elif error.code() != KafkaError._PARTITION_EOF:
                raise KafkaException(error)


def produce(bootstrap: str, numbers: range, report: Report) -> None:
    """Write orders with these numbers, and wait until all are acknowledged."""

    def delivered(error: KafkaError | None, message: Message) -> None:
        if error is not None:
            raise KafkaException(error)
        report.acknowledged.add(number_of(message))

    producer = Producer({"bootstrap.servers": bootstrap, "enable.idempotence": True, "linger.ms": 5, "log_level": 2})
    for number in numbers:
        value = json.dumps({"number": number, "cents": number * 7 % 1000})
        producer.produce(TOPIC, value, f"customer-{number % 50:02}", on_delivery=delivered)
    if producer.flush(TIMEOUT_S):
        raise TimeoutError(f"orders are not acknowledged after {TIMEOUT_S:g} s")


def number_of(message: Message) -> int:
    return int(json.loads(message.value() or b"{}")["number"])


def group_at(bootstrap: str, reset: str) -> Consumer:
    """A member of the group, whose commits are its own calls."""
    return Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": GROUP,
            "enable.auto.commit": False,
            "auto.offset.reset": reset,
            "enable.partition.eof": True,
            "log_level": 2,
        }
    )


def await_offsets(west: ProcessCluster, committed: list[TopicPartition] | None) -> None:
    """Wait until the group's offsets at the other site are those that it has committed here."""
    wanted = {each.partition: each.offset for each in committed or []}
    consumer = group_at(west.bootstrap_servers, "error")

    def there() -> bool:
        asked = [TopicPartition(TOPIC, number) for number in wanted]
        return all(each.offset >= wanted[each.partition] for each in consumer.committed(asked, TIMEOUT_S))

    try:
        await_true(there, "the group's offsets have come over")
    finally:
        consumer.close()


def await_records(west: ProcessCluster, here: Consumer) -> None:
    """Wait until the other site has all records that are here."""
    consumer = group_at(west.bootstrap_servers, "error")

    def ends(of: Consumer) -> list[int]:
        found = (of.get_watermark_offsets(TopicPartition(TOPIC, number), TIMEOUT_S) for number in range(PARTITIONS))
        return [high for _, high in found]

    try:
        await_true(lambda: ends(consumer) == ends(here), "all records have come over")
    finally:
        consumer.close()


def read_on(bootstrap: str) -> Counter[int]:
    """The records that the group reads from the offsets that the link has copied; without these an error."""
    consumer = group_at(bootstrap, "error")
    consumer.subscribe([TOPIC])
    return to_the_end(consumer)


def read_from(bootstrap: str, at_ms: int) -> Counter[int]:
    """The records from a time on, read by a consumer that knows nothing else."""
    consumer = group_at(bootstrap, "error")
    wanted = [TopicPartition(TOPIC, number, at_ms) for number in range(PARTITIONS)]
    consumer.assign(consumer.offsets_for_times(wanted, TIMEOUT_S))
    return to_the_end(consumer)


def to_the_end(consumer: Consumer) -> Counter[int]:
    """Read all partitions to their ends, and close."""
    found: Counter[int] = Counter()
    waiting = set(range(PARTITIONS))
    deadline = time.monotonic() + TIMEOUT_S
    try:
        while waiting:
            if time.monotonic() > deadline:
                raise TimeoutError(f"partitions {sorted(waiting)} are not read to the end after {TIMEOUT_S:g} s")
            for message in consumer.consume(1000, 0.2):
                error = message.error()
                if error is None:
                    found[number_of(message)] += 1
                elif error.code() == KafkaError._PARTITION_EOF:
                    waiting.discard(message.partition() or 0)
                else:
                    raise KafkaException(error)
    finally:
        consumer.close()
    return found


if __name__ == "__main__":
    sys.exit(main())
