"""Profiles are edited at two sites at once; a merge topic at each has all edits, and both show the same profiles.

python -m examples.profiles --edits 5000
"""

from __future__ import annotations

import json
import sys
import threading
import time
from collections import Counter
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from confluent_kafka import Message, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, OffsetSpec

from examples.sites import Reading, Running, await_true, odradek, parser_of, print_report
from examples.topics import TIMEOUT_S, create_topic, refuse_failure
from odradek.testing.processes import ProcessCluster

SITES = ("east", "west")
TOPIC, MERGED = "profiles", "profiles.all"
PARTITIONS, PROFILES = 2, 20
EDITS_PER_S = 500
# The merge of each site is killed when it has so much of the edits.
KILLS_AT = (0.3, 0.6)
SOON_S = 5.0
QUIET_S = 2.0

# The site of an edit, and its number there.
Edit = tuple[str, int]


@dataclass
class Site:
    """One site's view.

    Attributes:
        made: the edits that were acknowledged here.
        read: how often each edit is in the merge topic.
        profiles: for each profile the edit that counts: the newest, and of two with the same time that of west.
        slowest_s: from an edit at the other site until it was read here, the longest.
        wrong_origins: records whose header names another site than their value.
        still_flows: offsets that its topics got after the writers had stopped and all was merged.
    """

    name: str
    made: set[Edit] = field(default_factory=set)
    read: Counter[Edit] = field(default_factory=Counter)
    profiles: dict[str, tuple[int, Edit]] = field(default_factory=dict)
    slowest_s: float = 0.0
    wrong_origins: int = 0
    still_flows: int = 0
    lock: threading.Lock = field(default_factory=threading.Lock, repr=False, compare=False)

    def take(self, message: Message) -> None:
        """A record of the merge topic."""
        said = json.loads(message.value() or b"{}")
        edit, time_ms = (said["site"], said["number"]), message.timestamp()[1]
        headers = message.headers() or []
        with self.lock:
            self.read[edit] += 1
            self.wrong_origins += ("odradek.origin", edit[0].encode()) not in headers
            profile = (message.key() or b"").decode()
            self.profiles[profile] = max(self.profiles.get(profile, (0, ("", 0))), (time_ms, edit))
            if edit[0] != self.name:
                self.slowest_s = max(self.slowest_s, time.time() - time_ms / 1000)

    def has_read(self, count: int) -> bool:
        with self.lock:
            return len(self.read) >= count

    def has(self, edits: set[Edit]) -> bool:
        with self.lock:
            return edits <= self.read.keys()


@dataclass
class Report:
    """Both sites after the writers have stopped."""

    sites: dict[str, Site] = field(default_factory=lambda: {name: Site(name) for name in SITES})

    @property
    def made(self) -> set[Edit]:
        return {edit for site in self.sites.values() for edit in site.made}

    @property
    def holds(self) -> bool:
        """Whether each edit is at each site once, and the sites agree. Times are reported and not checked."""
        made, (first, second) = self.made, self.sites.values()
        return first.profiles == second.profiles and all(
            site.read == dict.fromkeys(made, 1) and not site.wrong_origins and not site.still_flows
            for site in (first, second)
        )

    def __str__(self) -> str:
        made = self.made
        lines = [
            f"{site.name}: {len(site.made):,} edits made here, {len(site.read):,} of {len(made):,} in {MERGED}, "
            f"{sum(count - 1 for count in site.read.values())} twice; one of the other site was seen after "
            f"{site.slowest_s:.1f} s at most; {site.still_flows} offsets more once the writers had stopped"
            for site in self.sites.values()
        ]
        first, second = self.sites.values()
        differ = sum(first.profiles.get(key) != second.profiles.get(key) for key in first.profiles | second.profiles)
        return "\n".join([*lines, f"{len(first.profiles)} profiles, {differ} differ"])


def merge(site: str, other: str, bootstrap: str) -> Running:
    """`odradek merge` at a site."""
    sources = [f"{site}={TOPIC}", f"{other}={other}.{TOPIC}"]
    where = ["--bootstrap-server", bootstrap]
    return Running("odradek", "merge", *sources, "--into", MERGED, "--compact", *where, quiet=True)


