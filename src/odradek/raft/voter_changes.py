"""Adding, removing and moving voters of a dynamic quorum, one at a time (KIP-853), and joining by oneself (KIP-1186).

A change is a VotersRecord in the log. It counts from the moment it is written, also for the majority that commits it;
so a second change must wait until the first is committed, and none is made before the leader has committed a record of
its own epoch. A new voter must have caught up first, or the quorum might lose its majority.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol, TypeVar
from uuid import UUID

from odradek.client.connection import RequestTimeoutError, UnreachableError, UnsupportedRequestError
from odradek.common.errors import ApiError, ErrorCode, ProtocolError
from odradek.common.log_lines import get_logger
from odradek.common.ports import Clock
from odradek.protocol.declare import Message
from odradek.protocol.messages import add_raft_voter_request, update_raft_voter_request
from odradek.protocol.messages.add_raft_voter_request import AddRaftVoterRequest
from odradek.protocol.messages.add_raft_voter_response import AddRaftVoterResponse
from odradek.protocol.messages.k_raft_version_record import KRaftVersionRecord
from odradek.protocol.messages.remove_raft_voter_request import RemoveRaftVoterRequest
from odradek.protocol.messages.remove_raft_voter_response import RemoveRaftVoterResponse
from odradek.protocol.messages.update_raft_voter_request import UpdateRaftVoterRequest
from odradek.protocol.messages.update_raft_voter_response import CurrentLeader, UpdateRaftVoterResponse
from odradek.raft.node import RaftNode
from odradek.raft.roles import Role
from odradek.raft.storage import QuorumStorage
from odradek.raft.voter_history import record_of
from odradek.raft.voters import ZERO_DIRECTORY, Endpoint, Leader, ReplicaKey, Voter, VoterSet

# The only version of the quorum in which the voters can change.
DYNAMIC = 1
# A replica that was last caught up longer ago than this (ms) counts as not caught up.
CAUGHT_UP_MS = 3_600_000
_ASK_AGAIN_MS = 100
_log = get_logger("raft.voters")

M = TypeVar("M", bound=Message)
_Answer = AddRaftVoterResponse | RemoveRaftVoterResponse | UpdateRaftVoterResponse


class Host(Protocol):
    """The part of the driver that a change of voters uses."""

    @property
    def leads(self) -> bool: ...

    def leader(self) -> Leader | None: ...

    def append_control(self, records: Sequence[Message]) -> int:
        """Append control records; returns the log end offset."""
        ...

    async def wait_committed_within(self, end_offset: int, timeout_ms: int) -> None:
        """Wait for a commit. Raises ApiError REQUEST_TIMED_OUT, or NOT_CONTROLLER if this node stops leading first."""
        ...

    async def pause(self, pause_ms: int) -> None: ...

    async def send(self, endpoint: Endpoint, request: Message, response: type[M], min_version: int) -> M: ...


class VoterChanges:
    """Changes of the voter set: the leader's side, and the requests of a replica."""

    def __init__(
        self,
        host: Host,
        node: RaftNode,
        storage: QuorumStorage,
        *,
        clock: Clock,
        cluster_id: str,
        listener_name: str,
        endpoints: Mapping[str, Endpoint],
        auto_join: bool,
        timeout_ms: int,
    ) -> None:
        """
        Args:
            endpoints: this node's own.
            auto_join: whether an observer asks to become a voter.
            timeout_ms: for a request that has no timeout of its own.
        """
        self._timeout_ms = timeout_ms
        self._host = host
        self._node = node
        self._storage = storage
        self._clock = clock
        self._cluster_id = cluster_id
        self._listener_name = listener_name
        self._endpoints = endpoints
        self._auto_join = auto_join

    # -- as the leader ----------------------------------------------------------------------------------------------

    async def add(self, request: AddRaftVoterRequest) -> AddRaftVoterResponse:
        """Make a replica that has caught up a voter.

        Raises:
            ApiError: INCONSISTENT_CLUSTER_ID, NOT_LEADER_OR_FOLLOWER, UNSUPPORTED_VERSION (a static quorum),
                DUPLICATE_VOTER, INVALID_REQUEST, REQUEST_TIMED_OUT (not caught up, not committed, or another change
                is under way).
        """
        began_ms = self._clock.monotonic_ms()
        endpoints = {each.name: (each.host, each.port) for each in request.listeners}
        key = ReplicaKey(request.voter_id, request.voter_directory_id)
        if key.node_id < 0 or key.directory_id == ZERO_DIRECTORY or self._listener_name not in endpoints:
            needed = f"an id, a directory id and an endpoint of listener {self._listener_name}"
            raise ApiError(ErrorCode.INVALID_REQUEST, f"a voter needs {needed}")
        await self._until_addable(key, request)
        end_offset = self._write(VoterSet([*self._node.voters, Voter(key, endpoints)]))
        _log.info("voter added", voter_id=key.node_id, voters=str(self._node.voters.node_ids))
        if request.ack_when_committed:
            left_ms = request.timeout_ms - (self._clock.monotonic_ms() - began_ms)
            await self._committed(end_offset, max(1, left_ms))
        return AddRaftVoterResponse()

    async def _until_addable(self, key: ReplicaKey, request: AddRaftVoterRequest) -> None:
        """Wait until a replica has caught up and no other change is under way. Raises ApiError as `add`."""
        began_ms = self._clock.monotonic_ms()
        while True:
            self._check_changeable(request.cluster_id)
            if self._node.voters.get(key.node_id) is not None:
                raise ApiError(ErrorCode.DUPLICATE_VOTER, f"node {key.node_id} is a voter already")
            if not self._is_pending() and self._has_caught_up(key):
                return
            if self._clock.monotonic_ms() - began_ms >= request.timeout_ms:
                reason = "another change is not committed" if self._is_pending() else "it has not caught up"
                raise ApiError(ErrorCode.REQUEST_TIMED_OUT, f"node {key.node_id} is not a voter yet: {reason}")
            await self._host.pause(_ASK_AGAIN_MS)

    async def remove(self, request: RemoveRaftVoterRequest) -> RemoveRaftVoterResponse:
        """Make a voter an observer; a leader that is removed resigns once the removal is committed.

        Raises:
            ApiError: as `add`, and VOTER_NOT_FOUND; INVALID_REQUEST for the last voter.
        """
        self._check_changeable(request.cluster_id)
        self._check_nothing_pending()
        voter = self._voter(request.voter_id, request.voter_directory_id)
        if len(self._node.voters) == 1:
            raise ApiError(ErrorCode.INVALID_REQUEST, "the last voter cannot be removed")
        end_offset = self._write(VoterSet(other for other in self._node.voters if other is not voter))
        _log.info("voter removed", voter_id=voter.key.node_id, voters=str(self._node.voters.node_ids))
        await self._committed(end_offset, self._timeout_ms)
        return RemoveRaftVoterResponse()

    async def update(self, request: UpdateRaftVoterRequest) -> UpdateRaftVoterResponse:
        """Store a voter's new endpoints. Raises ApiError as `remove`; also FENCED_ and UNKNOWN_LEADER_EPOCH."""
        self._check_changeable(request.cluster_id)
        if request.current_leader_epoch != self._node.leader_epoch:
            older = request.current_leader_epoch < self._node.leader_epoch
            raise ApiError(ErrorCode.FENCED_LEADER_EPOCH if older else ErrorCode.UNKNOWN_LEADER_EPOCH)
        self._check_nothing_pending()
        known = self._voter(request.voter_id, request.voter_directory_id)
        endpoints = {each.name: (each.host, each.port) for each in request.listeners}
        feature = request.k_raft_version_feature
        if self._listener_name not in endpoints or not (
            feature.min_supported_version <= DYNAMIC <= feature.max_supported_version
        ):
            raise ApiError(ErrorCode.INVALID_REQUEST, "the voter could not be reached, or knows no dynamic quorum")
        moved = Voter(known.key, endpoints, feature.min_supported_version, feature.max_supported_version)
        if moved != known:
            end_offset = self._write(VoterSet([*(v for v in self._node.voters if v is not known), moved]))
            _log.info("voter updated", voter_id=known.key.node_id, endpoint=str(endpoints[self._listener_name]))
            await self._committed(end_offset, self._timeout_ms)
        return UpdateRaftVoterResponse(current_leader=self._current_leader())

    def _voter(self, node_id: int, directory_id: UUID) -> Voter:
        """The voter with this id and directory. Raises ApiError VOTER_NOT_FOUND."""
        key = ReplicaKey(node_id, directory_id)
        voter = self._node.voters.get(node_id)
        if voter is None or voter.key != key:
            raise ApiError(ErrorCode.VOTER_NOT_FOUND, f"there is no voter {node_id} with this directory id")
        return voter

    @property
    def kraft_version(self) -> int:
        """0: the voters are those of the setting. 1: they can change."""
        return self._storage.history.kraft_version

    async def upgrade(self, level: int, *, validate_only: bool = False) -> None:
        """Raise kraft.version: a static quorum becomes a dynamic one with the same voters (KIP-853).

        The voters' directories are those of their Fetch requests, their endpoints those of the setting; a voter with
        other endpoints sends UpdateRaftVoter from then on.

        Raises:
            ApiError: NOT_LEADER_OR_FOLLOWER; INVALID_UPDATE_VERSION for a lower level, and if a voter's directory is
                unknown because it has not fetched since this leader's election; REQUEST_TIMED_OUT.
        """
        if not self._host.leads:
            raise ApiError(ErrorCode.NOT_LEADER_OR_FOLLOWER, "this node does not lead the quorum")
        known = self._storage.history.kraft_version
        if level == known:
            return
        if level != DYNAMIC:
            why = "It cannot be lowered." if level < known else f"Local controller supports versions 0-{DYNAMIC}."
            raise ApiError(
                ErrorCode.INVALID_UPDATE_VERSION, f"Invalid update version {level} for feature kraft.version. {why}"
            )
        self._check_nothing_pending()
        silent = [node_id for node_id in self._node.voters.node_ids if node_id not in self._node.directories]
        if silent:
            raise ApiError(
                ErrorCode.INVALID_UPDATE_VERSION,
                f"Invalid update version {level} for feature kraft.version. Voters {silent} have not been heard of: "
                "their directories are not known.",
            )
        if validate_only:
            return
        voters = VoterSet(
            Voter(ReplicaKey(voter.key.node_id, self._node.directories[voter.key.node_id]), voter.endpoints)
            for voter in self._node.voters
        )
        end_offset = self._host.append_control([KRaftVersionRecord(version=0, k_raft_version=level), record_of(voters)])
        _log.info("the quorum is dynamic from now on", voters=str(voters.node_ids))
        await self._committed(end_offset, self._timeout_ms)

    def _current_leader(self) -> CurrentLeader:
        leader = self._host.leader()
        host, port = leader.endpoint if leader is not None and leader.endpoint is not None else ("", 0)
        leader_id = leader.node_id if leader is not None else -1
        return CurrentLeader(leader_id=leader_id, leader_epoch=self._node.leader_epoch, host=host, port=port)

    def _check_changeable(self, cluster_id: str | None) -> None:
        if cluster_id is not None and cluster_id != self._cluster_id:
            raise ApiError(ErrorCode.INCONSISTENT_CLUSTER_ID)
        if not self._host.leads:
            raise ApiError(ErrorCode.NOT_LEADER_OR_FOLLOWER, "this node does not lead the quorum")
        if self._storage.history.kraft_version < DYNAMIC:
            raise ApiError(ErrorCode.UNSUPPORTED_VERSION, "the quorum is static: its voters are in a setting")

    def _check_nothing_pending(self) -> None:
        if self._is_pending():
            raise ApiError(ErrorCode.REQUEST_TIMED_OUT, "another change of voters is not committed yet")

    def _is_pending(self) -> bool:
        """Whether the newest voter set, or the first record of this leader's epoch, is not committed."""
        high_watermark = self._node.high_watermark
        return self._storage.history.voters_offset >= high_watermark or (
            high_watermark <= self._node.epoch_start_offset
        )

    def _has_caught_up(self, key: ReplicaKey) -> bool:
        known = self._node.replicas.get(key)
        if known is None or known.last_caught_up_ms < 0:
            return False
        return self._clock.monotonic_ms() - known.last_caught_up_ms < CAUGHT_UP_MS

    def _write(self, voters: VoterSet) -> int:
        return self._host.append_control([record_of(voters)])

    async def _committed(self, end_offset: int, timeout_ms: int) -> None:
        try:
            await self._host.wait_committed_within(end_offset, timeout_ms)
        except ApiError as error:
            if error.code is not ErrorCode.NOT_CONTROLLER:
                raise
            raise ApiError(ErrorCode.NOT_LEADER_OR_FOLLOWER, "this node leads no more; the change may count") from None

    # -- as a replica -----------------------------------------------------------------------------------------------

    def next_membership_request(self) -> Message | None:
        """The request of a follower of a dynamic quorum: to become a voter, or to update its endpoints."""
        node, voters = self._node, self._node.voters
        if node.role is not Role.FOLLOWER or not self._endpoints or self._storage.history.kraft_version < DYNAMIC:
            return None
        known = voters.get(node.me.node_id)
        if known is not None and known.key == node.me:
            return None if known.endpoints == self._endpoints else self._update()
        if not self._auto_join or node.high_watermark < self._storage.log.log_end_offset:
            return None
        if known is not None:
            # Remove the voter that this node was before it lost its disk; then it can be added with its new disk.
            return RemoveRaftVoterRequest(
                cluster_id=self._cluster_id, voter_id=known.key.node_id, voter_directory_id=known.key.directory_id
            )
        return self._addition()

    def _addition(self) -> AddRaftVoterRequest:
        return AddRaftVoterRequest(
            cluster_id=self._cluster_id,
            timeout_ms=1000,
            voter_id=self._node.me.node_id,
            voter_directory_id=self._node.me.directory_id,
            listeners=[
                add_raft_voter_request.Listener(name=name, host=host, port=port)
                for name, (host, port) in self._endpoints.items()
            ],
            ack_when_committed=False,
        )

    def _update(self) -> UpdateRaftVoterRequest:
        return UpdateRaftVoterRequest(
            cluster_id=self._cluster_id,
            current_leader_epoch=self._node.leader_epoch,
            voter_id=self._node.me.node_id,
            voter_directory_id=self._node.me.directory_id,
            listeners=[
                update_raft_voter_request.Listener(name=name, host=host, port=port)
                for name, (host, port) in self._endpoints.items()
            ],
            k_raft_version_feature=update_raft_voter_request.KRaftVersionFeature(
                min_supported_version=0, max_supported_version=DYNAMIC
            ),
        )

    async def send_membership_request(self) -> None:
        """Send this replica's membership request, if it has one; a refused request is repeated later."""
        request, leader = self.next_membership_request(), self._host.leader()
        if request is None or leader is None or leader.endpoint is None:
            return
        responses: dict[type[Message], type[_Answer]] = {
            AddRaftVoterRequest: AddRaftVoterResponse,
            RemoveRaftVoterRequest: RemoveRaftVoterResponse,
            UpdateRaftVoterRequest: UpdateRaftVoterResponse,
        }
        min_version = 1 if isinstance(request, AddRaftVoterRequest) else 0
        try:
            answer = await self._host.send(leader.endpoint, request, responses[type(request)], min_version)
        except (UnreachableError, RequestTimeoutError, UnsupportedRequestError, ProtocolError) as error:
            _log.debug("voter change not sent to the leader", request=type(request).__name__, error=error)
        else:
            if answer.error_code:
                _log.info(
                    "voter change refused by the leader",
                    request=type(request).__name__,
                    code=ErrorCode(answer.error_code).name,
                )
