"""Access control entries, kept as records: CreateAcls and DeleteAcls."""

from __future__ import annotations

from collections import Counter
from collections.abc import Generator, Iterable
from typing import TYPE_CHECKING, Any
from uuid import UUID

from odradek.common.errors import ApiError, ErrorCode
from odradek.common.turns import Turns
from odradek.controller import bounds
from odradek.controller.bounds import ENTRIES_PER_STEP, check_count, check_size, too_large
from odradek.controller.state import ControllerState
from odradek.metadata.acl_messages import acl_from_creation
from odradek.metadata.acls import (
    CLUSTER_NAME,
    AclFilter,
    AclOperation,
    AclResourceType,
    PatternType,
    PermissionType,
    network_of,
)
from odradek.metadata.model import Acl, acl_record
from odradek.protocol.messages.create_acls_request import AclCreation, CreateAclsRequest
from odradek.protocol.messages.create_acls_response import AclCreationResult, CreateAclsResponse
from odradek.protocol.messages.delete_acls_request import DeleteAclsFilter, DeleteAclsRequest
from odradek.protocol.messages.delete_acls_response import (
    DeleteAclsFilterResult,
    DeleteAclsMatchingAcl,
    DeleteAclsResponse,
)
from odradek.protocol.messages.remove_access_control_entry_record import RemoveAccessControlEntryRecord
from odradek.statemachine.machine import Result, Steps

if TYPE_CHECKING:
    from random import Random

# A filter is compared with so many ACLs in the time in which one entry is decided.
ACLS_PER_ENTRY = 10
# How often the filters of one request may be compared with ACLs, some 2 us each: no other operation of the controller,
# such as a heartbeat, runs meanwhile.
MAX_COMPARISONS = 2_000_000


class Acls:
    """Operations on the cluster's access control entries."""

    def __init__(self, state: ControllerState, random: Random) -> None:
        """`random` generates the entries' ids."""
        self._state = state
        self._random = random

    def create(self, request: CreateAclsRequest) -> Steps[Any, CreateAclsResponse]:
        """Create the entries that do not exist; each succeeds or fails on its own.

        Raises:
            ApiError: POLICY_VIOLATION, as `check_size`.
        """
        check_size(request)
        turns = Turns(ENTRIES_PER_STEP)
        new: dict[Acl, None] = {}
        results: list[AclCreationResult] = []
        for creation in request.creations:
            if turns.fill():
                yield
            try:
                acl = _checked(creation)
            except ApiError as error:
                results.append(AclCreationResult(error_code=error.code, error_message=error.message))
                continue
            results.append(AclCreationResult(error_message=None))
            if acl not in self._state.acl_ids:
                new[acl] = None
        records: list[Any] = []
        for acl in new:
            if turns.fill():
                yield
            records.append(acl_record(UUID(int=self._random.getrandbits(128), version=4), acl))
        return Result(records, CreateAclsResponse(results=results))

    def delete(self, request: DeleteAclsRequest) -> Steps[Any, DeleteAclsResponse]:
        """Delete the entries that match any of the filters; the answer has all matches of each filter.

        Raises:
            ApiError: INVALID_REQUEST, the filters match more ACLs than a request may delete; POLICY_VIOLATION, as
                `check_size`, or the answer would have more matches, or there are more than `MAX_COMPARISONS`.
        """
        check_size(request)
        turns = Turns(ENTRIES_PER_STEP * ACLS_PER_ENTRY)
        results: dict[AclFilter, DeleteAclsFilterResult] = {}
        times: Counter[AclFilter] = Counter()
        wanted: list[AclFilter] = []
        for each in request.filters:
            if turns.fill(ACLS_PER_ENTRY):
                yield
            acl_filter = filter_of_deletion(each)
            wanted.append(acl_filter)
            problem = acl_filter.unknown_field
            if problem:
                text = f"Unknown {problem} in the filter"
                results[acl_filter] = DeleteAclsFilterResult(error_code=ErrorCode.INVALID_REQUEST, error_message=text)
            else:
                times[acl_filter] += 1
        if len(self._state.acl_ids) * sum(each.exact is None for each in times) > MAX_COMPARISONS:
            raise too_large()
        gone: dict[UUID, None] = {}
        match_count = 0
        for acl_filter, count in times.items():
            matching = yield from self._matching(acl_filter, turns)
            gone.update(dict.fromkeys(acl_id for _, acl_id in matching))
            if len(gone) > bounds.MAX_ENTRIES_PER_REQUEST:
                raise _too_many_deleted()
            # Equal filters share a result here, but not in the encoded answer.
            match_count += len(matching) * count
            check_count(match_count)
            results[acl_filter] = yield from _result(matching, turns)
        records = [RemoveAccessControlEntryRecord(id=acl_id) for acl_id in gone]
        return Result(records, DeleteAclsResponse(filter_results=[results[each] for each in wanted]))

    def _matching(self, acl_filter: AclFilter, turns: Turns) -> Generator[None, None, list[tuple[Acl, UUID]]]:
        exact = acl_filter.exact
        items: Iterable[tuple[Acl, UUID]] = self._state.acl_ids.items()
        if exact is not None:
            found = self._state.acl_ids.get(exact)
            items = [] if found is None else [(exact, found)]
        matching = []
        for acl, acl_id in items:
            if turns.fill():
                yield
            if acl_filter.matches(acl):
                matching.append((acl, acl_id))
        return matching


