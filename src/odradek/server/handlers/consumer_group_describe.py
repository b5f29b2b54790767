"""ConsumerGroupDescribe: API key 69, versions 0-1.

Behaviour: epochs, members, assignments and targets of consumer groups; GROUP_ID_NOT_FOUND for a group that is not there
or is a classic one.

Version notes: 1: the type of a member.

Not done: without an authorizer everyone may do everything, and that is what the authorized operations say.
"""

from __future__ import annotations

from odradek.protocol.messages.consumer_group_describe_request import ConsumerGroupDescribeRequest
from odradek.protocol.messages.consumer_group_describe_response import ConsumerGroupDescribeResponse
from odradek.server.context import RequestContext
from odradek.server.handlers.describe_groups import ALL_GROUP_OPERATIONS


async def handle(context: RequestContext, request: ConsumerGroupDescribeRequest) -> ConsumerGroupDescribeResponse:
    """Describe each group in the order asked for."""
    groups = await context.broker.coordinator.describe_consumer_groups(request.group_ids)
    if request.include_authorized_operations:
        for group in groups:
            if not group.error_code:
                group.authorized_operations = ALL_GROUP_OPERATIONS
    return ConsumerGroupDescribeResponse(groups=groups)
