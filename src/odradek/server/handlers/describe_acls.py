"""DescribeAcls: key 29, versions 1-3. The ACLs that a filter means, as this node knows them.

Versions: 1 patterns (KIP-290), 2 flexible, 3 users (KIP-373).
"""

from __future__ import annotations

from odradek.common.errors import ApiError, ErrorCode
from odradek.metadata.acls import AclFilter, AclOperation
from odradek.protocol.messages.describe_acls_request import DescribeAclsRequest
from odradek.protocol.messages.describe_acls_response import AclDescription, DescribeAclsResource, DescribeAclsResponse
from odradek.server.authorization import check_acls
from odradek.server.context import RequestContext


def handle(context: RequestContext, request: DescribeAclsRequest) -> DescribeAclsResponse:
    """The matching entries, by resource pattern."""
    wanted = AclFilter(
        request.resource_type_filter,
        request.resource_name_filter,
        request.pattern_type_filter,
        request.principal_filter,
        request.host_filter,
        request.operation,
        request.permission_type,
    )
    try:
        check_acls(context, AclOperation.DESCRIBE)
        if wanted.unknown_field:
            raise ApiError(ErrorCode.INVALID_REQUEST, f"Unknown {wanted.unknown_field} in the filter")
    except ApiError as error:
        return DescribeAclsResponse(error_code=error.code, error_message=error.message or None)
    resources: dict[tuple[int, str, int], DescribeAclsResource] = {}
    for acl in context.broker.image.acls.values():
        if wanted.matches(acl):
            pattern = (acl.resource_type, acl.resource_name, acl.pattern_type)
            resource = resources.get(pattern)
            if resource is None:
                kind, name, pattern_type = pattern
                resource = resources[pattern] = DescribeAclsResource(
                    resource_type=kind, resource_name=name, pattern_type=pattern_type
                )
            resource.acls.append(
                AclDescription(
                    principal=acl.principal,
                    host=acl.host,
                    operation=acl.operation,
                    permission_type=acl.permission_type,
                )
            )
    return DescribeAclsResponse(error_message=None, resources=list(resources.values()))
