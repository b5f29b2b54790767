"""Up to where two logs have one history, by what they say of their epochs alone: over many made-up pairs of logs."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from random import Random

import pytest

from odradek.common.errors import ApiError, ErrorCode
from odradek.link.agreement import Agreement, agree
from odradek.log.epoch_cache import EpochCache


@dataclass
class History:
    """A log as the epoch of each offset, from the first one ever on; offsets below `start` are deleted."""

    epochs: list[int]
    start: int = 0

    @property
    def cache(self) -> EpochCache:
        cache = EpochCache()
        for offset, epoch in enumerate(self.epochs):
            cache.assign(epoch, offset)
        if self.start:
            cache.truncate_from_start(self.start)
        return cache

    async def end_of(self, epoch: int) -> tuple[int, int]:
        return self.cache.end_offset_for(epoch, len(self.epochs))

    async def first(self) -> int:
        return self.start


def agreed(below: int, source: History, own: History) -> Agreement:
    return asyncio.run(agree(below, source.end_of, source.first, own.end_of))


@pytest.mark.parametrize(
    ("source", "own", "expected"),
    [
        # The mirror was behind within an epoch; then both went on, under an epoch of the same number.
        ([1, 1, 2, 2, 9, 9, 9], [1, 1, 2, 2, 2, 9, 9], 4),
        ([1, 1, 9], [1, 1], 2),
        ([1, 9, 9], [1, 3, 4, 9], 1),
        ([1, 1, 3, 9], [1, 1, 2, 9], 2),  # an unclean election: epoch 3 is not known here any more
        ([1, 1, 9], [1], 1),
        ([9, 9], [1, 1], 0),
        ([1, 1, 9], [], 0),
    ],
)
def test_the_end_of_the_common_records(source: list[int], own: list[int], expected: int) -> None:
    assert agreed(9, History(source), History(own)).offset == expected


def test_a_source_that_has_nothing_left_of_what_both_had() -> None:
    """It answers with the start of its log, for whichever epoch: that is no end of a history that both have."""
    source = History([3, 3, 9, 9, 9, 9], start=4)
    assert agreed(9, source, History([3, 3, 3, 3])) == Agreement(4, starts_over=True)


def test_a_source_that_did_not_end_to_be_a_mirror_yet_is_asked_again() -> None:
    with pytest.raises(ApiError) as caught:
        agreed(9, History([]), History([1]))
    assert caught.value.code is ErrorCode.LEADER_NOT_AVAILABLE


def test_a_start_that_moves_between_two_answers() -> None:
    source = History([3, 3, 9, 9, 9, 9])

    async def first() -> int:
        before, source.start = source.start, 4
        return before

    with pytest.raises(ApiError):
        asyncio.run(agree(9, source.end_of, first, History([3, 3, 3, 3]).end_of))


def test_no_record_stays_that_the_source_has_not() -> None:
    random = Random(20)
    kinds = set[str]()
    for _ in range(2000):
        shared = sorted(random.randrange(6) for _ in range(random.randrange(8)))
        own_last = shared[-1] if shared else 0
        below = random.randrange(own_last + 1, own_last + 5)
        later = sorted(random.randrange(own_last, own_last + 9) for _ in range(random.randrange(6)))
        taken = sorted(random.randrange(below, below + 4) for _ in range(random.randrange(1, 8)))
        if below not in taken:
            taken.insert(0, below)
        own, source = History(shared + later), History(shared + taken)
        source.start = random.randrange(len(source.epochs)) if random.random() < 0.4 else 0
        own.start = random.randrange(len(own.epochs)) if own.epochs and random.random() < 0.3 else 0
        found = agreed(below, source, own)
        what = f"{below}: {source} {own} {found}"
        if found.starts_over:
            assert found.offset == source.start >= len(shared), what
        elif own.start < len(shared):
            assert found.offset == len(shared), what
        else:
            assert found.offset <= own.start, what
        kinds.add("over" if found.starts_over else "cut" if found.offset < len(own.epochs) else "whole")
    assert kinds == {"over", "cut", "whole"}
