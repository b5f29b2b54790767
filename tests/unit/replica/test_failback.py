"""An old source over real logs: its leader is truncated, and its followers truncate theirs, with any leader epochs."""

from __future__ import annotations

import errno
from collections.abc import Callable, Iterator
from pathlib import Path
from uuid import UUID

import pytest

from odradek.common.errors import ApiError, ErrorCode, StorageError
from odradek.common.real_io import RealDisk
from odradek.log.config import LogConfig
from odradek.log.files import FileCache
from odradek.log.opening import close_log, open_log
from odradek.log.retention import delete_records
from odradek.log.rolling import roll
from odradek.metadata.model import PartitionImage
from odradek.record.batch import patch_base_offset, patch_leader_epoch
from odradek.record.control import transaction_marker
from odradek.replica.failback import replicas_not_truncated, scan_below, truncate_leader
from odradek.replica.followers import follower_fetched
from odradek.replica.following import append_from_leader, handle_out_of_range, truncate_to_divergence
from odradek.replica.leadership import apply_image
from odradek.replica.partition import Partition
from odradek.replica.waiters import DataWait
from tests.support.models.batches import NOW_MS, batch

LEADER, FOLLOWER = 1, 2
EPOCH = 20


class Pair:
    """Two replicas of a partition that is failed back, with records of epochs 3 and 8, one each to an offset."""

    def __init__(self, folder: Path) -> None:
        self.leader, self.follower = (self._open(folder, each) for each in (LEADER, FOLLOWER))
        self.partition_epoch = 0
        self.lead(EPOCH)

    def _open(self, folder: Path, broker_id: int) -> Partition:
        path = folder / str(broker_id) / "t-0"
        path.mkdir(parents=True)
        log = open_log(FileCache(RealDisk(workers=1)), path, ("t", 0), LogConfig(), now_ms=NOW_MS)
        partition = Partition("t", 0, UUID(int=5), log, broker_id=broker_id)
        partition.is_mirror = partition.is_failing_back = True
        return partition

    def lead(self, leader_epoch: int) -> None:
        self.partition_epoch += 1
        image = PartitionImage((LEADER, FOLLOWER), (LEADER, FOLLOWER), LEADER, leader_epoch, self.partition_epoch)
        for each in (self.leader, self.follower):
            apply_image(each, image)

    def fill(self, partition: Partition, *epochs: int) -> None:
        for epoch in epochs:
            partition.append_mirrored(self.record(partition.log.log_end_offset, epoch), now_ms=NOW_MS)

    def record(self, offset: int, epoch: int) -> bytearray:
        data = bytearray(batch(b"a"))
        patch_base_offset(data, offset)
        patch_leader_epoch(data, epoch)
        return data

    def fetch(self) -> bool:
        """One round of the follower; whether it cut its log."""
        log = self.follower.log
        asked, epoch = log.log_end_offset, log.epochs.latest_epoch
        try:
            follower_fetched(
                self.leader, FOLLOWER, fetch_offset=asked, log_start_offset=log.log_start_offset, now_ms=0,
                broker_epoch=-1, last_fetched_epoch=epoch, current_leader_epoch=self.leader.leader_epoch,
            )  # fmt: skip
            read = self.leader.read(
                asked, max_bytes=1 << 20, at_least_one=True, replica_id=FOLLOWER, last_fetched_epoch=epoch
            )
        except ApiError as error:
            assert error.code is ErrorCode.OFFSET_OUT_OF_RANGE
            handle_out_of_range(self.follower, self.leader.log.log_start_offset, self.leader.log.log_end_offset)
            return True
        if read.diverging is not None:
            truncate_to_divergence(self.follower, *read.diverging)
            return True
        records = b"".join(each.read() for each in read.chunks)
        append_from_leader(
            self.follower, records, leader_epoch=self.leader.leader_epoch, high_watermark=read.high_watermark,
            log_start_offset=read.log_start_offset, now_ms=NOW_MS,
        )  # fmt: skip
        return False

    def settle(self) -> None:
        """Fetch until the leader knows that its follower is truncated."""
        for _ in range(6):
            self.fetch()
        assert replicas_not_truncated(self.leader) == []

    def mirror(self, *epochs: int) -> None:
        """Append batches of the source, as after the truncation of all replicas."""
        for each in (self.leader, self.follower):
            each.is_failing_back = False
        self.fill(self.leader, *epochs)
        self.settle()


@pytest.fixture
def pair(tmp_path: Path) -> Iterator[Pair]:
    found = Pair(tmp_path)
    yield found
    for each in (found.leader, found.follower):
        close_log(each.log)


