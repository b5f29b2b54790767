"""Arithmetic of offsets: limits, cuts, losses. Pure."""

from __future__ import annotations

import json
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyspark_odradek.client.offsets import (
    OffsetRange,
    TopicPartition,
    backlog,
    capped,
    cut,
    find_lost,
    from_json,
    limit_offsets,
    to_json,
    topic_ids_in,
)

P0, P1, P2 = (TopicPartition("t", n) for n in range(3))
partitions = st.builds(TopicPartition, st.sampled_from(["a", "b"]), st.integers(0, 5))
positions = st.dictionaries(partitions, st.integers(0, 1000), min_size=1)


@given(positions)
def test_the_checkpoints_json_is_read_back(found: dict[TopicPartition, int]) -> None:
    assert from_json(to_json(found)) == found
    assert list(to_json(found)) == sorted({partition.topic for partition in found})


@given(positions, st.dictionaries(st.sampled_from(["a", "b", "c"]), st.uuids()))
def test_ids_of_topics_stand_beside_their_positions(found: dict[TopicPartition, int], ids: dict[str, UUID]) -> None:
    nested = json.loads(json.dumps(to_json(found, ids)))
    topics = {partition.topic for partition in found}
    assert from_json(nested) == found
    assert topic_ids_in(nested) == {topic: topic_id for topic, topic_id in ids.items() if topic in topics}
    again = to_json(dict(reversed(found.items())), dict(reversed(ids.items())))
    assert json.dumps(again) == json.dumps(nested), "by the text Spark sees whether there is something to do"


@given(positions, st.dictionaries(partitions, st.integers(0, 500)), st.integers(1, 2000))
def test_a_limit_is_kept_exactly(
    start: dict[TopicPartition, int], waiting: dict[TopicPartition, int], limit: int
) -> None:
    end = {p: offset + waiting.get(p, 0) for p, offset in start.items()}
    limited = limit_offsets(start, end, limit)
    assert backlog(start, limited) == min(backlog(start, end), limit)
    assert all(start[partition] <= offset <= end[partition] for partition, offset in limited.items())
    assert limited == limit_offsets(dict(reversed(start.items())), end, limit)


def test_partitions_that_are_new_or_went_backwards_have_no_backlog() -> None:
    assert backlog({P0: 3, P1: 9}, {P0: 5, P1: 4, P2: 7}) == 2


@pytest.mark.parametrize("limit", [1, 2, 3, 7, 100])
def test_a_limit_starves_no_partition_that_has_little(limit: int) -> None:
    """The large one is full again for each batch."""
    large, *small = (TopicPartition("t", number) for number in range(10))
    start = dict.fromkeys([large, *small], 0)
    for _ in range(200):
        end = start | {large: start[large] + 10_000} | dict.fromkeys(small, 3)
        start = limit_offsets(start, end, limit)
    assert [start[partition] for partition in small] == [3] * len(small)


@given(
    st.lists(st.tuples(st.integers(0, 5), st.integers(0, 1000)), max_size=6),
    st.none() | st.integers(1, 40),
    st.none() | st.integers(1, 400),
)
def test_cuts_cover_every_offset_once(
    spans: list[tuple[int, int]], min_partitions: int | None, max_records: int | None
) -> None:
    ranges = [OffsetRange("t", number, start, start + count) for number, (start, count) in enumerate(spans)]
    pieces = cut(ranges, min_partitions=min_partitions, max_records=max_records)
    for whole in ranges:
        mine = [piece for piece in pieces if piece.partition_id == whole.partition_id]
        assert [n for piece in mine for n in range(piece.start, piece.end)] == list(range(whole.start, whole.end))
    assert all(piece.count > 0 for piece in pieces)
    if max_records is not None:
        assert all(piece.count <= max_records for piece in pieces)


@pytest.mark.parametrize(
    ("counts", "limits", "lengths"),
    [
        ((300, 100), {}, [[300], [100]]),
        ((300, 100), {"min_partitions": 2}, [[300], [100]]),
        ((300, 100), {"min_partitions": 4}, [[100, 100, 100], [100]]),
        ((300, 1), {"min_partitions": 3}, [[100, 100, 100], [1]]),
        ((300, 100), {"max_records": 150}, [[150, 150], [100]]),
        ((301, 100), {"max_records": 150}, [[100, 100, 101], [100]]),
        ((300, 100), {"min_partitions": 4, "max_records": 50}, [[50] * 6, [50, 50]]),
        ((3, 0), {"min_partitions": 9}, [[1, 1, 1], []]),
    ],
)
def test_pieces_are_as_many_as_asked_for_and_alike(
    counts: tuple[int, ...], limits: dict[str, int], lengths: list[list[int]]
) -> None:
    ranges = [OffsetRange("t", number, 7, 7 + count) for number, count in enumerate(counts)]
    pieces = cut(ranges, **limits)
    assert [[piece.count for piece in pieces if piece.partition_id == number] for number in (0, 1)] == lengths


def test_losses_are_exact() -> None:
    start, end = {P0: 10, P1: 5, P2: 7}, {P0: 50, P1: 5, P2: 9}
    assert find_lost(start, end, {P0: 0, P1: 0, P2: 7}, {P0: 50, P1: 5, P2: 9}) == []
    (lost,) = find_lost(start, end, {P0: 30, P1: 0, P2: 0}, {P0: 50, P1: 5, P2: 9})
    assert (lost.partition_id, lost.start, lost.end) == (0, 10, 30)
    (lost,) = find_lost(start, end, {P0: 60, P1: 0, P2: 0}, {P0: 60, P1: 5, P2: 9})
    assert (lost.start, lost.end) == (10, 50), "no more than the batch would have read"
    (lost,) = find_lost(start, end, {P0: 0, P1: 0, P2: 0}, {P0: 50, P1: 3, P2: 9})
    assert (lost.partition_id, lost.start, lost.end) == (1, 3, 5), "the log was cut"
    (lost,) = find_lost(start, {P0: 50, P1: 5}, {P0: 0, P1: 0}, {P0: 50, P1: 5})
    assert lost.partition_id == 2 and "does not exist any more" in str(lost)


def test_a_log_start_behind_a_position_is_no_loss_where_nothing_is_read() -> None:
    assert find_lost({P0: 10}, {P0: 10}, {P0: 10}, {P0: 10}) == []
    assert find_lost({P0: 10}, {P0: 10}, {P0: 20}, {P0: 20}) == []


def test_a_run_ends_at_its_target() -> None:
    start, end = {P0: 10, P1: 10, P2: 10}, {P0: 50, P1: 50, P2: 4}
    target = {P0: 30, P1: 5, P2: 4}
    assert capped(start, end, target) == {P0: 30, P1: 10, P2: 4}, "on, planned further before, recreated"
    for aim, offset, ends in ((9, 50, 10), (10, 50, 10), (11, 50, 11), (9, 10, 10), (9, 9, 9), (0, 9, 0), (60, 50, 50)):
        assert capped({P0: 10}, {P0: offset}, {P0: aim}) == {P0: ends}
    assert capped({}, {P0: 7}, {P0: 3}) == {P0: 3}, "one that the run before did not know begins at its first offset"
    assert capped({P0: 2}, {P0: 7}, {}) == {P0: 2}, "one that is not in the target is not read"
    assert capped({}, {P0: 7}, {}) == {P0: 0}, "a partition that came after the target was fixed is for the next run"
