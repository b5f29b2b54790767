"""Delegation tokens: which users may create, renew and see them, and when they end."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from odradek.common.delegation import token_hmac
from odradek.common.errors import ApiError, ErrorCode
from odradek.controller.tokens import DelegationTokenConfig, DelegationTokens
from odradek.metadata.features import METADATA_VERSION
from odradek.protocol.messages.create_delegation_token_request import CreatableRenewers, CreateDelegationTokenRequest
from odradek.protocol.messages.expire_delegation_token_request import ExpireDelegationTokenRequest
from odradek.protocol.messages.feature_level_record import FeatureLevelRecord
from odradek.protocol.messages.renew_delegation_token_request import RenewDelegationTokenRequest
from odradek.statemachine.machine import Result
from tests.support.models.controller_harness import Harness

CONFIG = DelegationTokenConfig(secret_key="key", max_lifetime_ms=1000, expiry_time_ms=100)
HMAC = token_hmac("key", "T")
OWNER, RENEWER, OTHER = "User:alice", "User:bob", "User:carol"


@pytest.fixture
def harness() -> Harness:
    return Harness()


def tokens(harness: Harness, config: DelegationTokenConfig = CONFIG) -> DelegationTokens:
    return DelegationTokens(harness.state, config)


def create(harness: Harness, max_lifetime_ms: int = -1, now_ms: int = 0, **fields: Any) -> Any:
    renewers = [CreatableRenewers(principal_type="User", principal_name="bob")]
    request = CreateDelegationTokenRequest(renewers=renewers, max_lifetime_ms=max_lifetime_ms, **fields)
    return harness.do(tokens(harness).create(request, OWNER, "T", now_ms))


def renew(harness: Harness, who: str, period_ms: int = -1, now_ms: int = 0, shown: bytes = HMAC) -> int:
    request = RenewDelegationTokenRequest(hmac=shown, renew_period_ms=period_ms)
    return int(harness.do(tokens(harness).renew(request, who, now_ms)).expiry_timestamp_ms)


def expire(harness: Harness, who: str, period_ms: int = -1, now_ms: int = 0) -> int:
    request = ExpireDelegationTokenRequest(hmac=HMAC, expiry_time_period_ms=period_ms)
    return int(harness.do(tokens(harness).expire(request, who, now_ms)).expiry_timestamp_ms)


@contextmanager
def refused(code: ErrorCode) -> Iterator[None]:
    with pytest.raises(ApiError) as error:
        yield
    assert error.value.code is code


@pytest.mark.parametrize(("asked_ms", "ends_ms", "latest_ms"), [(-1, 100, 1000), (50, 50, 50), (5000, 100, 1000)])
def test_a_token_ends_early_where_it_is_not_renewed(
    harness: Harness, asked_ms: int, ends_ms: int, latest_ms: int
) -> None:
    made = create(harness, asked_ms)
    assert (made.expiry_timestamp_ms, made.max_timestamp_ms, made.hmac) == (ends_ms, latest_ms, HMAC)
    assert (made.principal_name, made.token_requester_principal_name) == ("alice", "alice")


def test_a_token_may_be_for_another_owner(harness: Harness) -> None:
    made = create(harness, owner_principal_type="User", owner_principal_name="dora")
    assert (made.principal_name, made.token_requester_principal_name) == ("dora", "alice")
    with refused(ErrorCode.INVALID_PRINCIPAL_TYPE):
        create(harness, owner_principal_type="Group", owner_principal_name="dora")


@pytest.mark.parametrize("who", [OWNER, RENEWER])
def test_owner_and_renewers_let_it_live_on(harness: Harness, who: str) -> None:
    create(harness)
    assert renew(harness, who, now_ms=90) == 190
    assert renew(harness, who, 20, now_ms=100) == 120
    assert renew(harness, who, 5000, now_ms=110) == 210
    assert expire(harness, who, 5000, now_ms=200) == 1000
    assert renew(harness, who, now_ms=950) == 1000


def test_others_do_nothing_with_it(harness: Harness) -> None:
    create(harness)
    for act in (renew, expire):
        with refused(ErrorCode.DELEGATION_TOKEN_OWNER_MISMATCH):
            act(harness, OTHER)
    with refused(ErrorCode.DELEGATION_TOKEN_NOT_FOUND):
        renew(harness, OWNER, shown=b"unknown")


def test_expired_tokens_cannot_be_renewed_and_are_removed(harness: Harness) -> None:
    create(harness)
    with refused(ErrorCode.DELEGATION_TOKEN_EXPIRED):
        renew(harness, OWNER, now_ms=101)
    with refused(ErrorCode.DELEGATION_TOKEN_EXPIRED):
        expire(harness, OWNER, 5, now_ms=101)
    harness.do(tokens(harness).remove_expired(100))
    assert ("token", "T") in harness.state.others
    harness.do(tokens(harness).remove_expired(101))
    assert ("token", "T") not in harness.state.others


def test_a_token_is_ended_at_once(harness: Harness) -> None:
    create(harness)
    assert expire(harness, RENEWER, now_ms=7) == 7
    with refused(ErrorCode.DELEGATION_TOKEN_NOT_FOUND):
        renew(harness, OWNER)


def test_without_a_key_or_in_an_old_cluster_there_are_none(harness: Harness) -> None:
    with refused(ErrorCode.DELEGATION_TOKEN_AUTH_DISABLED):
        tokens(harness, DelegationTokenConfig()).create(CreateDelegationTokenRequest(), OWNER, "T", 0)
    harness.do(Result([FeatureLevelRecord(name=METADATA_VERSION, feature_level=13)], None))
    with refused(ErrorCode.UNSUPPORTED_VERSION):
        create(harness)
