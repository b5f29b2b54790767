"""The lag of groups: the metrics of each partition, and the sums."""

from __future__ import annotations

from odradek.coordinator.group.lag import (
    Commit,
    GroupLags,
    PartitionLag,
    TopicSum,
    commits_of,
    lag_families,
    largest,
    with_seconds,
)
from tests.unit.coordinator.test_offset_store import Store

NOW_MS = 1_700_000_000_000


def commit(partition: int, offset: int, group: str = "g") -> Commit:
    return Commit(group, "t", partition, offset)


def ends(**by_partition: int) -> dict[tuple[str, int], int]:
    return {("t", int(name.removeprefix("p"))): end for name, end in by_partition.items()}


def test_commits_are_those_of_the_store_by_partition() -> None:
    node = Store()
    node.commit(6, partition=1)
    node.commit(5)
    node.commit(9, producer=7)
    node.commit(3, group="other")
    assert list(commits_of(node.store, "g")) == [commit(0, 5), commit(1, 6)]
    assert list(commits_of(node.store, "unknown")) == []


def test_the_largest_lags_are_shown_and_sums_have_all() -> None:
    commits = [commit(0, 5), commit(1, 50), commit(2, 120), commit(0, 90, "h"), commit(3, 1)]
    lags = largest(commits, ends(p0=100, p1=100, p2=100), 2)
    assert [(lag.commit, lag.records) for lag in lags.shown] == [(commit(0, 5), 95), (commit(1, 50), 50)]
    assert lags.sums == {"g": 145, "h": 10}
    assert (lags.left_out, lags.groups_left_out, lags.unknown) == (2, 0, 1)
    assert largest(commits, ends(p0=100), 0).shown == ()


def test_sums_of_a_topic_have_the_partitions_that_are_not_shown() -> None:
    commits = [commit(0, 5), commit(1, 50), commit(2, 99), commit(0, 90, "h"), commit(3, 1)]
    lags = largest(commits, ends(p0=100, p1=100, p2=100), 2)
    assert lags.topics == {("g", "t"): TopicSum(95 + 50 + 1, 5 + 50 + 99)}
    aged = with_seconds(lags, {commit(0, 5): NOW_MS, commit(1, 50): None}, NOW_MS)
    assert aged.topics == {("g", "t"): TopicSum(95 + 1, 5 + 50 + 99)}, "a marker of a transaction is no record"


def test_invented_groups_make_no_more_series_than_are_asked_for() -> None:
    invented = [commit(0, 99, f"invented-{number}") for number in range(1000)]
    lags = largest([*invented, commit(1, 0), commit(2, 0), commit(1, 90, "h")], ends(p0=100, p1=100, p2=100), 3)
    assert {"g": 200, "h": 10}.items() <= lags.sums.items()
    assert len(lags.sums) == 3 and lags.groups_left_out == 999
    families = {family.name: family.samples for family in lag_families(with_seconds(lags, {}, NOW_MS), NOW_MS)}
    assert len(families["odradek_group_lag_sum_records"]) == 3
    assert families["odradek_group_lag_groups_left_out"][0].value == 999
    # The sum of a group of which a partition is shown is shown.
    many = [commit(number, 0, "all") for number in range(3)] + [commit(3, 0, f"g{number}") for number in range(2)]
    shown = largest(many, ends(p0=9, p1=9, p2=9, p3=20), 1)
    assert set(shown.sums) == {"all", shown.shown[0].commit.group}


def test_ages_are_of_the_first_unread_record_and_markers_are_none() -> None:
    commits = [commit(0, 5), commit(1, 99), commit(2, 100), commit(3, 10)]
    lags = largest(commits, ends(p0=100, p1=100, p2=100, p3=100), 10)
    aged = with_seconds(lags, {commit(0, 5): NOW_MS - 2500, commit(1, 99): None}, NOW_MS)
    assert aged.shown == (
        PartitionLag(commit(0, 5), 95, 2.5),
        PartitionLag(commit(1, 99), 0),
        PartitionLag(commit(2, 100), 0),
    )
    assert aged.sums == {"g": 95 + 90} and aged.unknown == 1 and aged.at_ms == NOW_MS
    every = with_seconds(lags, dict.fromkeys(commits, NOW_MS), NOW_MS)
    assert [lag.commit.partition for lag in every.shown] == [0, 1, 2, 3], "not by lag, which changes with each round"
    future = with_seconds(lags, {commit(0, 5): NOW_MS + 60_000}, NOW_MS)
    assert future.shown[0].seconds == 0, "the clock of a producer may be ahead"


def test_families_have_the_labels_of_a_group() -> None:
    lags = GroupLags((PartitionLag(commit(0, 5), 95, 2.5),), {"g": 95}, left_out=3, unknown=2, at_ms=NOW_MS - 4000)
    families = {family.name: family.samples for family in lag_families(lags, NOW_MS)}
    labels = (("group", "g"), ("topic", "t"), ("partition", "0"))
    assert [(s.labels, s.value) for s in families["odradek_group_lag_records"]] == [(labels, 95)]
    assert [(s.labels, s.value) for s in families["odradek_group_lag_seconds"]] == [(labels, 2.5)]
    assert [(s.labels, s.value) for s in families["odradek_group_lag_sum_records"]] == [((("group", "g"),), 95)]
    assert families["odradek_group_lag_left_out"][0].value == 3
    assert families["odradek_group_lag_unknown"][0].value == 2
    assert families["odradek_group_lag_age_seconds"][0].value == 4
    never = {family.name: family.samples for family in lag_families(GroupLags(), NOW_MS)}
    assert never["odradek_group_lag_age_seconds"][0].value == -1
    counts = ("odradek_group_lag_left_out", "odradek_group_lag_groups_left_out", "odradek_group_lag_unknown")
    assert [never[name][0].value for name in counts] == [0, 0, 0]
