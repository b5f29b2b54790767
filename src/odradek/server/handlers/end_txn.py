"""EndTxn: key 26, versions 0-5.

Behaviour: commits or aborts a producer's transaction; the response is sent when the decision is committed, before the
markers are written. The same request again gets the same response.

Versions: 2 PRODUCER_FENCED instead of INVALID_PRODUCER_EPOCH; 3 flexible; 4 TRANSACTION_ABORTABLE; 5 every
end bumps the epoch, and the response has the next producer id and epoch (KIP-890).
"""

from __future__ import annotations

from odradek.common.errors import ApiError
from odradek.protocol.messages.end_txn_request import EndTxnRequest
from odradek.protocol.messages.end_txn_response import EndTxnResponse
from odradek.server.context import RequestContext
from odradek.server.handlers.shared import fenced_code, transaction_request

FIRST_FENCED_VERSION = 2
BUMPING_VERSION = 5


async def handle(context: RequestContext, request: EndTxnRequest) -> EndTxnResponse:
    """Decide the end of the transaction."""
    bumps = context.api_version >= BUMPING_VERSION
    try:
        transaction = transaction_request(
            context, request.transactional_id, request.producer_id, request.producer_epoch, bumps=bumps
        )
        producer_id, epoch = await context.broker.transactions.end(transaction, commit=request.committed)
    except ApiError as error:
        return EndTxnResponse(error_code=fenced_code(error.code, context.api_version, FIRST_FENCED_VERSION))
    return EndTxnResponse(producer_id=producer_id, producer_epoch=epoch) if bumps else EndTxnResponse()
