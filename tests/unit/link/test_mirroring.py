"""A mirror's partition over a real log: it appends, follows and refuses batches of the source, and stops."""

from __future__ import annotations

import pytest

from odradek.common.errors import ApiError, ErrorCode
from odradek.link.measures import Why
from odradek.link.mirroring import MirroredPartition
from odradek.metadata.model import PartitionImage
from odradek.protocol.messages.fetch_response import EpochEndOffset, PartitionData
from odradek.record.batch import patch_base_offset, patch_leader_epoch
from odradek.replica.leadership import apply_image
from odradek.replica.partition import Partition
from tests.support.models.batches import NOW_MS, batch, header_of

ME = 1


def lead(partition: Partition, *, leader_epoch: int, partition_epoch: int) -> None:
    image = PartitionImage((ME, 2), (ME,), ME, leader_epoch, partition_epoch)
    apply_image(partition, image)


def sent(offset: int, leader_epoch: int, log_start_offset: int = 0) -> PartitionData:
    data = bytearray(batch(b"a", b"b"))
    patch_base_offset(data, offset)
    patch_leader_epoch(data, leader_epoch)
    return PartitionData(
        partition_index=0, high_watermark=offset + 2, log_start_offset=log_start_offset, records=bytes(data)
    )


def test_the_sources_epochs_are_kept_below_ours(mirrored: MirroredPartition) -> None:
    log = mirrored.partition.log
    assert not mirrored.process_partition_data(sent(0, 3), 0, NOW_MS)
    # A leadership of ours begins, and is not noted where the source's next batch would be older.
    lead(mirrored.partition, leader_epoch=8, partition_epoch=1)
    assert not mirrored.process_partition_data(sent(2, 5), 2, NOW_MS)
    assert log.epochs.entries() == [(3, 0), (5, 2)]
    assert log.log_end_offset == log.high_watermark == 4
    asked = mirrored.fetch_partition()
    assert (asked.fetch_offset, asked.last_fetched_epoch, asked.current_leader_epoch) == (4, 5, 5)


def test_no_record_of_a_later_leader_epoch_is_fetched(mirrored: MirroredPartition) -> None:
    assert mirrored.is_ready
    mirrored.source_epoch = 8
    assert not mirrored.is_ready
    with pytest.raises(ApiError) as caught:
        mirrored.process_partition_data(sent(0, 8), 0, NOW_MS)
    assert caught.value.code is ErrorCode.CORRUPT_MESSAGE
    lead(mirrored.partition, leader_epoch=8, partition_epoch=1)
    assert mirrored.is_ready


def test_a_mirror_is_written_to_by_its_link_alone(mirrored: MirroredPartition) -> None:
    data = bytearray(batch(b"mine"))
    with pytest.raises(ApiError) as caught:
        mirrored.partition.append_as_leader([data], [header_of(bytes(data))], required_acks=1, now_ms=NOW_MS)
    assert caught.value.code is ErrorCode.INVALID_REQUEST
    mirrored.partition.is_mirror = False
    with pytest.raises(ApiError) as caught:
        mirrored.process_partition_data(sent(0, 3), 0, NOW_MS)
    assert caught.value.code is ErrorCode.NOT_LEADER_OR_FOLLOWER


def test_the_start_of_the_log_follows(mirrored: MirroredPartition) -> None:
    mirrored.process_partition_data(sent(0, 3, log_start_offset=0), 0, NOW_MS)
    mirrored.process_partition_data(sent(2, 3, log_start_offset=3), 2, NOW_MS)
    assert mirrored.partition.log.log_start_offset == 3
    assert mirrored.source_end == 4


def test_an_answer_to_what_was_asked_before_is_left(mirrored: MirroredPartition) -> None:
    mirrored.process_partition_data(sent(0, 3), 0, NOW_MS)
    assert not mirrored.process_partition_data(sent(0, 3), 0, NOW_MS)
    assert mirrored.partition.log.log_end_offset == 2


def test_another_history_stops_the_partition(mirrored: MirroredPartition) -> None:
    mirrored.process_partition_data(sent(0, 3), 0, NOW_MS)
    parts = PartitionData(partition_index=0, diverging_epoch=EpochEndOffset(epoch=2, end_offset=1))
    assert not mirrored.process_partition_data(parts, 2, NOW_MS)
    assert "its epoch 2 ends at 1, ours is at 2" in mirrored.reason.text
    assert not mirrored.is_ready
    assert mirrored.partition.log.log_end_offset == 2


