"""A replica of the metadata log refuses malformed records, responses and snapshots."""

from __future__ import annotations

from pathlib import Path
from random import Random
from typing import Any

import pytest

from odradek.common.errors import ApiError, ErrorCode, ProtocolError, StorageError
from odradek.common.steps import all_steps, next_step
from odradek.metadata.publisher import MetadataPublisher
from odradek.protocol.messages import fetch_snapshot_response as pieces
from odradek.protocol.messages import vote_response as votes
from odradek.protocol.messages.topic_record import TopicRecord
from odradek.protocol.record_types import encode_metadata_record
from odradek.raft.batches import (
    MAX_BATCH_BYTES,
    RECORDS_PER_STEP,
    control_batch,
    data_batch,
    decode_batches,
    pack,
    prepare,
)
from odradek.raft.config import RaftConfig
from odradek.raft.metadata_log import MetadataLog
from odradek.raft.quorum_state import ElectionState
from odradek.raft.snapshot import (
    BATCH_BYTES,
    BOOTSTRAP_FILE,
    Snapshot,
    SnapshotId,
    decode_snapshot,
    encode_snapshot,
    finish_snapshot,
    partial_snapshot,
    read_bootstrap,
    snapshot_ids,
    write_snapshot,
)
from odradek.raft.storage import RECORDS_PER_SLICE, QuorumStorage
from odradek.raft.voter_history import record_of
from odradek.raft.voters import ReplicaKey, Voter, VoterSet
from odradek.raft.wire import LeaderInfo, read_response, read_snapshot_chunk
from odradek.record.builder import build_batch
from odradek.record.record import Record
from tests.sim.disk import DiskFaults, SimDisk

HOME = Path("/data/__cluster_metadata-0")
VERSION = 30


def disk_of(**faults: Any) -> SimDisk:
    disk = SimDisk(Random(1), DiskFaults(**faults), lambda: 0)
    disk.make_dirs(HOME)
    return disk


def topic(name: str) -> bytes:
    return encode_metadata_record(TopicRecord(name=name), 0)


def batch(offset: int, epoch: int = 1, count: int = 1) -> bytes:
    return data_batch([topic(f"t{offset}")] * count, base_offset=offset, leader_epoch=epoch, now_ms=0)


def snapshot(*names: str, epoch: int = 1) -> bytes:
    return encode_snapshot(
        [TopicRecord(name=name) for name in names], metadata_version=VERSION, leader_epoch=epoch, now_ms=0
    )


def storage_of(disk: SimDisk) -> QuorumStorage:
    storage = QuorumStorage(disk, HOME, RaftConfig(), MetadataPublisher(), VoterSet())
    storage.open()
    return storage


# -- batches --------------------------------------------------------------------------------------------------------


def test_a_batch_holds_eight_mebibytes_and_an_operation_is_in_one() -> None:
    third = [TopicRecord(name="x" * 32_000)] * 90
    alone = all_steps(prepare(third, atomic=True, metadata_version=VERSION))
    pair = all_steps(prepare(third * 2, atomic=True, metadata_version=VERSION))
    loose = all_steps(prepare(third * 4, atomic=False, metadata_version=VERSION))
    most = MAX_BATCH_BYTES // (len(loose[1][0]) + 16)
    for groups, counts in (
        ([alone, pair], [90, 180]),
        ([pair, alone], [180, 90]),
        ([alone, alone, alone], [180, 90]),
        ([loose], [most, 360 - most]),
        ([alone, loose], [most, 450 - most]),
    ):
        batches, decoded = pack(groups, base_offset=7, leader_epoch=3, now_ms=0)
        read = [next(decode_batches(each)) for each in batches]
        assert [len(each.records) for each in read] == counts
        offsets = [offset for each in read for offset, _ in each.records]
        assert offsets == [offset for offset, _ in decoded] == list(range(7, 7 + sum(counts)))
    with pytest.raises(ApiError) as refused:
        all_steps(prepare(third * 3, atomic=True, metadata_version=VERSION))
    assert refused.value.code is ErrorCode.MESSAGE_TOO_LARGE


def test_many_records_are_encoded_in_steps() -> None:
    records = [TopicRecord(name=f"t{number}") for number in range(2 * RECORDS_PER_STEP + 1)]
    steps, count = prepare(records, atomic=True, metadata_version=VERSION), 1
    while (prepared := next_step(steps)) is None:
        count += 1
    assert count == 3
    assert prepared[1] == [topic(f"t{number}") for number in range(len(records))]


