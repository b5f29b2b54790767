"""Leader epochs of a log: the entries after a new epoch and after a truncation, and the end of an epoch."""

from __future__ import annotations

import pytest

from odradek.log.checkpoints import CorruptCheckpointError
from odradek.log.epoch_cache import EpochCache

# Epoch 2 began at offset 0, 4 at 10, 7 at 25.
ENTRIES = [(2, 0), (4, 10), (7, 25)]


def cache(entries: list[tuple[int, int]] = ENTRIES) -> EpochCache:
    known = EpochCache()
    known.replace(entries)
    return known


def test_lines_are_those_of_the_checkpoint() -> None:
    assert cache().lines() == ["2 0", "4 10", "7 25"]
    assert EpochCache.from_lines(["2 0", "4 10", "7 25"]).entries() == ENTRIES
    assert EpochCache.from_lines([]).entries() == []
    assert EpochCache.from_lines(["2 0", "4 0"]).entries() == [(2, 0), (4, 0)], "an epoch that wrote nothing"


@pytest.mark.parametrize(
    "lines", [["2"], ["2 0 1"], ["a 0"], ["2 b"], [""], ["2 0", "2 5"], ["4 0", "2 5"], ["2 5", "4 4"]]
)
def test_lines_that_are_none_or_do_not_rise_are_damaged(lines: list[str]) -> None:
    with pytest.raises(CorruptCheckpointError):
        EpochCache.from_lines(lines)


def test_the_latest_epoch_is_the_last() -> None:
    assert cache().latest_epoch == 7
    assert EpochCache().latest_epoch == -1


@pytest.mark.parametrize(
    ("epoch", "start", "after"),
    [
        (8, 30, [*ENTRIES, (8, 30)]),
        (8, 25, [(2, 0), (4, 10), (8, 25)]),
        (8, 10, [(2, 0), (8, 10)]),
        (8, 0, [(8, 0)]),
        (8, 26, [*ENTRIES, (8, 26)]),
        (7, 30, None),
        (6, 30, None),
        (-1, 30, None),
    ],
)
def test_a_new_epoch_replaces_epochs_without_records(
    epoch: int, start: int, after: list[tuple[int, int]] | None
) -> None:
    known = cache()
    assert known.assign(epoch, start) is (after is not None)
    assert known.entries() == (after or ENTRIES)


def test_the_first_epoch_is_taken_unless_it_is_none() -> None:
    for epoch, after in ((0, [(0, 5)]), (-1, [])):
        known = EpochCache()
        assert known.assign(epoch, 5) is bool(after)
        assert known.entries() == after


@pytest.mark.parametrize(("offset", "epoch"), [(0, 2), (9, 2), (10, 4), (24, 4), (25, 7), (1000, 7), (-1, -1)])
def test_an_offset_has_the_epoch_that_was_in_force(offset: int, epoch: int) -> None:
    assert cache().epoch_for_offset(offset) == epoch
    assert EpochCache().epoch_for_offset(offset) == -1


@pytest.mark.parametrize(
    ("epoch", "answer"),
    [
        (-1, (-1, -1)),
        (0, (0, 0)),  # before all that is known: it ends where the first one begins
        (1, (1, 0)),
        (2, (2, 10)),
        (3, (2, 10)),
        (4, (4, 25)),
        (6, (4, 25)),
        (7, (7, 40)),
        (8, (-1, -1)),
    ],
)
def test_an_epoch_ends_where_the_next_one_begins(epoch: int, answer: tuple[int, int]) -> None:
    assert cache().end_offset_for(epoch, 40) == answer
    assert EpochCache().end_offset_for(epoch, 40) == (-1, -1)


@pytest.mark.parametrize(("end", "count"), [(26, 3), (25, 2), (11, 2), (10, 1), (1, 1), (0, 0)])
def test_a_cut_takes_the_epochs_that_began_behind_it(end: int, count: int) -> None:
    known = cache()
    assert known.truncate_from_end(end) is (count < 3)
    assert known.entries() == ENTRIES[:count]
    assert known.truncate_from_end(end) is False


@pytest.mark.parametrize(
    ("start", "after"),
    [
        (-1, None),
        (0, None),
        (1, [(2, 1), (4, 10), (7, 25)]),
        (9, [(2, 9), (4, 10), (7, 25)]),
        (10, [(4, 10), (7, 25)]),
        (24, [(4, 24), (7, 25)]),
        (100, [(7, 100)]),
    ],
)
def test_the_epoch_in_force_at_the_start_begins_there(start: int, after: list[tuple[int, int]] | None) -> None:
    known = cache()
    assert known.truncate_from_start(start) is (after is not None)
    assert known.entries() == (after or ENTRIES)
    assert EpochCache().truncate_from_start(start) is False


def test_a_cleared_cache_is_empty() -> None:
    known = cache()
    known.clear()
    assert known.entries() == [] and known.latest_epoch == -1
    assert known.assign(0, 0)
