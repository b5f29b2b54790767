"""CreateAcls and DeleteAcls: refusals, written records, and the ACLs that a filter matches."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from odradek.common.errors import ApiError, ErrorCode
from odradek.common.steps import all_steps
from odradek.controller import acls, bounds
from odradek.metadata.acls import AclFilter, AclOperation, AclResourceType, PatternType, PermissionType
from odradek.metadata.delta import MetadataDelta
from odradek.metadata.image import MetadataImage
from odradek.metadata.model import Acl
from odradek.protocol.messages.access_control_entry_record import AccessControlEntryRecord
from odradek.protocol.messages.create_acls_request import AclCreation, CreateAclsRequest
from odradek.protocol.messages.delete_acls_request import DeleteAclsFilter, DeleteAclsRequest
from tests.support.models.controller_harness import Harness


def creation(name: str = "t", **fields: Any) -> AclCreation:
    given: dict[str, Any] = {
        "resource_type": AclResourceType.TOPIC,
        "resource_pattern_type": PatternType.LITERAL,
        "principal": "User:alice",
        "host": "*",
        "operation": AclOperation.READ,
        "permission_type": PermissionType.ALLOW,
    } | fields
    return AclCreation(resource_name=name, **given)


def create(harness: Harness, *creations: AclCreation) -> list[int]:
    answer = harness.do(harness.machine.acls.create(CreateAclsRequest(creations=list(creations))))
    assert all(bool(each.error_code) == bool(each.error_message) for each in answer.results)
    return [each.error_code for each in answer.results]


def wanted(**fields: Any) -> DeleteAclsFilter:
    given: dict[str, Any] = {
        "resource_type_filter": AclResourceType.ANY,
        "resource_name_filter": None,
        "pattern_type_filter": PatternType.ANY,
        "principal_filter": None,
        "host_filter": None,
        "operation": AclOperation.ANY,
        "permission_type": PermissionType.ANY,
    } | fields
    return DeleteAclsFilter(**given)


def exact_filter(name: str) -> DeleteAclsFilter:
    """Matches `creation(name)` alone."""
    return wanted(
        resource_type_filter=AclResourceType.TOPIC,
        resource_name_filter=name,
        pattern_type_filter=PatternType.LITERAL,
        principal_filter="User:alice",
        host_filter="*",
        operation=AclOperation.READ,
        permission_type=PermissionType.ALLOW,
    )


def delete(harness: Harness, *filters: DeleteAclsFilter) -> list[Any]:
    answer = harness.do(harness.machine.acls.delete(DeleteAclsRequest(filters=list(filters))))
    return list(answer.filter_results)


def names(harness: Harness) -> list[str]:
    kept = [record for record in harness.state.others.values() if isinstance(record, AccessControlEntryRecord)]
    assert {acl.resource_name for acl in harness.state.acl_ids} == {record.resource_name for record in kept}
    return sorted(record.resource_name for record in kept)


def test_entries_are_made_once_and_deleted() -> None:
    harness = Harness()
    assert create(harness, creation("a"), creation("a"), creation("b")) == [0, 0, 0]
    assert create(harness, creation("a"), creation("a", host="10.0.0.0/8")) == [0, 0]
    assert names(harness) == ["a", "a", "b"]
    first, second = delete(harness, wanted(resource_name_filter="a"), wanted(host_filter="*"))
    assert [each.host for each in first.matching_acls] == ["*", "10.0.0.0/8"]
    assert [each.resource_name for each in second.matching_acls] == ["a", "b"]
    assert names(harness) == []
    assert delete(harness, wanted())[0].matching_acls == []
    assert create(harness, creation("a")) == [0]
    assert names(harness) == ["a"]


@pytest.mark.parametrize(
    "refused",
    [
        creation(""),
        creation(resource_type=AclResourceType.CLUSTER),
        creation(resource_type=AclResourceType.ANY),
        creation(resource_type=99),
        creation(resource_pattern_type=PatternType.MATCH),
        creation(operation=AclOperation.ANY),
        creation(operation=99),
        creation(permission_type=PermissionType.ANY),
        creation(principal="alice"),
        creation(host=""),
    ],
)
def test_a_refused_acl_does_not_hinder_others(refused: AclCreation) -> None:
    harness = Harness()
    assert create(harness, creation("a"), refused, creation("b")) == [0, ErrorCode.INVALID_REQUEST, 0]
    assert names(harness) == ["a", "b"]


@pytest.mark.parametrize(
    ("refused", "says"),
    [
        (creation(""), "Invalid empty resource name"),
        (
            creation(resource_type=AclResourceType.CLUSTER),
            "The only valid name for the CLUSTER resource is kafka",
        ),
        (creation(resource_type=AclResourceType.ANY), "Invalid resourceType 1"),
        (creation(resource_pattern_type=PatternType.MATCH), "Invalid patternType 2"),
        (creation(operation=AclOperation.ANY), "Invalid operation 1"),
        (creation(permission_type=PermissionType.ANY), "Invalid permissionType 1"),
        (creation(principal="alice"), "Could not parse principal from `alice`"),
        (creation(host="10.0.0.0/33"), "The host 10.0.0.0/33 is not a network"),
        (creation(host=""), "The host is empty"),
    ],
)
def test_a_refusal_says_what_is_wrong_with_an_acl(refused: AclCreation, says: str) -> None:
    harness = Harness()
    answer = harness.do(harness.machine.acls.create(CreateAclsRequest(creations=[refused])))
    assert str(answer.results[0].error_message).startswith(says)


def test_a_filter_of_every_field_deletes_that_entry_alone() -> None:
    harness = Harness()
    create(harness, creation("a"), creation("a", host="10.0.0.1"), creation("a", operation=AclOperation.WRITE))
    exact = exact_filter("a")
    (found,) = delete(harness, exact)[0].matching_acls
    assert (found.error_code, found.resource_type, found.resource_name) == (0, AclResourceType.TOPIC, "a")
    assert (found.pattern_type, found.principal, found.host) == (PatternType.LITERAL, "User:alice", "*")
    assert (found.operation, found.permission_type) == (AclOperation.READ, PermissionType.ALLOW)
    assert names(harness) == ["a", "a"]
    assert delete(harness, exact)[0].matching_acls == []


def test_a_request_changes_a_bounded_number(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bounds, "MAX_ENTRIES_PER_REQUEST", 2)
    harness = Harness()
    with pytest.raises(ApiError) as error:
        create(harness, creation("a"), creation("b"), creation("c"))
    assert error.value.code == ErrorCode.POLICY_VIOLATION
    assert create(harness, creation("a"), creation("b")) == [0, 0]
    assert create(harness, creation("c")) == [0]
    with pytest.raises(ApiError) as error:
        delete(harness, wanted())
    assert error.value.code == ErrorCode.INVALID_REQUEST
    assert names(harness) == ["a", "b", "c"]


def test_more_acls_than_allowed_are_not_deleted() -> None:
    """As in Kafka 4: it refuses the whole request, whichever of the filters goes too far."""
    harness = Harness()
    create(harness, *(creation(f"t{number}") for number in range(5001)))
    create(harness, *(creation(f"u{number}", host="h") for number in range(5000)))
    for filters in ([wanted()], [wanted(host_filter="*"), wanted(host_filter="h")]):
        with pytest.raises(ApiError) as error:
            delete(harness, *filters)
        assert error.value.code == ErrorCode.INVALID_REQUEST
        assert error.value.message == "Cannot remove more than 10000 acls in a single delete operation."
    assert len(harness.state.acl_ids) == 10_001
    assert len(delete(harness, wanted(host_filter="h"))[0].matching_acls) == 5000


def test_matches_of_all_filters_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """The answer has an ACL once for each filter, although it is deleted once."""
    monkeypatch.setattr(bounds, "MAX_ENTRIES_PER_REQUEST", 5)
    harness = Harness()
    create(harness, creation("a"), creation("b"))
    for filters in ([wanted()] * 3, [wanted(), wanted(host_filter="*"), wanted(principal_filter="User:alice")]):
        with pytest.raises(ApiError) as error:
            delete(harness, *filters)
        assert error.value.code == ErrorCode.POLICY_VIOLATION
    assert names(harness) == ["a", "b"]
    first, second = delete(harness, wanted(), wanted())
    assert [each.resource_name for each in first.matching_acls] == ["a", "b"]
    assert second == first
    assert names(harness) == []


def test_comparisons_of_filters_with_acls_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(acls, "MAX_COMPARISONS", 6)
    harness = Harness()
    create(harness, creation("a"), creation("b"))
    absent = [wanted(host_filter=f"10.0.0.{number}") for number in range(4)]
    with pytest.raises(ApiError) as error:
        delete(harness, *absent)
    assert error.value.code == ErrorCode.POLICY_VIOLATION
    assert error.value.message == "Unable to perform excessively large batch operation."
    unknown, exact = wanted(operation=99), [exact_filter(f"c{number}") for number in range(9)]
    assert len(delete(harness, *absent[:3] * 9, *exact, unknown)) == 37, "equal, exact and unknown ones are free"
    assert names(harness) == ["a", "b"]


def test_equal_filters_are_compared_once(monkeypatch: pytest.MonkeyPatch) -> None:
    compared: list[AclFilter] = []

    def matches(self: AclFilter, acl: Acl) -> bool:
        compared.append(self)
        return False

    monkeypatch.setattr(AclFilter, "matches", matches)
    harness = Harness()
    create(harness, creation("a"), creation("b"))
    delete(harness, *[wanted(host_filter="absent")] * 100)
    assert len(compared) == 2


def test_an_unknown_filter_deletes_nothing() -> None:
    harness = Harness()
    create(harness, creation("a"))
    for unknown in (wanted(operation=99), wanted(pattern_type_filter=0), wanted(resource_type_filter=0)):
        (result,) = delete(harness, unknown)
        assert result.error_code == ErrorCode.INVALID_REQUEST
    assert names(harness) == ["a"]


@pytest.mark.parametrize(
    ("pattern", "name", "found"),
    [
        (PatternType.LITERAL, "team-a", ["team-a literal"]),
        (PatternType.LITERAL, "*", ["* literal"]),
        (PatternType.PREFIXED, "team", ["team prefixed"]),
        (PatternType.ANY, "team", ["team prefixed"]),
        (PatternType.MATCH, "team-a", ["* literal", "team prefixed", "team-a literal"]),
        (PatternType.MATCH, "other", ["* literal"]),
        (PatternType.MATCH, None, ["* literal", "team prefixed", "team-a literal"]),
        (PatternType.LITERAL, None, ["* literal", "team-a literal"]),
    ],
)
def test_patterns_of_a_filter(pattern: int, name: str | None, found: list[str]) -> None:
    harness = Harness()
    create(harness, creation("*"), creation("team-a"), creation("team", resource_pattern_type=PatternType.PREFIXED))
    (result,) = delete(harness, wanted(pattern_type_filter=pattern, resource_name_filter=name))
    kinds = {PatternType.LITERAL: "literal", PatternType.PREFIXED: "prefixed"}
    assert sorted(f"{each.resource_name} {kinds[each.pattern_type]}" for each in result.matching_acls) == found


ACLS = st.builds(
    Acl,
    resource_type=st.sampled_from([2, 3]),
    resource_name=st.sampled_from(["a", "ab", "*"]),
    pattern_type=st.sampled_from([3, 4]),
    principal=st.sampled_from(["User:a", "User:*"]),
    host=st.sampled_from(["*", "h"]),
    operation=st.sampled_from([2, 3]),
    permission_type=st.sampled_from([2, 3]),
)


@given(one=ACLS, other=ACLS)
def test_a_filter_of_one_entry_means_that_one(one: Acl, other: Acl) -> None:
    only = AclFilter(
        one.resource_type,
        one.resource_name,
        one.pattern_type,
        one.principal,
        one.host,
        one.operation,
        one.permission_type,
    )
    assert only.exact == one
    assert only.matches(other) == (one == other)


def test_ids_are_random_and_the_image_follows() -> None:
    harness = Harness()
    made = all_steps(harness.machine.acls.create(CreateAclsRequest(creations=[creation("a"), creation("b")]))).records
    assert len({record.id for record in made}) == 2 and all(record.id.version == 4 for record in made)
    delta = MetadataDelta(MetadataImage())
    for record in made:
        delta.replay(record)
    assert set(delta.changed_acls) == {record.id for record in made}
    assert {acl.resource_name for acl in delta.apply(1, 1).acls.values()} == {"a", "b"}
