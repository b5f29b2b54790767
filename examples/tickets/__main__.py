"""Tickets are sold at two sites, of which one is dark for a minute; each site lets in all tickets, each of them once.

python -m examples.tickets --dark-s 60
"""

from __future__ import annotations

import json
import sys
import threading
import time
from collections.abc import Collection
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path

from confluent_kafka import Message

from examples.sites import Reading, Running, await_true, odradek, parser_of, print_report
from examples.tickets.producer import TOPIC, acknowledged
from examples.topics import TIMEOUT_S, create_topic
from odradek.testing.processes import ProcessCluster

HOME, OTHER = "east", "west"
PARTITIONS, CONCERTS = 2, 20
SALES_PER_S = 500
# The producer is killed when its site has the ticket that comes so far behind those that it has written down, and
# when so many have been sold since the site is dark: they wait for its acknowledgement.
REPEATED, WAITING = 50, SALES_PER_S


@dataclass
class Site:
    """The tickets that were accepted at one site.

    Attributes:
        tickets: the ids of those who were let in, which are kept to drop repeats.
        let_in: how often somebody was let in.
        repeats: tickets that came again, and were dropped.
    """

    name: str
    tickets: set[str] = field(default_factory=set)
    let_in: int = 0
    repeats: int = 0
    lock: threading.Lock = field(default_factory=threading.Lock, repr=False, compare=False)

    def take(self, message: Message) -> None:
        """A record of either topic."""
        ticket = json.loads(message.value() or b"{}")["id"]
        with self.lock:
            if ticket in self.tickets:
                self.repeats += 1
                return
            self.tickets.add(ticket)
            self.let_in += 1

    def missing(self, sold: Collection[str]) -> int:
        """How many of these have not come."""
        with self.lock:
            return len(set(sold) - self.tickets)


@dataclass
class Report:
    """Both sites after the dark one has come back.

    Attributes:
        sold: ids of tickets, as the journal has them.
        sold_in_the_dark: how many of them were sold while one site was dark, all of which the other let in meanwhile.
        only_there: how many tickets the dark site had alone.
    """

    sold: list[str] = field(default_factory=list)
    sold_in_the_dark: int = 0
    only_there: int = 0
    sites: dict[str, Site] = field(default_factory=lambda: {name: Site(name) for name in (HOME, OTHER)})

    @property
    def holds(self) -> bool:
        """Whether each site has let in each ticket once, and no other."""
        sold = set(self.sold)
        return all(site.tickets == sold and site.let_in == len(sold) for site in self.sites.values())

    def __str__(self) -> str:
        lines = [
            f"{len(self.sold):,} tickets sold, {self.sold_in_the_dark:,} of them while {HOME} was dark, which had "
            f"{self.only_there:,} alone"
        ]
        for name, site in self.sites.items():
            lines.append(
                f"{name}: {site.let_in:,} let in, {site.missing(self.sold):,} missing, {site.repeats:,} repeats dropped"
            )
        return "\n".join(lines)


class Sale(threading.Thread):
    """Sells tickets at SALES_PER_S into a journal, until it is stopped. Used with `with`."""

    def __init__(self, journal: Path, sold: list[str]) -> None:
        super().__init__(daemon=True)
        self._journal, self._sold = journal, sold
        self._is_over = threading.Event()

    def run(self) -> None:
        began_s = time.monotonic()
        with self._journal.open("a") as journal:
            while not self._is_over.wait(max(began_s + len(self._sold) / SALES_PER_S - time.monotonic(), 0)):
                number = len(self._sold)
                # The id is made where the ticket comes into being, and nothing on the way changes it.
                ticket = {"id": f"ticket-{number:07}", "concert": f"concert-{number % CONCERTS}"}
                journal.write(json.dumps(ticket) + "\n")
                journal.flush()
                self._sold.append(ticket["id"])

    def __enter__(self) -> Sale:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._is_over.set()
        self.join(TIMEOUT_S)


def run(folder: Path, dark_s: float) -> Report:
    """Start both sites, sell tickets, and kill the home site and the producer meanwhile."""
    report = Report()
    with ExitStack() as stack:
        clusters = {name: stack.enter_context(ProcessCluster(folder / name, brokers=1)) for name in (HOME, OTHER)}
        servers = {name: cluster.bootstrap_servers for name, cluster in clusters.items()}
        for name in clusters:
            create_topic(servers[name], TOPIC, PARTITIONS)
        for name, other in ((HOME, OTHER), (OTHER, HOME)):
            odradek(clusters[name], "create", other, "--source", servers[other], "--prefix", f"{other}.")
            odradek(clusters[name], "mirror", other, TOPIC)
            topics = (TOPIC, f"{other}.{TOPIC}")
            partitions = [(topic, number) for topic in topics for number in range(PARTITIONS)]
            stack.callback(Reading(servers[name], partitions, report.sites[name].take).stop)
        journal = folder / "journal"
        journal.touch()
        producer = stack.enter_context(
            Running("examples.tickets.producer", str(journal), servers[HOME], servers[OTHER])
        )
        with Sale(journal, report.sold):
            kill_ahead(producer, journal, report)
            go_dark(clusters[HOME], producer, journal, report, dark_s)
        sold = report.sold
        await_true(lambda: acknowledged(journal) == len(sold), "all tickets are acknowledged")
        await_true(lambda: not any(site.missing(sold) for site in report.sites.values()), "each site has all tickets")
    return report


def kill_ahead(producer: Running, journal: Path, report: Report) -> None:
    """Kill the producer when it has not written down some tickets that a site has, so that it sends them again."""

    def is_ahead() -> bool:
        ahead = acknowledged(journal) + REPEATED
        return len(report.sold) > ahead and not report.sites[HOME].missing([report.sold[ahead]])

    await_true(is_ahead, f"{HOME} is ahead of what the producer has written down")
    producer.kill()


def go_dark(home: ProcessCluster, producer: Running, journal: Path, report: Report, dark_s: float) -> None:
    """Kill the home site for so long, and the producer while it waits for that site. The other site goes on."""
    sold, other = report.sold, report.sites[OTHER]
    home.kill()
    until_s = time.monotonic() + dark_s
    before = len(sold)
    print(f"kill -9 of {HOME}, for {dark_s:g} s", flush=True)
    await_true(lambda: len(sold) >= before + WAITING, "tickets wait for an acknowledgement")
    producer.kill()
    await_true(lambda: acknowledged(journal) > before, f"{OTHER} has acknowledged")
    time.sleep(max(until_s - time.monotonic(), 0))
    now = len(sold)
    await_true(lambda: not other.missing(sold[before:now]), f"{OTHER} has all that was sold in the dark")
    report.sold_in_the_dark = now - before
    report.only_there = other.missing(sold[:before])
    home.start()
    print(f"{HOME} is back", flush=True)


def main() -> int:
    parser = parser_of("tickets", __doc__)
    parser.add_argument("--dark-s", type=float, default=60, help="how long one site is dark, in seconds")
    given = parser.parse_args()
    return print_report(given.folder, lambda folder: run(folder, given.dark_s))


if __name__ == "__main__":
    sys.exit(main())
