"""What the handlers of delegation tokens share."""

from __future__ import annotations

from odradek.common.errors import ApiError, ErrorCode
from odradek.server.context import ANONYMOUS, RequestContext


def check_may_ask(context: RequestContext) -> None:
    """Whether who asks may have tokens at all: not without a name, and not by a token, which would never end.

    Raises:
        ApiError: DELEGATION_TOKEN_REQUEST_NOT_ALLOWED.
    """
    gate = context.connection.gate
    if context.principal == ANONYMOUS or (gate is not None and gate.by_token):
        raise ApiError(ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED)
