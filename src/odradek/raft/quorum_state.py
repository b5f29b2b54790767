"""The election state of a node: the `quorum-state` file beside the metadata log, in Kafka's JSON.

Data version 0 is for static quorums (kraft.version 0); version 1, for dynamic ones, adds the directory id of the vote.
A vote or an epoch counts only once this file is durable.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from uuid import UUID

from odradek.common.errors import StorageError
from odradek.common.ports import Disk, read_file, write_file_durably
from odradek.raft.voters import ZERO_DIRECTORY, ReplicaKey

FILE_NAME = "quorum-state"
NO_NODE = -1


@dataclass(frozen=True, slots=True)
class ElectionState:
    """The newest epoch that this node knows, its leader if known, and the node's vote in it."""

    leader_epoch: int = 0
    leader_id: int = NO_NODE
    voted: ReplicaKey | None = None


def uuid_text(value: UUID) -> str:
    """Kafka's text form of an id: url-safe base64 without padding, 22 characters."""
    return base64.urlsafe_b64encode(value.bytes).rstrip(b"=").decode()


def uuid_of(text: str) -> UUID:
    """Read Kafka's text form of an id. Raises ValueError."""
    return UUID(bytes=base64.urlsafe_b64decode(text + "=="))


def encode_state(state: ElectionState, *, kraft_version: int, cluster_id: str, voters: Sequence[int]) -> bytes:
    """Encode the file."""
    voted_id = state.voted.node_id if state.voted else NO_NODE
    if kraft_version == 0:
        data: dict[str, object] = {
            "clusterId": cluster_id,
            "leaderId": state.leader_id,
            "leaderEpoch": state.leader_epoch,
            "votedId": voted_id,
            "appliedOffset": 0,
            "currentVoters": [{"voterId": voter} for voter in voters],
            "data_version": 0,
        }
    else:
        directory = state.voted.directory_id if state.voted else ZERO_DIRECTORY
        data = {
            "leaderId": state.leader_id,
            "leaderEpoch": state.leader_epoch,
            "votedId": voted_id,
            "votedDirectoryId": uuid_text(directory),
            "data_version": 1,
        }
    return json.dumps(data, separators=(",", ":")).encode()


def decode_state(data: bytes) -> ElectionState:
    """Decode the file. Raises ValueError if the bytes are not valid."""
    try:
        fields = json.loads(data)
    except RecursionError:
        raise ValueError("brackets within brackets without an end") from None
    if not isinstance(fields, dict) or fields.get("data_version") not in (0, 1):
        raise ValueError("unknown data_version")
    leader_epoch, leader_id, voted_id = (_number(fields, name) for name in ("leaderEpoch", "leaderId", "votedId"))
    voted = None
    if voted_id != NO_NODE:
        directory = fields.get("votedDirectoryId")
        if not isinstance(directory, str | None):
            raise ValueError("votedDirectoryId is not a text")
        voted = ReplicaKey(voted_id, uuid_of(directory) if directory else ZERO_DIRECTORY)
    return ElectionState(leader_epoch, leader_id, voted)


def _number(fields: dict[str, object], name: str) -> int:
    value = fields.get(name, None if name == "leaderEpoch" else NO_NODE)
    if not isinstance(value, int):
        raise ValueError(f"{name} is missing or is not a number")
    return value


def load_state(disk: Disk, directory: Path) -> ElectionState | None:
    """Read the file; None if it does not exist.

    Raises:
        StorageError: the file is damaged. Without it the node could vote twice in one epoch.
    """
    path = directory / FILE_NAME
    if not disk.exists(path):
        return None
    try:
        return decode_state(read_file(disk, path))
    except ValueError as error:
        raise StorageError(directory, f"{path.name} is damaged: {error}") from None


def store_state(
    disk: Disk, directory: Path, state: ElectionState, *, kraft_version: int, cluster_id: str, voters: Sequence[int]
) -> None:
    """Replace the file durably. Blocks."""
    data = encode_state(state, kraft_version=kraft_version, cluster_id=cluster_id, voters=voters)
    stored = decode_state(data)
    assert stored.leader_epoch == state.leader_epoch, f"{stored} for {state}"
    assert (stored.voted and stored.voted.node_id) == (state.voted and state.voted.node_id), f"{stored} for {state}"
    write_file_durably(disk, directory / FILE_NAME, data)