def test_an_operation_may_fill_a_batch_to_its_last_byte() -> None:
    """The size counts 16 bytes that each record may need beside its value."""
    extra = len(topic("x" * 32_000)) - 32_000
    count, left = divmod(MAX_BATCH_BYTES, 32_000 + extra + 16)
    for more, fits in ((0, True), (1, False)):
        last = TopicRecord(name="x" * (left - extra - 16 + more))
        records = [TopicRecord(name="x" * 32_000)] * count + [last]
        if fits:
            all_steps(prepare(records, atomic=True, metadata_version=VERSION))
        else:
            with pytest.raises(ApiError):
                all_steps(prepare(records, atomic=True, metadata_version=VERSION))


def test_batches_that_hold_no_metadata_are_refused() -> None:
    no_value = bytes(build_batch([Record(b"k", None, timestamp_ms=0)], base_offset=0, leader_epoch=1))
    with pytest.raises(ValueError, match="the metadata record at offset 0 has no value"):
        list(decode_batches(no_value))
    older = bytearray(batch(0))
    older[16] = 1
    with pytest.raises(ValueError, match="byte 0: record format 1, not 2"):
        list(decode_batches(older))


# -- answers --------------------------------------------------------------------------------------------------------


def test_an_answer_that_is_an_error_says_nothing_of_the_quorum() -> None:
    code = int(ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
    at = {3: ("host", 9)}
    vote = votes.VoteResponse(error_code=code, node_endpoints=[votes.NodeEndpoint(node_id=3, host="host", port=9)])
    assert read_response(vote) == (LeaderInfo(code, -1, -1, at), False)
    piece = pieces.FetchSnapshotResponse(
        error_code=code, node_endpoints=[pieces.NodeEndpoint(node_id=3, host="host", port=9)]
    )
    chunk = read_snapshot_chunk(piece)
    assert (chunk.leader_info, chunk.data) == (LeaderInfo(code, -1, -1, at), b"")
    assert (chunk.snapshot_id, chunk.size, chunk.position) == (SnapshotId(-1, -1), -1, -1)


@pytest.mark.parametrize("count", [0, 2])
def test_an_answer_about_other_partitions_than_the_one_is_refused(count: int) -> None:
    answer = votes.VoteResponse(
        topics=[votes.TopicData(topic_name="t", partitions=[votes.PartitionData(partition_index=0)])] * count
    )
    with pytest.raises(ProtocolError, match=f"has {count} partitions"):
        read_response(answer)


# -- snapshots ------------------------------------------------------------------------------------------------------


def test_a_large_snapshot_is_of_many_batches_in_order() -> None:
    names = [f"{number:02}" + "x" * 31_998 for number in range(40)]
    assert 16 < BATCH_BYTES / 32_000 < 17
    data = snapshot(*names, epoch=4)
    batches = list(decode_batches(data))
    assert [len(each.records) for each in batches] == [1, 17, 17, 6, 1]
    assert [offset for each in batches for offset, _ in each.records] == list(range(42))
    assert {each.leader_epoch for each in batches} == {4}
    assert [record.name for record in decode_snapshot(data).records if isinstance(record, TopicRecord)] == names


def test_each_batch_of_a_snapshot_ends_with_the_record_that_fills_it() -> None:
    extra = len(topic("x" * 32_000)) - 32_000
    whole, left = divmod(BATCH_BYTES - 1, 32_000 + extra)
    rest = next(length for length in range(left, 0, -1) if len(topic("x" * length)) == left)
    names = [*["x" * 32_000] * whole, "x" * rest, "last"] * 2
    data = encode_snapshot(
        [TopicRecord(name=name) for name in names], metadata_version=VERSION, leader_epoch=1, now_ms=0
    )
    assert [len(each.records) for each in decode_batches(data)] == [1, whole + 2, whole + 2, 1]


def test_a_snapshot_that_could_not_be_synced_leaves_nothing() -> None:
    disk = disk_of(sync_error=1.0)
    with pytest.raises(OSError, match="simulated fsync error"):
        write_snapshot(disk, HOME, SnapshotId(5, 1), snapshot("a"))
    assert disk.list_dir(HOME) == []


def test_a_damaged_snapshot_of_the_leader_is_none_and_goes() -> None:
    disk = disk_of()
    file = partial_snapshot(disk, HOME, SnapshotId(5, 1))
    file.write_at(0, [snapshot("a")[:-1]])
    with pytest.raises(ProtocolError, match="from the leader is damaged"):
        finish_snapshot(disk, HOME, SnapshotId(5, 1))
    assert disk.list_dir(HOME) == []


def test_bootstrap_records_are_read_where_the_file_is() -> None:
    disk = disk_of()
    assert read_bootstrap(disk, HOME.parent) == ()
    disk.open(HOME.parent / BOOTSTRAP_FILE, create=True).write_at(0, [snapshot("first")])
    assert read_bootstrap(disk, HOME.parent) == [TopicRecord(name="first")]


# -- the log of a follower ------------------------------------------------------------------------------------------


def test_a_log_whose_beginning_no_snapshot_covers_is_not_opened() -> None:
    disk = disk_of()
    log = MetadataLog(disk, HOME)
    log.restart_at(9)
    log.append([batch(9)])
    log.begin_flush()()
    log.close()
    with pytest.raises(StorageError, match="begins at 9 and no snapshot covers"):
        storage_of(disk)


def test_without_a_snapshot_a_start_replays_the_log_from_its_first_record() -> None:
    disk = disk_of()
    storage = storage_of(disk)
    storage.append_fetched(batch(0) + batch(1), 1)
    storage.log.begin_flush()()
    storage.log.close()
    publisher = MetadataPublisher()
    again = QuorumStorage(disk, HOME, RaftConfig(), publisher, VoterSet())
    again.open()
    again.publish(2)
    assert [name for name in ("t0", "t1") if publisher.image.topic(name)] == ["t0", "t1"]
    assert again.bytes_since_snapshot == len(batch(0) + batch(1))


def test_a_first_snapshot_is_due_in_time_if_there_is_one_record() -> None:
    storage = storage_of(disk_of())
    storage.append_fetched(batch(0), 1)
    assert not storage.snapshot_due(1 << 40), "it is not committed"
    storage.publish(1)
    assert storage.snapshot_due(1 << 40)


@pytest.mark.parametrize(("log_epoch", "is_kept"), [(3, True), (4, True), (5, False)])
def test_a_vote_is_kept_over_a_start_unless_the_log_has_a_later_epoch(log_epoch: int, is_kept: bool) -> None:
    """Else it could be given twice in an epoch."""
    disk = disk_of()
    storage = storage_of(disk)
    state = ElectionState(4, -1, ReplicaKey(2))
    storage.store_state(state, "c")
    storage.append_fetched(batch(0, epoch=log_epoch), log_epoch)
    storage.log.begin_flush()()
    storage.log.close()
    again = QuorumStorage(disk, HOME, RaftConfig(), MetadataPublisher(), VoterSet())
    assert again.open() == (state if is_kept else ElectionState(log_epoch))


def test_an_append_returns_whether_it_changes_the_voters() -> None:
    storage = storage_of(disk_of())
    assert not storage.append_fetched(batch(0), 1)
    voters = record_of(VoterSet([Voter(ReplicaKey(1), {})]))
    assert storage.append_control(control_batch([voters], base_offset=1, leader_epoch=1, now_ms=0))
    assert not storage.append_fetched(batch(2), 1)
    assert storage.truncate_to(1, 0) and not storage.truncate_to(0, 0)


@pytest.mark.parametrize(
    ("data", "match"),
    [
        (batch(3), "at offset 3 came where 2 of 2 to 5 was due"),
        (batch(2, epoch=1), "of epoch 1 at offset 2"),
        (batch(2, epoch=6), "of epoch 6 at offset 2"),
        (batch(2, epoch=5)[:-1] + b"\xff", "is not metadata"),
    ],
    ids=["gap", "older", "later", "damaged"],
)
def test_a_batch_that_does_not_continue_the_log_is_not_written(data: bytes, match: str) -> None:
    storage = storage_of(disk_of())
    storage.append_fetched(batch(0, epoch=2, count=2), 5)
    with pytest.raises(ProtocolError, match=match):
        storage.append_fetched(data, 5)
    assert storage.log.log_end_offset == 2
    storage.append_fetched(batch(2, epoch=5)[:-1], 5)
    assert storage.log.log_end_offset == 2, "a batch that was cut off is fetched again"
    storage.append_fetched(batch(2, epoch=5), 5)
    assert storage.log.log_end_offset == 3


def test_committed_records_are_never_truncated() -> None:
    storage = storage_of(disk_of())
    storage.append_fetched(batch(0, count=1) + batch(1) + batch(2), 1)
    with pytest.raises(StorageError, match="truncation to 1; 2 is committed and read"):
        storage.truncate_to(1, 2)
    storage.publish(1)
    with pytest.raises(StorageError, match="truncation to 0; 1 is committed and read"):
        storage.truncate_to(0, 0)
    storage.truncate_to(1, 0)
    assert storage.log.log_end_offset == 1


def installed(storage: QuorumStorage, disk: SimDisk, snapshot_id: SnapshotId, *names: str) -> None:
    """A snapshot comes from the leader and takes the place of everything."""
    data = snapshot(*names, epoch=snapshot_id.leader_epoch)
    write_snapshot(disk, HOME, snapshot_id, data)
    storage.install(snapshot_id, decode_snapshot(data), 0)


def test_a_snapshot_of_the_leader_takes_the_place_of_all_others() -> None:
    disk = disk_of()
    storage = storage_of(disk)
    storage.append_fetched(batch(0, count=4), 1)
    for end_offset in (6, 9):
        installed(storage, disk, SnapshotId(end_offset, 1), "a", "b")
        assert storage.snapshots == snapshot_ids(disk, HOME) == [SnapshotId(end_offset, 1)]
        assert storage.log.log_start_offset == storage.log.log_end_offset == storage.published_offset == end_offset
    for high_watermark, committed in ((0, 9), (12, 12)):
        with pytest.raises(StorageError, match=f"a snapshot of offset 8; {committed} was committed here"):
            storage.install(SnapshotId(8, 1), Snapshot(), high_watermark)
    assert [len(each) for each in storage.slices()] == [2]


def test_a_snapshot_for_which_there_is_no_space_is_none() -> None:
    disk = disk_of()
    storage = storage_of(disk)
    installed(storage, disk, SnapshotId(3, 1), "a")
    storage.append_fetched(batch(3), 1)
    data = snapshot("a")
    write_snapshot(disk, HOME, SnapshotId(6, 1), data)
    disk.faults = DiskFaults(too_many_files=1.0)
    with pytest.raises(OSError, match="want of descriptors"):
        storage.install(SnapshotId(6, 1), decode_snapshot(data), 0)
    disk.faults = DiskFaults()
    assert snapshot_ids(disk, HOME) == storage.snapshots == [SnapshotId(3, 1)]
    assert storage.log.log_end_offset == 4
    storage.append_fetched(batch(4), 1)


@pytest.mark.parametrize(
    ("begins", "epochs", "epoch", "remains"),
    [
        pytest.param(0, [1, 1, 1], 4, False, id="another record at the snapshot's end"),
        pytest.param(1, [4, 4], 4, True, id="only the last of its records"),
        pytest.param(1, [1], 4, False, id="the log begins with another record"),
        pytest.param(0, [1, 4], 4, True, id="the log ends with the snapshot"),
        pytest.param(2, [4], 4, True, id="the log begins behind it"),
        pytest.param(0, [1], 1, False, id="the log ends before it"),
    ],
)
def test_a_log_remains_if_it_has_the_last_record_of_the_snapshot(
    begins: int, epochs: list[int], epoch: int, remains: bool
) -> None:
    """Else it is of another history, and was never committed."""
    disk = disk_of()
    log = MetadataLog(disk, HOME)
    log.restart_at(begins)
    log.append([batch(begins + number, log_epoch) for number, log_epoch in enumerate(epochs)])
    log.begin_flush()()
    log.close()
    write_snapshot(disk, HOME, SnapshotId(2, epoch), snapshot("a", epoch=epoch))
    again = storage_of(disk)
    ends = begins + len(epochs)
    assert (again.log.log_start_offset, again.log.log_end_offset) == ((begins, ends) if remains else (2, 2))
    assert again.log_end.last_epoch == epoch


@pytest.mark.parametrize(("end_offset", "loads"), [(3, 1), (2, 0)])
def test_a_snapshot_takes_the_place_of_what_is_not_published(end_offset: int, loads: int) -> None:
    disk, publisher = disk_of(), MetadataPublisher()
    storage = QuorumStorage(disk, HOME, RaftConfig(), publisher, VoterSet())
    storage.open()
    storage.append_fetched(batch(0) + batch(1) + batch(2), 1)
    storage.publish(2)
    published: list[str] = []
    publisher.subscribe(lambda image, delta: published.append("x"))
    published.clear()
    voters = VoterSet([Voter(ReplicaKey(1), {})])
    data = encode_snapshot(
        [TopicRecord(name="a")], metadata_version=VERSION, leader_epoch=1, now_ms=0,
        kraft_version=1, voters=record_of(voters),
    )  # fmt: skip
    write_snapshot(disk, HOME, SnapshotId(end_offset, 1), data)
    storage.install(SnapshotId(end_offset, 1), decode_snapshot(data), 0)
    assert (len(published), storage.published_offset) == (loads, end_offset)
    assert publisher.kraft_version == storage.history.kraft_version == 1
    assert storage.history.at(end_offset) == (1, voters)
    storage.append_fetched(batch(end_offset), 1)
    storage.publish(end_offset + 1)
    assert publisher.image.topic(f"t{end_offset}") is not None, "what came behind the snapshot is published"
    assert (publisher.image.topic("t0") is None) == (loads == 1)


def test_the_log_is_walked_to_where_it_ended_when_the_walk_began() -> None:
    disk = disk_of()
    storage = storage_of(disk)
    count = RECORDS_PER_SLICE
    storage.append_fetched(batch(0, count=count) + batch(count), 1)
    walk = storage.slices()
    assert len(next(walk)) == count
    storage.append_fetched(batch(count + 1), 1)
    assert [[offset for offset, _ in each] for each in walk] == [[count]]


def test_records_appended_while_slices_are_read_are_not_in_them() -> None:
    disk = disk_of()
    storage = storage_of(disk)
    installed(storage, disk, SnapshotId(6, 1), "a")
    storage.append_fetched(batch(6), 1)
    walk = storage.slices()
    assert [offset for offset, _ in next(walk)] == [5]
    storage.append_fetched(batch(7), 1)
    assert [[offset for offset, _ in each] for each in walk] == [[6]]


def test_a_snapshot_that_cannot_be_read_ends_the_walk() -> None:
    disk = disk_of()
    storage = storage_of(disk)
    installed(storage, disk, SnapshotId(6, 1), "a")
    walk = storage.slices()
    disk.faults = DiskFaults(too_many_files=1.0)
    assert next(walk) == []
    disk.faults = DiskFaults(read_error=1.0)
    with pytest.raises(OSError, match="simulated read error"):
        next(walk)


def test_a_read_stops_at_its_limits() -> None:
    log = MetadataLog(disk_of(), HOME)
    sizes = [len(each) for each in (batch(0), batch(1), batch(2))]
    log.append([batch(0), batch(1), batch(2)])
    assert len(log.read(0, 1)) == sizes[0], "one batch at least"
    assert len(log.read(0, sizes[0] + sizes[1])) == sum(sizes[:2])
    assert len(log.read(0, sizes[0] + sizes[1] - 1)) == sizes[0]
    assert len(log.read(0, 1 << 20, upper_offset=2)) == sum(sizes[:2])
    assert len(log.read(0, 1 << 20, upper_offset=0)) == 0
    log.close()


def test_half_a_batch_that_cannot_be_cut_off_is_the_end_of_the_log() -> None:
    disk = disk_of()
    log = MetadataLog(disk, HOME)
    log.append([batch(0)])
    disk.faults = DiskFaults(capacity_bytes=disk.used_bytes() + 10, truncate_error=1.0)
    with pytest.raises(StorageError, match="simulated error of a truncation"):
        log.append([batch(1)])
    disk.faults = DiskFaults()
    with pytest.raises(StorageError, match="simulated error of a truncation"):
        log.append([batch(1)])


def test_a_record_that_is_no_metadata_is_named_by_file_and_byte() -> None:
    log = MetadataLog(disk_of(), HOME)
    log.append([batch(0), bytes(build_batch([Record(b"k", None, timestamp_ms=0)], base_offset=1, leader_epoch=1))])
    walk = log.batches(0)
    next(walk)
    with pytest.raises(StorageError, match=f"{0:020d}.log at byte {len(batch(0))}: .*record at offset 1 has no value"):
        next(walk)


def test_a_bit_that_flips_while_a_log_is_opened_is_not_stored() -> None:
    """Batches that are not durable yet are read twice then: to be checked, and to be written again."""
    said = []
    for number in range(6):
        disk = disk_of()
        log = MetadataLog(disk, HOME)
        log.append([batch(0), batch(1)])
        path = HOME / f"{0:020d}.log"
        whole = bytes(disk.seen(path))
        disk.process_died()
        disk.faults, left = DiskFaults(flipped_bit=1.0), iter([False] * number + [True])
        disk.happens = lambda fault, left=left: next(left, False)  # type: ignore[misc]  # a default binds it to this round
        try:
            MetadataLog(disk, HOME)
        except StorageError as error:
            said.append(str(error))
        assert whole.startswith(bytes(disk.seen(path)))
    assert any("was whole, and is read damaged" in each for each in said), said
