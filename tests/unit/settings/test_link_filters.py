"""The filters of a link: the names that they match, and filters that are refused."""

from __future__ import annotations

import json

import pytest

from odradek.metadata.acls import AclOperation
from odradek.settings.link_filters import follows_group, parse_acl_filters, parse_group_filters


def filters(*entries: dict[str, str]) -> str:
    return json.dumps({"groupFilters": entries})


def test_a_group_follows_that_is_included_and_not_excluded() -> None:
    parsed = parse_group_filters(
        filters(
            {"name": "bill", "patternType": "PREFIXED"},
            {"name": "billing", "filterType": "EXCLUDE"},
            {"name": "orders"},
        )
    )
    followed = ["bill", "billing", "billing-2", "orders", "orders-2", ""]
    assert [name for name in followed if follows_group(parsed, name)] == ["bill", "billing-2", "orders"]
    assert follows_group(parse_group_filters(filters({"name": "*"})), "any")
    assert not follows_group(parse_group_filters(""), "any")


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("{", "must be JSON"),
        ("[]", "must be"),
        ('{"groupFilters": 1}', "must be"),
        ('{"groupFilters": [1]}', "must be"),
        (filters({"name": ""}), "must have a name"),
        (filters({"name": "a", "patternType": "ANY"}), "patternType is"),
        (filters({"name": "a", "filterType": "ALL"}), "filterType is"),
        (filters({"name": "a", "pattern": "LITERAL"}), "pattern is none of"),
    ],
)
def test_invalid_filters_are_refused(text: str, problem: str) -> None:
    with pytest.raises(ValueError, match=problem):
        parse_group_filters(text)


def test_acls_are_named_in_any_way_that_is_known() -> None:
    entry = {
        "resourceFilter": {"resourceType": "TransactionalId", "patternType": "prefixed", "name": "t"},
        "accessFilter": {
            "principal": "User:a",
            "operation": "describe-configs",
            "permissionType": "ALLOW",
            "host": "*",
        },
    }
    every = {"accessFilter": {"operation": "any"}}
    (found, everything) = parse_acl_filters(json.dumps({"aclFilters": [entry, every]}))
    assert (found.resource_type, found.pattern_type, found.name) == ("TRANSACTIONAL_ID", "PREFIXED", "t")
    assert (found.operation, found.permission_type, found.host) == ("DESCRIBE_CONFIGS", "ALLOW", "*")
    assert (everything.resource_type, everything.name, everything.operation) == ("ANY", None, "ANY")
    # Each word is one of the protocol, as the follower looks it up.
    for operation in AclOperation:
        if operation is not AclOperation.UNKNOWN:
            text = json.dumps({"aclFilters": [{"accessFilter": {"operation": operation.name}}]})
            assert parse_acl_filters(text)[0].operation == operation.name


@pytest.mark.parametrize(
    ("entry", "problem"),
    [
        ({"resourceFilter": {"resourceType": "table"}}, "resourceType is one of"),
        ({"resourceFilter": {"principal": "User:a"}}, "principal of resourceFilter"),
        ({"resourceFilter": []}, "must be an object"),
        ({"accessFilter": {"host": None}}, "host of accessFilter must be a text"),
        ({"name": "a"}, "name is none of"),
        ({}, "must have a condition"),
        ({"resourceFilter": {}, "accessFilter": {}}, "must have a condition"),
        ({"accessFilter": {"principal": "User:a", "operation": ""}}, "operation is one of"),
        ({"accessFilter": {"permissionType": ""}}, "permissionType is one of"),
        ({"resourceFilter": {"resourceType": ""}}, "resourceType is one of"),
        ({"resourceFilter": {"patternType": ""}}, "patternType is one of"),
    ],
)
def test_acl_filters_that_cannot_be_read_are_refused(entry: dict[str, object], problem: str) -> None:
    with pytest.raises(ValueError, match=problem):
        parse_acl_filters(json.dumps({"aclFilters": [entry]}))
