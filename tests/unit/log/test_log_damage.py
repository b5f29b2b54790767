"""Every damage to the files of a log has one result: the records that are read then, the log lines, and the state."""

from __future__ import annotations

import logging
import os
import random
from collections.abc import Callable
from pathlib import Path
from uuid import UUID

import pytest

from odradek.common.errors import ApiError, ErrorCode, StorageError
from odradek.common.real_io import RealClock, RealDisk
from odradek.log.config import LogConfig
from odradek.log.log import Log
from odradek.log.manager import LogManager
from odradek.log.repair import find_hole
from odradek.log.search import search_timestamp
from odradek.record.batch import HEADER_BYTES, crc_is_valid
from odradek.record.reader import read_batches, read_records
from tests.support.models.batches import NOW_MS, batch, header_of

COUNT = 30


class Home:
    """One log of thirty batches in several segments, written by one idempotent producer over three leader epochs."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.disk = RealDisk(workers=1)
        self.manager = self.open()
        self.log = self.manager.create("t", 0, UUID(int=1), {})
        for number in range(COUNT):
            self.append(number, epoch=number // 10)
        self.batch_bytes = len(self.data(0))

    @staticmethod
    def data(number: int) -> bytes:
        return batch(b"%05d" % number + bytes(95), producer_id=7, sequence=number, timestamp_ms=NOW_MS + number)

    def append(self, number: int, epoch: int = 2) -> int:
        data = bytearray(self.data(number))
        info = self.log.append_as_leader([data], [header_of(bytes(data))], leader_epoch=epoch, now_ms=NOW_MS)
        self.log.update_high_watermark(self.log.log_end_offset)
        return info.base_offset

    def open(self) -> LogManager:
        manager = self.open_without_load()
        manager.load()
        return manager

    def open_without_load(self) -> LogManager:
        config = LogConfig(segment_bytes=2000, index_interval_bytes=100)
        manager = LogManager(self.disk, RealClock(), [self.path], config, random.Random(1))
        manager.lock_dirs()
        return manager

    def stop(self, *, clean: bool, checkpoint: bool = True) -> None:
        """End as a stop or a kill does; with `checkpoint`, all is below the recovery point."""
        if clean:
            self.manager.close()
            return
        if checkpoint:
            self.log.flush()
            self.manager.checkpoint_work()()
        self.manager.unlock()

    def start(self) -> Log:
        self.manager = self.open()
        found = self.manager.get(("t", 0))
        assert found is not None
        self.log = found
        self.log.update_high_watermark(self.log.log_end_offset)
        return found

    @property
    def segments(self) -> list[Path]:
        return sorted((self.path / "t-0").glob("*.log"))

    def close(self) -> None:
        self.manager.unlock()
        self.disk.close()


def read(log: Log, offset: int = 0) -> list[int]:
    """The numbers that a reader gets from an offset on, until it is refused; every batch is whole and in order."""
    numbers: list[int] = []
    while offset < log.log_end_offset:
        try:
            result = log.read(offset, max_bytes=1500)
        except ApiError as error:
            assert error.code is ErrorCode.CORRUPT_MESSAGE
            return numbers
        data = b"".join(chunk.read() for chunk in result.chunks)
        before = offset
        for position, header in read_batches(data):
            whole = memoryview(data)[position : position + header.size_bytes]
            assert crc_is_valid(whole, header), "a bad batch never reaches a reader"
            assert header.base_offset >= offset
            numbers += [int(record.value[:5]) for record in read_records(whole, header) if record.value]
            offset = header.last_offset + 1
        assert offset > before, "readers get on"
    return numbers


def flip(path: Path, position: int, bit: int = 0) -> None:
    data = bytearray(path.read_bytes())
    data[position] ^= 1 << bit
    path.write_bytes(data)


@pytest.fixture
def home(tmp_path: Path) -> Home:
    return Home(tmp_path / "data")


ALL = list(range(COUNT))


@pytest.mark.parametrize("at", [HEADER_BYTES + 20, 9, 16, 17, 30, 60, 3, 7], ids=str)
def test_a_flipped_bit_below_the_recovery_point_is_reported_once(
    home: Home, at: int, caplog: pytest.LogCaptureFixture
) -> None:
    home.stop(clean=False)
    middle = home.segments[1]
    first = int(middle.stem)
    flip(middle, 3 * home.batch_bytes + at)
    log = home.start()
    assert log.log_end_offset == COUNT
    with caplog.at_level(logging.ERROR):
        for _ in range(3):
            assert read(log) == ALL[: first + 3]
    reported = [record.getMessage() + str(record.__dict__) for record in caplog.records]
    assert len(reported) == 1, "once for each place"
    for word in ("'t'", str(middle), str(first + 3), "what_to_do"):
        assert word in reported[0], word
    behind = read(log, int(home.segments[2].stem))
    assert behind == ALL[int(home.segments[2].stem) :], "other segments are served"
    assert home.append(COUNT) == COUNT, "and writing goes on"
    home.close()


@pytest.mark.parametrize("lost", [1, 2], ids=["at the index entry", "behind it"])
def test_damage_just_before_what_is_to_be_repaired_is_repaired_first(home: Home, lost: int) -> None:
    """The next offset is unknown behind a batch whose header is lost."""
    segment = home.log.segments[1]
    places = list(segment.headers(0))
    for number, size in ((lost, HEADER_BYTES), (lost + 1, 1)):
        position, header = places[number]
        end = position + header.size_bytes
        with segment.path.open("r+b") as file:
            file.seek(position if size > 1 else end - 1)
            file.write(bytes(size) if size > 1 else b"?")
    hole = find_hole(home.log, segment, places[lost + 1][0])
    assert hole is not None
    assert (hole.position, hole.first_offset) == (places[lost][0], places[lost][1].base_offset)
    assert find_hole(home.log, segment, places[0][0]) is None


@pytest.mark.parametrize("at", [HEADER_BYTES + 20, 9, 16, 17, 60], ids=str)
def test_a_flipped_bit_past_the_recovery_point_cuts_the_log_there(home: Home, at: int) -> None:
    home.stop(clean=False, checkpoint=False)
    flip(home.segments[-1], home.batch_bytes + at)
    first = int(home.segments[-1].stem)
    log = home.start()
    assert read(log) == ALL[: first + 1] and log.log_end_offset == first + 1
    assert any(str(home.segments[-1]) in note and "truncated at position" in note for note in home.manager.notes)
    assert home.append(first + 1) == first + 1
    home.close()


def shorter(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-7])


def zeros(path: Path) -> None:
    path.write_bytes(path.read_bytes() + bytes(64 * 1024))


def twice(path: Path) -> None:
    data = path.read_bytes()
    path.write_bytes(data + data[-171:])


@pytest.mark.parametrize("harm", [shorter, zeros, twice])
@pytest.mark.parametrize("clean", [False, True])
def test_a_tail_that_is_not_whole_is_cut(home: Home, harm: Callable[[Path], None], clean: bool) -> None:
    home.stop(clean=clean, checkpoint=False)
    harm(home.segments[-1])
    log = home.start()
    kept = COUNT - 1 if harm is shorter else COUNT
    assert (log.log_end_offset, read(log)) == (kept, ALL[:kept])
    for number in range(kept, COUNT + 3):
        assert home.append(number) == number
    home.stop(clean=False)
    assert read(home.start()) == list(range(COUNT + 3))
    home.close()


@pytest.mark.parametrize("suffix", [".index", ".timeindex"])
@pytest.mark.parametrize("harm", ["missing", "short", "odd", "flipped", "zeros", "foreign"])
@pytest.mark.parametrize("clean", [False, True])
def test_an_index_that_is_missing_short_or_wrong_is_made_again(home: Home, suffix: str, harm: str, clean: bool) -> None:
    home.stop(clean=clean)
    for segment in home.segments:
        path = segment.with_suffix(suffix)
        data = path.read_bytes() if path.exists() else b""
        if harm == "missing":
            path.unlink(missing_ok=True)
        else:
            entry = 8 if suffix == ".index" else 12
            damaged = {
                "short": data[: len(data) // entry // 2 * entry],
                "odd": data[:-3],
                "flipped": bytes([data[0] ^ 0x80]) + data[1:] if data else b"",
                "zeros": data + bytes(entry * 5),
                "foreign": b"not an index at all, of no length" * 3,
            }
            path.write_bytes(damaged[harm])
    log = home.start()
    assert read(log) == ALL
    for number in range(COUNT):
        assert read(log, number) == ALL[number:]
        found = search_timestamp(log, NOW_MS + number).run()
        assert found is not None and found.offset == number
    home.close()


def test_any_byte_of_a_time_index_may_change_and_every_time_is_found(home: Home) -> None:
    home.stop(clean=True)
    originals = {path: path.read_bytes() for path in (each.with_suffix(".timeindex") for each in home.segments)}
    assert sum(map(len, originals.values())) > 12 * len(originals), "some have several entries"
    for path, data in originals.items():
        for position in range(len(data)):
            path.write_bytes(data)
            flip(path, position, position % 8)
            log = home.start()
            for segment in log.segments:
                segment.indexes.load()
            for number in range(COUNT):
                found = search_timestamp(log, NOW_MS + number).run()
                assert found is not None and found.offset == number, (path.name, position)
            newest = [segment.indexes.max_timestamp_ms for segment in log.segments]
            ends = [*log.segments.bases[1:], COUNT]
            assert newest == [NOW_MS + end - 1 for end in ends], "retention goes by it"
            home.stop(clean=True)
        path.write_bytes(data)
    home.close()


@pytest.mark.parametrize("content", [b"", b"0\n99\n0 0\n", b"\xff\xfe", b"0\n2\n5 3\n4 9\n", None])
@pytest.mark.parametrize("clean", [False, True])
def test_a_damaged_epoch_checkpoint_is_rebuilt(home: Home, content: bytes | None, clean: bool) -> None:
    home.stop(clean=clean)
    path = home.path / "t-0" / "leader-epoch-checkpoint"
    path.unlink() if content is None else path.write_bytes(content)
    log = home.start()
    assert log.epochs.entries() == [(0, 0), (1, 10), (2, 20)]
    assert [log.epoch_of(offset) for offset in (0, 9, 10, 19, 20, 29)] == [0, 0, 1, 1, 2, 2]
    home.close()


def test_epochs_that_no_flush_has_written_yet_are_read_from_the_log(home: Home) -> None:
    assert not (home.path / "t-0" / "leader-epoch-checkpoint").exists(), "written with the flush, off the loop"
    home.stop(clean=False, checkpoint=False)
    assert home.start().epochs.entries() == [(0, 0), (1, 10), (2, 20)]
    home.close()


@pytest.mark.parametrize("harm", ["flipped", "empty", "missing", "foreign"])
@pytest.mark.parametrize("clean", [False, True])
def test_a_damaged_producer_snapshot_is_read_from_the_log(home: Home, harm: str, clean: bool) -> None:
    home.stop(clean=clean)
    for path in (home.path / "t-0").glob("*.snapshot"):
        if harm == "missing":
            path.unlink()
        elif harm == "flipped":
            flip(path, len(path.read_bytes()) // 2)
        else:
            path.write_bytes(b"" if harm == "empty" else b"what is this" * 20)
    log = home.start()
    data = bytearray(home.data(COUNT - 1))
    again = log.append_as_leader([data], [header_of(bytes(data))], leader_epoch=2, now_ms=NOW_MS)
    assert again.duplicate and again.base_offset == COUNT - 1
    assert home.append(COUNT) == COUNT
    home.close()


def test_foreign_files_and_directories_are_left_alone(home: Home) -> None:
    home.stop(clean=False)
    inside = home.path / "t-0"
    strange = [inside / "notes.txt", inside / "1.log", inside / "00000000000000000000.log.bak", home.path / "README"]
    for path in strange:
        path.write_text("mine")
    (home.path / "lost+found").mkdir()
    (home.path / "no partition").mkdir()
    assert read(home.start()) == ALL
    assert [path.read_text() for path in strange] == ["mine"] * len(strange)
    assert list(home.manager.logs) == [("t", 0)]
    home.close()


def test_a_second_copy_in_another_directory_is_reported_and_left_alone(home: Home, tmp_path: Path) -> None:
    home.stop(clean=False)
    copy = tmp_path / "second" / "t-0"
    copy.mkdir(parents=True)
    torn = home.segments[0].read_bytes() + b"half a batch"
    (copy / home.segments[0].name).write_bytes(torn)
    config = LogConfig()
    manager = LogManager(home.disk, RealClock(), [home.path, copy.parent], config, random.Random(1))
    manager.lock_dirs()
    assert manager.load() == 1
    assert any(str(copy) in note and "ignored" in note for note in manager.notes)
    assert (copy / home.segments[0].name).read_bytes() == torn, "it is not recovered"
    assert [path.name for path in copy.iterdir()] == [home.segments[0].name]
    manager.unlock()
    home.disk.close()


def test_a_kill_in_the_middle_of_recovery_is_an_unclean_start_again(home: Home) -> None:
    home.stop(clean=True)
    zeros(home.segments[-1])
    loader = (manager := home.open_without_load()).begin_load()
    assert loader.total == 1, "nothing was opened yet: the process dies here"
    manager.unlock()
    log = home.start()
    assert not home.manager.directories[0].clean_shutdown
    assert read(log) == ALL
    home.close()


def test_a_directory_in_use_names_its_holder(home: Home) -> None:
    other = LogManager(home.disk, RealClock(), [home.path], LogConfig(), random.Random(1))
    with pytest.raises(StorageError, match=f"process {os.getpid()} uses this log directory"):
        other.lock_dirs()
    home.close()


def test_a_misleading_index_and_a_lost_first_batch_are_found_at_the_first(tmp_path: Path) -> None:
    """The entry says that an earlier batch is where a later one is: the segment is looked through from its start."""
    home = Home(tmp_path)
    segment = home.log.segments[0]
    segment.indexes.offsets.clear()
    segment.indexes.offsets.append(0, 2 * home.batch_bytes)
    data = bytearray(segment.path.read_bytes())
    data[:HEADER_BYTES] = bytes(HEADER_BYTES)
    segment.path.write_bytes(data)
    with pytest.raises(ApiError) as caught:
        home.log.read(0, max_bytes=1000)
    assert caught.value.code is ErrorCode.CORRUPT_MESSAGE
    assert segment.scan_end == 0
    home.manager.close()
    home.disk.close()
