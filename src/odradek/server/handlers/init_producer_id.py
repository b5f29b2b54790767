"""InitProducerId: key 22, versions 0-5.

Behaviour: gives an idempotent producer a fresh id with epoch 0, from the broker's block.

Versions: 2 flexible; 3 a producer may name its id and epoch to have the epoch bumped (KIP-360): an idempotent one gets
a new id instead, as Kafka does; 4 PRODUCER_FENCED; 5 TRANSACTION_ABORTABLE.

Not done: a transactional id. It is refused with INVALID_REQUEST, which no client tries again: COORDINATOR_NOT_AVAILABLE
would let init_transactions() wait for something that this broker does not have. Version 6 (two-phase commit) is not
stable yet.
"""

from __future__ import annotations

from odradek.common.errors import ApiError, ErrorCode
from odradek.protocol.messages.init_producer_id_request import InitProducerIdRequest
from odradek.protocol.messages.init_producer_id_response import InitProducerIdResponse
from odradek.server.context import RequestContext


async def handle(context: RequestContext, request: InitProducerIdRequest) -> InitProducerIdResponse:
    """A producer id that nobody had before."""
    if request.transactional_id is not None:
        code = ErrorCode.INVALID_REQUEST
        return InitProducerIdResponse(error_code=code, producer_id=-1, producer_epoch=-1)
    if (request.producer_id == -1) != (request.producer_epoch == -1):
        return InitProducerIdResponse(error_code=ErrorCode.INVALID_REQUEST, producer_id=-1, producer_epoch=-1)
    try:
        producer_id = await context.broker.producer_ids.next_id()
    except ApiError as error:
        return InitProducerIdResponse(error_code=error.code, producer_id=-1, producer_epoch=-1)
    return InitProducerIdResponse(producer_id=producer_id, producer_epoch=0)
