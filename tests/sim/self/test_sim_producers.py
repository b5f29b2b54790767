"""The scan of producers reports each difference between a broker's producer state and its log."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any

import pytest

from odradek.log.config import LogConfig
from odradek.log.files import FileCache
from odradek.log.index import AbortedTransaction
from odradek.log.log import Log
from odradek.log.opening import open_log
from odradek.log.producer_state import ProducerEntry
from odradek.log.rolling import roll
from odradek.record.batch import BatchHeader
from odradek.record.control import transaction_marker
from tests.sim.bugs import problem_of
from tests.sim.disk import DiskFaults, SimDisk
from tests.sim.failures import failure
from tests.sim.planted import Bug
from tests.sim.planted_producers import CAUGHT_BY_SEED, PRODUCER_BUGS
from tests.sim.producer_scan import ProducerScan
from tests.sim.producers import ProducersCluster
from tests.sim.runs import run_seed
from tests.support.models.batches import NOW_MS, batch, header_of

# The seed that once caught a bug may be another run after a change of the product: then it must be one of these.
OTHER_SEEDS = range(1, 30)
DIRECTORY = Path("/data/t-0")


class Home:
    """A log with a window of batches, an aborted, a committed and an open transaction."""

    def __init__(self) -> None:
        self.disk = SimDisk(Random(1), DiskFaults(), lambda: NOW_MS)
        self.disk.make_dirs(DIRECTORY)
        self.log = open_log(
            FileCache(self.disk),
            DIRECTORY,
            ("t", 0),
            LogConfig(),
            now_ms=NOW_MS,
            clean_shutdown=True,
            recovery_point=0,
            log_start_offset=0,
        )
        for sequence in range(7):
            self.append(batch(b"plain", producer_id=1, sequence=sequence))
        for producer_id, commit in ((2, False), (3, True)):
            self.append(batch(b"in", producer_id=producer_id, sequence=0, transactional=True))
            self.append(marker(producer_id, commit=commit))
        self.append(batch(b"open", producer_id=4, sequence=0, transactional=True))

    def append(self, data: bytes) -> None:
        self.log.append_as_leader([data], [header_of(data)], leader_epoch=0, now_ms=NOW_MS)
        self.log.update_high_watermark(self.log.log_end_offset)

    def found(self, scan: ProducerScan | None = None) -> list[str]:
        """Scan the whole log, with a given scan or a new one; return the differences from the broker's state."""
        scan = scan or ProducerScan()
        for segment in self.log.segments:
            data = bytes(self.disk.seen(segment.path))
            for position, header in segment.headers(0):
                scan.see(BatchHeader.read(data, position), data[position : position + header.size_bytes])
        return list(scan.compare(self.log, self.disk, self.log.segments[0].base_offset))


def marker(producer_id: int, *, commit: bool) -> bytes:
    return transaction_marker(
        commit=commit, producer_id=producer_id, producer_epoch=0, coordinator_epoch=3, timestamp_ms=NOW_MS
    )


def entry(log: Log, producer_id: int, **fields: Any) -> None:
    for name, value in fields.items():
        setattr(log.producers.producers[producer_id], name, value)


WRONG: dict[str, Callable[[Log], object]] = {
    "epoch": lambda log: entry(log, 1, producer_epoch=1),
    "timestamp": lambda log: entry(log, 2, last_timestamp_ms=-1),
    "coordinator epoch": lambda log: entry(log, 2, coordinator_epoch=-1),
    "a batch of the window": lambda log: entry(log, 1, batches=log.producers.producers[1].batches[1:]),
    "no batch": lambda log: entry(log, 1, batches=()),
    "open from elsewhere": lambda log: entry(log, 4, transaction_start=-1),
    "forgotten": lambda log: log.producers.producers.pop(1),
    "invented": lambda log: log.producers.producers.update({9: ProducerEntry(9)}),
    "stable too far": lambda log: log.producers._open_transactions.clear(),
    "abort not in the index": lambda log: log.segments[0].indexes.transactions.entries.clear(),
    "commit in the index": lambda log: log.segments[0].indexes.transactions.entries.append(
        AbortedTransaction(3, 9, 10, 9)
    ),
}


def test_a_log_whose_broker_knows_its_producers_has_nothing_wrong() -> None:
    assert Home().found() == []


@pytest.mark.parametrize("what", WRONG)
def test_a_wrong_answer_about_producers_is_reported(what: str) -> None:
    home = Home()
    WRONG[what](home.log)
    assert len(home.found()) == 1, home.found()


def test_batches_of_long_ago_need_not_be_known_after_a_start() -> None:
    home = Home()
    for _ in range(3):
        home.append(batch(bytes(400_000)))
    entry(home.log, 1, batches=home.log.producers.producers[1].batches[-1:])
    assert home.found() == [], "a start looks back for the last megabyte"
    entry(home.log, 1, batches=())
    assert len(home.found()) == 1


def test_batches_that_came_and_went_between_two_looks_need_not_be_seen() -> None:
    home, scan = Home(), ProducerScan()
    assert home.found(scan) == []
    for sequence in (7, 8):
        home.append(batch(b"plain", producer_id=1, sequence=sequence))
    roll(home.log, NOW_MS)
    home.append(batch(b"plain", producer_id=1, sequence=9))
    home.log.segments.drop_first(1)
    home.log.advance_log_start(home.log.segments.bases[0])
    assert home.found(scan) == []
    entry(home.log, 1, last_timestamp_ms=0)
    home.append(batch(b"plain", producer_id=5, sequence=0))
    assert len(home.found(scan)) == 1


@pytest.mark.parametrize("seed", [1])
def test_producers_are_known_over_restarts_snapshots_and_cuts(seed: int) -> None:
    report = run_seed(seed, kind=ProducersCluster)
    assert not report.failed, failure(report)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(2, 33))
def test_producers_are_known_over_more_restarts(seed: int) -> None:
    report = run_seed(seed, kind=ProducersCluster)
    assert not report.failed, failure(report)


@pytest.mark.slow
@pytest.mark.parametrize("bug", [bug for bug in PRODUCER_BUGS if bug.name in CAUGHT_BY_SEED], ids=lambda bug: bug.name)
def test_a_planted_bug_is_caught(bug: Bug) -> None:
    with bug.planted():
        seeds = itertools.chain([CAUGHT_BY_SEED[bug.name]], OTHER_SEEDS)
        assert any(problem_of(seed, ProducersCluster) for seed in seeds), bug.meaning


def test_every_bug_has_its_line() -> None:
    for bug in PRODUCER_BUGS:
        with bug.planted():
            pass
