"""The voter set, from configuration (static quorum) or from the log's control records (KIP-853)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import NamedTuple
from uuid import UUID

from odradek.common.numbers import INT32_MAX, parse_natural

ZERO_DIRECTORY = UUID(int=0)
Endpoint = tuple[str, int]


class Leader(NamedTuple):
    """The quorum's leader as a node knows it; `endpoint`: (host, port) of its controller listener, if known."""

    node_id: int
    leader_epoch: int
    endpoint: Endpoint | None


@dataclass(frozen=True, slots=True, order=True)
class ReplicaKey:
    """A replica of the metadata log: a node and the directory of its copy.

    A voter that returns with an empty disk has another directory id and is another voter. A zero id (static quorums)
    means any directory of that node.
    """

    node_id: int
    directory_id: UUID = ZERO_DIRECTORY

    def is_same(self, other: ReplicaKey) -> bool:
        """Whether both may be the same replica: node ids are equal, and directory ids too if both are known."""
        if self.node_id != other.node_id:
            return False
        return ZERO_DIRECTORY in (self.directory_id, other.directory_id) or self.directory_id == other.directory_id


@dataclass(frozen=True, slots=True)
class Voter:
    """One voter.

    Attributes:
        endpoints: by listener name: (host, port).
        min_kraft_version, max_kraft_version: inclusive.
    """

    key: ReplicaKey
    endpoints: Mapping[str, Endpoint]
    min_kraft_version: int = 0
    max_kraft_version: int = 1


class VoterSet:
    """An immutable set of voters, by node id."""

    __slots__ = ("_voters",)

    def __init__(self, voters: Iterable[Voter] = ()) -> None:
        self._voters = {voter.key.node_id: voter for voter in sorted(voters, key=lambda voter: voter.key.node_id)}

    def __iter__(self) -> Iterator[Voter]:
        return iter(self._voters.values())

    def __len__(self) -> int:
        return len(self._voters)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, VoterSet) and self._voters == other._voters

    @property
    def majority(self) -> int:
        """The size of a majority."""
        return len(self._voters) // 2 + 1

    @property
    def node_ids(self) -> tuple[int, ...]:
        return tuple(self._voters)

    def get(self, node_id: int) -> Voter | None:
        """The voter with this node id."""
        return self._voters.get(node_id)

    def is_voter(self, replica: ReplicaKey) -> bool:
        """Whether this replica is a voter; a known directory id must be the voter's."""
        voter = self._voters.get(replica.node_id)
        return voter is not None and voter.key.is_same(replica)


def parse_static_voters(text: str, listener_name: str) -> VoterSet:
    """Parse `controller.quorum.voters`, as `1@host1:9093,2@host2:9093`; an IPv6 host is in brackets.

    Raises:
        ValueError: the text is malformed, or has a node id twice; the message has the part.
    """
    voters: dict[int, Voter] = {}
    for part in filter(None, (piece.strip() for piece in text.split(","))):
        identifier, at, address = part.partition("@")
        host, colon, port = address.rpartition(":")
        node_id, port_number = parse_natural(identifier, INT32_MAX), parse_natural(port, 65535)
        if not at or not colon or node_id is None or port_number is None or not host:
            raise ValueError(f"{part}: a voter is written id@host:port")
        if node_id in voters:
            raise ValueError(f"{part}: node {node_id} is given twice")
        if port_number == 0:
            raise ValueError(f"{part}: no such port")
        endpoint = (host.removeprefix("[").removesuffix("]"), port_number)
        voters[node_id] = Voter(ReplicaKey(node_id), {listener_name: endpoint})
    return VoterSet(voters.values())