@pytest.mark.parametrize(
    ("code", "is_out_of_range"),
    [
        (ErrorCode.OFFSET_OUT_OF_RANGE, True),
        (ErrorCode.FENCED_LEADER_EPOCH, False),
        (ErrorCode.TOPIC_AUTHORIZATION_FAILED, False),
        (12345, False),
    ],
)
def test_only_an_offset_out_of_range_keeps_the_leader(
    mirrored: MirroredPartition, code: int, is_out_of_range: bool
) -> None:
    assert (
        mirrored.process_partition_data(PartitionData(partition_index=0, error_code=code), 0, NOW_MS) is is_out_of_range
    )
    assert mirrored.is_ready == is_out_of_range
    assert bool(mirrored.reason.text) != is_out_of_range


def test_a_mirror_skips_what_the_source_deleted_and_its_watermark_waits(mirrored: MirroredPartition) -> None:
    """The offset before the source's first batch is an empty one, which followers fetch before the watermark passes."""
    partition = mirrored.partition
    log = partition.log
    mirrored.process_partition_data(sent(0, 3), 0, NOW_MS)
    apply_image(partition, PartitionImage((ME, 2), (ME, 2), ME, 7, 1))
    mirrored.locate(9, 12, NOW_MS)
    asked = mirrored.fetch_partition()
    # The source has dropped the epochs of what it deleted.
    assert (asked.fetch_offset, asked.last_fetched_epoch) == (9, -1)
    # Its start is in the middle of a batch.
    mirrored.process_partition_data(sent(8, 5, log_start_offset=9), 9, NOW_MS)
    assert (log.log_end_offset, log.high_watermark, log.log_start_offset) == (10, 2, 2)
    assert mirrored.skipped == mirrored.paused().skipped == 7, "what comes with the rest of its batch, too"
    assert log.epochs.entries() == [(3, 2), (5, 8)]
    asked = mirrored.fetch_partition()
    assert (asked.fetch_offset, asked.last_fetched_epoch) == (10, 5)
    # The source does not say again where it starts: in a fetch session that is no news.
    apply_image(partition, PartitionImage((ME, 2), (ME,), ME, 7, 2))
    mirrored.follow_start()
    assert log.log_start_offset == 9


def test_a_mirror_ends_where_a_source_without_records_does(mirrored: MirroredPartition) -> None:
    mirrored.locate(9, 9, NOW_MS)
    # The source's next leader may have forgotten the deletion.
    mirrored.process_partition_data(PartitionData(partition_index=0, high_watermark=9, log_start_offset=0), 9, NOW_MS)
    log = mirrored.partition.log
    assert (log.log_start_offset, log.high_watermark, log.log_end_offset) == (9, 9, 9)
    assert mirrored.skipped == 0, "it was empty, and begins where the source does"
    # The batch has an earlier epoch than the leader: it was not committed yet when the leader answered.
    mirrored.source_epoch = 6
    mirrored.process_partition_data(sent(9, 5), 9, NOW_MS)
    assert (log.log_start_offset, log.log_end_offset) == (9, 11)
    assert log.epochs.entries() == [(5, 9)]


def test_a_mirror_of_an_empty_log_skips_what_came_and_was_deleted(mirrored: MirroredPartition) -> None:
    mirrored.process_partition_data(PartitionData(partition_index=0, high_watermark=0), 0, NOW_MS)
    mirrored.locate(9, 12, NOW_MS)
    mirrored.process_partition_data(sent(9, 3), 9, NOW_MS)
    assert mirrored.skipped == 9


@pytest.mark.parametrize(("start", "end", "why"), [(2, 5, Why.REFUSED), (0, 1, Why.DIVERGED)])
def test_a_source_that_still_lacks_the_next_offset_is_asked_later(
    mirrored: MirroredPartition, start: int, end: int, why: Why
) -> None:
    mirrored.process_partition_data(sent(0, 3), 0, NOW_MS)
    mirrored.locate(start, end, NOW_MS)
    if why is Why.REFUSED:  # at the source's start the epoch is left out once
        assert mirrored.is_ready
        mirrored.locate(start, end, NOW_MS)
    assert not mirrored.is_ready and not mirrored.stopped
    assert mirrored.reason.why is why
    assert mirrored.partition.log.log_end_offset == 2


def test_a_follower_that_has_all_of_a_log_without_epochs_agrees_with_it(mirrored: MirroredPartition) -> None:
    """The mirror's log began at the source's start, where nothing has come since; its leader notes no epoch."""
    partition = mirrored.partition
    assert partition.diverges(0, 3) is None
    with pytest.raises(ApiError) as caught:
        partition.diverges(1, 3)
    assert caught.value.code is ErrorCode.OFFSET_OUT_OF_RANGE
    partition.is_mirror = False
    with pytest.raises(ApiError):
        partition.diverges(0, 3)
