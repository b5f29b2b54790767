"""Fetches of followers that bring nothing new are skipped; each test has one that may not be skipped."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from uuid import UUID

import pytest

from odradek.common.real_io import RealDisk
from odradek.log.config import LogConfig
from odradek.log.files import FileCache
from odradek.log.opening import close_log, open_log
from odradek.log.retention import delete_records
from odradek.metadata.model import PartitionImage
from odradek.replica.followers import follower_fetched, maybe_shrink
from odradek.replica.leadership import apply_image
from odradek.replica.partition import Partition
from odradek.replica.unchanged import is_unchanged, refresh_caught_up_follower
from tests.support.models.batches import NOW_MS, batch, header_of

ME, FOLLOWER, OTHER, FOREIGN = 1, 2, 3, 9
ALL = (ME, FOLLOWER, OTHER)
IMAGE = PartitionImage(replicas=ALL, isr=ALL, leader=ME, leader_epoch=4, partition_epoch=0)
LATE_MS = 60_000


@pytest.fixture
def partition(tmp_path: Path) -> Iterator[Partition]:
    """A partition that is led here, with three records that both followers have, and so all committed."""
    path = tmp_path / "t-0"
    path.mkdir()
    disk = RealDisk(workers=1)
    log = open_log(FileCache(disk), path, ("t", 0), LogConfig(), now_ms=NOW_MS)
    found = Partition("t", 0, UUID(int=5), log, broker_id=ME)
    apply_image(found, IMAGE)
    append(found)
    fetched(found, FOLLOWER)
    fetched(found, OTHER)
    assert log.high_watermark == 3
    yield found
    close_log(log, clean=False)
    disk.close()


def append(partition: Partition) -> None:
    data = bytearray(batch(b"a", b"b", b"c"))
    partition.append_as_leader([data], [header_of(bytes(data))], required_acks=1, now_ms=NOW_MS)


def fetched(partition: Partition, follower: int, offset: int = 3) -> None:
    follower_fetched(partition, follower, fetch_offset=offset, log_start_offset=0, now_ms=NOW_MS, broker_epoch=7)


def quiet(partition: Partition, *, epoch: int = 4, offset: int = 3, watermark: int = 3, start: int = 0) -> bool:
    return is_unchanged(partition, epoch, offset, watermark, start)


def stay(partition: Partition, replica_id: int = FOLLOWER, offset: int = 3) -> bool:
    return refresh_caught_up_follower(
        partition, replica_id, fetch_offset=offset, log_start_offset=0, now_ms=NOW_MS + LATE_MS, broker_epoch=8
    )


def test_a_caught_up_follower_is_skipped_and_stays_caught_up(partition: Partition) -> None:
    assert quiet(partition)
    before = partition.in_sync.followers[FOLLOWER]
    assert stay(partition)
    after = partition.in_sync.followers[FOLLOWER]
    assert after is before
    assert (after.caught_up_ms, after.last_fetch_ms, after.broker_epoch) == (NOW_MS + LATE_MS, NOW_MS + LATE_MS, 8)
    # A record written a long time after its last full look does not make it late.
    append(partition)
    assert maybe_shrink(partition, now_ms=NOW_MS + LATE_MS + 100, max_lag_ms=30_000) is not None, "the other one is"
    assert partition.in_sync.pending is not None
    assert partition.in_sync.pending.leaving == (OTHER,)


@pytest.mark.parametrize(
    "reported", [{"watermark": 2}, {"watermark": -1}, {"start": -1}, {"offset": 2}, {"epoch": 3}, {"epoch": -1}]
)
def test_a_follower_with_older_marks_is_not_skipped(partition: Partition, reported: dict[str, int]) -> None:
    assert not quiet(partition, **reported)


CHANGES: dict[str, Callable[[Partition], object]] = {
    "a record came": append,
    "the log begins elsewhere": lambda partition: delete_records(partition.log, 2),
    "the leader epoch ended": lambda partition: apply_image(
        partition, replace(IMAGE, leader=FOLLOWER, leader_epoch=5, partition_epoch=1)
    ),
    "another leader epoch began": lambda partition: apply_image(
        partition, replace(IMAGE, leader_epoch=5, partition_epoch=1)
    ),
    "it was deleted or its disk failed": lambda partition: partition.close(),
}


@pytest.mark.parametrize("change", CHANGES)
def test_a_changed_partition_is_read_again(partition: Partition, change: str) -> None:
    CHANGES[change](partition)
    assert not quiet(partition)


def test_uncommitted_records_are_checked_by_every_fetch(partition: Partition) -> None:
    append(partition)
    assert not quiet(partition, offset=6, watermark=3), "its fetch may commit it"


def test_a_fetch_that_stays_does_what_one_that_is_heard_in_full_does(partition: Partition) -> None:
    """`refresh_caught_up_follower` is `followers.follower_fetched` without what cannot happen then."""
    asked: list[Partition] = []
    partition.request_isr = asked.append
    partition.request_flush = asked.append

    def left(after: Callable[[], object]) -> tuple[object, ...]:
        follower = partition.in_sync.followers[FOLLOWER]
        follower.caught_up_ms = follower.last_fetch_ms = NOW_MS
        follower.broker_epoch, follower.log_start_offset = 7, 1
        after()
        log = partition.log
        marks = (log.log_start_offset, log.high_watermark, log.log_end_offset)
        return (replace(follower), marks, partition.isr, partition.in_sync.pending)

    in_full = left(
        lambda: follower_fetched(
            partition, FOLLOWER, fetch_offset=3, log_start_offset=0, now_ms=NOW_MS + LATE_MS, broker_epoch=8
        )
    )
    assert quiet(partition)
    assert left(lambda: stay(partition)) == in_full
    assert asked == []


def test_other_fetchers_are_never_skipped(partition: Partition) -> None:
    assert not stay(partition, FOREIGN)
    assert not stay(partition, offset=2)
    apply_image(partition, replace(IMAGE, isr=(ME, OTHER), partition_epoch=1))
    assert not stay(partition), "it may join"
    assert partition.in_sync.followers[FOLLOWER].last_fetch_ms == NOW_MS
