"""A log that lives through appends, transactions, rolls, clocks and cleanings, beside a plain list of written records.

The list is the model: each rule of compaction is a few lines over it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any

from odradek.common.ports import Disk, make_dirs_durably
from odradek.log.compaction import swap
from odradek.log.compaction.cleaning import Cleaning, CleaningPlan
from odradek.log.compaction.config import CleanerConfig
from odradek.log.compaction.plan import examine, make_plan
from odradek.log.compaction.swap import replace_segments
from odradek.log.config import LogConfig
from odradek.log.files import FileCache
from odradek.log.log import Log
from odradek.log.opening import open_log
from odradek.log.rolling import roll
from odradek.log.search import aborted_transactions
from odradek.log.segment import Segment
from odradek.log.verification import Damage, check_batches
from odradek.record.batch import BatchHeader
from odradek.record.builder import build_batch
from odradek.record.control import transaction_marker
from odradek.record.reader import read_records
from odradek.record.record import Record
from tests.sim.disk import DiskFaults, SimDisk

START_MS = 1_767_225_600_000
RETENTION_MS = 1000
DIRECTORY = Path("/data/topic-0")
CODECS = ("none", "gzip", "snappy", "lz4", "zstd")


@dataclass
class Written:
    """One record as it was written.

    Attributes:
        transaction: its number; -1 outside of one.
        kept_since_ms: when a cleaning first covered it and kept it.
    """

    offset: int
    key: bytes
    value: bytes | None
    timestamp_ms: int
    transaction: int = -1
    kept_since_ms: int = -1


@dataclass
class Transaction:
    """One transaction; `outcome` is None while it is open."""

    producer_id: int
    batches: list[tuple[int, int]] = field(default_factory=list)
    outcome: bool | None = None
    marker_offset: int = -1
    emptied_ms: int = -1


def kept_batches(log: Log) -> list[tuple[BatchHeader, bytes]]:
    """Every batch in the log, each verified."""
    found = []
    for segment in log.segments:
        for item in check_batches(segment, expected_offset=segment.base_offset):
            assert not isinstance(item, Damage), f"{segment.path}: {item}"
            found.append((item[1], item[2]))
    return found


def kept_records(log: Log) -> dict[int, Record]:
    """Every record of users in the log, by offset."""
    return {
        record.offset: record
        for header, data in kept_batches(log)
        if not header.is_control
        for record in read_records(data, header)
    }


class CompactedLog:
    """The log, its disk and its model."""

    def __init__(
        self, disk: Disk | None = None, *, table_bytes: int = 1 << 20, directory: Path = DIRECTORY, **config: Any
    ) -> None:
        self.now_ms = START_MS
        self.directory = directory
        self.disk = disk or SimDisk(Random(0), DiskFaults(), lambda: self.now_ms)
        make_dirs_durably(self.disk, self.directory)
        self.config = LogConfig(
            cleanup_policy=("compact",),
            delete_retention_ms=RETENTION_MS,
            file_delete_delay_ms=0,
            **config,
        )
        self.cleaner = CleanerConfig(dedupe_buffer_bytes=table_bytes, buffer_load_factor=1.0)
        self.written: list[Written] = []
        self.transactions: list[Transaction] = []
        self.sequences: dict[int, int] = {}
        self.log = self.open()

    def open(self, *, clean: bool = False, recovery_point: int = 0, log_start: int = 0) -> Log:
        """The log as a start finds it; the caller may ask for the cleaned offset."""
        notes: list[str] = []
        log = open_log(
            FileCache(self.disk),
            self.directory,
            ("topic", 0),
            self.config,
            now_ms=self.now_ms,
            clean_shutdown=clean,
            recovery_point=recovery_point,
            log_start_offset=log_start,
            notes=notes,
        )
        log.update_high_watermark(log.log_end_offset)
        self.notes = notes
        return log

    # -- writing ------------------------------------------------------------------------------------------------

    def append(
        self,
        pairs: Sequence[tuple[bytes, bytes | None]],
        *,
        codec: str = "none",
        producer_id: int = -1,
        transaction: int = -1,
    ) -> None:
        """One batch, its records a ms apart."""
        records = [Record(key, value, (), self.now_ms + index) for index, (key, value) in enumerate(pairs)]
        sequence = self.sequences.get(producer_id, 0)
        batch = build_batch(
            records,
            compression=codec,
            producer_id=producer_id,
            producer_epoch=0 if producer_id >= 0 else -1,
            base_sequence=sequence if producer_id >= 0 else -1,
            transactional=transaction >= 0,
        )
        if producer_id >= 0:
            self.sequences[producer_id] = sequence + len(pairs)
        info = self._append(batch)
        if transaction >= 0:
            self.transactions[transaction].batches.append((info, info + len(pairs) - 1))
        self.written += [
            Written(info + index, key, value, self.now_ms + index, transaction)
            for index, (key, value) in enumerate(pairs)
        ]

    def _append(self, batch: bytes) -> int:
        header = BatchHeader.read(batch)
        info = self.log.append_as_leader([batch], [header], leader_epoch=0, now_ms=self.now_ms)
        self.log.update_high_watermark(self.log.log_end_offset)
        return info.base_offset

    def in_transaction(self, producer_id: int, pairs: Sequence[tuple[bytes, bytes | None]], codec: str) -> None:
        """One batch of a producer's transaction, which begins with it where none is open."""
        number = self.open_transaction(producer_id)
        if number is None:
            number = len(self.transactions)
            self.transactions.append(Transaction(producer_id))
        self.append(pairs, codec=codec, producer_id=producer_id, transaction=number)

    def open_transaction(self, producer_id: int) -> int | None:
        """The number of the one that is open."""
        for number, each in enumerate(self.transactions):
            if each.producer_id == producer_id and each.outcome is None:
                return number
        return None

    def end_transaction(self, producer_id: int, *, commit: bool) -> None:
        """Write the marker, where a transaction is open."""
        number = self.open_transaction(producer_id)
        if number is None:
            return
        marker = transaction_marker(
            commit=commit, producer_id=producer_id, producer_epoch=0, coordinator_epoch=0, timestamp_ms=self.now_ms
        )
        self.transactions[number].marker_offset = self._append(marker)
        self.transactions[number].outcome = commit

    def roll(self) -> None:
        """A new active segment, and all before it durable."""
        roll(self.log, self.now_ms)
        self.log.flush()

    # -- cleaning -----------------------------------------------------------------------------------------------

    def _swap_of(self, log: Log, old: list[Segment]) -> Callable[[], tuple[Segment, list[Path]]]:
        return lambda: swap.swap_in(log.partition_dir.files, self.directory, old)

    def plan(self) -> CleaningPlan:
        """The plan of the next pass."""
        return make_plan(self.log, examine(self.log, self.now_ms), self.cleaner, self.now_ms)

    def clean(self) -> bool:
        """One pass, inline; returns whether there was anything to clean."""
        log = self.log
        dirtiness = examine(log, self.now_ms)
        if not dirtiness.dirty_bytes:
            return False
        plan = make_plan(log, dirtiness, self.cleaner, self.now_ms)
        segments = list(log.segments)
        cleaning = Cleaning(self.disk, plan)
        learned = cleaning.build_offset_map()
        first = 0
        for number, count in enumerate(learned.groups):
            if cleaning.clean(number).is_changed:
                old = segments[first : first + count]
                assert replace_segments(log, old, self._swap_of(log, old))
            first += count
        log.cleaned_offset = learned.end_offset
        return True

    # -- what must hold -----------------------------------------------------------------------------------------

    def clean_past_retention(self) -> None:
        """Clean and check all but the active segment, repeatedly, until every delete horizon has passed."""
        for _ in range(4):
            self.append([(b"z", b"1")])
            self.roll()
            while self.clean():
                self.check()
                self.check_view()
            self.now_ms += RETENTION_MS

    def is_aborted(self, written: Written) -> bool:
        return written.transaction >= 0 and self.transactions[written.transaction].outcome is False

    def last_of_keys(self, end_offset: int) -> dict[bytes, Written]:
        """The last record of each key before `end_offset` that was not aborted."""
        return {each.key: each for each in self.written if each.offset < end_offset and not self.is_aborted(each)}

    def check(self) -> None:
        """Check all guarantees of compaction on the current log; called after each pass."""
        log, end = self.log, self.log.cleaned_offset
        kept = kept_records(log)
        by_offset = {each.offset: each for each in self.written}
        assert list(kept) == sorted(kept), "the order changed"
        for offset, record in kept.items():
            origin = by_offset.get(offset)
            assert origin is not None, f"nothing was written at {offset}"
            found = (record.key, record.value, record.timestamp_ms)
            assert found == (origin.key, origin.value, origin.timestamp_ms), f"the record at {offset} changed"
        for each in self.written:
            if each.offset >= end:
                assert each.offset in kept, f"offset {each.offset} is not clean and is gone"
        self._check_keys(kept, end)
        self._check_markers(end)
        self._check_producers()

    def check_restarted(self, end_offset: int) -> None:
        """Check the log that a start finds after an interrupted cleaning: no live record is lost or changed.

        Args:
            end_offset: the log end offset before.
        """
        log = self.log
        assert log.log_end_offset == end_offset, f"the log ends at {log.log_end_offset}, not {end_offset}"
        leftovers = [
            name for name in self.disk.list_dir(self.directory) if name.endswith((".cleaned", ".swap", ".deleted"))
        ]
        assert not leftovers, f"{leftovers} are left"
        kept = kept_records(log)
        by_offset = {each.offset: each for each in self.written}
        for offset, record in kept.items():
            assert (record.key, record.value) == (by_offset[offset].key, by_offset[offset].value)
        active = log.segments[-1].base_offset
        for each in self.written:
            assert each.offset < active or each.offset in kept, f"offset {each.offset} of the active segment is gone"
        self.check_view()
        self._check_producers()

    def check_gone(self, offsets: Sequence[int]) -> None:
        """Records that nothing holds back any more are not there."""
        kept = kept_records(self.log)
        left = [offset for offset in offsets if offset in kept]
        assert not left, f"offsets {left} stay for ever"

    def _check_keys(self, kept: dict[int, Record], end: int) -> None:
        last = self.last_of_keys(end)
        for key, each in last.items():
            if each.value is not None:
                assert each.offset in kept, f"the last value of {key!r}, at {each.offset}, is gone"
            elif each.kept_since_ms < 0:
                assert each.offset in kept, f"the tombstone at {each.offset} went with its first cleaning"
            elif self.now_ms < each.kept_since_ms + RETENTION_MS:
                assert each.offset in kept, f"the tombstone at {each.offset} went early"
            if each.kept_since_ms < 0:
                each.kept_since_ms = self.now_ms
        lasts = {each.offset for each in last.values()}
        superseded = [offset for offset in kept if offset < end and offset not in lasts]
        assert not superseded, f"offsets {superseded} are neither last of their key nor behind {end}"

    def _check_markers(self, end: int) -> None:
        batches = kept_batches(self.log)
        markers = {header.base_offset for header, _ in batches if header.is_control and header.record_count}
        data = {header.base_offset for header, _ in batches if header.is_transactional and not header.is_control}
        for each in self.transactions:
            if each.outcome is None or each.marker_offset >= end:
                continue
            if any(base in data for base, _ in each.batches):
                assert each.marker_offset in markers, f"the marker at {each.marker_offset} went before its data"
            elif each.emptied_ms < 0:
                each.emptied_ms = self.now_ms
                assert each.marker_offset in markers, f"the marker at {each.marker_offset} went with its data"
            elif self.now_ms < each.emptied_ms + RETENTION_MS:
                assert each.marker_offset in markers, f"the marker at {each.marker_offset} went early"

    def _check_producers(self) -> None:
        """A start that has lost all snapshots knows the same last sequences, out of the batches alone."""
        for name in self.disk.list_dir(self.directory):
            if name.endswith(".snapshot"):
                self.disk.remove(self.directory / name)
        again = self.open(recovery_point=self.log.recovery_point)
        for producer_id, entry in self.log.producers.producers.items():
            if entry.batches:
                found = again.producers.producers.get(producer_id)
                assert found is not None, f"producer {producer_id} is forgotten"
                assert found.last_sequence == entry.last_sequence, f"producer {producer_id}: {found.last_sequence}"
        assert again.log_end_offset == self.log.log_end_offset
        assert again.last_stable_offset == self.log.last_stable_offset
        assert [header for header, _ in kept_batches(again)] == [header for header, _ in kept_batches(self.log)]

    def committed_view(self) -> dict[int, bytes | None]:
        """The records of a read_committed consumer, by offset: it drops those that the aborted transactions cover."""
        log = self.log
        aborted = aborted_transactions(log, log.log_start_offset, log.log_end_offset)
        waiting = sorted(aborted, key=lambda entry: entry.first_offset)
        ongoing: set[int] = set()
        view: dict[int, bytes | None] = {}
        for header, data in kept_batches(log):
            if header.base_offset >= log.last_stable_offset:
                break
            while waiting and waiting[0].first_offset <= header.last_offset:
                ongoing.add(waiting.pop(0).producer_id)
            if header.is_control:
                if header.record_count and read_records(data, header)[0].key == b"\x00\x00\x00\x00":
                    ongoing.discard(header.producer_id)
                continue
            if header.is_transactional and header.producer_id in ongoing:
                continue
            view |= {record.offset: record.value for record in read_records(data, header)}
        return view

    def check_view(self) -> None:
        """Check that readers see the last committed value of each key, and no aborted one."""
        stable = self.log.last_stable_offset
        view = self.committed_view()
        by_offset = {each.offset: each for each in self.written}
        for offset in view:
            assert not self.is_aborted(by_offset[offset]), f"offset {offset} was aborted and is read"
        for key, each in self.last_of_keys(stable).items():
            if each.value is not None:
                assert view.get(each.offset) == each.value, f"{key!r} reads as {view.get(each.offset)!r}"
            else:
                older = [offset for offset in view if by_offset[offset].key == key and offset < each.offset]
                assert each.offset in view or not older, f"{key!r} was deleted, and reads as it was before"
