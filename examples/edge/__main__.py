"""Three edge sites write readings, a centre mirrors all; one site is cut off, and its retention deletes the oldest.

python -m examples.edge --readings 50000
"""

from __future__ import annotations

import json
import sys
import threading
from collections import Counter
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, Producer

from examples.road import HOST, Outpost
from examples.sites import await_true, described, odradek, parser_of, print_report
from examples.topics import TIMEOUT_S, create_topic
from odradek.testing.processes import ProcessCluster

EDGES = ("berlin", "madrid", "oslo")
OFF = "berlin"
TOPIC = "readings"
PATTERN = f"^.*\\.{TOPIC}$"
PARTITIONS, SENSORS = 2, 10
MiB = 1024 * 1024
# An edge deletes the first segment of a partition as long as RETENTION_BYTES are left behind it.
RETENTION_BYTES, SEGMENT_BYTES = MiB, MiB
KEPT_BYTES = PARTITIONS * (RETENTION_BYTES + SEGMENT_BYTES)
BEFORE = 1000
NOTE_BYTES = 60

# A sensor and the number of its reading.
Reading = tuple[str, int]


@dataclass
class Site:
    """The fate of an edge's readings.

    Attributes:
        made: acknowledged by the edge.
        arrived: how often each was read at the centre.
        skipped: offsets that were deleted at the edge before they were mirrored, as the link says.
        kept_bytes: what the edge that was cut off had on its disk then, after its retention had deleted.
    """

    name: str
    made: set[Reading] = field(default_factory=set)
    arrived: Counter[Reading] = field(default_factory=Counter)
    skipped: int = 0
    kept_bytes: int = 0
    lock: threading.Lock = field(default_factory=threading.Lock, repr=False, compare=False)

    def take(self, reading: Reading) -> None:
        """It was read at the centre."""
        with self.lock:
            self.arrived[reading] += 1

    @property
    def missing(self) -> set[Reading]:
        with self.lock:
            return self.made - set(self.arrived)

    @property
    def holds(self) -> bool:
        """Whether all arrived once but those that the link names."""
        is_once = set(self.arrived.values()) <= {1} and set(self.arrived) <= self.made
        return is_once and len(self.missing) == self.skipped and self.kept_bytes <= KEPT_BYTES

    def __str__(self) -> str:
        return (
            f"{self.name}: {len(self.made):,} made, {len(self.arrived):,} at the centre, {len(self.missing):,} missing "
            f"({self.skipped:,} offsets deleted at the edge before they were fetched)"
        )


@dataclass
class Report:
    """The sites, and what the dashboard at the centre saw.

    Attributes:
        out_of_order: readings that came behind a later one of their sensor.
        errors: of the dashboard's consumer.
    """

    sites: dict[str, Site] = field(default_factory=lambda: {name: Site(name) for name in EDGES})
    out_of_order: list[Reading] = field(default_factory=list)
    errors: list[str] = field(default_factory=list)

    @property
    def holds(self) -> bool:
        return all(site.holds for site in self.sites.values()) and not self.out_of_order and not self.errors

    def __str__(self) -> str:
        count = sum(site.arrived.total() for site in self.sites.values())
        return "\n".join(
            [
                *map(str, self.sites.values()),
                f"the dashboard read {count:,}, {len(self.out_of_order)} out of order, with {len(self.errors)} errors",
                *self.errors,
            ]
        )


class Dashboard(threading.Thread):
    """A group at the centre that reads the topics of all edges, from its start to its end."""

    def __init__(self, bootstrap: str, report: Report) -> None:
        super().__init__(daemon=True)
        self._report = report
        self._last: dict[str, int] = {}
        self._is_over = threading.Event()
        self._consumer = Consumer(
            {
                "bootstrap.servers": bootstrap,
                "group.id": "dashboard",
                "auto.offset.reset": "earliest",
                "topic.metadata.refresh.interval.ms": 500,
                "log_level": 2,
            }
        )

    def run(self) -> None:
        self._consumer.subscribe([PATTERN])
        try:
            while not self._is_over.is_set():
                for message in self._consumer.consume(1000, 0.1):
                    self._take(message)
        finally:
            self._consumer.close()

    def stop(self) -> None:
        """Return when it has ended."""
        self._is_over.set()
        self.join(TIMEOUT_S)

    def _take(self, message: Message) -> None:
        if (error := message.error()) is not None:
            self._report.errors.append(str(error))
            return
        sensor, number = reading_of(message)
        if number <= self._last.get(sensor, -1):
            self._report.out_of_order.append((sensor, number))
        self._last[sensor] = number
        edge = (message.topic() or "").removesuffix(f".{TOPIC}")
        self._report.sites[edge].take((sensor, number))


