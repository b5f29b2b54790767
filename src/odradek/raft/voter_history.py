"""Voter sets of the log by offset. A set counts from the moment it is written, until its record is truncated.

A dynamic quorum (kraft.version 1) keeps its voters as control records in the log and in snapshots (KIP-853); a static
one always has those of `controller.quorum.voters`.
"""

from __future__ import annotations

from collections.abc import Callable

from odradek.protocol.messages import voters_record as wire
from odradek.protocol.messages.k_raft_version_record import KRaftVersionRecord
from odradek.protocol.messages.voters_record import VotersRecord
from odradek.raft.voters import ReplicaKey, Voter, VoterSet

BEFORE_THE_LOG = -1


def voters_of(record: VotersRecord) -> VoterSet:
    """The voter set of a control record."""
    return VoterSet(
        Voter(
            ReplicaKey(voter.voter_id, voter.voter_directory_id),
            {endpoint.name: (endpoint.host, endpoint.port) for endpoint in voter.endpoints},
            voter.k_raft_version_feature.min_supported_version,
            voter.k_raft_version_feature.max_supported_version,
        )
        for voter in record.voters
    )


def record_of(voters: VoterSet) -> VotersRecord:
    """The control record of a voter set."""
    return VotersRecord(
        version=0,
        voters=[
            wire.Voter(
                voter_id=voter.key.node_id,
                voter_directory_id=voter.key.directory_id,
                endpoints=[
                    wire.Endpoint(name=name, host=host, port=port) for name, (host, port) in voter.endpoints.items()
                ],
                k_raft_version_feature=wire.KRaftVersionFeature(
                    min_supported_version=voter.min_kraft_version, max_supported_version=voter.max_kraft_version
                ),
            )
            for voter in voters
        ],
    )


class VoterHistory:
    """Voter sets and the quorum's version, each with the offset of its record (BEFORE_THE_LOG for configured ones)."""

    def __init__(self, configured: VoterSet) -> None:
        self._configured = configured
        self._voters: list[tuple[int, VoterSet]] = [(BEFORE_THE_LOG, configured)]
        self._versions: list[tuple[int, int]] = [(BEFORE_THE_LOG, 0)]

    @property
    def voters(self) -> VoterSet:
        """The present voters, committed or not."""
        return self._voters[-1][1]

    @property
    def voters_offset(self) -> int:
        """The offset of the newest voter set; BEFORE_THE_LOG if it is in no record behind a snapshot."""
        return self._voters[-1][0]

    def removed_at(self, replica: ReplicaKey) -> int:
        """The offset of the newest voter set if it removed this voter; else BEFORE_THE_LOG."""
        was_voter = any(voters.is_voter(replica) for _, voters in self._voters[-2:-1])
        return self.voters_offset if was_voter and not self.voters.is_voter(replica) else BEFORE_THE_LOG

    @property
    def kraft_version(self) -> int:
        """0: a static quorum; 1: a dynamic one."""
        return self._versions[-1][1]

    def at(self, end_offset: int) -> tuple[int, VoterSet]:
        """(kraft version, voters) from the log's records below `end_offset` (exclusive)."""
        voters = [value for offset, value in self._voters if offset < end_offset][-1]
        return [value for offset, value in self._versions if offset < end_offset][-1], voters

    def replay(self, offset: int, record: object) -> bool:
        """Replay a control record of the log; returns whether it concerns the voters."""
        if isinstance(record, KRaftVersionRecord):
            assert offset > self._versions[-1][0], "versions are replayed in the log's order"
            self._versions.append((offset, record.k_raft_version))
            return True
        if isinstance(record, VotersRecord):
            assert offset > self._voters[-1][0], "voters are replayed in the log's order"
            self._voters.append((offset, voters_of(record)))
            return True
        return False

    def load(self, kraft_version: KRaftVersionRecord | None, voters: VotersRecord | None) -> None:
        """Restart with the contents of a snapshot; None keeps the configured value."""
        self._versions = [(BEFORE_THE_LOG, kraft_version.k_raft_version if kraft_version is not None else 0)]
        self._voters = [(BEFORE_THE_LOG, voters_of(voters) if voters is not None else self._configured)]

    def truncate_to(self, end_offset: int) -> bool:
        """Remove the records at and above `end_offset`; returns whether there were any."""
        undone = max(self._voters[-1][0], self._versions[-1][0]) >= end_offset
        self._filter(lambda offset: offset < end_offset)
        return undone

    def truncate_old_entries(self, offset: int) -> None:
        """Drop all but the newest record below `offset`: a snapshot covers these."""
        self._voters = self._voters[_last_below(self._voters, offset) :]
        self._versions = self._versions[_last_below(self._versions, offset) :]

    def _filter(self, keep: Callable[[int], bool]) -> None:
        # Configured values, and those of a snapshot, have no offset in the log, and stay.
        self._voters = [entry for entry in self._voters if keep(entry[0])]
        self._versions = [entry for entry in self._versions if keep(entry[0])]


def _last_below(entries: list[tuple[int, VoterSet]] | list[tuple[int, int]], offset: int) -> int:
    return max(0, sum(1 for at, _ in entries if at < offset) - 1)
