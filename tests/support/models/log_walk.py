"""One log in a random walk beside a plain model of it: a list of batches, two marks, and rules in three lines each.

The log is real, over a simulated disk: it is appended to under rising epochs, by producers with sequences and
transactions, rolled, flushed, cut, aged, closed, killed, and loses power. After each step what may be asked of a log is
asked of both.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from random import Random
from uuid import UUID

from odradek.log.config import LogConfig
from odradek.log.log import Log
from odradek.log.manager import LogManager
from odradek.log.retention import delete_old_segments
from odradek.log.rolling import roll
from odradek.log.search import aborted_transactions, search_timestamp
from odradek.log.truncation import truncate_fully_and_start_at, truncate_to
from odradek.record.batch import crc_is_valid
from odradek.record.builder import build_batch
from odradek.record.control import transaction_marker
from odradek.record.reader import read_batches
from odradek.record.record import Record
from tests.sim.disk import DiskFaults
from tests.support.disks.crashing import CrashingDisk
from tests.support.models.batches import NOW_MS, header_of

DIRECTORY = Path("/data")
KEY = ("t", 0)
IDEMPOTENT, TRANSACTIONAL = (7, 8), (9, 10)
RETENTION_MS = 10_000
CONFIG = LogConfig(
    segment_bytes=1500,
    index_interval_bytes=150,
    retention_ms=RETENTION_MS,
    retention_bytes=8000,
    file_delete_delay_ms=0,
)
WINDOW = 5


@dataclass
class Batch:
    """A batch in the model; both offsets are inclusive."""

    base_offset: int
    last_offset: int
    leader_epoch: int
    timestamps: list[int]
    size_bytes: int
    data: bytes
    producer_id: int = -1
    transactional: bool = False
    is_marker: bool = False
    aborts: bool = False


@dataclass
class Model:
    """The plain model."""

    batches: list[Batch] = field(default_factory=list)
    gone: list[Batch] = field(default_factory=list)  # dropped from the front
    start: int = 0
    end: int = 0
    durable: int = 0

    def cut(self, offset: int) -> None:
        self.batches = [each for each in self.batches if each.last_offset < offset]
        self.end = offset
        self.start = min(self.start, offset)
        self.durable = min(self.durable, offset)

    def open_transactions(self) -> dict[int, int]:
        """First offset by producer."""
        found: dict[int, int] = {}
        for each in self.gone + self.batches:
            if each.is_marker:
                found.pop(each.producer_id, None)
            elif each.transactional:
                found.setdefault(each.producer_id, each.base_offset)
        return found

    def aborted(self) -> list[tuple[int, int, int]]:
        """(producer, first offset, last offset) of every aborted transaction."""
        found: list[tuple[int, int, int]] = []
        begun: dict[int, int] = {}
        for each in self.gone + self.batches:
            if each.is_marker:
                first = begun.pop(each.producer_id, None)
                if each.aborts and first is not None:
                    found.append((each.producer_id, first, each.last_offset))
            elif each.transactional:
                begun.setdefault(each.producer_id, each.base_offset)
        return found


class LogWalk:
    """One walk; `step` takes one random step and raises AssertionError where log and model part."""

    def __init__(self, seed: int) -> None:
        self.random = Random(seed)
        self.clock_ms = NOW_MS
        self.is_over = self.was_dark = False
        self.disk = CrashingDisk(Random(seed), DiskFaults(), self.now_ms)
        self.model = Model()
        self.epoch = 0
        self.number = 0
        self.sequences: dict[int, int] = {}
        self.manager = self._start()
        self.log: Log = self.manager.create(*KEY, UUID(int=1), {})
        self.checkpointed_start = self.deleted_to = 0
        self._flush()

    def now_ms(self) -> int:
        """The simulated time; with `monotonic_ms`, the port of the clock."""
        return self.clock_ms

    monotonic_ms = now_ms

    def _start(self) -> LogManager:
        manager = LogManager(self.disk, self, [DIRECTORY], CONFIG, Random(1))
        manager.lock_dirs()
        manager.load()
        return manager

    def step(self) -> None:
        """One random step, and a look at everything now and then."""
        chances: dict[Callable[[], None], float] = {
            self._append: 40,
            self._end_transaction: 8,
            self._again: 6,
            self._flush: 5,
            self._checkpoint: 3,
            self._roll: 4,
            self._elect: 3,
            self._cut: 3,
            self._begin_again: 0.5,
            self._advance: 3,
            self._age: 6,
            self._restart: 5,
        }
        kind = self.random.choices(list(chances), list(chances.values()))[0]
        kind()
        if self.is_over:
            return
        self.log.update_high_watermark(self.log.log_end_offset)
        self._check()

    # -- steps --------------------------------------------------------------------------------------------------

    def _append(self) -> None:
        self.clock_ms += self.random.choice([0, 1, 500])
        for _ in range(self.random.randint(1, 3)):
            producer = self.random.choice([-1, -1, *IDEMPOTENT, *TRANSACTIONAL])
            times = [self.clock_ms + self.random.choice([-700, 0, 3]) for _ in range(self.random.randint(1, 4))]
            self._write(producer, times, transactional=producer in TRANSACTIONAL)

    def _write(self, producer: int, times: list[int], *, transactional: bool) -> None:
        records = []
        for time_ms in times:
            records.append(
                Record(b"k", b"%06d" % self.number + bytes(self.random.choice([0, 60])), timestamp_ms=time_ms)
            )
            self.number += 1
        sequence = self.sequences.get(producer, 0) if producer >= 0 else -1
        data = build_batch(
            records,
            producer_id=producer,
            producer_epoch=0 if producer >= 0 else -1,
            base_sequence=sequence,
            transactional=transactional,
        )
        if producer >= 0:
            self.sequences[producer] = sequence + len(records)
        self._append_batch(data, producer, transactional=transactional, times=times)

    def _append_batch(self, data: bytes, producer: int, *, times: list[int], **what: bool) -> None:
        info = self.log.append_as_leader([data], [header_of(data)], leader_epoch=self.epoch, now_ms=self.clock_ms)
        assert info.base_offset == self.model.end and not info.duplicate, "the next offset"
        base, last = self.model.end, self.model.end + len(times) - 1
        self.model.batches.append(Batch(base, last, self.epoch, times, len(data), data, producer, **what))
        self.model.end = last + 1

    def _end_transaction(self) -> None:
        producer, aborts = self.random.choice(TRANSACTIONAL), self.random.random() < 0.5
        marker = transaction_marker(
            commit=not aborts, producer_id=producer, producer_epoch=0, coordinator_epoch=0, timestamp_ms=self.clock_ms
        )
        self._append_batch(marker, producer, times=[self.clock_ms], is_marker=True, aborts=aborts)

    def _again(self) -> None:
        """A producer sends one of its last batches once more."""
        producer = self.random.choice(IDEMPOTENT)
        known = [each for each in self.model.batches if each.producer_id == producer][-WINDOW:]
        if known:
            batch = self.random.choice(known)
            header = header_of(batch.data)
            info = self.log.append_as_leader([batch.data], [header], leader_epoch=self.epoch, now_ms=self.clock_ms)
            assert info.duplicate, f"{producer} sent {batch.base_offset} again, and it was taken"
            assert (info.base_offset, info.last_offset) == (batch.base_offset, batch.last_offset)

    def _flush(self) -> None:
        self.log.flush()
        self.model.durable = self.model.end
        uncertain = {path.name for path in self.disk.uncertain() if path.parent == self.log.directory}
        present = uncertain & set(self.disk.list_dir(self.log.directory))
        # Offset and time indexes are looked at before they are believed, and producers are in the batches, too.
        left = {name for name in present if not name.endswith((".deleted", ".snapshot", ".index", ".timeindex"))}
        assert not left, f"a loss of power may change {left} behind a flush"

    def _checkpoint(self) -> None:
        self.manager.checkpoint_work()()
        self.checkpointed_start = self.log.log_start_offset

    def _roll(self) -> None:
        roll(self.log, self.clock_ms)

    def _elect(self) -> None:
        self.epoch += self.random.randint(1, 3)
        self.log.assign_epoch(self.epoch, self.log.log_end_offset)

    def _cut(self) -> None:
        """Another leader does not have our end."""
        offset = self.random.randint(self.model.start, self.model.end)
        boundaries = [each.base_offset for each in self.model.batches if each.base_offset >= self.model.start]
        offset = max([each for each in boundaries if each <= offset], default=self.model.end)
        truncate_to(self.log, offset)
        self._was_cut(offset)

    def _was_cut(self, offset: int) -> None:
        self.model.cut(offset)
        self.checkpointed_start = min(self.checkpointed_start, offset)
        self.deleted_to = min(self.deleted_to, offset)
        self.epoch += 1
        self.sequences = {}
        for batch in self.model.batches:
            if batch.producer_id >= 0 and not batch.is_marker:
                header = header_of(batch.data)
                self.sequences[batch.producer_id] = header.base_sequence + len(batch.timestamps)
        # Producers that retention removed are known from a snapshot alone, and a truncation may have taken that one.
        for producer, entry in self.log.producers.producers.items():
            if producer not in self.sequences and entry.batches:
                self.sequences[producer] = entry.last_sequence + 1

    def _begin_again(self) -> None:
        """A follower that is too far behind its leader."""
        offset = self.model.end + self.random.randint(0, 5)
        truncate_fully_and_start_at(self.log, offset, now_ms=self.clock_ms)
        self.model = Model([], [], offset, offset, offset)
        self.checkpointed_start = offset
        self._was_cut(offset)

    def _advance(self) -> None:
        offset = self.random.randint(self.model.start, self.model.end)
        self.log.advance_log_start(offset)
        self.model.start = offset
        self.deleted_to = max(self.deleted_to, offset)

    def _age(self) -> None:
        self.clock_ms += self.random.choice([0, 1000, 4000])
        expected = self._deletable()
        bases = [*self.log.segments.bases, self.model.end]
        assert delete_old_segments(self.log, self.clock_ms) == expected, "segments that retention lets go"
        if expected:
            first = bases[expected]
            self.model.start = max(self.model.start, first)
            self.model.gone += [each for each in self.model.batches if each.base_offset < first]
            self.model.batches = [each for each in self.model.batches if each.base_offset >= first]
        self.manager.removal.begin_removals()()

    def _deletable(self) -> int:
        bases = [*self.log.segments.bases, self.model.end]
        held = [
            [each for each in self.model.batches if low <= each.base_offset < high] for low, high in pairwise(bases)
        ]
        sizes = [sum(each.size_bytes for each in batches) for batches in held]
        excess, count = sum(sizes) - CONFIG.retention_bytes, 0
        for batches, size, end in zip(held, sizes, bases[1:], strict=True):
            newest = max((time for each in batches for time in each.timestamps), default=None)
            is_old = newest is not None and self.clock_ms - newest > RETENTION_MS
            if size == 0 or not (end <= self.model.start or excess >= size or is_old):
                break
            excess -= size
            count += 1
        return count

    def _restart(self) -> None:
        how = self.random.choice(["clean", "killed", "dark"])
        if how == "clean":
            self.manager.close()
            self.disk.process_died()
        elif how == "killed":
            self.disk.process_died()
        else:
            log = self.log
            if any(each.has_unsynced_indexes and log.end_of(each) <= log.recovery_point for each in log.segments):
                self._flush()  # a broker does so within a second
            self.was_dark = True
            self.disk.lose_power()
        self.manager = self._start()
        found = self.manager.get(KEY)
        assert found is not None
        self.log = found
        end, start = found.log_end_offset, found.log_start_offset
        # A loss of power may give removed files their names back.
        first, kept = found.segments.bases[0], self.model.gone + self.model.batches
        assert how == "dark" or not [each for each in self.model.gone if each.base_offset >= first]
        self.model.gone = [each for each in kept if each.base_offset < first]
        if any("it is recreated" in note for note in self.manager.notes):
            # Records before the log's start were lost as well: their producers are unknown.
            self.is_over = True
            return
        self.model.batches = [each for each in kept if each.base_offset >= first]
        if how == "dark":
            assert self.model.durable <= end <= self.model.end, "what was synced is there"
            assert end in {self.model.end, first, *(each.last_offset + 1 for each in kept)}, "cut between batches"
            if end < self.model.end:
                self._was_cut(end)
                self._flush()
        else:
            assert end == self.model.end, f"all is there after a {how} stop"
        if how == "clean":
            assert start == self.model.start
            self.model.durable = end
        assert min(self.checkpointed_start, end) <= start <= max(self.model.start, self.checkpointed_start)
        self.model.start = start
        self.epoch += 1

    # -- looking ------------------------------------------------------------------------------------------------

    def _check(self) -> None:
        log, model = self.log, self.model
        assert (log.log_start_offset, log.log_end_offset) == (model.start, model.end)
        assert all(start <= model.end for _, start in log.epochs.entries()), "no epoch begins behind the log's end"
        self._check_batches()
        for batch in model.batches:
            # After a kill records come back that DeleteRecords had taken, and their epochs do not.
            offset = max(batch.base_offset, model.start, self.deleted_to)
            if offset <= batch.last_offset:
                assert log.epoch_of(offset) == batch.leader_epoch, "the epoch of an offset"
        if model.start < model.end:
            self._check_times()
        self._check_transactions()
        self._check_producers()
        self._check_files()

    def _check_producers(self) -> None:
        """Check the last sequence, and the window of last batches, of each producer with a batch in the log."""
        for producer in (*IDEMPOTENT, *TRANSACTIONAL):
            sent = [each for each in self.model.batches if each.producer_id == producer and not each.is_marker]
            if not sent:
                continue
            entry = self.log.producers.producers.get(producer)
            assert entry is not None and entry.last_sequence == self.sequences[producer] - 1, f"{producer}: {entry}"
            known = [(each.last_offset - each.offset_delta, each.last_offset) for each in entry.batches]
            wanted = [(each.base_offset, each.last_offset) for each in sent[-WINDOW:]]
            assert known[-len(wanted) :] == wanted, f"the last batches of {producer}"

    def _check_files(self) -> None:
        log, model = self.log, self.model
        names = self.disk.list_dir(log.directory)
        assert [int(name[:20]) for name in names if name.endswith(".log")] == log.segments.bases
        assert log.size_bytes == sum(each.size_bytes for each in model.batches)
        ends = [*log.segments.bases[1:], model.end]
        for segment, end in zip(log.segments, ends, strict=True):
            if not segment.indexes.is_loaded:
                continue
            held = [each for each in model.batches if segment.base_offset <= each.base_offset < end]
            boundaries = {sum(each.size_bytes for each in held[:number]): each for number, each in enumerate(held)}
            offsets = segment.indexes.offsets
            for position in offsets.positions_after(-1):
                assert position in boundaries, f"{segment.path}: no batch begins at {position}"
                assert offsets.position_for(boundaries[position].last_offset) == position
            newest = max((time for each in held for time in each.timestamps), default=-1)
            assert segment.indexes.max_timestamp_ms == newest, f"{segment.path}: the newest timestamp"

    def _check_batches(self) -> None:
        """Read everything from a random offset on, in slices of a random size, and compare."""
        log, model = self.log, self.model
        offset = self.random.randint(model.start, model.end)
        expected = [each for each in model.batches if each.last_offset >= offset]
        max_bytes = self.random.choice([1, 200, 3000])
        while offset < model.end:
            data = b"".join(chunk.read() for chunk in log.read(offset, max_bytes=max_bytes).chunks)
            whole = list(read_batches(data))
            assert whole, f"nothing at {offset} of {model.end}"
            for position, header in whole:
                batch, raw = expected.pop(0), memoryview(data)[position : position + header.size_bytes]
                assert crc_is_valid(raw, header) and len(raw) == batch.size_bytes
                assert (header.base_offset, header.last_offset) == (batch.base_offset, batch.last_offset)
                assert header.partition_leader_epoch == batch.leader_epoch
                assert bytes(raw[21:]) == batch.data[21:], "what was written, behind offset, length, epoch and magic"
                offset = header.last_offset + 1
        assert not expected

    def _check_times(self) -> None:
        model = self.model
        records = [
            (time_ms, batch.base_offset + index)
            for batch in model.batches
            for index, time_ms in enumerate(batch.timestamps)
            if batch.base_offset + index >= model.start
        ]
        times = [time_ms for time_ms, _ in records]
        wanted = self.random.choice([min(times), max(times), max(times) + 1, self.random.choice(times), 0])
        expected = next(((time_ms, offset) for time_ms, offset in records if time_ms >= wanted), None)
        found = search_timestamp(self.log, wanted).run()
        assert (None if found is None else found[:2]) == expected, f"the first record at or after {wanted}"

    def _check_transactions(self) -> None:
        log, model = self.log, self.model
        first = min(model.open_transactions().values(), default=None)
        stable = model.end if first is None else max(first, model.start)
        assert log.last_stable_offset == stable, "the last stable offset"
        if model.batches:
            # An index that a loss of power tore is rebuilt from what is left of the log.
            known_from = model.batches[0].base_offset if self.was_dark else 0
            wanted = sorted(
                (each for each in model.aborted() if each[2] >= model.start and each[1] >= known_from),
                key=lambda each: each[1],
            )
            found = [tuple(each)[:3] for each in aborted_transactions(log, model.start, model.end)]
            assert [each for each in found if each in wanted] == wanted, "aborted transactions"


def walk(seed: int, steps: int = 120) -> LogWalk:
    """Take so many steps. Raises AssertionError."""
    walked = LogWalk(seed)
    for _ in range(steps):
        if not walked.is_over:
            walked.step()
    return walked