def edit_profiles(bootstrap: str, site: Site, edits: int) -> None:
    """Edit profiles in turn at EDITS_PER_S, and wait until all edits are acknowledged."""
    producer = Producer({"bootstrap.servers": bootstrap, "enable.idempotence": True, "log_level": 2})
    began_s = time.monotonic()
    for number in range(edits):
        value = json.dumps({"site": site.name, "number": number, "phone": f"{number * 7919 % 10_000_000:07}"})
        producer.produce(TOPIC, value, f"profile-{number % PROFILES}", on_delivery=refuse_failure)
        site.made.add((site.name, number))
        producer.poll(max(began_s + number / EDITS_PER_S - time.monotonic(), 0))
    if producer.flush(TIMEOUT_S):
        raise TimeoutError(f"edits at {site.name} are not acknowledged after {TIMEOUT_S:g} s")


def all_ends(bootstrap: str) -> int:
    """The sum of the end offsets of all partitions at a site."""
    client = AdminClient({"bootstrap.servers": bootstrap, "log_level": 2})
    found = client.list_topics(timeout=TIMEOUT_S).topics
    wanted = {
        TopicPartition(name, number): OffsetSpec.latest()
        for name, topic in found.items()
        if TOPIC in name
        for number in topic.partitions
    }
    return sum(each.result(TIMEOUT_S).offset for each in client.list_offsets(wanted).values())


def run(folder: Path, edits: int) -> Report:
    """Start both sites, edit at both, and compare what each shows.

    Args:
        edits: at each site.
    """
    report = Report()
    with ExitStack() as stack:
        settings = {"offsets.topic.num.partitions": 1, "transaction.state.log.num.partitions": 1}
        clusters = {
            name: stack.enter_context(ProcessCluster(folder / name, brokers=1, settings=settings)) for name in SITES
        }
        for name in SITES:
            create_topic(clusters[name].bootstrap_servers, TOPIC, PARTITIONS)
        for name, other in (SITES, SITES[::-1]):
            source = clusters[other].bootstrap_servers
            odradek(clusters[name], "create", other, "--source", source, "--prefix", f"{other}.")
            odradek(clusters[name], "mirror", other, TOPIC)
        merges = []
        for name, other in (SITES, SITES[::-1]):
            bootstrap = clusters[name].bootstrap_servers
            create_topic(bootstrap, MERGED, PARTITIONS, {"cleanup.policy": "compact"})
            merges.append(stack.enter_context(merge(name, other, bootstrap)))
            partitions = [(MERGED, number) for number in range(PARTITIONS)]
            stack.callback(Reading(bootstrap, partitions, report.sites[name].take).stop)
        edit_everywhere(clusters, merges, report, edits)
        ends = {name: all_ends(cluster.bootstrap_servers) for name, cluster in clusters.items()}
        time.sleep(QUIET_S)
        for name, cluster in clusters.items():
            report.sites[name].still_flows = all_ends(cluster.bootstrap_servers) - ends[name]
    return report


def edit_everywhere(clusters: dict[str, ProcessCluster], merges: list[Running], report: Report, edits: int) -> None:
    """Edit at both sites at once, kill the merges meanwhile, and wait until each site has all edits."""
    sites = report.sites
    writers = [
        threading.Thread(target=edit_profiles, args=(clusters[name].bootstrap_servers, sites[name], edits))
        for name in SITES
    ]
    for writer in writers:
        writer.start()
    for share, merging, site in zip(KILLS_AT, merges, sites.values(), strict=True):
        await_true(partial(site.has_read, int(2 * edits * share)), f"{site.name} has {share:.0%}")
        merging.kill()
    for writer in writers:
        writer.join()
    await_true(lambda: all(site.has(report.made) for site in sites.values()), "each site has all edits")


def main() -> int:
    parser = parser_of("profiles", __doc__)
    parser.add_argument("--edits", type=int, default=5000, help="at each site")
    given = parser.parse_args()
    return print_report(given.folder, lambda folder: run(folder, given.edits))


if __name__ == "__main__":
    sys.exit(main())
