"""Checks of a cluster, decided from its facts alone: plain functions without I/O."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from datetime import datetime
from itertools import combinations

from odradek.admin.cluster_facts import ClusterFacts, GroupFacts
from odradek.admin.common_checks import SAFE_COPIES, check_expiry, few_voters
from odradek.admin.finding import Finding, Severity, counted
from odradek.common.topic_names import TopicPartition
from odradek.protocol.messages.metadata_response import MetadataResponsePartition

ROUND_TRIP_MS = 15.0
CLOCK_MS, BAD_CLOCK_MS = 1_000.0, 60_000.0
# Relative to the mean of all brokers.
UNEVEN = 1.25
UNEVEN_BYTES = 64 << 20
UNEVEN_LEADERS = 2
# A group is behind if its lag is at least so many records, and so many seconds at the present rate, and grows; groups
# that commit every few seconds always have a small lag.
BEHIND_RECORDS, BEHIND_S = 1_000, 30.0

# Whether a setting of a "topic" or a "broker", with this value, has an effect.
Honoured = Callable[[str, str, str | None], bool]


def check_cluster(
    facts: ClusterFacts, *, now: datetime, apart_s: float, honoured: Honoured, uneven_bytes: int = UNEVEN_BYTES
) -> Iterator[Finding]:
    """The problems of a cluster.

    Args:
        apart_s: the time between the two samples of groups.
        honoured: whether a setting has an effect; called for clusters of Odradek only.
        uneven_bytes: the least excess of a broker over the mean that is reported.
    """
    yield from _check_brokers(facts)
    yield from _check_availability(facts)
    yield from _check_copies(facts)
    yield from _check_racks(facts)
    yield from _check_machines(facts)
    yield from _check_quorum(facts)
    yield from _check_clock(facts)
    yield from _check_leaders(facts)
    yield from _check_disks(facts, uneven_bytes)
    yield from _check_readers(facts)
    yield from _check_groups(facts, apart_s)
    yield from _check_settings(facts, honoured)
    for broker, not_after in facts.certificates.items():
        yield from check_expiry(f"broker {broker}", not_after, now)


def _text(key: TopicPartition) -> str:
    return f"{key[0]}-{key[1]}"


def _check_brokers(facts: ClusterFacts) -> Iterator[Finding]:
    if facts.fenced:
        yield Finding(
            Severity.BAD,
            "fenced-broker",
            f"{counted(len(facts.fenced), 'broker is', 'brokers are')} away",
            "its replicas fall behind, and one failure more may stop partitions",
            "start it; where it will not come back move its replicas: `odradek partitions plan --without`",
            [str(broker) for broker in sorted(facts.fenced)],
        )


def _check_availability(facts: ClusterFacts) -> Iterator[Finding]:
    """Each partition is in the worst of its findings only."""
    lagging = {key for key, each in facts.partitions.items() if len(each.isr_nodes) < len(each.replica_nodes)}
    offline = {key for key, each in facts.partitions.items() if each.leader_id < 0}
    few = {key for key in lagging - offline if len(facts.partitions[key].isr_nodes) < facts.min_isr.get(key[0], 1)}
    for keys, severity, check, what, why in (
        (offline, Severity.BAD, "offline", "without a leader", "they can be neither read nor written"),
        (few, Severity.BAD, "under-min-isr", "with fewer replicas in sync than min.insync.replicas", _REFUSED),
        (lagging - offline - few, Severity.WARNING, "under-replicated", "with replicas that are not in sync", _THIN),
    ):
        if keys:
            seen = f"{counted(len(keys), 'partition', 'partitions')} {what}"
            yield Finding(severity, check, seen, why, _LAGGING, [_text(key) for key in sorted(keys)])


_REFUSED = "producers with acks=all are refused"
_THIN = "they outlive fewer failures than they should"
_LAGGING = "`odradek partitions lagging` says which broker it is, and why"


def _check_copies(facts: ClusterFacts) -> Iterator[Finding]:
    copies = _copies(facts)
    yield from _check_single_copies(copies)
    yield from _check_loose_min_isr(copies, facts)
    yield from _check_strict_min_isr(copies, facts)


def _check_single_copies(copies: Mapping[str, int]) -> Iterator[Finding]:
    single = sorted(topic for topic, count in copies.items() if count == 1)
    if single:
        yield Finding(
            Severity.BAD,
            "replication-factor",
            f"{counted(len(single), 'topic has', 'topics have')} one replica",
            "its records are lost with the broker's disk, and cannot be read while the broker is down",
            f"move to {SAFE_COPIES} replicas (`odradek partitions move --to`), and set default.replication.factor",
            single,
        )


def _check_loose_min_isr(copies: Mapping[str, int], facts: ClusterFacts) -> Iterator[Finding]:
    loose = {topic for topic, count in copies.items() if count > 1 and facts.min_isr.get(topic) == 1}
    for topics, severity in ((loose - facts.internal, Severity.BAD), (loose & facts.internal, Severity.WARNING)):
        if topics:
            # With two replicas, a restart of either would stop producers.
            more = f"have {SAFE_COPIES} replicas, then " if any(copies[each] < SAFE_COPIES for each in topics) else ""
            yield Finding(
                severity,
                "min-insync-replicas",
                f"{counted(len(topics), 'topic has', 'topics have')} min.insync.replicas=1",
                "a record that only one broker has is acknowledged with acks=all, and lost with that broker",
                f"{more}`odradek configs alter --topic … --add-config min.insync.replicas=2`",
                sorted(topics),
            )


def _check_strict_min_isr(copies: Mapping[str, int], facts: ClusterFacts) -> Iterator[Finding]:
    strict = sorted(topic for topic, count in copies.items() if 1 < count <= facts.min_isr.get(topic, 1))
    if strict:
        yield Finding(
            Severity.WARNING,
            "min-insync-replicas-of-all",
            f"{counted(len(strict), 'topic needs', 'topics need')} every replica in sync",
            "one broker that is down, even for a restart, stops producers with acks=all",
            "set min.insync.replicas to one less than there are replicas, or add one",
            strict,
        )


def _copies(facts: ClusterFacts) -> dict[str, int]:
    """The fewest replicas of any partition, by topic."""
    copies: dict[str, int] = {}
    for (topic, _), partition in facts.partitions.items():
        copies[topic] = min(copies.get(topic, len(partition.replica_nodes)), len(partition.replica_nodes))
    return copies


def _check_racks(facts: ClusterFacts) -> Iterator[Finding]:
    known = {rack for rack in facts.racks.values() if rack}
    if not known and len(facts.racks) > 1:
        yield Finding(
            Severity.NOTE,
            "no-racks",
            "no broker says in which rack it is",
            "all replicas of a partition may share a rack, a zone or a host",
            "set broker.rack where brokers share a fate",
        )
    if len(known) > 1:
        yield from _check_replicas(facts, facts.racks, "rack", "in")
        yield from _check_voters_racks(facts)


def _check_replicas(
    facts: ClusterFacts, domains: Mapping[int, str | None], one: str, preposition: str
) -> Iterator[Finding]:
    """Partitions whose replicas share a rack or a machine."""
    together = [
        key
        for key, each in facts.partitions.items()
        if len(each.replica_nodes) > 1 and _share(each.replica_nodes, domains)
    ]
    if together:
        yield Finding(
            Severity.BAD,
            f"one-{one}",
            f"{counted(len(together), 'partition has', 'partitions have')} all replicas {preposition} one {one}",
            f"they are gone with that {one}",
            f"`odradek partitions plan` spreads them over {one}s",
            [_text(key) for key in sorted(together)],
        )


def _check_voters_racks(facts: ClusterFacts) -> Iterator[Finding]:
    if len(facts.voters) > 1 and _share(facts.voters, facts.racks):
        yield Finding(
            Severity.BAD,
            "voters-in-one-rack",
            f"all {len(facts.voters)} voters are in one rack",
            "without that rack no leader is elected anywhere",
            "run the controllers in three racks",
            [str(facts.racks[facts.voters[0]])],
        )


def _check_machines(facts: ClusterFacts) -> Iterator[Finding]:
    """No finding if all brokers run on one machine: that is intended."""
    if len({host for host in facts.hosts.values() if host}) < 2:
        return
    yield from _check_replicas(facts, facts.hosts, "machine", "on")
    voters = Counter(host for voter in facts.voters if (host := facts.hosts.get(voter)))
    host, count = next(iter(voters.most_common(1)), ("", 0))
    if count * 2 >= len(facts.voters) > count or count == len(facts.voters) > 1:
        yield Finding(
            Severity.BAD,
            "voters-on-one-machine",
            f"{count} of {len(facts.voters)} voters run on one machine",
            "without that machine no leader is elected anywhere",
            "run the controllers on three machines",
            [host],
        )


def _share(nodes: Iterable[int], domains: Mapping[int, str | None]) -> bool:
    """Whether all nodes are in one known rack, or on one known machine."""
    found = {domains.get(node) for node in nodes}
    return len(found) == 1 and None not in found


def _check_quorum(facts: ClusterFacts) -> Iterator[Finding]:
    count = len(facts.voters)
    if 0 < count < SAFE_COPIES:
        yield few_voters(count)
    elif count and count % 2 == 0:
        yield Finding(
            Severity.WARNING,
            "even-voters",
            f"the quorum has {count} voters",
            f"it outlives no more failures than {count - 1} do",
            "have an odd number of controllers",
        )
    far, unsure = _far_voters(facts.round_trips_ms)
    why = "each change of the metadata, and each election, takes as many round trips"
    if far:
        yield Finding(
            Severity.BAD,
            "round-trip",
            f"voters are more than {ROUND_TRIP_MS:g} ms apart",
            why,
            "keep the controllers in one region",
            far,
        )
    elif unsure:
        yield Finding(
            Severity.NOTE,
            "round-trip-unknown",
            f"voters may be more than {ROUND_TRIP_MS:g} ms apart: from here that cannot be said",
            why,
            "run this on the machine of a voter",
            unsure,
        )


def _far_voters(round_trips_ms: Mapping[int, float]) -> tuple[list[str], list[str]]:
    """The pairs of voters that are certainly too far apart, and those that may be.

    The round trip between two nodes is at least the difference of their round trips from here, and at most the sum.
    """
    far, unsure = [], []
    for one, other in combinations(sorted(round_trips_ms), 2):
        near, distant = sorted((round_trips_ms[one], round_trips_ms[other]))
        if distant - near > ROUND_TRIP_MS:
            far.append(f"{one} and {other} ({distant - near:.0f} ms or more)")
        elif distant + near > ROUND_TRIP_MS:
            unsure.append(f"{one} and {other} ({distant - near:.0f} to {distant + near:.0f} ms)")
    return far, unsure


def _check_clock(facts: ClusterFacts) -> Iterator[Finding]:
    sure_ms = abs(facts.clock_ahead_ms) - facts.clock_error_ms
    if sure_ms > CLOCK_MS:
        way = "ahead of" if facts.clock_ahead_ms > 0 else "behind"
        yield Finding(
            Severity.BAD if sure_ms > BAD_CLOCK_MS else Severity.WARNING,
            "clock",
            f"the clock of the active controller is {abs(facts.clock_ahead_ms) / 1000:.1f} s {way} this machine's",
            "retention, timestamps of records and tokens of logins go by these clocks",
            "synchronize both by NTP (chrony)",
        )


def _check_leaders(facts: ClusterFacts) -> Iterator[Finding]:
    not_preferred = sorted(key for key, partition in facts.partitions.items() if _is_led_by_another(partition))
    if not_preferred:
        yield Finding(
            Severity.NOTE,
            "preferred-leaders",
            f"{counted(len(not_preferred), 'partition is', 'partitions are')} led by another than the first replica",
            "after restarts the leaders are not balanced",
            "`odradek partitions elect --all`, or leave it to auto.leader.rebalance.enable",
            [_text(key) for key in not_preferred],
        )
    leads = dict.fromkeys(sorted(facts.racks.keys() - facts.fenced), 0)
    for partition in facts.partitions.values():
        if partition.leader_id in leads:
            leads[partition.leader_id] += 1
    mean = sum(leads.values()) / max(1, len(leads))
    if leads and max(leads.values()) > max(mean * UNEVEN, mean + UNEVEN_LEADERS):
        yield _uneven("leaders", leads, "partitions led", "clients' load goes to leaders", lambda count: str(count))


def _is_led_by_another(partition: MetadataResponsePartition) -> bool:
    """Whether the leader is not the first replica, although that is in sync."""
    first = next(iter(partition.replica_nodes), -1)
    return partition.leader_id not in (first, -1) and first in partition.isr_nodes


def _check_disks(facts: ClusterFacts, uneven_bytes: int) -> Iterator[Finding]:
    sizes = facts.sizes
    mean = sum(sizes.values()) / max(1, len(sizes))
    if sizes and max(sizes.values()) > max(mean * UNEVEN, mean + uneven_bytes):
        why = "the fullest disk stops producers while others are empty"
        yield _uneven("disks", sizes, "data", why, lambda size: f"{size / 2**20:,.0f} MiB")


def _uneven(what: str, found: Mapping[int, int], unit: str, why: str, shown: Callable[[int], str]) -> Finding:
    ordered = sorted(found.items(), key=lambda item: (-item[1], item[0]))
    return Finding(
        Severity.WARNING,
        f"uneven-{what}",
        f"{unit} are uneven over brokers" if unit != "data" else "data is uneven over brokers",
        why,
        "`odradek rebalance` shows what to move, and does it with --execute",
        [f"broker {broker}: {shown(count)}" for broker, count in ordered],
    )


def _check_readers(facts: ClusterFacts) -> Iterator[Finding]:
    unread = {key for key, end in facts.ends.items() if end > facts.begins.get(key, 0)} - facts.read
    topics_read = {topic for topic, _ in facts.read}
    parts = sorted(key for key in unread if key[0] in topics_read - facts.internal)
    if parts:
        yield Finding(
            Severity.WARNING,
            "partition-without-reader",
            f"{counted(len(parts), 'partition', 'partitions')} with records, for which no group commits",
            "groups read other partitions of these topics: records of these may be read by no application",
            "`odradek groups describe --all-groups` shows who reads what",
            [_text(key) for key in parts],
        )
    topics = sorted({topic for topic, _ in unread} - topics_read - facts.internal)
    if topics:
        yield Finding(
            Severity.NOTE,
            "topic-without-reader",
            f"{counted(len(topics), 'topic', 'topics')} with records, for which no group commits",
            "it uses disk for nothing, unless a reader stores its offsets elsewhere, as Spark does",
            "`odradek topics delete` where nothing needs it",
            topics,
        )


def _check_groups(facts: ClusterFacts, apart_s: float) -> Iterator[Finding]:
    falling = sorted(name for name, group in facts.groups.items() if group.members and _falls(group, apart_s))
    empty = sorted(name for name, group in facts.groups.items() if not group.members and group.lag >= BEHIND_RECORDS)
    if falling:
        yield Finding(
            Severity.WARNING,
            "group-falls-behind",
            f"{counted(len(falling), 'group falls', 'groups fall')} behind what is written",
            "records are read ever later, and those past retention are never read",
            "`odradek groups describe` shows where, `odradek groups explain` why; add consumers or partitions",
            _lags(falling, facts),
        )
    if empty:
        yield Finding(
            Severity.WARNING,
            "group-without-members",
            f"{counted(len(empty), 'group has', 'groups have')} records to read, and no members",
            "records past retention are never read",
            "start its consumers, or `odradek groups delete` it",
            _lags(empty, facts),
        )


def _lags(names: Iterable[str], facts: ClusterFacts) -> list[str]:
    return [f"{name} ({facts.groups[name].lag:,} records)" for name in names]


def _falls(group: GroupFacts, apart_s: float) -> bool:
    rate = group.written / max(apart_s, 1e-3)
    return group.lag > group.lag_before and group.lag >= max(BEHIND_RECORDS, rate * BEHIND_S)


def _check_settings(facts: ClusterFacts, honoured: Honoured) -> Iterator[Finding]:
    ignored = [
        f"{key} of {of}"
        for of, settings in facts.settings.items()
        for key, value in settings.items()
        if facts.is_ours and not honoured(of.partition(" ")[0], key, value)
    ]
    for keys, check, seen in (
        (facts.unknown, "unknown-setting", "settings are unknown"),
        (ignored, "ignored-setting", "settings have no effect"),
    ):
        if keys:
            why = "they do not have the effect that was intended"
            yield Finding(Severity.WARNING, check, seen, why, "correct their names, or remove them", sorted(keys))
