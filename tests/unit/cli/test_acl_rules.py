"""The operations that `odradek acls add` accepts for a resource."""

from __future__ import annotations

import pytest

from odradek.cli.acl_rules import requested_resources, resources_of
from odradek.cli.errors import CliError
from odradek.metadata.acls import AclOperation, AclResourceType
from odradek.server.authorization import CLUSTER_OPERATIONS, GROUP_OPERATIONS, TOPIC_OPERATIONS


def taken(kind: AclResourceType) -> set[AclOperation]:
    names = {
        AclResourceType.TOPIC: (["t"], None, None, None, None),
        AclResourceType.GROUP: (None, ["g"], None, None, None),
        AclResourceType.CLUSTER: (None, None, None, None, None),
        AclResourceType.TRANSACTIONAL_ID: (None, None, ["x"], None, None),
        AclResourceType.DELEGATION_TOKEN: (None, None, None, ["d"], None),
        AclResourceType.USER: (None, None, None, None, ["User:u"]),
    }[kind]
    resources = resources_of(*names, cluster=kind == AclResourceType.CLUSTER)
    found = set()
    for operation in AclOperation:
        if operation >= AclOperation.ALL:
            try:
                requested_resources(resources, [operation.name], producer=False, consumer=False)
            except CliError:
                continue
            found.add(operation)
    return found


def of_bits(operations: int) -> set[AclOperation]:
    return {each for each in AclOperation if operations >> each & 1}


@pytest.mark.parametrize(
    ("kind", "operations"),
    [
        (AclResourceType.TOPIC, of_bits(TOPIC_OPERATIONS)),
        (AclResourceType.GROUP, of_bits(GROUP_OPERATIONS)),
        (AclResourceType.CLUSTER, of_bits(CLUSTER_OPERATIONS) | {AclOperation.DELETE}),
        (
            AclResourceType.TRANSACTIONAL_ID,
            {AclOperation.WRITE, AclOperation.DESCRIBE, AclOperation.TWO_PHASE_COMMIT},
        ),
        (AclResourceType.DELEGATION_TOKEN, {AclOperation.DESCRIBE}),
        (AclResourceType.USER, {AclOperation.CREATE_TOKENS, AclOperation.DESCRIBE_TOKENS}),
    ],
)
def test_only_operations_that_a_resource_has(kind: AclResourceType, operations: set[AclOperation]) -> None:
    assert taken(kind) == {AclOperation.ALL} | operations
