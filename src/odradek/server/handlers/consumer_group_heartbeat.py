"""ConsumerGroupHeartbeat: API key 68, versions 0-1.

Behaviour: a consumer of the newer protocol joins (member epoch 0), stays, changes its subscription, or leaves (-1; -2
for a static member that will return); the coordinator assigns, and moves one partition without stopping the others
(KIP-848).

Permissions: Read on the group, and Describe on each topic that is subscribed by name; a regular expression matches only
topics on which the member has Describe.

Version notes: 1: the client generates the member id (KIP-1082), and may subscribe by a regular expression, in RE2's
syntax.

A classic group whose members speak the embedded consumer protocol becomes a consumer group as the first consumer joins
it, where group.consumer.migration.policy allows it; where not, the consumer gets GROUP_ID_NOT_FOUND.
"""

from __future__ import annotations

from functools import partial

from odradek.common.errors import ErrorCode
from odradek.coordinator.group.classic.membership import Caller
from odradek.coordinator.group.consumer.regex import EVERY_TOPIC, TopicFilter
from odradek.metadata.acls import AclOperation, AclResourceType
from odradek.protocol.messages.consumer_group_heartbeat_request import ConsumerGroupHeartbeatRequest
from odradek.protocol.messages.consumer_group_heartbeat_response import ConsumerGroupHeartbeatResponse
from odradek.server.authorization import is_listed, may_describe, refusal
from odradek.server.context import RequestContext


async def handle(context: RequestContext, request: ConsumerGroupHeartbeatRequest) -> ConsumerGroupHeartbeatResponse:
    """Extend the session of the member, and return its assignment."""
    code = refusal(context, AclOperation.READ, AclResourceType.GROUP, request.group_id)
    if code is not None:
        return ConsumerGroupHeartbeatResponse(error_code=code)
    if not all(may_describe(context, name) for name in request.subscribed_topic_names or ()):
        return ConsumerGroupHeartbeatResponse(error_code=ErrorCode.TOPIC_AUTHORIZATION_FAILED)
    caller = Caller(context.client_id, f"/{context.client_address}", context.api_version)
    response: ConsumerGroupHeartbeatResponse = await context.broker.coordinator.consumer_group_heartbeat(
        request, caller, _filter_of(context)
    )
    return response


def _filter_of(context: RequestContext) -> TopicFilter:
    authorizer = context.broker.authorizer
    return EVERY_TOPIC if authorizer is None else TopicFilter(partial(is_listed, context), authorizer.version)
