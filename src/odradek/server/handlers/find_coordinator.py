"""FindCoordinator: API key 10, versions 0-6.

Behaviour: returns the leader of the partition of __consumer_offsets for a group, or of __transaction_state for a
transactional id, with its address for the listener of the request. The first request creates the topic.

Version notes:
- 1: key type (0 group, 1 transaction), error message. 3: flexible. 4: many keys at once (KIP-699).
- 5: may answer TRANSACTION_ABORTABLE. 6: key type 2, share groups (KIP-932).

Permissions: Describe on the group or the transactional id.

Not done: coordinators of share groups. The response is INVALID_REQUEST, which clients do not retry.
"""

from __future__ import annotations

from odradek.common.errors import ApiError, ErrorCode
from odradek.common.turns import Turns
from odradek.metadata.acls import AclOperation, AclResourceType
from odradek.protocol.messages.find_coordinator_request import FindCoordinatorRequest
from odradek.protocol.messages.find_coordinator_response import Coordinator, FindCoordinatorResponse
from odradek.server.authorization import check
from odradek.server.context import RequestContext

BATCH_VERSION = 4
SHARE_VERSION = 6
GROUP, TRANSACTION, SHARE = 0, 1, 2
KEYS_PER_TURN = 500


async def handle(context: RequestContext, request: FindCoordinatorRequest) -> FindCoordinatorResponse:
    """Answer for one key, or for each of many."""
    if context.api_version >= BATCH_VERSION:
        turns, coordinators = Turns(KEYS_PER_TURN), []
        for key in dict.fromkeys(request.coordinator_keys):
            coordinators.append(await _find(context, request.key_type, key))
            await turns.spend()
        return FindCoordinatorResponse(coordinators=coordinators)
    found = await _find(context, request.key_type, request.key)
    return FindCoordinatorResponse(
        error_code=found.error_code,
        error_message=found.error_message,
        node_id=found.node_id,
        host=found.host,
        port=found.port,
    )


async def _find(context: RequestContext, key_type: int, key: str) -> Coordinator:
    try:
        if key_type not in (GROUP, TRANSACTION):
            raise ApiError(ErrorCode.INVALID_REQUEST, f"no coordinator of type {key_type}")
        kind = AclResourceType.TRANSACTIONAL_ID if key_type == TRANSACTION else AclResourceType.GROUP
        check(context, AclOperation.DESCRIBE, kind, key)
        host_of = context.broker.transactions if key_type == TRANSACTION else context.broker.coordinator
        node_id, endpoint = await host_of.find_coordinator(key, context.listener_name)
    except ApiError as error:
        return Coordinator(
            key=key, node_id=-1, host="", port=-1, error_code=error.code, error_message=error.message or None
        )
    host, port = endpoint.host, endpoint.port
    if node_id == context.broker.node_id and context.connection.listener.advertised is None:
        host, port = context.connection.local_address  # it reached us here, so it will again
    return Coordinator(key=key, node_id=node_id, host=host, port=port, error_message=None)