class Edge(Outpost):
    """A site of one node, whose link passes a road of its own. Used with `with`."""

    def __init__(self, folder: Path, name: str) -> None:
        super().__init__(folder / name)
        self.name = name

    @property
    def bytes(self) -> int:
        """The size of the readings' logs on its disk."""
        data = self.cluster.plans[0].data_dir
        return sum(path.stat().st_size for path in data.glob(f"{TOPIC}-*/*.log"))

    def make(self, count: int, site: Site, note_bytes: int = NOTE_BYTES) -> None:
        """Write so many readings more, and wait until all are acknowledged."""

        def delivered(error: KafkaError | None, message: Message) -> None:
            if error is not None:
                raise KafkaException(error)
            site.made.add(reading_of(message))

        producer = Producer(
            {"bootstrap.servers": self.cluster.bootstrap_servers, "enable.idempotence": True, "log_level": 2}
        )
        first = len(site.made)
        for number in range(first, first + count):
            value = json.dumps({"number": number, "celsius": number * 7 % 40, "note": "x" * note_bytes})
            producer.produce(TOPIC, value, f"{self.name}-{number % SENSORS}", on_delivery=delivered)
            producer.poll(0)
        if producer.flush(TIMEOUT_S):
            raise TimeoutError(f"readings of {self.name} are not acknowledged after {TIMEOUT_S:g} s")


def reading_of(message: Message) -> Reading:
    return (message.key() or b"").decode(), int(json.loads(message.value() or b"{}")["number"])


def main() -> int:
    parser = parser_of("edge", __doc__)
    parser.add_argument("--readings", type=int, default=50_000, help="made at the edge while it is cut off")
    given = parser.parse_args()
    return print_report(given.folder, lambda folder: run(folder, given.readings))


def run(folder: Path, readings: int, note_bytes: int = NOTE_BYTES) -> Report:
    """Start all sites, cut one edge off, and count at the centre what came of each.

    Args:
        readings: made at the edge while it is cut off, with `note_bytes` beside their numbers.
    """
    report = Report()
    with ExitStack() as stack:
        settings = {"offsets.topic.num.partitions": 1, "group.initial.rebalance.delay.ms": 0}
        centre = stack.enter_context(ProcessCluster(folder / "centre", brokers=1, settings=settings))
        edges = {name: stack.enter_context(Edge(folder, name)) for name in EDGES}
        kept = {"retention.bytes": str(RETENTION_BYTES), "segment.bytes": str(SEGMENT_BYTES)}
        for name, edge in edges.items():
            create_topic(edge.cluster.bootstrap_servers, TOPIC, PARTITIONS, kept)
            odradek(centre, "create", name, "--source", f"{HOST}:{edge.road.port}", "--prefix", f"{name}.")
            odradek(centre, "mirror", name, TOPIC)
        dashboard = Dashboard(centre.bootstrap_servers, report)
        dashboard.start()
        stack.callback(dashboard.stop)
        cut_off(centre, edges, report, readings, note_bytes)
    return report


def cut_off(centre: ProcessCluster, edges: dict[str, Edge], report: Report, readings: int, note_bytes: int) -> None:
    """Have one edge work on without the centre for longer than it keeps records."""
    sites = report.sites
    for name, edge in edges.items():
        edge.make(BEFORE, sites[name])
    await_true(lambda: not any(site.missing for site in sites.values()), "all edges are at the centre")
    print(f"{OFF} is cut off: {readings:,} readings are made there, {BEFORE:,} at each other edge", flush=True)
    edges[OFF].road.cut()
    edges[OFF].make(readings, sites[OFF], note_bytes)
    others = [name for name in EDGES if name != OFF]
    for name in others:
        edges[name].make(BEFORE, sites[name])
    await_true(lambda: not any(sites[name].missing for name in others), "the others go on")
    await_true(lambda: edges[OFF].bytes <= KEPT_BYTES, f"{OFF} keeps to its retention")
    sites[OFF].kept_bytes = edges[OFF].bytes
    print(
        f"all of {' and '.join(others)} is at the centre; {OFF} keeps {sites[OFF].kept_bytes / MiB:.1f} MiB", flush=True
    )
    edges[OFF].road.heal()
    before = set(sites[OFF].made)
    edges[OFF].make(BEFORE, sites[OFF])
    # What comes last in each partition comes behind all that is left of it.
    await_true(lambda: sites[OFF].missing <= before, f"all that {OFF} has left is at the centre")
    odradek(centre, "describe", OFF)
    sites[OFF].skipped = sum(row["skipped"] for row in described(centre, OFF)["partitions"])


if __name__ == "__main__":
    sys.exit(main())