@pytest.mark.parametrize(
    ("leader", "follower", "offset"),
    [
        ((3, 3, 8, 8), (3, 3, 8, 8), 2),
        ((3, 3, 8, 8), (3, 3, 8, 8), 1),
        ((3, 3, 8), (3, 3, 8), 0),
        ((3, 3), (3, 3, 8, 8), 2),
        ((3, 3), (3,), 2),
        ((3, 3, 3), (3, 3, 8), 3),  # as long, and of an epoch that the leader does not know
        ((), (8,), 0),
    ],
)
def test_a_follower_has_what_its_leader_was_cut_to(
    pair: Pair, leader: tuple[int, ...], follower: tuple[int, ...], offset: int
) -> None:
    pair.fill(pair.leader, *leader)
    pair.fill(pair.follower, *follower)
    assert truncate_leader(pair.leader, offset)
    assert replicas_not_truncated(pair.leader) == [FOLLOWER]
    pair.settle()
    for each in (pair.leader, pair.follower):
        assert each.log.log_end_offset == each.log.high_watermark == offset
    assert pair.follower.log.epochs.entries() == pair.leader.log.epochs.entries()
    # The source's epochs have the numbers of those that were cut.
    pair.mirror(7, 8)
    assert pair.follower.log.epochs.entries() == pair.leader.log.epochs.entries()
    assert pair.follower.log.log_end_offset == offset + 2


def test_epochs_without_a_record_are_cut_too(pair: Pair) -> None:
    """Each leader of an ordinary topic adds its own epoch at the end of a log, even if no records follow."""
    for each in (pair.leader, pair.follower):
        pair.fill(each, 3)
        each.log.assign_epoch(9, 1)
    assert truncate_leader(pair.leader, 1)
    pair.settle()
    pair.mirror(7)
    assert pair.follower.log.epochs.entries() == pair.leader.log.epochs.entries() == [(3, 0), (7, 1)]


@pytest.mark.parametrize("start", [40, 3, 2, 0])
def test_a_log_that_starts_over_begins_where_the_source_does(pair: Pair, *, start: int) -> None:
    for each in (pair.leader, pair.follower):
        pair.fill(each, 3, 8, 8)
    assert truncate_leader(pair.leader, start, starts_over=True)
    pair.settle()
    for each in (pair.leader, pair.follower):
        assert (each.log.log_start_offset, each.log.log_end_offset) == (start, start)
    pair.mirror(7)
    assert pair.follower.log.epochs.entries() == [(7, start)]


def test_a_cut_below_what_was_deleted_goes_back_to_there(pair: Pair) -> None:
    for each in (pair.leader, pair.follower):
        pair.fill(each, 3, 8, 8, 8)
    pair.settle()
    delete_records(pair.leader.log, 2)
    assert truncate_leader(pair.leader, 1)
    pair.settle()
    assert (pair.leader.log.log_start_offset, pair.leader.log.log_end_offset) == (1, 1)
    pair.mirror(7)
    assert pair.follower.log.log_end_offset == 2
    assert pair.follower.log.epochs.latest_epoch == 7


@pytest.mark.parametrize(("cleaned_offset", "kept"), [(0, 2), (1, 0), (3, 0)])
def test_a_follower_that_compacted_for_what_is_cut_gets_all_again(pair: Pair, cleaned_offset: int, kept: int) -> None:
    for each in (pair.leader, pair.follower):
        pair.fill(each, 3, 3, 8, 8)
    pair.follower.log.cleaned_offset = cleaned_offset
    truncate_leader(pair.leader, 2)
    assert pair.fetch()
    assert pair.follower.log.log_end_offset == kept
    pair.settle()
    assert pair.follower.log.log_end_offset == 2


def test_a_follower_that_asked_before_the_cut_is_asked_for_again(pair: Pair) -> None:
    """The follower may append the response to its earlier fetch after the truncation."""
    pair.fill(pair.leader, 3, 3, 8)
    pair.fetch()
    assert replicas_not_truncated(pair.leader) == []
    truncate_leader(pair.leader, 2)
    assert replicas_not_truncated(pair.leader) == [FOLLOWER]


async def test_a_leader_that_is_cut_begins_again_with_what_is_left(pair: Pair) -> None:
    """Its epoch began behind the cut: without that its followers could not join, and its end would not be known."""
    for each in (pair.leader, pair.follower):
        pair.fill(each, 3, 3, 8, 8)
    pair.lead(EPOCH + 1)
    assert pair.leader.leader_epoch_start_offset == 4
    pair.fill(pair.leader, 8)
    poll = DataWait([pair.leader], missing_bytes=1 << 20, timeout_ms=60_000)
    assert truncate_leader(pair.leader, 2)
    assert poll.future.done(), "readers look where it ends now"
    assert pair.leader.leader_epoch_start_offset == 2
    assert not pair.leader.unreplicated
    pair.settle()
    assert pair.leader.offsets_are_known()


