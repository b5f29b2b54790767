"""Client quotas, kept as records (KIP-546): validation of changes, and their records."""

from __future__ import annotations

import math
from collections.abc import Mapping
from ipaddress import ip_address
from typing import Any

from odradek.common.errors import ApiError, ErrorCode
from odradek.common.numbers import INT32_MAX, INT64_MAX
from odradek.common.turns import Turns
from odradek.controller.bounds import ENTRIES_PER_STEP, check_size
from odradek.controller.state import ControllerState, other_key
from odradek.metadata.model import QuotaEntity, quota_entity
from odradek.protocol.messages import alter_client_quotas_response as answers
from odradek.protocol.messages.alter_client_quotas_request import AlterClientQuotasRequest, EntryData, OpData
from odradek.protocol.messages.client_quota_record import ClientQuotaRecord, EntityData
from odradek.statemachine.machine import Result, Steps

_NO_BOUND = math.inf
# The largest value of each quota; those with a limit are whole numbers.
_OF_CLIENTS: Mapping[str, float] = {
    "producer_byte_rate": INT64_MAX,
    "consumer_byte_rate": INT64_MAX,
    "request_percentage": _NO_BOUND,
    "controller_mutation_rate": _NO_BOUND,
}
_OF_ADDRESSES: Mapping[str, float] = {"connection_creation_rate": INT32_MAX}
_TYPES = ("user", "client-id", "ip")
# Kafka's tolerance for whole numbers.
_NEAR = 1e-6


def alter_client_quotas(
    state: ControllerState, request: AlterClientQuotasRequest
) -> Steps[Any, answers.AlterClientQuotasResponse]:
    """Set and remove quotas; the changes of one entity are made all or none.

    Raises:
        ApiError: POLICY_VIOLATION, as `check_size`.
    """
    check_size(request)
    turns = Turns(ENTRIES_PER_STEP)
    records: list[Any] = []
    results: list[answers.EntryData] = []
    seen: set[QuotaEntity] = set()
    for entry in request.entries:
        if turns.fill(1 + len(entry.ops)):
            yield
        result = answers.EntryData(
            error_message=None,
            entity=[
                answers.EntityData(entity_type=part.entity_type, entity_name=part.entity_name) for part in entry.entity
            ],
        )
        results.append(result)
        try:
            records += _records(state, entry, seen)
        except ApiError as error:
            result.error_code, result.error_message = error.code, error.message
    written = [] if request.validate_only else records
    return Result(written, answers.AlterClientQuotasResponse(entries=results), atomic=False)


def _records(state: ControllerState, entry: EntryData, seen: set[QuotaEntity]) -> list[ClientQuotaRecord]:
    """
    Raises:
        ApiError: INVALID_REQUEST.
    """
    problem = _problem_of_entity(entry)
    entity = quota_entity([(part.entity_type, part.entity_name) for part in entry.entity])
    if not problem and entity in seen:
        problem = "An entity cannot be altered twice in the same request"
    if problem:
        raise ApiError(ErrorCode.INVALID_REQUEST, problem)
    seen.add(entity)
    keys = _OF_ADDRESSES if entity[0][0] == "ip" else _OF_CLIENTS
    changes: dict[str, OpData] = {}
    for change in entry.ops:
        if change.key in changes:
            raise ApiError(ErrorCode.INVALID_REQUEST, f"Duplicate configuration key {change.key}")
        problem = _problem_of_change(keys, change)
        if problem:
            raise ApiError(ErrorCode.INVALID_REQUEST, problem)
        changes[change.key] = change
    made = [_record(entity, change) for change in changes.values()]
    return [record for record in made if _changes(state, record)]


def _record(entity: QuotaEntity, change: OpData) -> ClientQuotaRecord:
    parts = [EntityData(entity_type=kind, entity_name=name) for kind, name in entity]
    value = 0.0 if change.remove else change.value
    return ClientQuotaRecord(entity=parts, key=change.key, value=value, remove=change.remove)


def _changes(state: ControllerState, record: ClientQuotaRecord) -> bool:
    kept = state.others.get(other_key(record))
    return kept is not None if record.remove else kept is None or kept.value != record.value


def _problem_of_entity(entry: EntryData) -> str:
    """The error text of an invalid entity; "" if it is valid."""
    types = [part.entity_type for part in entry.entity]
    if not types:
        return "Invalid empty client quota entity"
    for part in entry.entity:
        if part.entity_type not in _TYPES:
            return f"Unhandled client quota entity type: {part.entity_type}"
        if part.entity_name == "":
            return f"Empty {part.entity_type} not supported"
    if len(set(types)) < len(types):
        return "Invalid client quota entity, duplicate entity entry"
    return _problem_of_address(entry) if "ip" in types else ""


def _problem_of_address(entry: EntryData) -> str:
    if len(entry.entity) > 1:
        return "Invalid quota entity combination, IP entity should not be combined with User or ClientId"
    name = entry.entity[0].entity_name
    if name is None:
        return ""
    try:
        ip_address(name)
    except ValueError:
        # Kafka resolves host names, too; the controller's decisions must not depend on a resolver.
        return f"{name} is not a valid IP"
    return ""


def _problem_of_change(keys: Mapping[str, float], change: OpData) -> str:
    bound = keys.get(change.key)
    if bound is None:
        return f"Invalid configuration key {change.key}"
    if change.remove:
        return ""
    if not math.isfinite(change.value) or change.value < 0:
        return f"Proposed value for {change.key} must be a number of at least 0"
    if bound == _NO_BOUND:
        return ""
    if change.value > bound:
        return f"Proposed value for {change.key} is too large"
    return f"{change.key} cannot be a fractional value" if change.value % 1 > _NEAR else ""
