"""The small parts of the quorum at their edges: the history of voters, snapshots, answers of a leader."""

from __future__ import annotations

import pytest

from odradek.protocol.messages import fetch_response as wire
from odradek.protocol.messages.k_raft_version_record import KRaftVersionRecord
from odradek.protocol.messages.snapshot_footer_record import SnapshotFooterRecord
from odradek.protocol.messages.snapshot_header_record import SnapshotHeaderRecord
from odradek.protocol.messages.voters_record import VotersRecord
from odradek.raft.batches import decode_batches
from odradek.raft.snapshot import SnapshotId, encode_snapshot
from odradek.raft.storage import Diverging
from odradek.raft.voter_history import BEFORE_THE_LOG, VoterHistory, record_of
from odradek.raft.voters import Voter, VoterSet
from odradek.raft.wire import read_fetch_response
from tests.unit.raft.test_raft_node import key


def voters(*numbers: int) -> VoterSet:
    return VoterSet(Voter(key(number), {"C": ("host", 9000 + number)}) for number in numbers)


def history() -> VoterHistory:
    """Version 1 at offset 4; voters 1 at 5, 1 and 2 at 8."""
    made = VoterHistory(voters(9))
    assert made.replay(4, KRaftVersionRecord(version=0, k_raft_version=1))
    assert made.replay(5, record_of(voters(1))) and made.replay(8, record_of(voters(1, 2)))
    assert not made.replay(9, SnapshotFooterRecord(version=0))
    return made


@pytest.mark.parametrize(
    ("end_offset", "undone", "version", "ids", "voters_offset"),
    [
        (9, False, 1, (1, 2), 8),
        (8, True, 1, (1,), 5),
        (6, True, 1, (1,), 5),
        (5, True, 1, (9,), BEFORE_THE_LOG),
        (4, True, 0, (9,), BEFORE_THE_LOG),
    ],
)
def test_a_log_that_is_cut_has_the_voters_of_what_is_left(
    end_offset: int, undone: bool, version: int, ids: tuple[int, ...], voters_offset: int
) -> None:
    made = history()
    assert (made.at(end_offset)[0], tuple(made.at(end_offset)[1].node_ids)) == (version, ids)
    assert made.truncate_to(end_offset) is undone
    assert (made.kraft_version, tuple(made.voters.node_ids), made.voters_offset) == (version, ids, voters_offset)


def test_behind_a_snapshot_the_newest_voters_below_it_stay() -> None:
    for offset, below in ((8, (1,)), (9, (1, 2))):
        made = history()
        made.truncate_old_entries(offset)
        assert made.kraft_version == 1 and tuple(made.voters.node_ids) == (1, 2)
        assert tuple(made.at(offset)[1].node_ids) == below
        with pytest.raises(IndexError):
            made.at(5)


@pytest.mark.parametrize("version", [0, 1])
def test_a_snapshot_names_the_voters_of_a_dynamic_quorum_alone(version: int) -> None:
    data = encode_snapshot(
        [], metadata_version=30, leader_epoch=3, now_ms=7, last_timestamp_ms=6, kraft_version=version,
        voters=record_of(voters(1, 2)),
    )  # fmt: skip
    first, last = decode_batches(data)
    dynamic: list[type] = [KRaftVersionRecord, VotersRecord] if version else []
    assert [type(record) for _, record in first.records] == [SnapshotHeaderRecord, *dynamic]
    header = first.records[0][1]
    assert isinstance(header, SnapshotHeaderRecord)
    assert header.last_contained_log_timestamp == 6
    if version:
        voting = first.records[1][1]
        assert isinstance(voting, KRaftVersionRecord)
        assert voting.k_raft_version == 1
    assert [type(record) for _, record in last.records] == [SnapshotFooterRecord]
    assert last.base_offset == len(first.records)


def test_an_answer_names_a_snapshot_or_a_divergence_at_offset_0() -> None:
    for offset in (-1, 0):
        partition = wire.PartitionData(
            partition_index=0,
            high_watermark=5,
            diverging_epoch=wire.EpochEndOffset(epoch=2, end_offset=offset),
            snapshot_id=wire.SnapshotId(end_offset=offset, epoch=2),
            records=b"",
        )
        answer = wire.FetchResponse(responses=[wire.FetchableTopicResponse(partitions=[partition])])
        found = read_fetch_response(answer)
        there = offset >= 0
        assert found.snapshot_id == (SnapshotId(0, 2) if there else None)
        assert found.diverging == (Diverging(2, 0) if there else None)
