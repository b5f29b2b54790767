"""ConsumerGroupHeartbeat: API key 68, versions 0-1.

Behaviour: a consumer of the newer protocol joins (member epoch 0), stays, changes its subscription, or leaves (-1; -2
for a static member that will be back); the coordinator assigns, and moves one partition without stopping the others
(KIP-848).

Version notes: 1: the client makes the member id (KIP-1082), and may subscribe by a regular expression, in RE2's syntax.

Not done: a group whose members are of the classic protocol is not converted while it has members
(group.consumer.migration.policy is taken to be DISABLED): the consumer is told GROUP_ID_NOT_FOUND.
"""

from __future__ import annotations

from odradek.coordinator.group.membership import Caller
from odradek.protocol.messages.consumer_group_heartbeat_request import ConsumerGroupHeartbeatRequest
from odradek.protocol.messages.consumer_group_heartbeat_response import ConsumerGroupHeartbeatResponse
from odradek.server.context import RequestContext


async def handle(context: RequestContext, request: ConsumerGroupHeartbeatRequest) -> ConsumerGroupHeartbeatResponse:
    """Note that the member lives, and tell it what to have."""
    caller = Caller(context.client_id, f"/{context.client_address}", context.api_version)
    response: ConsumerGroupHeartbeatResponse = await context.broker.coordinator.consumer_group_heartbeat(
        request, caller
    )
    return response
