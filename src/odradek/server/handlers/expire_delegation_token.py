"""ExpireDelegationToken: key 40, versions 1-2. Ends a token, at once or at another time (KIP-48).

The controller decides: the owner, the requester and the renewers of the token may do this. The response waits until the
change is in force for logins at this node. Versions: 2 flexible.
"""

from __future__ import annotations

from odradek.common.errors import ApiError
from odradek.protocol.messages.expire_delegation_token_request import ExpireDelegationTokenRequest
from odradek.protocol.messages.expire_delegation_token_response import ExpireDelegationTokenResponse
from odradek.server.context import RequestContext
from odradek.server.handlers.delegation import ShownToken, check_may_request


async def handle(context: RequestContext, request: ExpireDelegationTokenRequest) -> ExpireDelegationTokenResponse:
    """End it."""
    try:
        check_may_request(context)
        token = ShownToken(context, bytes(request.hmac))
        response = await context.broker.controller.request(request, ExpireDelegationTokenResponse, context)
    except ApiError as error:
        return ExpireDelegationTokenResponse(error_code=error.code, expiry_timestamp_ms=-1)
    if not response.error_code:
        await token.wait_until_it_ends(response.expiry_timestamp_ms)
    return response
