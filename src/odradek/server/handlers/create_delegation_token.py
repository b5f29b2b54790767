"""CreateDelegationToken: key 38, versions 1-3. A secret by which others log in as the owner, for a time (KIP-48).

The controller decides; the answer waits until this broker knows the token. The client must be known by name, and not by
a token. A token for another owner needs CreateTokens on that user.

Versions: 2 flexible, 3 an owner other than the client (KIP-373).
"""

from __future__ import annotations

from odradek.common.errors import ApiError, ErrorCode
from odradek.metadata.acls import AclOperation, AclResourceType
from odradek.protocol.messages.create_delegation_token_request import CreateDelegationTokenRequest
from odradek.protocol.messages.create_delegation_token_response import CreateDelegationTokenResponse
from odradek.server.auto_topic_creation import wait_until_seen
from odradek.server.context import RequestContext
from odradek.server.handlers.delegation import check_may_request


async def handle(context: RequestContext, request: CreateDelegationTokenRequest) -> CreateDelegationTokenResponse:
    """Make a token."""
    response = await _create(context, request)
    if context.api_version < 3:
        response.token_requester_principal_type = response.token_requester_principal_name = ""
    return response


async def _create(context: RequestContext, request: CreateDelegationTokenRequest) -> CreateDelegationTokenResponse:
    requester_type, _, requester_name = context.principal.partition(":")
    try:
        check_may_request(context)
        _check_owner(context, request)
        response = await context.broker.controller.request(request, CreateDelegationTokenResponse, context)
    except ApiError as error:
        return CreateDelegationTokenResponse(
            error_code=error.code,
            principal_type=request.owner_principal_type or requester_type,
            principal_name=request.owner_principal_name or requester_name,
            token_requester_principal_type=requester_type,
            token_requester_principal_name=requester_name,
            issue_timestamp_ms=-1,
            expiry_timestamp_ms=-1,
            max_timestamp_ms=-1,
        )
    if not response.error_code:
        token_id = response.token_id
        await wait_until_seen(context.broker.publisher, lambda image: token_id in image.delegation_tokens)
    return response


def _check_owner(context: RequestContext, request: CreateDelegationTokenRequest) -> None:
    """
    Raises:
        ApiError: DELEGATION_TOKEN_AUTHORIZATION_FAILED.
    """
    if not request.owner_principal_name:
        return
    owner = f"{request.owner_principal_type or 'User'}:{request.owner_principal_name}"
    is_own = owner == context.principal
    if not is_own and not context.authorize(AclOperation.CREATE_TOKENS, AclResourceType.USER, owner):
        raise ApiError(ErrorCode.DELEGATION_TOKEN_AUTHORIZATION_FAILED)
