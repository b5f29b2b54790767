"""AlterUserScramCredentials: refusals, written records, and changes of a user, which are made all or not at all."""

from __future__ import annotations

from typing import Any

import pytest

from odradek.common.errors import ApiError, ErrorCode
from odradek.common.scram import SCRAM_SHA_256, keys_of
from odradek.controller.scram import alter_scram_credentials
from odradek.metadata.features import METADATA_VERSION
from odradek.protocol.messages.alter_user_scram_credentials_request import (
    AlterUserScramCredentialsRequest,
    ScramCredentialDeletion,
    ScramCredentialUpsertion,
)
from odradek.protocol.messages.feature_level_record import FeatureLevelRecord
from odradek.statemachine.machine import Result
from tests.support.models.controller_harness import Harness


def upsert(name: str = "alice", mechanism: int = 1, **fields: Any) -> ScramCredentialUpsertion:
    size = 64 if mechanism == 2 else 32
    given: dict[str, Any] = {"iterations": 4096, "salt": b"salt", "salted_password": b"p" * size} | fields
    return ScramCredentialUpsertion(name=name, mechanism=mechanism, **given)


def alter(
    harness: Harness, *upsertions: ScramCredentialUpsertion, remove: tuple[tuple[str, int], ...] = ()
) -> dict[str, ErrorCode]:
    deletions = [ScramCredentialDeletion(name=name, mechanism=mechanism) for name, mechanism in remove]
    request = AlterUserScramCredentialsRequest(deletions=deletions, upsertions=list(upsertions))
    answer = harness.do(alter_scram_credentials(harness.state, request))
    assert all(bool(each.error_code) == bool(each.error_message) for each in answer.results)
    return {each.user: ErrorCode(each.error_code) for each in answer.results}


def kept(harness: Harness) -> set[tuple[str, int]]:
    return {key[1:] for key in harness.state.others if key[0] == "scram"}


def test_credentials_are_kept_as_keys_and_removed() -> None:
    harness = Harness()
    assert alter(harness, upsert(), upsert(mechanism=2), upsert("bob")) == {"alice": 0, "bob": 0}
    record = harness.state.others[("scram", "alice", 1)]
    keys = keys_of(SCRAM_SHA_256, b"p" * 32)
    assert (record.stored_key, record.server_key, record.salt) == (keys.stored_key, keys.server_key, b"salt")
    assert alter(harness, remove=(("alice", 1), ("bob", 1))) == {"alice": 0, "bob": 0}
    assert kept(harness) == {("alice", 2)}


@pytest.mark.parametrize(
    ("change", "code"),
    [
        (upsert(name=""), ErrorCode.UNACCEPTABLE_CREDENTIAL),
        (upsert(iterations=4095), ErrorCode.UNACCEPTABLE_CREDENTIAL),
        (upsert(iterations=1), ErrorCode.UNACCEPTABLE_CREDENTIAL),
        (upsert(iterations=16385), ErrorCode.UNACCEPTABLE_CREDENTIAL),
        (upsert(iterations=10**9), ErrorCode.UNACCEPTABLE_CREDENTIAL),
        (upsert(salt=b""), ErrorCode.UNACCEPTABLE_CREDENTIAL),
        (upsert(salt=bytes(1025)), ErrorCode.UNACCEPTABLE_CREDENTIAL),
        (upsert(salted_password=b"short"), ErrorCode.UNACCEPTABLE_CREDENTIAL),
        (upsert(mechanism=0), ErrorCode.UNSUPPORTED_SASL_MECHANISM),
        (upsert(mechanism=3), ErrorCode.UNSUPPORTED_SASL_MECHANISM),
    ],
)
def test_a_refused_alteration_changes_no_credential_of_the_user(
    change: ScramCredentialUpsertion, code: ErrorCode
) -> None:
    harness = Harness()
    others = upsert(change.name, mechanism=2)
    assert alter(harness, others, change, upsert("bob")) == {change.name: code, "bob": 0}
    assert kept(harness) == {("bob", 1)}


def test_users_named_twice_or_unknown_are_refused() -> None:
    harness = Harness()
    assert alter(harness, upsert(), upsert()) == {"alice": ErrorCode.DUPLICATE_RESOURCE}
    assert alter(harness, upsert(), remove=(("alice", 1),)) == {"alice": ErrorCode.DUPLICATE_RESOURCE}
    assert alter(harness, remove=(("alice", 1),)) == {"alice": ErrorCode.RESOURCE_NOT_FOUND}
    assert kept(harness) == set()


def test_an_old_cluster_has_no_credentials() -> None:
    harness = Harness()
    harness.do(Result([FeatureLevelRecord(name=METADATA_VERSION, feature_level=10)], None))
    with pytest.raises(ApiError) as error:
        alter(harness, upsert())
    assert error.value.code is ErrorCode.UNSUPPORTED_VERSION
