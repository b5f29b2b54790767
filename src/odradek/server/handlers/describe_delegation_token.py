"""DescribeDelegationToken: key 41, versions 1-3. Tokens with their secrets (KIP-48).

Returns tokens of this node's metadata to their owner, requester and renewers, and to clients with Describe on the token
or DescribeTokens on its owner.
Versions: 2 flexible, 3 the requester of the token (KIP-373).
"""

from __future__ import annotations

from odradek.common.delegation import token_hmac
from odradek.common.errors import ApiError, ErrorCode
from odradek.controller.tokens import DelegationTokenConfig
from odradek.metadata.acls import AclOperation, AclResourceType
from odradek.metadata.model import DelegationToken
from odradek.protocol.messages.describe_delegation_token_request import DescribeDelegationTokenRequest
from odradek.protocol.messages.describe_delegation_token_response import (
    DescribedDelegationToken,
    DescribedDelegationTokenRenewer,
    DescribeDelegationTokenResponse,
)
from odradek.server.context import RequestContext
from odradek.server.handlers.delegation import check_may_request


def handle(context: RequestContext, request: DescribeDelegationTokenRequest) -> DescribeDelegationTokenResponse:
    """The tokens of these owners, or of all, that the client may describe."""
    secret_key = context.broker.settings.build(DelegationTokenConfig).secret_key
    try:
        check_may_request(context)
        if not secret_key:
            raise ApiError(ErrorCode.DELEGATION_TOKEN_AUTH_DISABLED)
    except ApiError as error:
        return DescribeDelegationTokenResponse(error_code=error.code)
    owners = None
    if request.owners is not None:
        owners = {f"{each.principal_type}:{each.principal_name}" for each in request.owners}
    return DescribeDelegationTokenResponse(
        tokens=[
            _described(token, secret_key, context.api_version)
            for token in context.broker.image.delegation_tokens.values()
            if owners is None or not owners.isdisjoint(_holders(token))
            if _may_describe(context, token)
        ]
    )


def _holders(token: DelegationToken) -> tuple[str, ...]:
    """The owner, the requester and the renewers of a token."""
    return (token.owner, token.requester, *token.renewers)


def _may_describe(context: RequestContext, token: DelegationToken) -> bool:
    if context.principal in _holders(token):
        return True
    if context.broker.authorizer is None:
        return False
    if context.is_allowed(AclOperation.DESCRIBE, AclResourceType.DELEGATION_TOKEN, token.token_id):
        return True
    return context.is_allowed(AclOperation.DESCRIBE_TOKENS, AclResourceType.USER, token.owner)


def _described(token: DelegationToken, secret_key: str, version: int) -> DescribedDelegationToken:
    owner_type, _, owner_name = token.owner.partition(":")
    asker_type, _, asker_name = token.requester.partition(":") if version >= 3 else ("", "", "")
    renewers = [each.partition(":") for each in token.renewers]
    return DescribedDelegationToken(
        principal_type=owner_type,
        principal_name=owner_name,
        token_requester_principal_type=asker_type,
        token_requester_principal_name=asker_name,
        issue_timestamp=token.issue_timestamp_ms,
        expiry_timestamp=token.expiration_timestamp_ms,
        max_timestamp=token.max_timestamp_ms,
        token_id=token.token_id,
        hmac=token_hmac(secret_key, token.token_id),
        renewers=[
            DescribedDelegationTokenRenewer(principal_type=kind, principal_name=name) for kind, _, name in renewers
        ],
    )
