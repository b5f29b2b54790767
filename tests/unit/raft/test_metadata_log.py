"""The metadata log: the ends of its leader epochs, and its errors when the disk fails."""

from __future__ import annotations

from pathlib import Path
from random import Random

import pytest

from odradek.common.errors import StorageError
from odradek.protocol.messages.topic_record import TopicRecord
from odradek.protocol.record_types import encode_metadata_record
from odradek.raft.batches import data_batch
from odradek.raft.metadata_log import MetadataLog
from tests.sim.disk import DiskFaults, SimDisk, SimFile

HOME = Path("/data/__cluster_metadata-0")


def log_of(epochs: list[int], faults: DiskFaults | None = None) -> MetadataLog:
    """A log with one batch, of one record, for each of these leader epochs."""
    log = MetadataLog(SimDisk(Random(1), faults or DiskFaults(), lambda: 0), HOME)
    value = encode_metadata_record(TopicRecord(name="orders"), 0)
    log.append([data_batch([value], base_offset=at, leader_epoch=epoch, now_ms=0) for at, epoch in enumerate(epochs)])
    return log


@pytest.mark.parametrize("epochs", [[], [1], [1, 1, 3, 7, 7, 7], [0, 2, 2, 5], [4, 4, 4]], ids=str)
def test_an_epoch_ends_where_the_next_larger_one_begins(epochs: list[int]) -> None:
    log = log_of(epochs)
    for asked in range(-1, 10):
        ends = [(epoch, at + 1) for at, epoch in enumerate(epochs) if epoch <= asked]
        assert log.end_offset_for_epoch(asked) == (ends[-1] if ends else (-1, -1)), asked
    log.close()


def test_a_log_that_cannot_be_read_says_that_its_disk_failed() -> None:
    faults = DiskFaults()
    log = log_of([1, 2], faults)
    assert log.read(0, 1000)
    faults.read_error = 1.0
    with pytest.raises(StorageError, match="the metadata log cannot be read"):
        log.read(0, 1000)
    with pytest.raises(StorageError, match="the metadata log cannot be read"):
        list(log.batches(0))
    log.close()


def test_a_cut_that_fails_is_the_end_of_the_log(monkeypatch: pytest.MonkeyPatch) -> None:
    log = log_of([1, 2])

    def fails(*_: object) -> None:
        raise OSError(5, "Input/output error")

    monkeypatch.setattr(SimFile, "truncate", fails)
    with pytest.raises(StorageError, match="the metadata log failed"):
        log.truncate_to(1)
    monkeypatch.undo()
    with pytest.raises(StorageError, match="the metadata log failed"):
        log.append([])
    log.close()
