"""AddOffsetsToTxn: key 25, versions 0-4.

Behaviour: adds the group's partition of __consumer_offsets to a producer's transaction; the offsets follow in
TxnOffsetCommit.

Versions: 2 PRODUCER_FENCED instead of INVALID_PRODUCER_EPOCH; 3 flexible; 4 TRANSACTION_ABORTABLE. Clients with newer
transactions do not send it: TxnOffsetCommit 5 includes it (KIP-890).
"""

from __future__ import annotations

from odradek.common.errors import ApiError, ErrorCode
from odradek.coordinator.group.records import OFFSETS_TOPIC
from odradek.metadata.acls import AclOperation, AclResourceType
from odradek.protocol.messages.add_offsets_to_txn_request import AddOffsetsToTxnRequest
from odradek.protocol.messages.add_offsets_to_txn_response import AddOffsetsToTxnResponse
from odradek.server.authorization import check
from odradek.server.context import RequestContext
from odradek.server.handlers.shared import fenced_code, transaction_request

FIRST_FENCED_VERSION = 2


async def handle(context: RequestContext, request: AddOffsetsToTxnRequest) -> AddOffsetsToTxnResponse:
    """Add the group's partition."""
    try:
        transaction = transaction_request(
            context, request.transactional_id, request.producer_id, request.producer_epoch
        )
        if not request.group_id:
            raise ApiError(ErrorCode.INVALID_GROUP_ID, "the group id must not be empty")
        check(context, AclOperation.READ, AclResourceType.GROUP, request.group_id)
        groups = context.broker.coordinator
        partition_id = groups.partition_for(request.group_id)
        if partition_id is None:
            # Clients send FindCoordinator for the group, which creates the topic, only after this response.
            await groups.find_coordinator(request.group_id, context.listener_name)
            partition_id = groups.partition_for(request.group_id)
        if partition_id is None:
            raise ApiError(ErrorCode.COORDINATOR_NOT_AVAILABLE, f"{OFFSETS_TOPIC} does not exist yet")
        await context.broker.transactions.add_partitions(transaction, [(OFFSETS_TOPIC, partition_id)])
    except ApiError as error:
        return AddOffsetsToTxnResponse(error_code=fenced_code(error.code, context.api_version, FIRST_FENCED_VERSION))
    return AddOffsetsToTxnResponse()
