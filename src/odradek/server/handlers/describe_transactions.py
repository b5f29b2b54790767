"""DescribeTransactions: key 65, version 0. State, producer, age and partitions of transactional ids (KIP-664)."""

from __future__ import annotations

from odradek.common.errors import ErrorCode
from odradek.metadata.acls import AclOperation, AclResourceType
from odradek.protocol.messages.describe_transactions_request import DescribeTransactionsRequest
from odradek.protocol.messages.describe_transactions_response import DescribeTransactionsResponse, TransactionState
from odradek.server.authorization import is_listed
from odradek.server.context import RequestContext


async def handle(context: RequestContext, request: DescribeTransactionsRequest) -> DescribeTransactionsResponse:
    """Each id once, in the order asked for."""
    response = DescribeTransactionsResponse()
    for transactional_id in dict.fromkeys(request.transactional_ids):
        if not transactional_id:
            response.transaction_states.append(TransactionState(error_code=ErrorCode.INVALID_REQUEST))
            continue
        if not context.authorize(AclOperation.DESCRIBE, AclResourceType.TRANSACTIONAL_ID, transactional_id):
            code = ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
            response.transaction_states.append(TransactionState(transactional_id=transactional_id, error_code=code))
            continue
        state = await context.broker.transactions.describe(transactional_id)
        state.topics = [each for each in state.topics if is_listed(context, each.topic)]
        response.transaction_states.append(state)
    return response
