"""SCRAM credentials of users, kept as records (KIP-554). The broker never gets passwords: clients hash them first."""

from __future__ import annotations

from collections import Counter
from typing import Any

from odradek.common.errors import ApiError, ErrorCode
from odradek.common.scram import MAX_ITERATIONS, MIN_ITERATIONS, SCRAM_BY_NUMBER, keys_of
from odradek.common.turns import Turns
from odradek.controller.bounds import ENTRIES_PER_STEP, check_size
from odradek.controller.state import ControllerState
from odradek.metadata.features import SCRAM_CREDENTIALS
from odradek.protocol.messages.alter_user_scram_credentials_request import (
    AlterUserScramCredentialsRequest,
    ScramCredentialDeletion,
    ScramCredentialUpsertion,
)
from odradek.protocol.messages.alter_user_scram_credentials_response import (
    AlterUserScramCredentialsResponse,
    AlterUserScramCredentialsResult,
)
from odradek.protocol.messages.remove_user_scram_credential_record import RemoveUserScramCredentialRecord
from odradek.protocol.messages.user_scram_credential_record import UserScramCredentialRecord
from odradek.statemachine.machine import Result, Steps

Change = ScramCredentialDeletion | ScramCredentialUpsertion

# A longer salt or name is a mistake; both are sent with each login.
MAX_FIELD_BYTES = 1024


def alter_scram_credentials(
    state: ControllerState, request: AlterUserScramCredentialsRequest
) -> Steps[Any, AlterUserScramCredentialsResponse]:
    """Set and remove credentials; the changes of one user are made all or none.

    Raises:
        ApiError: UNSUPPORTED_VERSION while metadata.version has no such records; POLICY_VIOLATION, as `check_size`.
    """
    check_size(request)
    turns = Turns(ENTRIES_PER_STEP)
    if state.metadata_version < SCRAM_CREDENTIALS:
        raise ApiError(ErrorCode.UNSUPPORTED_VERSION, "The current metadata.version does not support SCRAM")
    changes: list[Change] = [*request.deletions, *request.upsertions]
    often = Counter((each.name, each.mechanism) for each in changes)
    refused: dict[str, ApiError] = {}
    made: dict[str, list[Any]] = {}
    for each in changes:
        if turns.fill():
            yield
        made.setdefault(each.name, [])
        try:
            if often[(each.name, each.mechanism)] > 1:
                text = "A user credential cannot be altered twice in the same request"
                raise ApiError(ErrorCode.DUPLICATE_RESOURCE, text)
            made[each.name].append(_record(state, each))
        except ApiError as error:
            refused.setdefault(each.name, error)
    records = [record for name, own in made.items() if name not in refused for record in own]
    results = [_result(name, refused.get(name)) for name in made]
    return Result(records, AlterUserScramCredentialsResponse(results=results), atomic=False)


def _result(name: str, error: ApiError | None) -> AlterUserScramCredentialsResult:
    if error is None:
        return AlterUserScramCredentialsResult(user=name, error_message=None)
    return AlterUserScramCredentialsResult(user=name, error_code=error.code, error_message=error.message)


def _record(state: ControllerState, change: Change) -> Any:
    """
    Raises:
        ApiError: UNACCEPTABLE_CREDENTIAL, UNSUPPORTED_SASL_MECHANISM, RESOURCE_NOT_FOUND.
    """
    if not change.name:
        raise ApiError(ErrorCode.UNACCEPTABLE_CREDENTIAL, "Username must not be empty")
    mechanism = SCRAM_BY_NUMBER.get(change.mechanism)
    if mechanism is None:
        raise ApiError(ErrorCode.UNSUPPORTED_SASL_MECHANISM, "Unknown SCRAM mechanism")
    if isinstance(change, ScramCredentialDeletion):
        if ("scram", change.name, change.mechanism) not in state.others:
            text = "Attempt to delete a user credential that does not exist"
            raise ApiError(ErrorCode.RESOURCE_NOT_FOUND, text)
        return RemoveUserScramCredentialRecord(name=change.name, mechanism=change.mechanism)
    problem = _unacceptable(change, mechanism.key_bytes)
    if problem:
        raise ApiError(ErrorCode.UNACCEPTABLE_CREDENTIAL, problem)
    keys = keys_of(mechanism, bytes(change.salted_password))
    return UserScramCredentialRecord(
        name=change.name,
        mechanism=change.mechanism,
        salt=bytes(change.salt),
        stored_key=keys.stored_key,
        server_key=keys.server_key,
        iterations=change.iterations,
    )


def _unacceptable(change: ScramCredentialUpsertion, key_bytes: int) -> str:
    if change.iterations < MIN_ITERATIONS:
        return "Too few iterations"
    if change.iterations > MAX_ITERATIONS:
        return "Too many iterations"
    if not change.salt:
        return "The salt is empty"
    if max(len(change.salt), len(change.name.encode())) > MAX_FIELD_BYTES:
        return f"Name and salt have at most {MAX_FIELD_BYTES} bytes"
    if len(change.salted_password) != key_bytes:
        return f"The salted password must have {key_bytes} bytes"
    return ""
