"""Access control entries in the requests and answers of the ACL APIs (KIP-140, KIP-290)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from odradek.metadata.acls import AclOperation, AclResourceType, PatternType, PermissionType
from odradek.metadata.model import Acl
from odradek.protocol.messages.create_acls_request import AclCreation
from odradek.protocol.messages.delete_acls_request import DeleteAclsFilter
from odradek.protocol.messages.describe_acls_request import DescribeAclsRequest
from odradek.protocol.messages.describe_acls_response import DescribeAclsResource


def describe_every_acl() -> DescribeAclsRequest:
    """The filter that all entries match."""
    return DescribeAclsRequest(
        resource_type_filter=AclResourceType.ANY,
        resource_name_filter=None,
        pattern_type_filter=PatternType.ANY,
        principal_filter=None,
        host_filter=None,
        operation=AclOperation.ANY,
        permission_type=PermissionType.ANY,
    )


def acls_from_description(resources: Iterable[DescribeAclsResource]) -> Iterator[Acl]:
    """The entries of an answer to DescribeAcls, in its order."""
    for of in resources:
        for entry in of.acls:
            yield Acl(
                of.resource_type,
                of.resource_name,
                of.pattern_type,
                entry.principal,
                entry.host,
                entry.operation,
                entry.permission_type,
            )


def acl_creation(acl: Acl) -> AclCreation:
    """The creation of an ACL in a CreateAcls request."""
    return AclCreation(
        resource_type=acl.resource_type,
        resource_name=acl.resource_name,
        resource_pattern_type=acl.pattern_type,
        principal=acl.principal,
        host=acl.host,
        operation=acl.operation,
        permission_type=acl.permission_type,
    )


def acl_from_creation(creation: AclCreation) -> Acl:
    """The ACL of a creation in CreateAcls."""
    return Acl(
        creation.resource_type,
        creation.resource_name,
        creation.resource_pattern_type,
        creation.principal,
        creation.host,
        creation.operation,
        creation.permission_type,
    )


def filter_of_one(acl: Acl) -> DeleteAclsFilter:
    """The filter of DeleteAcls that matches only this ACL."""
    return DeleteAclsFilter(
        resource_type_filter=acl.resource_type,
        resource_name_filter=acl.resource_name,
        pattern_type_filter=acl.pattern_type,
        principal_filter=acl.principal,
        host_filter=acl.host,
        operation=acl.operation,
        permission_type=acl.permission_type,
    )
