"""ConsumerGroupDescribe: API key 69, versions 0-1.

Behaviour: epochs, members, assignments and targets of consumer groups; GROUP_ID_NOT_FOUND for a group that is not there
or is a classic one.

Version notes: 1: the type of a member.

Permissions: Describe on the group, and on each topic that its members have or are to have.
"""

from __future__ import annotations

from odradek.common.errors import ErrorCode
from odradek.metadata.acls import AclOperation, AclResourceType
from odradek.protocol.messages.consumer_group_describe_request import ConsumerGroupDescribeRequest
from odradek.protocol.messages.consumer_group_describe_response import ConsumerGroupDescribeResponse, DescribedGroup
from odradek.server.authorization import GROUP_OPERATIONS, allowed_operations, is_listed
from odradek.server.context import RequestContext
from odradek.server.handlers.shared import may_on_groups


async def handle(context: RequestContext, request: ConsumerGroupDescribeRequest) -> ConsumerGroupDescribeResponse:
    """Describe each group in the order asked for."""
    may = await may_on_groups(context, AclOperation.DESCRIBE, request.group_ids)
    requested = [name for name in request.group_ids if may[name]]
    groups = await context.broker.coordinator.describe_consumer_groups(requested)
    groups = [each if _may_know_topics(context, each) else _with_forbidden_topics(each) for each in groups]
    if request.include_authorized_operations:
        for group in groups:
            if not group.error_code:
                group.authorized_operations = allowed_operations(
                    context, AclResourceType.GROUP, group.group_id, GROUP_OPERATIONS
                )
    refused = ErrorCode.GROUP_AUTHORIZATION_FAILED
    groups += [DescribedGroup(group_id=name, error_code=refused, error_message=None) for name in may if not may[name]]
    return ConsumerGroupDescribeResponse(groups=groups)


def _may_know_topics(context: RequestContext, group: DescribedGroup) -> bool:
    if context.broker.authorizer is None:
        return True
    topics = {
        topic.topic_name
        for member in group.members
        for assignment in (member.assignment, member.target_assignment)
        for topic in assignment.topic_partitions
    }
    return all(is_listed(context, topic) for topic in topics)


def _with_forbidden_topics(group: DescribedGroup) -> DescribedGroup:
    text = "The group uses topics that the client may not describe."
    code = ErrorCode.TOPIC_AUTHORIZATION_FAILED
    return DescribedGroup(group_id=group.group_id, error_code=code, error_message=text)
