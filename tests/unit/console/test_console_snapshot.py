"""Two snapshots of a cluster give rates, replicas that fell out of in-sync sets, and changes of leaders."""

from __future__ import annotations

from dataclasses import replace

from odradek.admin.directories import Directory
from odradek.console.snapshot import GroupState, Snapshot, broker_rows, changes, group_rows, lag_of, topic_rows
from odradek.protocol.messages.describe_cluster_response import DescribeClusterBroker
from odradek.protocol.messages.metadata_response import MetadataResponsePartition, MetadataResponseTopic

KEY = ("t", 0)


def at(number: int, leader: int, in_sync: list[int], *, end: int = 0, size: int = 0, away: int = 0) -> Snapshot:
    partition = MetadataResponsePartition(
        partition_index=0, leader_id=leader, replica_nodes=[1, 2, 3], isr_nodes=in_sync
    )
    return Snapshot(
        number,
        at_s=10.0 * number,
        at_ms=10_000 * number,
        brokers={
            each: DescribeClusterBroker(broker_id=each, host="h", port=each, is_fenced=each == away)
            for each in (1, 2, 3)
        },
        topics={"t": MetadataResponseTopic(name="t", partitions=[partition])},
        directories={
            1: [
                Directory("/a", False, 100, 50, {KEY: size}),
                Directory("/b", False, 100, 50),
                Directory("/c", is_offline=True),
            ]
        },
        ends={KEY: end},
        groups={"g": GroupState("classic", "Empty", {KEY: end // 2}, end - end // 2)},
    )


def test_rates_are_of_the_leader_and_never_below_zero() -> None:
    before, now = at(1, 1, [1, 2, 3], end=100, size=1000), at(2, 1, [1, 2], end=150, size=3000)
    row = topic_rows(before, now)["t"]
    assert (row.records_s, row.bytes_s, row.bytes, row.out_of_sync, row.groups) == (5.0, 200.0, 3000, 1, 1)
    assert topic_rows(None, now)["t"].records_s is None
    shrunk = topic_rows(now, at(3, 1, [1, 2, 3], end=150, size=10))["t"]
    assert (shrunk.records_s, shrunk.bytes_s) == (0.0, 0.0)
    group = group_rows(before, now)["g"]
    assert (group.records_s, group.lag) == (2.5, 75)


def test_sizes_are_of_all_replicas_and_their_rate_of_the_leader() -> None:
    def sized(number: int, leader: int, first: int, second: int) -> Snapshot:
        directories = {1: [Directory("/a", sizes={KEY: first})], 2: [Directory("/b", sizes={KEY: second, ("x", 0): 9})]}
        return replace(at(number, leader, [1, 2, 3]), directories=directories)

    row = topic_rows(sized(1, 2, 1000, 500), sized(2, 2, 5000, 700))["t"]
    assert (row.bytes, row.bytes_s) == (5700, 20.0)
    assert topic_rows(sized(1, 3, 1, 1), sized(2, 3, 2, 2))["t"].bytes_s is None, "its leader's broker does not say"


def test_directories_of_one_disk_are_counted_once() -> None:
    row = broker_rows(at(1, 1, [1], size=7))[1]
    assert (row.disk_total, row.disk_usable, row.bytes) == (100, 50, 7)
    assert (row.directories, row.offline_directories, row.leaders, row.replicas, row.out_of_sync) == (3, 1, 1, 1, 0)
    assert broker_rows(at(1, 1, [1]))[2].out_of_sync == 1


def test_a_fall_out_of_the_in_sync_set_says_why() -> None:
    def texts(before: Snapshot, now: Snapshot) -> list[str]:
        found = changes(before, now)
        assert all(each.partition == KEY and each.at_ms == now.at_ms for each in found)
        return [each.text for each in found]

    whole = at(1, 1, [1, 2, 3])
    assert changes(None, whole) == []
    assert texts(whole, at(2, 1, [1, 2, 3])) == []
    assert texts(whole, at(2, 1, [1, 2])) == [
        "broker 3 fell out of the in-sync set: it serves, and did not fetch in time"
    ]
    assert texts(whole, at(2, 2, [2, 3], away=1)) == [
        "broker 1 fell out of the in-sync set: it is away",
        "broker 2 leads, before that broker 1",
    ]
    assert texts(at(1, 2, [2]), at(2, -1, [2], away=2)) == ["no broker leads, before that broker 2"]
    assert texts(at(1, -1, [2]), at(2, 2, [2, 1])) == ["broker 1 is in sync", "broker 2 leads"]


def test_lag_is_of_what_is_known() -> None:
    assert lag_of({("t", 0): 3, ("t", 1): 5, ("u", 0): 9}, {("t", 0): 10, ("t", 1): 4}) == 7
