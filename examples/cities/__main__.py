"""Three cities price rides by supply and demand; a centre has the revenue of each city and hour, by Spark.

python -m examples.cities --events 5000        in each city; one city is offline, a node and a pricer are killed
"""

from __future__ import annotations

import json
import sys
import threading
import time
from collections import Counter
from collections.abc import Collection
from contextlib import ExitStack
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from confluent_kafka import Message, Producer

from examples.cities import pipeline
from examples.cities.market import HOUR_MS, ZONES, Ride, events, priced
from examples.cities.pricer import MARKET, RIDES
from examples.road import HOST, Outpost
from examples.sites import Reading, Running, await_true, command, parser_of, print_report
from examples.topics import TIMEOUT_S, create_topic, refuse_failure
from odradek.testing.processes import ProcessCluster

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

CITIES = ("berlin", "madrid", "oslo")
OFFLINE, NODE_KILLED, PRICER_KILLED = CITIES
EVENTS_PER_S = 500
# Spark's first queries of a virtual machine take most of a minute where the machine is busy.
TABLE_WITHIN_S = 180.0
LOOK_EVERY_S = 1.0  # at a table, which is read whole
BATCH_EVERY = "10 seconds"


@dataclass
class City:
    """Rides of one city.

    Attributes:
        expected: as plain Python prices the events that were made.
        sold: how often each is in the city's own topic.
        behind: how many were not at the centre when all of the other cities were.
    """

    name: str
    expected: list[Ride] = field(default_factory=list)
    sold: Counter[Ride] = field(default_factory=Counter)
    behind: int = 0

    def take(self, message: Message) -> None:
        """A record of its topic of rides."""
        self.sold[Ride(**json.loads(message.value() or b"{}"))] += 1

    def has_sold(self, count: int) -> bool:
        return len(self.sold) >= count

    @property
    def revenue(self) -> pipeline.Revenue:
        """The sums over its topic."""
        sums: pipeline.Revenue = {}
        for ride, count in self.sold.items():
            key = self.name, datetime.fromtimestamp(ride.at_ms // HOUR_MS * HOUR_MS / 1000, UTC)
            rides, cents = sums.get(key, (0, 0))
            sums[key] = rides + count, cents + count * ride.cents
        return sums


@dataclass
class Report:
    """The cities, and the table at the centre."""

    cities: dict[str, City] = field(default_factory=lambda: {name: City(name) for name in CITIES})
    revenue: pipeline.Revenue = field(default_factory=dict)

    @property
    def holds(self) -> bool:
        """Whether each ride was sold once at its price, and the table is the sum over the cities."""
        sums: pipeline.Revenue = {}
        for city in self.cities.values():
            sums |= city.revenue
        return self.revenue == sums and all(
            city.sold == dict.fromkeys(city.expected, 1) for city in self.cities.values()
        )

    def __str__(self) -> str:
        lines = []
        for name, city in self.cities.items():
            prices = [ride.cents for ride in city.sold] or [0]
            central = {key: sums for key, sums in self.revenue.items() if key[0] == name}
            differ = sum(central.get(key) != sums for key, sums in city.revenue.items())
            lines.append(
                f"{name}: {city.sold.total():,} rides of {len(city.expected):,}, for {min(prices) / 100:.2f} to "
                f"{max(prices) / 100:.2f} each, {_total(city.revenue)} in {len(city.revenue)} hours; at the centre "
                f"{_total(central)} in {len(central)} hours, {differ} of which differ"
            )
        return "\n".join([*lines, f"{OFFLINE} was {self.cities[OFFLINE].behind:,} rides behind while it was offline"])


def _total(revenue: pipeline.Revenue) -> str:
    return f"{sum(cents for _, cents in revenue.values()) / 100:,.2f}"


class Table(NamedTuple):
    """The table at the centre, and the query that writes it."""

    query: StreamingQuery
    folder: Path

    def now(self) -> pipeline.Revenue:
        """Raises what has ended the query."""
        if (error := self.query.exception()) is not None:
            raise error
        return pipeline.revenue_in(self.folder)


def make_market(bootstrap: str, city: City, count: int, is_offline: threading.Event) -> None:
    """Write the events of a city at EVENTS_PER_S, and wait until all are acknowledged.

    The city that goes offline has made half of them by then at most.
    """
    producer = Producer({"bootstrap.servers": bootstrap, "enable.idempotence": True, "log_level": 2})
    began_s = time.monotonic()
    for event in events(city.name, count):
        if city.name == OFFLINE and event.number == count // 2:
            is_offline.wait(TIMEOUT_S)
        producer.produce(MARKET, json.dumps(asdict(event)), partition=event.zone, on_delivery=refuse_failure)
        producer.poll(max(began_s + event.number / EVENTS_PER_S - time.monotonic(), 0))
    if producer.flush(TIMEOUT_S):
        raise TimeoutError(f"events of {city.name} are not acknowledged after {TIMEOUT_S:g} s")


def run(spark: SparkSession, folder: Path, count: int) -> Report:
    """Start three cities and a centre, and compare the revenue at the centre with what the cities have.

    Args:
        count: events of each city.
    """
    report = Report()
    internal = {"offsets.topic.num.partitions": 1, "transaction.state.log.num.partitions": 1}
    with ExitStack() as stack:
        centre = stack.enter_context(ProcessCluster(folder / "centre", brokers=1, settings=internal))
        sites = {name: stack.enter_context(Outpost(folder / name, internal)) for name in CITIES}
        pricers = {}
        for name, site in sites.items():
            bootstrap = site.cluster.bootstrap_servers
            create_topic(bootstrap, MARKET, ZONES)
            create_topic(bootstrap, RIDES, 1)
            command(centre, "links", "create", name, "--source", f"{HOST}:{site.road.port}", "--prefix", f"{name}.")
            command(centre, "links", "mirror", name, RIDES)
            pricers[name] = stack.enter_context(Running("examples.cities.pricer", name, bootstrap))
            stack.callback(Reading(bootstrap, [(RIDES, 0)], report.cities[name].take).stop)
        rows = pipeline.sums(pipeline.rides(spark, centre.bootstrap_servers))
        query = pipeline.revenue(rows, folder, processingTime=BATCH_EVERY)
        stack.callback(query.stop)
        table = Table(query, folder)
        go_offline(sites, pricers, report, table, count)
        await_equal(report, table, CITIES)
        command(centre, "links", "describe", OFFLINE)
        report.revenue = table.now()
    return report


def go_offline(
    sites: dict[str, Outpost], pricers: dict[str, Running], report: Report, table: Table, count: int
) -> None:
    """Make the events of all cities; meanwhile one is cut off from the centre, and a node and a pricer are killed."""
    for name, city in report.cities.items():
        city.expected = list(priced(name, events(name, count)))
    is_offline = threading.Event()
    markets = [
        threading.Thread(target=make_market, args=(site.cluster.bootstrap_servers, city, count, is_offline))
        for site, city in zip(sites.values(), report.cities.values(), strict=True)
    ]
    for market in markets:
        market.start()
    await_quarter(report.cities[OFFLINE])
    print(f"{OFFLINE} is offline", flush=True)
    sites[OFFLINE].road.cut()
    is_offline.set()
    await_quarter(report.cities[PRICER_KILLED])
    print(f"kill -9 of the pricer of {PRICER_KILLED}, and of the node of {NODE_KILLED}", flush=True)
    pricers[PRICER_KILLED].kill()
    sites[NODE_KILLED].cluster.kill()
    sites[NODE_KILLED].cluster.start()
    for market in markets:
        market.join()
    await_equal(report, table, [name for name in CITIES if name != OFFLINE])
    offline = report.cities[OFFLINE]
    await_true(lambda: offline.has_sold(len(offline.expected)), f"{OFFLINE} has sold all")
    there = sum(rides for (name, _), (rides, _) in table.now().items() if name == OFFLINE)
    offline.behind = len(offline.expected) - there
    print(f"the centre has all of the other cities; {OFFLINE} is back", flush=True)
    sites[OFFLINE].road.heal()


def await_quarter(city: City) -> None:
    await_true(lambda: city.has_sold(len(city.expected) // 4), f"{city.name} has sold a quarter")


def await_equal(report: Report, table: Table, names: Collection[str]) -> None:
    """Wait until these cities have sold all rides, and the table has their sums. Raises TimeoutError."""

    def is_equal() -> bool:
        cities = [report.cities[name] for name in names]
        if not all(city.has_sold(len(city.expected)) for city in cities):
            return False
        found = table.now()
        return all(found.get(key) == sums for city in cities for key, sums in city.revenue.items())

    try:
        await_true(is_equal, f"the revenue of {' and '.join(names)} is at the centre", TABLE_WITHIN_S, LOOK_EVERY_S)
    except TimeoutError as error:
        there = Counter[str]()
        for (name, _), (rides, _) in table.now().items():
            there[name] += rides
        cities = [
            f"{name} has sold {report.cities[name].sold.total()} of {len(report.cities[name].expected)} rides, "
            f"and {there[name]} are at the centre"
            for name in names
        ]
        raise TimeoutError("; ".join([str(error), *cities])) from None


def main() -> int:
    parser = parser_of("cities", __doc__)
    parser.add_argument("--events", type=int, default=5000, help="in each city")
    given = parser.parse_args()
    return print_report(given.folder, lambda folder: with_spark(folder, given.events))


def with_spark(folder: Path, count: int) -> Report:
    """Run with a session of its own."""
    from pyspark_odradek import session

    folder.mkdir(parents=True, exist_ok=True)
    spark = session("cities", log_file=folder / "spark.log")
    try:
        return run(spark, folder, count)
    finally:
        spark.stop()


if __name__ == "__main__":
    sys.exit(main())