def test_an_epoch_of_0_says_where_a_cut_leader_ends(pair: Pair) -> None:
    pair.fill(pair.leader, 0, 0, 8)
    truncate_leader(pair.leader, 2)
    assert pair.leader.diverges(3, 8) == (0, 2)


def test_the_log_is_not_truncated_while_the_in_sync_set_changes(pair: Pair) -> None:
    pair.fill(pair.leader, 3, 3, 8)
    pair.leader.in_sync.pending = pair.leader.in_sync.maybe_shrink(
        leader_epoch=EPOCH, partition_epoch=1, leader_end_offset=3, now_ms=10**9, max_lag_ms=1
    )
    assert not truncate_leader(pair.leader, 2)
    assert pair.leader.log.log_end_offset == 3


# -- what lies below an offset -----------------------------------------------------------------------------------------


def transactional(pair: Pair, offset: int, producer_id: int) -> None:
    """The next batch of the leader is one of a transaction."""
    data = bytearray(batch(b"a", producer_id=producer_id, sequence=0, transactional=True))
    patch_base_offset(data, offset)
    patch_leader_epoch(data, 3)
    pair.leader.append_mirrored(data, now_ms=NOW_MS)


def ended(pair: Pair, offset: int, producer_id: int) -> None:
    """The next batch of the leader is a marker."""
    data = bytearray(
        transaction_marker(commit=True, producer_id=producer_id, producer_epoch=0, coordinator_epoch=0, timestamp_ms=1)
    )
    patch_base_offset(data, offset)
    patch_leader_epoch(data, 3)
    pair.leader.append_mirrored(data, now_ms=NOW_MS)


@pytest.mark.parametrize("segments", [1, 2, 5])
async def test_transactions_open_below_an_offset_are_found(pair: Pair, segments: int) -> None:
    acts: list[Callable[[], None]] = [
        lambda: pair.fill(pair.leader, 3),
        lambda: transactional(pair, 1, 7),
        lambda: transactional(pair, 2, 8),
        lambda: ended(pair, 3, 8),
        lambda: pair.fill(pair.leader, 3),
    ]
    for number, act in enumerate(acts):
        act()
        if number % 5 < segments - 1:
            roll(pair.leader.log, NOW_MS)
    log = pair.leader.log
    assert len(log.segments) >= segments
    found = {end: await scan_below(log, end) for end in range(6)}
    assert [(each.end, each.has_gaps) for each in found.values()] == [(end, False) for end in range(6)]
    assert [found[end].open for end in range(6)] == [{}, {}, {7: 1}, {7: 1, 8: 2}, {7: 1}, {7: 1}]
    assert [found[end].first_open for end in (1, 3, 5)] == [None, 1, 1]


async def test_a_log_whose_start_is_in_a_batch_has_no_gap(pair: Pair) -> None:
    data = bytearray(batch(b"a", b"b", b"c"))
    patch_leader_epoch(data, 3)
    pair.leader.append_mirrored(data, now_ms=NOW_MS)
    pair.fill(pair.leader, 3)
    pair.settle()
    delete_records(pair.leader.log, 1)
    below = await scan_below(pair.leader.log, 4)
    assert (below.end, below.has_gaps) == (4, False)
    below = await scan_below(pair.leader.log, 1)
    assert (below.end, below.has_gaps) == (1, False), "nothing is below its start"


async def test_records_that_lack_are_a_gap(pair: Pair) -> None:
    pair.fill(pair.leader, 3, 3)
    data = bytearray(pair.record(5, 3))
    pair.leader.append_mirrored(data, now_ms=NOW_MS)
    assert pair.leader.log.log_end_offset == 6
    found = {end: await scan_below(pair.leader.log, end) for end in (2, 3, 6)}
    assert {end: (each.end, each.has_gaps) for end, each in found.items()} == {
        2: (2, False),
        3: (2, True),
        6: (2, True),
    }


async def test_a_disk_that_fails_while_a_log_is_looked_through_is_offline(
    pair: Pair, monkeypatch: pytest.MonkeyPatch
) -> None:
    pair.fill(pair.leader, 3, 3)
    log = pair.leader.log

    async def fails(work: object) -> None:
        raise OSError(errno.EIO, "gone")

    monkeypatch.setattr(log.partition_dir.files.disk, "run_blocking", fails)
    with pytest.raises(StorageError) as caught:
        await scan_below(log, 2)
    assert caught.value.log_dir == log.log_dir
