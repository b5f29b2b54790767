"""Reports of damaged batches: requests for their repair, lines in the log, and the state after a repair."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest

from odradek.common.errors import ErrorCode
from odradek.log.log import Log
from odradek.log.opening import close_log
from odradek.log.repair import find_hole, finish_repair, overwrite
from odradek.log.replicated import read_replicated
from odradek.log.rolling import roll
from odradek.log.search import search_timestamp
from odradek.log.segment import Segment
from tests.support.models.batches import NOW_MS, batch
from tests.unit.log.test_log import Home, append

SIZE = len(batch(b"0"))


@pytest.fixture
def home(tmp_path: Path) -> Home:
    return Home(tmp_path)


def three_batches(home: Home) -> Log:
    """Two batches in a closed segment, the second of which has the newest record, and one behind them."""
    log = home.open(index_interval_bytes=1)
    for number, more_ms in enumerate((0, 9, 1)):
        if number == 2:
            roll(log, NOW_MS)
        append(log, batch(b"%d" % number, timestamp_ms=NOW_MS + more_ms))
    return log


def newest(log: Log) -> tuple[int, int]:
    found = search_timestamp(log, None).run()
    assert found is not None
    return found.timestamp_ms - NOW_MS, found.offset


def test_the_newest_record_may_be_one_that_a_repair_restored(home: Home) -> None:
    log = three_batches(home)
    assert newest(log) == (9, 1)
    close_log(log)
    first = log.segments[0].paths()
    data = first[0].read_bytes()
    first[0].write_bytes(data[:SIZE] + bytes(SIZE))
    for path in first[1:3]:
        path.unlink()
    log = home.open(clean=True, index_interval_bytes=1)
    assert newest(log) == (1, 2)
    hole = find_hole(log, log.segments[0], SIZE)
    assert hole is not None
    batches = read_replicated(data, next_offset=0, latest_epoch=-1, leader_epoch=9)
    overwrite(log, hole, batches[1:])
    finish_repair(log, hole)
    log.damage.mark_repaired(hole.segment, hole.position)
    assert newest(log) == (9, 1)
    assert log.damage.repair_count == 1


@pytest.mark.parametrize("is_repaired", [True, False, None])
def test_the_log_line_says_who_restores_a_batch(
    home: Home, is_repaired: bool | None, caplog: pytest.LogCaptureFixture
) -> None:
    log = three_batches(home)
    requested: list[tuple[Segment, int]] = []

    def request(segment: Segment, position: int) -> bool:
        requested.append((segment, position))
        return bool(is_repaired)

    if is_repaired is not None:  # otherwise nothing can be asked: there is one replica
        log.damage.on_damage = request
    with caplog.at_level(logging.ERROR):
        errors = [log.damage.report(log.segments[0], SIZE, 1) for _ in range(2)]
    assert [error.code for error in errors] == [ErrorCode.CORRUPT_MESSAGE] * 2
    assert requested == [(log.segments[0], SIZE)] * (0 if is_repaired is None else 2), "each reader asks for it"
    (record,) = caplog.records
    assert ("fetched from another replica" in str(record.__dict__)) == bool(is_repaired)
    assert ("stop this node and restore the file" in str(record.__dict__)) == (not is_repaired)
    log.damage.mark_repaired(log.segments[0], SIZE)
    with caplog.at_level(logging.ERROR):
        log.damage.report(log.segments[0], SIZE, 1)
    assert len(caplog.records) == 2, "damage after a repair is new"


def test_a_detached_log_requests_no_repair(home: Home) -> None:
    log = three_batches(home)
    requested: list[int] = []

    def request(segment: Segment, position: int) -> bool:
        requested.append(position)
        return True

    log.damage.on_damage = request
    log.detach()
    log.damage.report(log.segments[0], SIZE, 1)
    assert requested == []
