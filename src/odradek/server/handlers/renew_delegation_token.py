"""RenewDelegationToken: key 39, versions 1-2. Extends a token (KIP-48).

The controller decides: the owner, the requester and the renewers of the token may do this. The response waits until the
change is in force for logins at this node. Versions: 2 flexible.
"""

from __future__ import annotations

from odradek.common.errors import ApiError
from odradek.protocol.messages.renew_delegation_token_request import RenewDelegationTokenRequest
from odradek.protocol.messages.renew_delegation_token_response import RenewDelegationTokenResponse
from odradek.server.context import RequestContext
from odradek.server.handlers.delegation import ShownToken, check_may_request


async def handle(context: RequestContext, request: RenewDelegationTokenRequest) -> RenewDelegationTokenResponse:
    """Extend the token's life."""
    try:
        check_may_request(context)
        token = ShownToken(context, bytes(request.hmac))
        response = await context.broker.controller.request(request, RenewDelegationTokenResponse, context)
    except ApiError as error:
        return RenewDelegationTokenResponse(error_code=error.code, expiry_timestamp_ms=-1)
    if not response.error_code:
        await token.wait_until_it_ends(response.expiry_timestamp_ms)
    return response
