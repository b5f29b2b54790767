"""Kafka's small text files: their bytes, and damaged files."""

from __future__ import annotations

import errno
from pathlib import Path
from uuid import UUID

import pytest

from odradek.common.real_io import RealDisk
from odradek.log.checkpoints import (
    CorruptCheckpointError,
    read_lines,
    read_offsets,
    read_topic_id,
    replace_topic_id,
    write_lines,
    write_lines_if_space,
    write_offsets,
    write_topic_id,
)
from tests.support.disks.failing import FailingDisk

DISK = RealDisk(workers=1)
OFFSETS = {("orders", 0): 17, ("orders", 12): 0, ("a.b-c", 3): 2**40}
TOPIC_ID = UUID("01234567-89ab-cdef-fedc-ba9876543210")


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "checkpoint"


def test_a_checkpoint_is_a_version_a_count_and_lines(path: Path) -> None:
    write_lines(DISK, path, ["one", "two words"])
    assert path.read_bytes() == b"0\n2\none\ntwo words\n"
    assert read_lines(DISK, path) == ["one", "two words"]
    write_lines(DISK, path, [])
    assert path.read_bytes() == b"0\n0\n"
    assert read_lines(DISK, path) == []
    assert [each.name for each in path.parent.iterdir()] == ["checkpoint"], "the temporary file is gone"


def test_a_checkpoint_that_is_missing_or_empty_has_no_lines(path: Path) -> None:
    assert read_lines(DISK, path) == []
    path.write_bytes(b"")
    assert read_lines(DISK, path) == []


@pytest.mark.parametrize(
    "data",
    [b"0\n", b"0\nmany\n", b"1\n1\none\n", b"\n1\none\n", b"0\n2\none\n", b"0\n0\none\n", b"0\n1\n\xff\n", b"\xff"],
)
def test_another_version_or_count_is_damage(path: Path, data: bytes) -> None:
    path.write_bytes(data)
    with pytest.raises(CorruptCheckpointError, match="checkpoint"):
        read_lines(DISK, path)


def test_offsets_are_a_line_for_each_partition(path: Path) -> None:
    write_offsets(DISK, path, OFFSETS)
    assert path.read_bytes() == b"0\n3\norders 0 17\norders 12 0\na.b-c 3 1099511627776\n"
    assert read_offsets(DISK, path) == OFFSETS


@pytest.mark.parametrize("line", ["orders 0", "orders 0 1 2", "orders zero 1", "orders 0 one", ""])
def test_a_line_that_is_no_offset_is_damage(path: Path, line: str) -> None:
    write_lines(DISK, path, ["fine 0 1", line])
    with pytest.raises(CorruptCheckpointError, match="not a topic, a partition and an offset"):
        read_offsets(DISK, path)


def test_a_full_disk_leaves_the_checkpoint_that_was(path: Path) -> None:
    disk = FailingDisk(errno.ENOSPC)
    assert write_lines_if_space(disk, path, ["one"])
    disk.dead.add(path.parent)
    assert write_lines_if_space(disk, path, ["two"]) is False
    assert read_lines(disk, path) == ["one"]


def test_a_disk_that_fails_is_no_full_one(path: Path) -> None:
    disk = FailingDisk(errno.EIO)
    disk.dead.add(path.parent)
    with pytest.raises(OSError, match=r"Input/output"):
        write_lines_if_space(disk, path, ["one"])


# -- partition.metadata ----------------------------------------------------------------------------------------------


def test_a_topic_id_is_kept_as_kafka_keeps_it(tmp_path: Path) -> None:
    """22 letters of base64 for the web, without the padding."""
    assert read_topic_id(DISK, tmp_path) is None
    write_topic_id(DISK, tmp_path, TOPIC_ID)
    assert (tmp_path / "partition.metadata").read_text() == "version: 0\ntopic_id: ASNFZ4mrze_-3LqYdlQyEA"
    assert read_topic_id(DISK, tmp_path) == TOPIC_ID
    replace_topic_id(DISK, tmp_path, UUID(int=7))
    assert read_topic_id(DISK, tmp_path) == UUID(int=7)


def test_a_topic_id_may_end_with_an_empty_line(tmp_path: Path) -> None:
    (tmp_path / "partition.metadata").write_text("version: 0\ntopic_id: ASNFZ4mrze_-3LqYdlQyEA\n\n")
    assert read_topic_id(DISK, tmp_path) == TOPIC_ID


@pytest.mark.parametrize(
    "data", [b"", b"version: 0\n", b"topic_id", b"topic_id: ASNF", b"topic_id: A", b"topic_id: \xff"]
)
def test_a_file_without_a_topic_id_is_damaged(tmp_path: Path, data: bytes) -> None:
    (tmp_path / "partition.metadata").write_bytes(data)
    with pytest.raises(CorruptCheckpointError, match="no topic id"):
        read_topic_id(DISK, tmp_path)
