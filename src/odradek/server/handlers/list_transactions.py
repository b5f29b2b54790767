"""ListTransactions: key 66, versions 0-2.

Behaviour: the transactional ids that this broker coordinates, filtered by state, producer and age (KIP-664).

Versions: 1 a filter by how long the transaction is open (KIP-994); 2 a pattern that the whole transactional id must
match, in RE2's syntax and in linear time (KIP-1152).
"""

from __future__ import annotations

from odradek.common.errors import ApiError
from odradek.coordinator.transaction.state import BY_LABEL
from odradek.metadata.acls import AclOperation, AclResourceType
from odradek.protocol.messages.list_transactions_request import ListTransactionsRequest
from odradek.protocol.messages.list_transactions_response import ListTransactionsResponse
from odradek.server.context import RequestContext


async def handle(context: RequestContext, request: ListTransactionsRequest) -> ListTransactionsResponse:
    """The ids that pass all filters; states that do not exist are named, and match nothing."""
    try:
        found = await context.broker.transactions.list_transactions(
            request.state_filters,
            request.producer_id_filters,
            request.duration_filter,
            request.transactional_id_pattern,
        )
    except ApiError as error:
        return ListTransactionsResponse(error_code=error.code)
    found = [
        each
        for each in found
        if context.is_allowed(AclOperation.DESCRIBE, AclResourceType.TRANSACTIONAL_ID, each.transactional_id)
    ]
    unknown = [state for state in request.state_filters if state not in BY_LABEL]
    return ListTransactionsResponse(unknown_state_filters=unknown, transaction_states=found)
