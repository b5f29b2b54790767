"""Verifies that the batches of a Produce belong to open transactions: if the log has none, the coordinator is asked
(KIP-890)."""

from __future__ import annotations

from collections.abc import Generator, Mapping
from typing import TYPE_CHECKING, Any

from odradek.common.errors import ApiError, ErrorCode
from odradek.common.turns import PARTITIONS_PER_TURN, Turns
from odradek.log.producer_state import NOT_REQUIRED, ProducerState, Verification
from odradek.metadata.acls import AclOperation, AclResourceType
from odradek.protocol.messages.produce_request import ProduceRequest
from odradek.record.batch import HEADER_BYTES, BatchHeader
from odradek.server.transactions.verification import RETRIABLE

if TYPE_CHECKING:
    from odradek.replica.partition import Partition
    from odradek.server.context import RequestContext

# The verification under which a transactional batch is appended, or the error.
Check = Verification | ApiError | None
# By topic and partition.
Verified = Mapping[tuple[str, int], Check]
Unverified = tuple["Partition", BatchHeader]
_FIRST_ABORTABLE = 11
_FIRST_ADDING = 12
_FIRST_WITH_TOPIC_IDS = 13


def find_unverified(context: RequestContext, request: ProduceRequest) -> Generator[None, None, list[Unverified]]:
    """The partitions whose log has no open transaction for the batch, with the headers of the batches.

    Partitions to which the client may not write are omitted: its request must not add them to a transaction.
    """
    found = []
    image, by_id = context.broker.image, context.api_version >= _FIRST_WITH_TOPIC_IDS
    turns = Turns(PARTITIONS_PER_TURN)
    for topic in request.topic_data:
        if turns.fill():
            yield
        known = image.topics_by_id.get(topic.topic_id) if by_id else image.topic(topic.name)
        if known is None or not context.is_allowed(AclOperation.WRITE, AclResourceType.TOPIC, known.name):
            continue
        for wanted in topic.partition_data:
            partition = context.broker.replicas.partition(known.name, wanted.index)
            header = None if partition is None else _header_to_verify(partition, wanted.records)
            if partition is not None and header is not None:
                found.append((partition, header))
            if turns.fill():
                yield
    return found


def _header_to_verify(partition: Partition, records: Any) -> BatchHeader | None:
    """The header of a transactional batch, where the partition's log knows of no transaction that it belongs to."""
    if not partition.is_leader or partition.is_mirror or not isinstance(records, bytes | bytearray | memoryview):
        return None
    if len(records) < HEADER_BYTES:
        return None
    header = BatchHeader.read(records)
    is_open = partition.log.producers.has_open_transaction(header.producer_id, header.producer_epoch)
    return header if header.is_transactional and not is_open else None


async def verify(context: RequestContext, request: ProduceRequest, unverified: list[Unverified]) -> Verified:
    """Verify with the coordinator of each transaction. A marker that is written meanwhile invalidates the result."""
    verifier, version = context.broker.verifier, context.api_version
    add = version >= _FIRST_ADDING
    verified: dict[tuple[str, int], Check] = {}
    requested: dict[tuple[int, int], dict[tuple[str, int], tuple[ProducerState, Verification]]] = {}
    for partition, header in unverified:
        key = (partition.topic, partition.partition_id)
        if not add and not verifier.config.enable:
            verified[key] = NOT_REQUIRED
            continue
        producers, producer_id, epoch = partition.log.producers, header.producer_id, header.producer_epoch
        verification = producers.begin_verification(producer_id, epoch, supports_epoch_bump=add)
        verified[key] = verification
        requested.setdefault((producer_id, epoch), {})[key] = producers, verification
    for (producer_id, epoch), places in requested.items():
        codes = await verifier.verify(request.transactional_id or "", producer_id, epoch, list(places), add=add)
        for key, code in codes.items():
            producers, verification = places[key]
            producers.end_verification(producer_id, verification, is_confirmed=not code)
            if code:
                verified[key] = _verification_error(code, version)
    return verified


def _verification_error(code: ErrorCode, version: int) -> ApiError:
    """The error that clients of this version handle correctly."""
    if code in RETRIABLE:
        # All clients retry after this error, without a refresh of metadata.
        return ApiError(ErrorCode.NOT_ENOUGH_REPLICAS, f"the transaction could not be verified: {code.name}")
    if code is ErrorCode.TRANSACTION_ABORTABLE and version < _FIRST_ABORTABLE:
        code = ErrorCode.INVALID_TXN_STATE
    return ApiError(code, "the partition is not part of an open transaction of this producer")
