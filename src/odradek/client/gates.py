"""Gates as an administrator sees them: which there are, how far a standby is, and turning one to another group.

To turn a gate is one transaction under the transactional id of the group that writes. To begin it shuts that group out
and takes back what it has open, so that what is read then is true for good; to end it makes the other group's turn. Who
dies between leaves all as it was: the writer finds itself fenced, initializes again, and aborts what the dead one left.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

from odradek.client.cluster import Cluster, check
from odradek.client.groups import committed_offsets, list_groups
from odradek.common.errors import ApiError, ErrorCode
from odradek.common.gates import (
    GATE_PREFIX,
    STANDBY,
    Covered,
    Gate,
    ahead,
    gate_group,
    lag,
    progress_group,
    read_gate,
    writer_id,
)
from odradek.protocol.gate_offsets import gate_offsets
from odradek.protocol.messages.add_offsets_to_txn_request import AddOffsetsToTxnRequest
from odradek.protocol.messages.add_offsets_to_txn_response import AddOffsetsToTxnResponse
from odradek.protocol.messages.end_txn_request import EndTxnRequest
from odradek.protocol.messages.end_txn_response import EndTxnResponse
from odradek.protocol.messages.find_coordinator_request import FindCoordinatorRequest
from odradek.protocol.messages.find_coordinator_response import FindCoordinatorResponse
from odradek.protocol.messages.init_producer_id_request import InitProducerIdRequest
from odradek.protocol.messages.init_producer_id_response import InitProducerIdResponse
from odradek.protocol.messages.txn_offset_commit_request import TxnOffsetCommitRequest
from odradek.protocol.messages.txn_offset_commit_response import TxnOffsetCommitResponse

TRANSACTION_KEY_TYPE: Final = 1
# The coordinator aborts what a dead turn leaves open after this, should no client initialize again.
TURN_TIMEOUT_MS: Final = 10_000
# The first generation of transactions (KIP-98), as the connector speaks it: in the second EndTxn changes the epoch.
_NEWEST: Final = {"find": 3, "init": 4, "add": 3, "commit": 4, "end": 4}
_SHUT_OUT: Final = frozenset({ErrorCode.INVALID_PRODUCER_EPOCH, ErrorCode.PRODUCER_FENCED, ErrorCode.INVALID_TXN_STATE})


class OtherTurnError(Exception):
    """The gate was another group's when it was to be turned; the text says whose."""


@dataclass(frozen=True, slots=True)
class Progress:
    """What a query reported: the position from which it plans its next batch, and whether it stands by."""

    stands_by: bool
    position: Covered


@dataclass(slots=True)
class Chase:
    """Whether a standby is at most `within_s` seconds behind an output that goes on meanwhile.

    Decided by looks at both, one after another: a standby that is now where the output was `within_s` ago is.
    """

    within_s: float
    _looks: list[tuple[float, Covered]] = field(default_factory=list)

    def has_caught_up(self, now_s: float, covered: Covered, progress: Progress | None) -> bool:
        """Take one more look; `progress` was read before `covered`."""
        self._looks = [look for look in self._looks if now_s - look[0] <= self.within_s]
        self._looks.append((now_s, covered))
        if progress is None or not progress.stands_by or ahead(progress.position, covered):
            return False
        return any(not lag(progress.position, before) for _, before in self._looks)


async def gates(cluster: Cluster) -> dict[str, Gate]:
    """All gates of the cluster by name. Raises ApiError."""
    names = [each.group_id for each in await list_groups(cluster) if each.group_id.startswith(GATE_PREFIX)]
    found = {name.removeprefix(GATE_PREFIX): await gate(cluster, name.removeprefix(GATE_PREFIX)) for name in names}
    return {name: each for name, each in found.items() if each is not None}


async def gate(cluster: Cluster, name: str, *, stable: bool = False) -> Gate | None:
    """How a gate is; None where it was never made. With `stable` open transactions are waited for. Raises ApiError."""
    offsets = await committed_offsets(cluster, gate_group(name), stable=stable)
    try:
        return read_gate((topic, index, each.offset, each.metadata) for (topic, index), each in offsets.items())
    except ValueError as error:
        raise ApiError(ErrorCode.INVALID_REQUEST, f"group {gate_group(name)} is no gate: {error}") from None


async def progress(cluster: Cluster, name: str, group: str) -> Progress | None:
    """What a query reported; None where it never did. Raises ApiError."""
    offsets = await committed_offsets(cluster, progress_group(name, group))
    if not offsets:
        return None
    states = {each.metadata for each in offsets.values()}
    return Progress(states == {STANDBY}, {key: each.offset for key, each in offsets.items()})


