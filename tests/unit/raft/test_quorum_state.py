"""The quorum-state file in Kafka's JSON."""

from __future__ import annotations

import json
from uuid import UUID

import pytest

from odradek.raft.quorum_state import ElectionState, decode_state, encode_state, uuid_of, uuid_text
from odradek.raft.voters import ReplicaKey


def test_version_0_as_kafka_writes_it() -> None:
    data = encode_state(ElectionState(5, 1, ReplicaKey(1)), kraft_version=0, cluster_id="c", voters=[1])
    assert json.loads(data) == {
        "clusterId": "c",
        "leaderId": 1,
        "leaderEpoch": 5,
        "votedId": 1,
        "appliedOffset": 0,
        "currentVoters": [{"voterId": 1}],
        "data_version": 0,
    }
    assert decode_state(data) == ElectionState(5, 1, ReplicaKey(1))


def test_version_1_carries_the_directory_of_the_vote() -> None:
    state = ElectionState(7, -1, ReplicaKey(2, UUID(int=1 << 90)))
    data = encode_state(state, kraft_version=1, cluster_id="c", voters=[])
    assert json.loads(data)["data_version"] == 1 and decode_state(data) == state


def test_kafkas_quorum_state_files_are_read() -> None:
    text = (
        b'{"leaderId":3000,"leaderEpoch":12,"votedId":-1,"votedDirectoryId":"AAAAAAAAAAAAAAAAAAAAAA","data_version":1}'
    )
    assert decode_state(text) == ElectionState(12, 3000, None)


VOTED = b'{"leaderId":1,"leaderEpoch":1,"votedId":1,"votedDirectoryId":7,"data_version":1}'


@pytest.mark.parametrize(
    "text",
    [b"", b"{", b"[]", b"{}", b'{"data_version":9}', b'{"data_version":0}', b"\xff", VOTED, b"[" * 100_000],
    ids=lambda text: bytes(text[:9]).decode("latin-1"),
)
def test_other_texts_are_refused(text: bytes) -> None:
    with pytest.raises(ValueError, match=r"."):
        decode_state(text)


def test_ids_in_text() -> None:
    value = UUID(int=0xF1E2D3C4B5A697887766554433221100)
    assert uuid_of(uuid_text(value)) == value and len(uuid_text(value)) == 22
    assert uuid_text(UUID(int=1)) == "AAAAAAAAAAAAAAAAAAAAAQ"
