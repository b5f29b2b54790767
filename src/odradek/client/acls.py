"""Administration of ACLs."""

from __future__ import annotations

from collections.abc import Sequence

from odradek.client.cluster import Cluster, check
from odradek.protocol.messages.create_acls_request import AclCreation, CreateAclsRequest
from odradek.protocol.messages.create_acls_response import CreateAclsResponse
from odradek.protocol.messages.delete_acls_request import DeleteAclsFilter, DeleteAclsRequest
from odradek.protocol.messages.delete_acls_response import DeleteAclsMatchingAcl, DeleteAclsResponse
from odradek.protocol.messages.describe_acls_request import DescribeAclsRequest
from odradek.protocol.messages.describe_acls_response import DescribeAclsResource, DescribeAclsResponse


async def describe_acls(cluster: Cluster, wanted: DescribeAclsRequest) -> list[DescribeAclsResource]:
    """The ACLs that a filter matches, by resource pattern. Raises ApiError."""

    async def attempt() -> list[DescribeAclsResource]:
        response = await cluster.request(wanted, DescribeAclsResponse)
        check(response.error_code, "ACLs", response.error_message)
        return response.resources

    return await cluster.retried(attempt)


async def create_acls(cluster: Cluster, creations: Sequence[AclCreation]) -> None:
    """Create ACLs; existing ones stay. Raises ApiError for the first that is refused."""

    async def attempt() -> None:
        response = await cluster.request(CreateAclsRequest(creations=list(creations)), CreateAclsResponse)
        for creation, result in zip(creations, response.results, strict=True):
            check(result.error_code, f"ACL of {creation.resource_name}", result.error_message)

    await cluster.retried(attempt)


async def delete_acls(cluster: Cluster, filters: Sequence[DeleteAclsFilter]) -> list[DeleteAclsMatchingAcl]:
    """Delete the ACLs that any of the filters matches; returns them. Raises ApiError."""

    async def attempt() -> list[DeleteAclsMatchingAcl]:
        response = await cluster.request(DeleteAclsRequest(filters=list(filters)), DeleteAclsResponse)
        for result in response.filter_results:
            check(result.error_code, "ACLs", result.error_message)
            for each in result.matching_acls:
                check(each.error_code, f"ACL of {each.resource_name}", each.error_message)
        return [each for result in response.filter_results for each in result.matching_acls]

    return await cluster.retried(attempt)
