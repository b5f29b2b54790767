"""The cost of TLS for a broker, beside Apache Kafka with the same certificate and cipher: `python -m bench.tls_bench`.

The same client of librdkafka produces and consumes records of one size over TLS 1.3 (AES-256-GCM), in turns on both
brokers. Printed are the processor time that a broker takes for a MiB, and its records per second, as ratios: above 1 is
better than Kafka. The client is in Python and takes more of a core than a broker does: of the two the processor time
says more.
"""

from __future__ import annotations

import statistics
import tempfile
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from confluent_kafka import Consumer, Producer, TopicPartition

from bench.brokers import KAFKA_HEAP, SETTINGS, Contestant
from tests.support.nodes.apache_kafka import ApacheKafka
from tests.support.nodes.certificates import Certificates
from tests.support.nodes.node import Node, free_port

SIZES = {1024: 60_000, 100 * 1024: 2_000}
ROUNDS = 3
MIB = 1 << 20


@dataclass(frozen=True, slots=True)
class Cost:
    """Processor seconds of the broker for a MiB, and records per second."""

    cpu_s: float
    records_per_s: float


def tls_settings(certificates: Certificates, plain: str, controller: str, port: int) -> dict[str, object]:
    """A listener with TLS beside those that a node has."""
    return {
        **SETTINGS,
        "auto.create.topics.enable": "true",
        "listeners": f"{plain},{controller},EXTERNAL://127.0.0.1:{port}",
        "advertised.listeners": f"{plain},EXTERNAL://127.0.0.1:{port}",
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT,EXTERNAL:SSL",
        "inter.broker.listener.name": "PLAINTEXT",
        **certificates.server("listener.name.external."),
    }


def measured(broker: Contestant, count: int, size: int, work: Callable[[], None]) -> Cost:
    """Run a load and see what the broker took for it."""
    cpu_s, begun = broker.cpu_s(), time.monotonic()
    work()
    took_s = time.monotonic() - begun
    return Cost((broker.cpu_s() - cpu_s) / (count * size / MIB), count / took_s)


def produce(settings: Mapping[str, str | int | float], topic: str, count: int, size: int) -> None:
    """Write records and wait for all acknowledgements."""
    producer = Producer({**settings, "queue.buffering.max.kbytes": 65_536, "linger.ms": 5})
    value = bytes(size)
    for _ in range(count):
        while True:
            try:
                producer.produce(topic, value)
                break
            except BufferError:
                producer.poll(0.05)
    assert producer.flush(120) == 0


def consume(settings: Mapping[str, str | int | float], topic: str, count: int) -> None:
    """Read records from the first one on."""
    consumer = Consumer({**settings, "group.id": "bench", "enable.auto.commit": False})
    consumer.assign([TopicPartition(topic, 0, 0)])
    read = 0
    while read < count:
        read += len(consumer.consume(min(count - read, 1000), 30))
    consumer.close()


def main(*, quick: bool = False) -> None:
    """Print a line for each cell; `quick` measures a tenth of the records once, for a first look."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        certificates = Certificates(folder / "certificates")
        ours = Node(folder / "odradek")
        port, other_port = free_port(), free_port()
        plain, controller = str(ours.overrides["listeners"]).split(",")
        ours.overrides |= tls_settings(certificates, plain, controller, port)
        kafka = ApacheKafka(folder / "kafka", heap=KAFKA_HEAP, measured=True)
        plain, controller = str(kafka.settings["listeners"]).split(",")
        kafka.settings |= tls_settings(certificates, plain, controller, other_port)
        with ours, kafka:
            brokers = (
                (Contestant("Odradek", ours), f"127.0.0.1:{port}"),
                (Contestant("Apache Kafka", kafka), f"127.0.0.1:{other_port}"),
            )
            for size, count in SIZES.items():
                compare(brokers, certificates, size, count // 10 if quick else count, quick=quick)


def compare(
    brokers: tuple[tuple[Contestant, str], ...], certificates: Certificates, size: int, count: int, *, quick: bool
) -> None:
    """Measure both in turns; the first round warms up."""
    costs: dict[tuple[str, str], list[Cost]] = {}
    for turn in range((1 if quick else ROUNDS) + 1):
        for broker, address in brokers:
            settings = {"bootstrap.servers": address, **certificates.client()}
            topic = f"t-{size}-{turn}"
            written = measured(broker, count, size, partial(produce, settings, topic, count, size))
            read = measured(broker, count, size, partial(consume, settings, topic, count))
            if turn:
                costs.setdefault(("produce", broker.name), []).append(written)
                costs.setdefault(("consume", broker.name), []).append(read)
    for what in ("produce", "consume"):
        ours, theirs = costs[what, "Odradek"], costs[what, "Apache Kafka"]
        cpu = [statistics.median(each.cpu_s for each in side) for side in (ours, theirs)]
        rate = [statistics.median(each.records_per_s for each in side) for side in (ours, theirs)]
        print(
            f"{what} {size // 1024} KiB: processor ms a MiB {cpu[0] * 1e3:.2f}, Kafka {cpu[1] * 1e3:.2f}"
            f" ({cpu[1] / cpu[0]:.2f}); records a second {rate[0]:.0f}, Kafka {rate[1]:.0f} ({rate[0] / rate[1]:.2f})"
        )


if __name__ == "__main__":
    main()
