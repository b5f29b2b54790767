"""The cost of a request does not depend on how many segments its log has: counted in steps of Python, and in bytes.

A step is one instruction, those of the simulated disk included. Work in C over all segments at once, such as copying a
list, is no step; it shows in the memory that it takes.
"""

from __future__ import annotations

import sys
import tracemalloc
from collections.abc import Callable
from functools import partial
from pathlib import Path
from random import Random
from types import FrameType
from typing import Any

import pytest

from odradek.common.ports import make_dirs_durably
from odradek.log.config import LogConfig
from odradek.log.files import FileCache
from odradek.log.log import Log
from odradek.log.opening import close_log, open_log
from odradek.log.rolling import roll
from odradek.log.search import aborted_transactions, search_timestamp
from odradek.record.control import transaction_marker
from tests.sim.disk import DiskFaults, SimDisk
from tests.support.models.batches import NOW_MS, batch, header_of

FEW, MANY = 10, 3000
DIRECTORY = Path("/data/topic-0")
# The steps and bytes that a binary search, or another level of a tree, may add.
MORE_STEPS, MORE_BYTES = 400, 10_000
# An aborted transaction ends in each segment of these numbers.
ABORTED = range(2, MANY, 997)


class Home:
    """A log of so many segments, a batch of one record in each, a second apart."""

    def __init__(self, count: int) -> None:
        self.disk = SimDisk(Random(0), DiskFaults(), lambda: NOW_MS)
        make_dirs_durably(self.disk, DIRECTORY)
        self.files = FileCache(self.disk)
        self.count = count
        self.log = self.open(clean=False)
        for number in range(count - 1):
            self.append(number)
            if number in ABORTED and number + 2 < count:
                self.abort(number)
            roll(self.log, NOW_MS)
            if number % 500 == 0:
                self.log.flush()
        self.append(count - 1)
        self.log.flush()

    def open(self, *, clean: bool) -> Log:
        config = LogConfig(flush_messages=1)
        log = open_log(self.files, DIRECTORY, ("topic", 0), config, now_ms=NOW_MS, clean_shutdown=clean)
        log.update_high_watermark(log.log_end_offset)
        return log

    def start_again(self) -> None:
        close_log(self.log)
        self.files = FileCache(self.disk)
        self.log = self.open(clean=True)

    def append(self, number: int) -> None:
        data = batch(b"v%d" % number, timestamp_ms=NOW_MS + number * 1000)
        self.log.append_as_leader([data], [header_of(data)], leader_epoch=0, now_ms=NOW_MS)
        self.log.update_high_watermark(self.log.log_end_offset)

    def abort(self, number: int) -> None:
        data = batch(b"a", timestamp_ms=NOW_MS, producer_id=7, sequence=ABORTED.index(number), transactional=True)
        marker = transaction_marker(
            producer_id=7, producer_epoch=0, commit=False, coordinator_epoch=0, timestamp_ms=NOW_MS
        )
        for each in (data, marker):
            self.log.append_as_leader([each], [header_of(each)], leader_epoch=0, now_ms=NOW_MS)

    # -- requests -----------------------------------------------------------------------------------------------

    def produce(self) -> None:
        """Append and flush, as with flush.messages=1."""
        self.append(self.count)
        self.log.flush()

    def roll(self) -> None:
        self.append(self.count)
        roll(self.log, NOW_MS)

    def fetch_first(self) -> None:
        assert self.log.read(self.log.log_start_offset, max_bytes=1000).size_bytes

    def fetch_last(self) -> None:
        assert self.log.read(self.log.log_end_offset - 1, max_bytes=1000).size_bytes

    def fetch_committed(self) -> None:
        """Search for aborted transactions at the start of the log, in front of all segments."""
        found = aborted_transactions(self.log, 0, 2)
        assert not found

    def fetch_aborted(self) -> None:
        assert len(aborted_transactions(self.log, 2, 4)) == 1

    def list_offsets(self) -> None:
        found = search_timestamp(self.log, NOW_MS + (self.count - 3) * 1000).run()
        assert found is not None and found.timestamp_ms == NOW_MS + (self.count - 3) * 1000

    def list_newest(self) -> None:
        found = search_timestamp(self.log, None).run()
        assert found is not None and found.timestamp_ms >= NOW_MS + (self.count - 1) * 1000

    def list_nothing(self) -> None:
        assert search_timestamp(self.log, NOW_MS + (self.count + 3) * 1000).run() is None

    def end_of_epoch(self) -> None:
        assert self.log.end_offset_for_epoch(0)[1] == self.log.log_end_offset

    def sizes(self) -> None:
        """Read the size of the log, as DescribeLogDirs does."""
        assert self.log.size_bytes > 60 * self.count

    def delete_records(self) -> None:
        self.log.advance_log_start(self.log.log_start_offset + 1)


REQUESTS: tuple[Callable[[Home], None], ...] = (
    Home.produce,
    Home.fetch_first,
    Home.fetch_last,
    Home.fetch_committed,
    Home.fetch_aborted,
    Home.list_offsets,
    Home.list_newest,
    Home.list_nothing,
    Home.end_of_epoch,
    Home.sizes,
    Home.roll,
    Home.delete_records,
)


def steps_of(work: Callable[[], object]) -> int:
    """Instructions that the interpreter carries out."""
    count = 0

    def trace(frame: FrameType, event: str, argument: Any) -> Any:
        nonlocal count
        frame.f_trace_opcodes = True
        frame.f_trace_lines = False
        count += event == "opcode"
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        work()
    finally:
        sys.settrace(before)
    return count


def bytes_of(work: Callable[[], object]) -> int:
    """The most memory that it takes at once, in the cheaper of two runs.

    A table of the whole process doubles now and then, such as the interpreter's interned strings, of which a
    path has several: megabytes at once, which no request causes twice in a row.
    """
    return min(_peak_of(work), _peak_of(work))


def _peak_of(work: Callable[[], object]) -> int:
    tracemalloc.start()
    try:
        work()
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


@pytest.fixture(scope="module")
def homes() -> dict[int, Home]:
    return {count: Home(count) for count in (FEW, MANY)}


@pytest.mark.parametrize("is_loaded", [True, False], ids=["as it was written", "after a start"])
def test_no_request_costs_more_where_a_log_has_many_segments(homes: dict[int, Home], is_loaded: bool) -> None:
    if not is_loaded:
        for home in homes.values():
            home.start_again()
            # The first of these after a start reads, once, the last entries of all indexes, and their names.
            home.list_newest()
            home.fetch_aborted()
    for request in REQUESTS:
        steps, memory = {}, {}
        for count, home in homes.items():
            request(home)  # what is read once is read by now
            steps[count] = steps_of(partial(request, home))
            memory[count] = bytes_of(partial(request, home))
        assert steps[MANY] <= steps[FEW] + MORE_STEPS, f"{request.__name__}: {steps} steps"
        assert memory[MANY] <= memory[FEW] + MORE_BYTES, f"{request.__name__}: {memory} bytes"


def test_a_walk_over_all_segments_is_noticed(homes: dict[int, Home]) -> None:
    log = homes[MANY].log
    assert steps_of(lambda: [segment for segment in log.segments if segment.size_bytes < 0] and None) > MANY
    assert bytes_of(lambda: list(log.segments) and None) > 2 * MORE_BYTES


def test_a_flush_includes_indexes_of_closed_segments() -> None:
    log = Home(1).log
    roll(log, NOW_MS)
    assert log.recovery_point == log.segments[-1].base_offset
    assert log.flush_state.has_unsynced_segments
    log.flush()
    assert not log.flush_state.has_unsynced_segments