async def turn(cluster: Cluster, name: str, from_group: str, to_group: str) -> Gate:
    """Turn a gate: `from_group` is fenced, and `to_group` goes on where its output ends.

    To run it again is harmless, whatever became of an earlier run.

    Returns:
        The gate as it is then.
    Raises:
        OtherTurnError: neither of the two groups writes.
        ApiError: GROUP_ID_NOT_FOUND where there is no such gate, and what else coordinators say.
    """

    async def attempt() -> Gate:
        return await _turn_once(cluster, name, from_group, to_group)

    turned = await cluster.retried(attempt)

    async def see() -> None:
        """EndTxn is answered before its offsets are there for all to see."""
        found = await gate(cluster, name)
        if found is None or found.turn < turned.turn:
            raise ApiError(ErrorCode.UNSTABLE_OFFSET_COMMIT, f"gate {name} is not seen to be turned yet")

    await cluster.retried(see)
    return turned


async def _turn_once(cluster: Cluster, name: str, from_group: str, to_group: str) -> Gate:
    shutting_out = _Writer(cluster, writer_id(name, from_group))
    await shutting_out.begin()
    found = await gate(cluster, name, stable=True)
    if found is None:
        raise ApiError(ErrorCode.GROUP_ID_NOT_FOUND, f"there is no gate {name}")
    if found.group == to_group:
        return found
    if found.group != from_group:
        raise OtherTurnError(f"gate {name} is written through by group {found.group}")
    turned = found.turned_to(to_group)
    await shutting_out.commit(gate_group(name), turned)
    await shutting_out.end()
    return turned


class _Writer:
    """The producer of one transactional id."""

    def __init__(self, cluster: Cluster, transactional_id: str) -> None:
        self._cluster = cluster
        self._id = transactional_id
        self._coordinator = -1
        self._producer_id = -1
        self._producer_epoch = -1

    async def begin(self) -> None:
        """Become the producer; returns when what another one left open is taken back."""
        asked = FindCoordinatorRequest(key=self._id, key_type=TRANSACTION_KEY_TYPE)
        found = await self._cluster.request(asked, FindCoordinatorResponse, at_most=_NEWEST["find"])
        check(found.error_code, f"coordinator of {self._id}", found.error_message)
        self._cluster.brokers.setdefault(found.node_id, (found.host, found.port))
        self._coordinator = found.node_id
        request = InitProducerIdRequest(transactional_id=self._id, transaction_timeout_ms=TURN_TIMEOUT_MS)
        answer = await self._cluster.request(
            request, InitProducerIdResponse, node_id=self._coordinator, at_most=_NEWEST["init"]
        )
        check(answer.error_code, f"transactional id {self._id}")
        self._producer_id, self._producer_epoch = answer.producer_id, answer.producer_epoch

    async def commit(self, group: str, gate: Gate) -> None:
        """Put a gate into the transaction."""
        adding = AddOffsetsToTxnRequest(
            transactional_id=self._id,
            producer_id=self._producer_id,
            producer_epoch=self._producer_epoch,
            group_id=group,
        )
        added = await self._cluster.request(
            adding, AddOffsetsToTxnResponse, node_id=self._coordinator, at_most=_NEWEST["add"]
        )
        self._check(added.error_code)
        request = TxnOffsetCommitRequest(
            transactional_id=self._id,
            group_id=group,
            producer_id=self._producer_id,
            producer_epoch=self._producer_epoch,
            topics=gate_offsets(gate),
        )
        node_id = await self._cluster.coordinator(group)
        answer = await self._cluster.request(
            request, TxnOffsetCommitResponse, node_id=node_id, at_most=_NEWEST["commit"]
        )
        for topic in answer.topics:
            for part in topic.partitions:
                self._check(part.error_code)

    async def end(self) -> None:
        """Make it so."""
        request = EndTxnRequest(
            transactional_id=self._id,
            producer_id=self._producer_id,
            producer_epoch=self._producer_epoch,
            committed=True,
        )
        answer = await self._cluster.request(request, EndTxnResponse, node_id=self._coordinator, at_most=_NEWEST["end"])
        self._check(answer.error_code)

    def _check(self, code: int) -> None:
        """Raise ApiError; where the writer, still alive, has initialized again meanwhile, a retriable one."""
        if code in _SHUT_OUT:
            raise ApiError(ErrorCode.CONCURRENT_TRANSACTIONS, f"{self._id} has initialized again meanwhile")
        check(code, f"transactional id {self._id}")