def _result(matching: list[tuple[Acl, UUID]], turns: Turns) -> Generator[None, None, DeleteAclsFilterResult]:
    described = []
    for acl, _ in matching:
        if turns.fill():
            yield
        described.append(_description(acl))
    return DeleteAclsFilterResult(error_message=None, matching_acls=described)


def _too_many_deleted() -> ApiError:
    text = f"Cannot remove more than {bounds.MAX_ENTRIES_PER_REQUEST} acls in a single delete operation."
    return ApiError(ErrorCode.INVALID_REQUEST, text)


def filter_of_deletion(each: DeleteAclsFilter) -> AclFilter:
    """The filter of a DeleteAcls request."""
    return AclFilter(
        each.resource_type_filter,
        each.resource_name_filter,
        each.pattern_type_filter,
        each.principal_filter,
        each.host_filter,
        each.operation,
        each.permission_type,
    )


def _checked(creation: AclCreation) -> Acl:
    """
    Raises:
        ApiError: INVALID_REQUEST.
    """
    problem = _problem(creation)
    if problem:
        raise ApiError(ErrorCode.INVALID_REQUEST, problem)
    return acl_from_creation(creation)


_MEANINGFUL_TYPES = frozenset(each for each in AclResourceType if each > AclResourceType.ANY)
_MEANINGFUL_OPERATIONS = frozenset(each for each in AclOperation if each > AclOperation.ANY)
_PATTERNS = (PatternType.LITERAL, PatternType.PREFIXED)
_PERMISSIONS = (PermissionType.DENY, PermissionType.ALLOW)


def _problem(creation: AclCreation) -> str:
    """The error text of an invalid entry; "" if it is valid."""
    if creation.resource_type == AclResourceType.CLUSTER and creation.resource_name != CLUSTER_NAME:
        return f"The only valid name for the CLUSTER resource is {CLUSTER_NAME}"
    if not creation.resource_name:
        return "Invalid empty resource name"
    if creation.resource_type not in _MEANINGFUL_TYPES:
        return f"Invalid resourceType {creation.resource_type}"
    if creation.resource_pattern_type not in _PATTERNS:
        return f"Invalid patternType {creation.resource_pattern_type}"
    if creation.operation not in _MEANINGFUL_OPERATIONS:
        return f"Invalid operation {creation.operation}"
    if creation.permission_type not in _PERMISSIONS:
        return f"Invalid permissionType {creation.permission_type}"
    return _principal_problem(creation)


def _principal_problem(creation: AclCreation) -> str:
    if ":" not in creation.principal:
        text = "no colon is present separating the principal type from the principal name"
        return f"Could not parse principal from `{creation.principal}` ({text})"
    if "/" in creation.host and network_of(creation.host) is None:
        return f"The host {creation.host} is not a network, as 10.0.0.0/8 is"
    return "" if creation.host else "The host is empty; * means all"


def _description(acl: Acl) -> DeleteAclsMatchingAcl:
    return DeleteAclsMatchingAcl(
        error_message=None,
        resource_type=acl.resource_type,
        resource_name=acl.resource_name,
        pattern_type=acl.pattern_type,
        principal=acl.principal,
        host=acl.host,
        operation=acl.operation,
        permission_type=acl.permission_type,
    )
