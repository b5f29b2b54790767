"""Converts the options of `odradek acls` to ACLs and filters, and ACLs to output."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product
from typing import TYPE_CHECKING

from odradek.cli.errors import USAGE, CliError

if TYPE_CHECKING:
    from odradek.metadata.model import Acl
    from odradek.protocol.messages.delete_acls_request import DeleteAclsFilter
    from odradek.protocol.messages.describe_acls_request import DescribeAclsRequest

_PRODUCER = ("WRITE", "DESCRIBE", "CREATE")
_CONSUMER = ("READ", "DESCRIBE")
# The operations on a resource of each type; an ACL with another operation decides nothing. The cluster's DELETE is
# missing in `kafka-acls`, though it allows the deletion of every topic.
_OPERATIONS = {
    "TOPIC": "READ WRITE CREATE DELETE ALTER DESCRIBE DESCRIBE_CONFIGS ALTER_CONFIGS",
    "GROUP": "READ DELETE DESCRIBE DESCRIBE_CONFIGS ALTER_CONFIGS",
    "CLUSTER": "CREATE DELETE ALTER DESCRIBE CLUSTER_ACTION DESCRIBE_CONFIGS ALTER_CONFIGS IDEMPOTENT_WRITE",
    "TRANSACTIONAL_ID": "WRITE DESCRIBE TWO_PHASE_COMMIT",
    "DELEGATION_TOKEN": "DESCRIBE",
    "USER": "CREATE_TOKENS DESCRIBE_TOKENS",
}


@dataclass(frozen=True, slots=True)
class Resources:
    """The resources that options name: type (a number) and name."""

    named: tuple[tuple[int, str], ...]

    def of_type(self, resource_type: int) -> list[tuple[int, str]]:
        return [each for each in self.named if each[0] == resource_type]


def resources_of(
    topic: list[str] | None,
    group: list[str] | None,
    transactional_id: list[str] | None,
    delegation_token: list[str] | None,
    user: list[str] | None,
    *,
    cluster: bool,
) -> Resources:
    """The resources that the options name."""
    from odradek.metadata.acls import CLUSTER_NAME, AclResourceType

    given = {
        AclResourceType.TOPIC: topic,
        AclResourceType.GROUP: group,
        AclResourceType.CLUSTER: [CLUSTER_NAME] if cluster else None,
        AclResourceType.TRANSACTIONAL_ID: transactional_id,
        AclResourceType.DELEGATION_TOKEN: delegation_token,
        AclResourceType.USER: user,
    }
    return Resources(tuple((int(kind), name) for kind, names in given.items() for name in names or ()))


def requested_resources(
    resources: Resources, operation: list[str] | None, *, producer: bool, consumer: bool
) -> list[tuple[tuple[int, str], int]]:
    """The resources with the requested operations.

    Raises:
        CliError: no resource, no operation, one that the resource does not have, a consumer without a group.
    """
    from odradek.metadata.acls import AclOperation, AclResourceType

    if not resources.named:
        raise CliError("name a resource: --topic, --group, --transactional-id, --cluster, …", code=USAGE)
    if not (operation or producer or consumer):
        raise CliError("name what is allowed or denied: --operation, --producer or --consumer", code=USAGE)
    found = [*product(resources.named, operations_of(operation or []))]
    for (kind, _), number in found:
        _check_operation(kind, number)
    topics = resources.of_type(AclResourceType.TOPIC)
    groups, ids = resources.of_type(AclResourceType.GROUP), resources.of_type(AclResourceType.TRANSACTIONAL_ID)
    if producer:
        found += product(topics, operations_of(_PRODUCER))
        found += product(ids, operations_of(["WRITE", "DESCRIBE"]))
    if consumer:
        if not groups:
            raise CliError("a consumer has a group: name it with --group", code=USAGE)
        found += product(topics, operations_of(_CONSUMER))
        found += product(groups, [int(AclOperation.READ)])
    return list(dict.fromkeys(found))


def _check_operation(resource_type: int, operation: int) -> None:
    """Raises CliError for an operation that a resource of the type does not have."""
    from odradek.metadata.acls import AclOperation, AclResourceType

    kind, name = AclResourceType(resource_type).name, AclOperation(operation).name
    known = ["ALL", *_OPERATIONS[kind].split()]
    if name not in known:
        raise CliError(f"--operation {name}: of a {kind} it is one of {', '.join(known)}", code=USAGE)


def _check_hosts(hosts: Sequence[str]) -> None:
    from ipaddress import ip_address

    from odradek.metadata.acls import WILDCARD, network_of

    for host in hosts:
        try:
            if host != WILDCARD and network_of(host) is None:
                ip_address(host)
        except ValueError:
            raise CliError(f"--host {host} is not an address; give one, or 10.0.0.0/8 or *", code=USAGE) from None


def entries_of(
    pairs: list[tuple[tuple[int, str], int]],
    allowed: list[str] | None,
    denied: list[str] | None,
    hosts: list[str] | None,
    *,
    prefixed: bool,
) -> list[Acl]:
    """An ACL for each pair of resource and operation, principal and host.

    Raises:
        CliError: no principal, or a host that is not an address: a rule with a name would hold for no client.
    """
    from odradek.metadata.acls import PatternType
    from odradek.metadata.model import Acl

    permissions = _permissions(allowed, denied)
    if not permissions:
        raise CliError("name a principal: --allow-principal or --deny-principal, as User:name", code=USAGE)
    check_principals([principal for principal, _ in permissions])
    _check_hosts(hosts or ())
    pattern = PatternType.PREFIXED if prefixed else PatternType.LITERAL
    return [
        Acl(kind, name, _pattern_of(kind, pattern), principal, host, operation, permission)
        for (kind, name), operation in pairs
        for principal, permission in permissions
        for host in hosts or ("*",)
    ]


def _permissions(allowed: list[str] | None, denied: list[str] | None) -> list[tuple[str, int]]:
    """Each principal of the options, with its permission."""
    from odradek.metadata.acls import PermissionType

    given = ((PermissionType.ALLOW, allowed), (PermissionType.DENY, denied))
    return [(name, int(permission)) for permission, names in given for name in names or ()]


def _pattern_of(resource_type: int, pattern: int) -> int:
    """The pattern of an ACL; the cluster has one name, so its pattern is LITERAL."""
    from odradek.metadata.acls import AclResourceType, PatternType

    return int(PatternType.LITERAL if resource_type == AclResourceType.CLUSTER else pattern)


def filters_of(
    named: tuple[tuple[int, str], ...],
    pattern: int,
    allowed: list[str] | None,
    denied: list[str] | None,
    operation: list[str] | None,
    hosts: list[str] | None,
) -> list[DeleteAclsFilter]:
    """The filters for DeleteAcls; an option that is not given matches everything."""
    from odradek.metadata.acls import AclOperation, AclResourceType, PermissionType
    from odradek.protocol.messages.delete_acls_request import DeleteAclsFilter

    return [
        DeleteAclsFilter(
            resource_type_filter=kind,
            resource_name_filter=name,
            pattern_type_filter=_pattern_of(kind, pattern),
            principal_filter=principal,
            host_filter=host,
            operation=number,
            permission_type=permission,
        )
        for kind, name in named or ((int(AclResourceType.ANY), None),)
        for principal, permission in _permissions(allowed, denied) or ((None, int(PermissionType.ANY)),)
        for number in operations_of(operation or []) or [int(AclOperation.ANY)]
        for host in hosts or (None,)
    ]


def description_of(filter_: DeleteAclsFilter) -> DescribeAclsRequest:
    """The DescribeAcls request that finds the ACLs that a filter of DeleteAcls matches."""
    from odradek.protocol.messages.describe_acls_request import DescribeAclsRequest

    return DescribeAclsRequest(**{each.name: getattr(filter_, each.name) for each in DescribeAclsRequest.FIELDS})


def operations_of(names: Sequence[str]) -> list[int]:
    """The numbers of operations, written as READ, alter-configs or AlterConfigs. Raises CliError."""
    from odradek.metadata.acls import AclOperation

    known = {each.name: each for each in AclOperation if each >= AclOperation.ALL}
    found = []
    for name in names:
        key = name.upper().replace("-", "_")
        number = known.get(key) or next((each for each in known.values() if each.name.replace("_", "") == key), None)
        if number is None:
            raise CliError(f"--operation {name}: is one of {', '.join(known)}", code=USAGE)
        found.append(int(number))
    return found


def check_principals(names: Sequence[str]) -> None:
    """Raises CliError for a name that is not `User:name`."""
    from odradek.settings.formats import is_principal

    for name in names:
        if not is_principal(name):
            raise CliError(f"{name} is not a principal; write User:{name}", code=USAGE)


def row(acl: Acl) -> list[object]:
    """An ACL as a row of a table."""
    return list(described(acl).values())


def described(acl: Acl) -> dict[str, str]:
    """An ACL as JSON."""
    from odradek.metadata.acls import AclOperation, AclResourceType, PatternType, PermissionType

    return {
        "permission": PermissionType(acl.permission_type).name,
        "principal": acl.principal,
        "host": acl.host,
        "operation": AclOperation(acl.operation).name,
        "resource_type": AclResourceType(acl.resource_type).name,
        "pattern_type": PatternType(acl.pattern_type).name,
        "resource": acl.resource_name,
    }
