"""Requests to other replicas: the node's messages, which are repeated while they matter, and a follower's requests.

At most one message of a kind is under way to a voter, and one request to a leader. Every task is kept until it ends;
`close` cancels the rest. `Commits` has the callers that wait until their records are committed.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, TypeVar

from odradek.client.connection import RefusedError, RequestTimeoutError, UnreachableError, UnsupportedRequestError
from odradek.common.backoff import Backoff
from odradek.common.errors import ErrorCode, ProtocolError
from odradek.common.log_lines import get_logger
from odradek.common.ports import Clock
from odradek.protocol.apis import ApiKey
from odradek.protocol.declare import Message as WireMessage
from odradek.protocol.messages.begin_quorum_epoch_response import BeginQuorumEpochResponse
from odradek.protocol.messages.end_quorum_epoch_response import EndQuorumEpochResponse
from odradek.protocol.messages.vote_response import VoteResponse
from odradek.raft import wire
from odradek.raft.config import RaftConfig
from odradek.raft.follower import LeaderChangedError
from odradek.raft.messages import EpochBegun, EpochEnded, Message, Ready, VoteAnswered, VoteRequested
from odradek.raft.node import RaftNode
from odradek.raft.peers import QuorumPeers
from odradek.raft.quorum_state import NO_NODE
from odradek.raft.roles import Role
from odradek.raft.voters import Endpoint, Voter

if TYPE_CHECKING:
    from random import Random

# A failed request is retried after the configured pause, which doubles up to this.
MAX_BACKOFF_MS = 200
_RESPONSES: dict[type[Message], type[VoteResponse | BeginQuorumEpochResponse | EndQuorumEpochResponse]] = {
    VoteRequested: VoteResponse,
    EpochBegun: BeginQuorumEpochResponse,
    EpochEnded: EndQuorumEpochResponse,
}
_log = get_logger("raft.outgoing")

M = TypeVar("M", bound=WireMessage)


class Commits:
    """Callers that wait for the high watermark, each for its own offset."""

    def __init__(self) -> None:
        self._waiting: list[tuple[int, asyncio.Future[None]]] = []

    async def wait(self, end_offset: int) -> None:
        """Return when all records below `end_offset` are committed. Raises the error that prevents it."""
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append((end_offset, future))
        await future

    def committed(self, high_watermark: int) -> None:
        """Wake the callers that wait for offsets up to `high_watermark`."""
        waiting, self._waiting = self._waiting, []
        for end_offset, future in waiting:
            if end_offset > high_watermark:
                self._waiting.append((end_offset, future))
            elif not future.done():
                future.set_result(None)

    def fail(self, error: BaseException) -> None:
        """Raise `error` in all callers that wait: nothing more is committed here."""
        waiting, self._waiting = self._waiting, []
        for _, future in waiting:
            if not future.done():
                future.set_exception(error)


class OutgoingRequests:
    """The requests of one replica that are under way."""

    def __init__(
        self,
        peers: QuorumPeers | None,
        node: RaftNode,
        *,
        clock: Clock,
        random: Random,
        config: RaftConfig,
        cluster_id: str,
        listener_name: str,
        endpoints: Mapping[str, Endpoint],
        handle_leader_info: Callable[[wire.LeaderInfo], None],
        update_leader_endpoint: Callable[[wire.LeaderInfo], None],
        apply_ready: Callable[[Ready], None],
        on_failed: Callable[[BaseException], None],
    ) -> None:
        """
        Args:
            peers: None for a voter alone; then nothing is sent.
            endpoints: this node's own, which a leader sends to the voters.
            handle_leader_info: called with the leader and epoch of a response.
            update_leader_endpoint: called with a response of which only the leader's endpoint is used.
            apply_ready: carries out the node's decision after an answer.
        """
        self._peers = peers
        self._node = node
        self._clock = clock
        self._random = random
        self._config = config
        self._cluster_id = cluster_id
        self._listener_name = listener_name
        self._endpoints = endpoints
        self._handle_leader_info = handle_leader_info
        self._update_leader_endpoint = update_leader_endpoint
        self._apply_ready = apply_ready
        self._on_failed = on_failed
        self._leader_request: asyncio.Task[WireMessage] | None = None
        self._latest: dict[tuple[int, type[Message]], asyncio.Task[None]] = {}
        self._tasks: dict[asyncio.Task[None], None] = {}

    async def close(self) -> None:
        """Cancel the requests under way, and close the connections."""
        tasks = [*self._tasks]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        if self._peers is not None:
            self._peers.close()

    def cancel_vote_requests(self) -> None:
        """Cancel follower requests: the leader that they were sent to no longer leads."""
        if self._leader_request is not None:
            self._leader_request.cancel()

    async def resigned(self, timeout_s: float) -> None:
        """Wait until the voters have answered EndQuorumEpoch, for at most `timeout_s`."""
        posted = [task for (_, kind), task in self._latest.items() if kind is EpochEnded]
        if posted:
            await asyncio.wait(posted, timeout=timeout_s)

    async def request(self, endpoint: Endpoint, request: WireMessage, response: type[M], min_version: int) -> M:
        """Send a request; raises LeaderChangedError if the leader changes first, else as `QuorumPeers.send`."""
        assert self._peers is not None
        sending = self.send(endpoint, request, response, min_version)
        self._leader_request = task = asyncio.get_running_loop().create_task(sending)
        try:
            await asyncio.wait([task])
        finally:
            self._leader_request = None
            task.cancel()
            if not task.done() or task.cancelled():
                await asyncio.gather(task, return_exceptions=True)
                self._peers.drop(endpoint, ApiKey(request.KEY or 0))
        if task.cancelled():
            raise LeaderChangedError("the leader changed")
        return task.result()

    async def send(self, endpoint: Endpoint, request: WireMessage, response: type[M], min_version: int) -> M:
        """Send a request; raises as `QuorumPeers.send`."""
        assert self._peers is not None
        timeout_ms = self._config.request_timeout_ms
        return await self._peers.send(endpoint, request, response, timeout_ms=timeout_ms, min_version=min_version)

    def enqueue(self, node_id: int, message: Message) -> None:
        """Send a message of the node to a voter; a newer message of its kind replaces an older one."""
        older = self._latest.get((node_id, type(message)))
        if older is not None:
            older.cancel()
        task = asyncio.get_running_loop().create_task(self._deliver(node_id, message))
        self._latest[node_id, type(message)] = task
        self._tasks[task] = None
        task.add_done_callback(self._delivered)

    def _delivered(self, task: asyncio.Task[None]) -> None:
        self._tasks.pop(task, None)
        for key in [key for key, known in self._latest.items() if known is task]:
            del self._latest[key]
        if not task.cancelled() and (error := task.exception()) is not None:
            self._on_failed(error)

    async def _deliver(self, node_id: int, message: Message) -> None:
        """Send a message until it is answered or obsolete."""
        backoff = Backoff(self._config.retry_backoff_ms, MAX_BACKOFF_MS, jitter=0.5, random=self._random)
        while self._is_current(message):
            voter = self._node.voters.get(node_id)
            endpoint = voter.endpoints.get(self._listener_name) if voter is not None else None
            if voter is None or endpoint is None or self._peers is None:
                return
            try:
                answer = await self._peers.send(
                    endpoint,
                    self._encode(message, voter),
                    _RESPONSES[type(message)],
                    timeout_ms=self._config.request_timeout_ms,
                    min_version=wire.PRE_VOTE_VERSION if isinstance(message, VoteRequested) and message.pre_vote else 0,
                )
                known, granted = wire.read_response(answer)
            except UnsupportedRequestError:
                # A voter without pre-votes (KIP-996) cannot deny one: count it as granted.
                granted = isinstance(message, VoteRequested) and message.pre_vote
                known = wire.LeaderInfo(0, NO_NODE, self._node.leader_epoch, {})
            except (UnreachableError, RequestTimeoutError, ProtocolError) as error:
                if isinstance(message, EpochEnded):
                    return
                if isinstance(message, VoteRequested) and isinstance(error, RefusedError) and self._is_current(message):
                    self._node.voter_unreachable(node_id, self._clock.monotonic_ms())
                    self._apply_ready(Ready())
                await backoff.sleep()
                continue
            self._handle_response(node_id, message, known, granted)
            return

    def _is_current(self, message: Message) -> bool:
        if isinstance(message, VoteRequested):
            role = Role.PROSPECTIVE if message.pre_vote else Role.CANDIDATE
            return self._node.role is role and self._node.leader_epoch == message.leader_epoch
        if isinstance(message, EpochBegun):
            return self._node.role is Role.LEADER and self._node.leader_epoch == message.leader_epoch
        return True

    def _encode(self, message: Message, voter: Voter) -> WireMessage:
        if isinstance(message, VoteRequested):
            return wire.vote(message, self._cluster_id, voter)
        if isinstance(message, EpochBegun):
            return wire.begin_quorum_epoch(message, self._cluster_id, voter, self._endpoints)
        assert isinstance(message, EpochEnded)
        return wire.end_quorum_epoch(message, self._cluster_id, self._node.voters, self._endpoints)

    def _log_refusal(self, node_id: int, what: str, error: int) -> None:
        code = wire.error_name(error)
        if error == ErrorCode.CLUSTER_AUTHORIZATION_FAILED:
            _log.warning(
                "request refused by a voter", voter=node_id, what=what, code=code, hint=wire.CLUSTER_ACTION_HINT
            )
        else:
            _log.info("request refused by a voter", voter=node_id, what=what, code=code)

    def _handle_response(self, node_id: int, message: Message, known: wire.LeaderInfo, granted: bool) -> None:
        if known.error:
            self._log_refusal(node_id, type(message).__name__, known.error)
        if not isinstance(message, VoteRequested):
            self._handle_leader_info(known)
        else:
            # Use the leader's endpoint; whether the voter's leader matters for its vote is decided by the node.
            self._update_leader_endpoint(known)
            # An answer without an epoch belongs to the epoch of the request.
            epoch = known.leader_epoch if known.leader_epoch >= 0 else message.leader_epoch
            answer = VoteAnswered(node_id, epoch, known.leader_id, granted, message.pre_vote)
            self._apply_ready(self._node.step(answer, self._clock.monotonic_ms()))
