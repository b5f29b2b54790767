"""Delegation tokens, kept as records (KIP-48): creation, renewal, expiry and removal.

Records have only ids: a token's secret is derived from its id and `delegation.token.secret.key`. Times are wall-clock
ms.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from odradek.common.delegation import ids_of_tokens, token_hmac
from odradek.common.errors import ApiError, ErrorCode
from odradek.common.numbers import INT64_MAX
from odradek.controller.state import ControllerState
from odradek.metadata.features import DELEGATION_TOKENS
from odradek.protocol.messages.create_delegation_token_request import CreateDelegationTokenRequest
from odradek.protocol.messages.create_delegation_token_response import CreateDelegationTokenResponse
from odradek.protocol.messages.delegation_token_record import DelegationTokenRecord
from odradek.protocol.messages.expire_delegation_token_request import ExpireDelegationTokenRequest
from odradek.protocol.messages.expire_delegation_token_response import ExpireDelegationTokenResponse
from odradek.protocol.messages.remove_delegation_token_record import RemoveDelegationTokenRecord
from odradek.protocol.messages.renew_delegation_token_request import RenewDelegationTokenRequest
from odradek.protocol.messages.renew_delegation_token_response import RenewDelegationTokenResponse
from odradek.settings.options import config, option
from odradek.statemachine.machine import Result

_USER = "User"


@config
class DelegationTokenConfig:
    """Whether delegation tokens are enabled, and their lifetimes."""

    secret_key: str | None = option(
        "delegation.token.secret.key",
        default=None,
        doc="The key from which the secrets of delegation tokens follow: the same on all nodes; without it there are no"
        " tokens.",
    )
    max_lifetime_ms: int = option(
        "delegation.token.max.lifetime.ms",
        default=604_800_000,
        unit="ms",
        doc="How long a delegation token can live, however often it is renewed.",
    )
    expiry_time_ms: int = option(
        "delegation.token.expiry.time.ms",
        default=86_400_000,
        unit="ms",
        doc="How long a delegation token lives without being renewed.",
    )
    check_interval_ms: int = option(
        "delegation.token.expiry.check.interval.ms",
        default=3_600_000,
        unit="ms",
        doc="How often delegation tokens whose time is over are removed.",
    )


NO_TOKENS = DelegationTokenConfig()


class DelegationTokens:
    """Operations on delegation tokens. A requester is a principal, `User:name`."""

    def __init__(self, state: ControllerState, config: DelegationTokenConfig) -> None:
        self._state = state
        self._config = config

    def create(
        self, request: CreateDelegationTokenRequest, requester: str, token_id: str, now_ms: int
    ) -> Result[Any, CreateDelegationTokenResponse]:
        """Create a token for the requester, or for the owner in the request.

        Raises:
            ApiError: DELEGATION_TOKEN_AUTH_DISABLED, UNSUPPORTED_VERSION, INVALID_PRINCIPAL_TYPE.
        """
        secret_key = self._secret_key()
        owner = requester
        if request.owner_principal_name:
            owner = f"{request.owner_principal_type or _USER}:{request.owner_principal_name}"
        renewers = [f"{each.principal_type}:{each.principal_name}" for each in request.renewers]
        if any(not each.startswith(f"{_USER}:") for each in (owner, *renewers)):
            raise ApiError(ErrorCode.INVALID_PRINCIPAL_TYPE, "owners and renewers of tokens are of type User")
        lifetime_ms = self._config.max_lifetime_ms
        if request.max_lifetime_ms > 0:
            lifetime_ms = min(lifetime_ms, request.max_lifetime_ms)
        record = DelegationTokenRecord(
            owner=owner,
            requester=requester,
            renewers=renewers,
            issue_timestamp=now_ms,
            max_timestamp=_later(now_ms, lifetime_ms),
            expiration_timestamp=_later(now_ms, min(lifetime_ms, self._config.expiry_time_ms)),
            token_id=token_id,
        )
        (owner_type, _, owner_name), (asker_type, _, asker_name) = owner.partition(":"), requester.partition(":")
        answer = CreateDelegationTokenResponse(
            principal_type=owner_type,
            principal_name=owner_name,
            token_requester_principal_type=asker_type,
            token_requester_principal_name=asker_name,
            issue_timestamp_ms=now_ms,
            expiry_timestamp_ms=record.expiration_timestamp,
            max_timestamp_ms=record.max_timestamp,
            token_id=token_id,
            hmac=token_hmac(secret_key, token_id),
        )
        return Result([record], answer)

    def renew(
        self, request: RenewDelegationTokenRequest, requester: str, now_ms: int
    ) -> Result[Any, RenewDelegationTokenResponse]:
        """Extend a token's expiry, at most to the end of its maximum lifetime.

        Raises:
            ApiError: as `_found`; DELEGATION_TOKEN_EXPIRED.
        """
        token = self._living(self._found(bytes(request.hmac), requester), now_ms)
        period_ms = self._config.expiry_time_ms
        if request.renew_period_ms > 0:
            period_ms = min(period_ms, request.renew_period_ms)
        ends_ms = min(token.max_timestamp, _later(now_ms, period_ms))
        record = replace(token, expiration_timestamp=ends_ms)
        return Result([record], RenewDelegationTokenResponse(expiry_timestamp_ms=ends_ms))

    def expire(
        self, request: ExpireDelegationTokenRequest, requester: str, now_ms: int
    ) -> Result[Any, ExpireDelegationTokenResponse]:
        """Change a token's expiry; a negative time expires it at once.

        Raises:
            ApiError: as `_found`; DELEGATION_TOKEN_EXPIRED.
        """
        token = self._found(bytes(request.hmac), requester)
        if request.expiry_time_period_ms < 0:
            record: Any = RemoveDelegationTokenRecord(token_id=token.token_id)
            return Result([record], ExpireDelegationTokenResponse(expiry_timestamp_ms=now_ms))
        self._living(token, now_ms)
        ends_ms = min(token.max_timestamp, _later(now_ms, request.expiry_time_period_ms))
        record = replace(token, expiration_timestamp=ends_ms)
        return Result([record], ExpireDelegationTokenResponse(expiry_timestamp_ms=ends_ms))

    def remove_expired(self, now_ms: int) -> Result[Any, None]:
        """Remove expired tokens."""
        over = [each for each in self._tokens() if _is_over(each, now_ms)]
        return Result([RemoveDelegationTokenRecord(token_id=each.token_id) for each in over], None, atomic=False)

    def _tokens(self) -> Iterator[DelegationTokenRecord]:
        return (record for key, record in self._state.others.items() if key[0] == "token")

    def _found(self, shown: bytes, requester: str) -> DelegationTokenRecord:
        """The token of a request.

        Raises:
            ApiError: DELEGATION_TOKEN_AUTH_DISABLED, UNSUPPORTED_VERSION, DELEGATION_TOKEN_NOT_FOUND,
                DELEGATION_TOKEN_OWNER_MISMATCH.
        """
        ids, tokens = ids_of_tokens(self._secret_key()), {each.token_id: each for each in self._tokens()}
        token_id = ids.find(shown, tokens)
        if token_id is None:
            raise ApiError(ErrorCode.DELEGATION_TOKEN_NOT_FOUND)
        token = tokens[token_id]
        if requester not in (token.owner, token.requester, *token.renewers):
            raise ApiError(ErrorCode.DELEGATION_TOKEN_OWNER_MISMATCH)
        return token

    def _living(self, token: DelegationTokenRecord, now_ms: int) -> DelegationTokenRecord:
        if _is_over(token, now_ms):
            raise ApiError(ErrorCode.DELEGATION_TOKEN_EXPIRED)
        return token

    def _secret_key(self) -> str:
        if not self._config.secret_key:
            raise ApiError(ErrorCode.DELEGATION_TOKEN_AUTH_DISABLED)
        if self._state.metadata_version < DELEGATION_TOKENS:
            raise ApiError(ErrorCode.UNSUPPORTED_VERSION, "The current metadata.version has no delegation tokens")
        return self._config.secret_key


def _is_over(token: DelegationTokenRecord, now_ms: int) -> bool:
    return min(token.max_timestamp, token.expiration_timestamp) < now_ms


def _later(now_ms: int, period_ms: int) -> int:
    return min(INT64_MAX, now_ms + period_ms)
