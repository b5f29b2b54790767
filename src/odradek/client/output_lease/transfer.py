"""Administration of output leases: listing, the progress of standbys, and transfer.

A transfer is one transaction under the transactional id of the holding group. InitProducerId fences that group and
aborts its open transaction, so that the lease no longer changes; EndTxn makes the other group the holder. If the
administrator's process dies in between, nothing changes: the holder is fenced, initializes again, and aborts the open
transaction.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

from odradek.client.cluster import Cluster, check
from odradek.client.groups import committed_offsets, list_groups
from odradek.client.output_lease.lease import (
    LEASE_GROUP_PREFIX,
    STANDBY,
    Covered,
    OutputLease,
    first_ahead,
    lag,
    lease_group,
    parse_lease,
    progress_group,
    writer_id,
)
from odradek.client.output_lease.offsets import lease_offsets
from odradek.common.errors import ApiError, ErrorCode
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
# The timeout after which the coordinator aborts the transaction of a transfer that died.
TRANSFER_TIMEOUT_MS: Final = 10_000
# Transactions of version 0 (KIP-98), as in the connector: in version 2 EndTxn changes the epoch.
_NEWEST: Final = {"find": 3, "init": 4, "add": 3, "commit": 4, "end": 4}
_FENCED: Final = frozenset({ErrorCode.INVALID_PRODUCER_EPOCH, ErrorCode.PRODUCER_FENCED, ErrorCode.INVALID_TXN_STATE})


class LeaseHolderError(Exception):
    """Another group holds the lease; the text names it."""


@dataclass(frozen=True, slots=True)
class Progress:
    """The progress that a query reported: the position of its next batch, and whether it is a standby."""

    is_standby: bool
    position: Covered


@dataclass(slots=True)
class CatchUp:
    """Whether a standby is at most `within_s` seconds behind a growing output.

    Both positions are sampled: a standby has caught up if it is where the output was `within_s` ago.
    """

    within_s: float
    _samples: list[tuple[float, Covered]] = field(default_factory=list)

    def has_caught_up(self, now_s: float, covered: Covered, progress: Progress | None) -> bool:
        """Add a sample; `progress` was read before `covered`."""
        self._samples = [sample for sample in self._samples if now_s - sample[0] <= self.within_s]
        self._samples.append((now_s, covered))
        if progress is None or not progress.is_standby or first_ahead(progress.position, covered):
            return False
        return any(not lag(progress.position, before) for _, before in self._samples)


async def list_leases(cluster: Cluster) -> dict[str, OutputLease]:
    """All leases of the cluster by name. Raises ApiError."""
    names = [each.group_id for each in await list_groups(cluster) if each.group_id.startswith(LEASE_GROUP_PREFIX)]
    found = {
        name: await read_lease(cluster, name) for name in (each.removeprefix(LEASE_GROUP_PREFIX) for each in names)
    }
    return {name: each for name, each in found.items() if each is not None}


async def read_lease(cluster: Cluster, name: str, *, stable: bool = False) -> OutputLease | None:
    """One lease; None if there is none. `stable` waits for open transactions. Raises ApiError."""
    offsets = await committed_offsets(cluster, lease_group(name), stable=stable)
    try:
        return parse_lease((topic, index, each.offset, each.metadata) for (topic, index), each in offsets.items())
    except ValueError as error:
        raise ApiError(ErrorCode.INVALID_REQUEST, f"group {lease_group(name)} is not a gate: {error}") from None


async def read_progress(cluster: Cluster, name: str, group: str) -> Progress | None:
    """The reported progress of a query; None if there is none. Raises ApiError."""
    offsets = await committed_offsets(cluster, progress_group(name, group))
    if not offsets:
        return None
    states = {each.metadata for each in offsets.values()}
    return Progress(states == {STANDBY}, {key: each.offset for key, each in offsets.items()})


async def transfer(cluster: Cluster, name: str, from_group: str, to_group: str) -> OutputLease:
    """Transfer a lease: fence `from_group`, and let `to_group` continue at the end of its output.

    It may be repeated after any failure.

    Returns:
        The new state of the lease.
    Raises:
        LeaseHolderError: neither of the two groups holds it.
        ApiError: GROUP_ID_NOT_FOUND if there is no such lease, and other errors of coordinators.
    """

    async def attempt() -> OutputLease:
        return await _transfer_once(cluster, name, from_group, to_group)

    transferred = await cluster.retried(attempt)

    async def await_visible() -> None:
        """EndTxn is answered before its offsets are visible."""
        found = await read_lease(cluster, name)
        if found is None or found.epoch < transferred.epoch:
            raise ApiError(ErrorCode.UNSTABLE_OFFSET_COMMIT, f"the transfer of gate {name} is not visible yet")

    await cluster.retried(await_visible)
    return transferred


async def _transfer_once(cluster: Cluster, name: str, from_group: str, to_group: str) -> OutputLease:
    holder = _Holder(cluster, writer_id(name, from_group))
    await holder.fence()
    found = await read_lease(cluster, name, stable=True)
    if found is None:
        raise ApiError(ErrorCode.GROUP_ID_NOT_FOUND, f"there is no gate {name}")
    if found.group == to_group:
        return found
    if found.group != from_group:
        raise LeaseHolderError(f"gate {name} is written through by group {found.group}")
    transferred = found.transferred_to(to_group)
    await holder.commit(lease_group(name), transferred)
    await holder.end()
    return transferred


class _Holder:
    """The transactional producer of the holding group, used by the administrator."""

    def __init__(self, cluster: Cluster, transactional_id: str) -> None:
        self._cluster = cluster
        self._id = transactional_id
        self._coordinator = -1
        self._producer_id = -1
        self._producer_epoch = -1

    async def fence(self) -> None:
        """Initialize the producer; the open transaction of another is aborted on return."""
        asked = FindCoordinatorRequest(key=self._id, key_type=TRANSACTION_KEY_TYPE)
        found = await self._cluster.request(asked, FindCoordinatorResponse, at_most=_NEWEST["find"])
        check(found.error_code, f"coordinator of {self._id}", found.error_message)
        self._cluster.brokers.setdefault(found.node_id, (found.host, found.port))
        self._coordinator = found.node_id
        request = InitProducerIdRequest(transactional_id=self._id, transaction_timeout_ms=TRANSFER_TIMEOUT_MS)
        answer = await self._cluster.request(
            request, InitProducerIdResponse, node_id=self._coordinator, at_most=_NEWEST["init"]
        )
        check(answer.error_code, f"transactional id {self._id}")
        self._producer_id, self._producer_epoch = answer.producer_id, answer.producer_epoch

    async def commit(self, group: str, lease: OutputLease) -> None:
        """Add the lease to the transaction."""
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
            topics=lease_offsets(lease),
        )
        node_id = await self._cluster.coordinator(group)
        answer = await self._cluster.request(
            request, TxnOffsetCommitResponse, node_id=node_id, at_most=_NEWEST["commit"]
        )
        for topic in answer.topics:
            for part in topic.partitions:
                self._check(part.error_code)

    async def end(self) -> None:
        """Commit the transaction."""
        request = EndTxnRequest(
            transactional_id=self._id,
            producer_id=self._producer_id,
            producer_epoch=self._producer_epoch,
            committed=True,
        )
        answer = await self._cluster.request(request, EndTxnResponse, node_id=self._coordinator, at_most=_NEWEST["end"])
        self._check(answer.error_code)

    def _check(self, code: int) -> None:
        """Raise ApiError; a retriable one if the holder has initialized again."""
        if code in _FENCED:
            raise ApiError(ErrorCode.CONCURRENT_TRANSACTIONS, f"{self._id} has initialized again")
        check(code, f"transactional id {self._id}")
