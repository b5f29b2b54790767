"""The verification of closed segments, a piece at a time."""

from __future__ import annotations

from pathlib import Path

import pytest

from odradek.log.log import Log
from odradek.log.rolling import roll
from odradek.log.scrub import Piece, ScrubCounts, SegmentCheck
from tests.support.models.batches import NOW_MS, batch
from tests.unit.log.test_log import Home, append

KIB = 1 << 10


def filled(home: Home, size: int, count: int) -> Log:
    log = home.open()
    for _ in range(count):
        append(log, batch(bytes(size)))
    roll(log, NOW_MS)
    return log


def pieces(home: Home, log: Log) -> list[Piece]:
    check = SegmentCheck(home.disk, log, log.segments[0])
    found: list[Piece] = []
    while not (found and found[-1].is_last):
        piece = check.next_piece()()
        assert piece is not None
        found.append(piece)
    assert check.next_offset == log.log_end_offset
    return found


def test_a_piece_is_about_a_quarter_of_a_megabyte(tmp_path: Path) -> None:
    home = Home(tmp_path)
    log = filled(home, 100 * KIB, 10)
    found = pieces(home, log)
    assert [piece.read_bytes // (100 * KIB) for piece in found] == [3, 3, 3, 1]
    assert all(piece.cost_bytes == piece.read_bytes and piece.damage is None for piece in found)
    assert sum(piece.read_bytes for piece in found) == log.segments[0].size_bytes


def test_small_batches_count_as_larger_ones(tmp_path: Path) -> None:
    home = Home(tmp_path)
    log = filled(home, 10, 200)
    first, second = pieces(home, log)
    assert (first.cost_bytes, second.cost_bytes) == (128 * 2 * KIB, 72 * 2 * KIB)
    assert first.read_bytes + second.read_bytes == log.segments[0].size_bytes


def test_a_scrub_skips_the_active_segment_and_deleted_logs(tmp_path: Path) -> None:
    home = Home(tmp_path)
    log = filled(home, 10, 2)
    check = SegmentCheck(home.disk, log, log.segments[0])
    assert check.is_there
    assert not SegmentCheck(home.disk, log, log.segments[1]).is_there, "it is written to"
    log.detach()
    assert not check.is_there


@pytest.mark.parametrize(
    ("pass_bytes", "done", "progress"), [(0, 0, 1.0), (100, 0, 0.0), (100, 25, 0.25), (100, 100, 1.0), (100, 130, 1.0)]
)
def test_a_scrape_gets_what_was_verified_and_how_far_a_pass_is(pass_bytes: int, done: int, progress: float) -> None:
    """A pass reads what was appended meanwhile, too."""
    counts = ScrubCounts(3, 4, 5000, 6, pass_bytes, done)
    values = {each.name.removeprefix("odradek_scrub_"): each.samples[0].value for each in counts.families()}
    assert values == {"passes": 3, "segments": 4, "read_bytes": 5000, "damage": 6, "progress": progress}


def test_before_the_first_pass_nothing_is_left_to_do() -> None:
    assert [each.samples[0].value for each in ScrubCounts().families()] == [0, 0, 0, 0, 1.0]
