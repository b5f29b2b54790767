"""Real files where the system takes or gives less than it was asked for, and real directories."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from random import Random

import pytest

from odradek.common.ports import Buffer, make_dirs_durably
from odradek.common.real_io import MAX_IO_VECTORS, RealDisk, RealRandom, _cgroup_memory, machine_limits

SIZES = (0, 1, 7, 4096, 70_000)


@pytest.fixture
def disk() -> Iterator[RealDisk]:
    disk = RealDisk(workers=1)
    yield disk
    disk.close()


class ShortCalls:
    """The system's calls on real files, of which each takes or gives only a front of what it is asked for."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, random: Random) -> None:
        self._random = random
        self._pwritev, self._pwrite, self._pread = os.pwritev, os.pwrite, os.pread
        self.calls = 0
        monkeypatch.setattr(os, "pwritev", self.pwritev)
        monkeypatch.setattr(os, "pwrite", self.pwrite)
        monkeypatch.setattr(os, "pread", self.pread)

    def _front(self, size: int) -> int:
        self.calls += 1
        return self._random.randint(1, size) if size else 0

    def pwritev(self, fd: int, chunks: Sequence[Buffer], position: int) -> int:
        data = b"".join(chunks)
        return self._pwritev(fd, [data[: self._front(len(data))]], position)

    def pwrite(self, fd: int, data: Buffer, position: int) -> int:
        return self._pwrite(fd, memoryview(data)[: self._front(len(data))], position)

    def pread(self, fd: int, length: int, position: int) -> bytes:
        return self._pread(fd, self._front(length), position)


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("pieces", [1, 3, MAX_IO_VECTORS + 5])
def test_a_short_write_is_gone_on_with(
    disk: RealDisk, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, size: int, pieces: int
) -> None:
    random = Random(size * pieces)
    data = random.randbytes(size)
    cuts = sorted(random.randint(0, size) for _ in range(pieces - 1))
    chunks: list[Buffer] = [
        memoryview(data)[begin:end] if number % 2 else bytearray(data[begin:end])
        for number, (begin, end) in enumerate(zip([0, *cuts], [*cuts, size], strict=True))
    ]
    file = disk.open(tmp_path / "log", create=True)
    file.write_at(0, [b"before"])
    short = ShortCalls(monkeypatch, random)
    assert file.write_at(3, chunks) == size
    if size > 1000 and pieces <= 3:
        assert short.calls > 1, "no write was short"
    monkeypatch.undo()
    assert (tmp_path / "log").read_bytes() == b"bef" + data + b"before"[3 + size :]
    file.close()


def test_a_short_read_is_gone_on_with_to_the_end_of_the_file(
    disk: RealDisk, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = Random(1).randbytes(10_000)
    (tmp_path / "log").write_bytes(data)
    file = disk.open(tmp_path / "log", read_only=True)
    short = ShortCalls(monkeypatch, Random(2))
    assert file.read_at(100, 5000) == data[100:5100]
    assert file.read_at(9000, 5000) == data[9000:]
    assert short.calls > 4
    monkeypatch.undo()
    file.close()


def test_directories_are_made_with_their_parents(disk: RealDisk, tmp_path: Path) -> None:
    make_dirs_durably(disk, tmp_path / "a" / "b")
    make_dirs_durably(disk, tmp_path / "a" / "b")
    assert disk.list_dir(tmp_path / "a") == ["b"]


@pytest.mark.parametrize(
    ("own", "files", "expected"),
    [
        ("0::/a/b\n", {"a/memory.max": "300", "a/b/memory.max": "max"}, [300]),
        ("0::/\n", {"memory.max": "500"}, [500]),
        ("0::/../outside\n", {}, []),
        ("4:cpu,memory:/x\n3:pids:/x\n", {"memory/x/memory.limit_in_bytes": "700", "pids/x/memory.max": "1"}, [700]),
        (None, {}, []),
    ],
)
def test_memory_limits_of_control_groups(
    tmp_path: Path, own: str | None, files: dict[str, str], expected: list[int]
) -> None:
    listing = tmp_path / "cgroup"
    if own is not None:
        listing.write_text(own)
    for name, text in files.items():
        path = tmp_path / "fs" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    assert list(_cgroup_memory(listing, tmp_path / "fs")) == expected


def test_this_machine_has_limits() -> None:
    limits = machine_limits()
    assert limits.memory_bytes and limits.memory_bytes > 1 << 20
    assert limits.descriptors is None or limits.descriptors > 100


def test_random_numbers_use_every_bit_and_few_calls(monkeypatch: pytest.MonkeyPatch) -> None:
    calls = 0
    urandom = os.urandom

    def counted(size: int) -> bytes:
        nonlocal calls
        calls += 1
        return urandom(size)

    monkeypatch.setattr(os, "urandom", counted)
    random = RealRandom()
    for bits in (0, 1, 7, 8, 9, 53, 128):
        numbers = [random.getrandbits(bits) for _ in range(300)]
        assert min(numbers) >= 0 and max(numbers) < 1 << bits
        seen_ones, seen_zeros = 0, 0
        for number in numbers:
            seen_ones |= number
            seen_zeros |= ~number & ((1 << bits) - 1)
        assert seen_ones == seen_zeros == (1 << bits) - 1, "each bit is 0 at times, and 1 at times"
        assert bits < 53 or len(set(numbers)) == len(numbers)
    assert calls < 20
    assert len(f"{random.getrandbits(80_000):b}") > 79_000
    places = [random.randrange(3) for _ in range(300)]
    assert set(places) == {0, 1, 2}
    assert all(0 <= random.random() < 1 for _ in range(100))
    assert len(random.randbytes(20)) == 20
    with pytest.raises(ValueError, match="negative"):
        random.getrandbits(-1)
