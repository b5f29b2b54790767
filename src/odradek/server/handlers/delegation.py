"""Shared functions of the handlers of delegation tokens."""

from __future__ import annotations

from typing import TYPE_CHECKING

from odradek.common.delegation import ids_of_tokens
from odradek.common.errors import ApiError, ErrorCode
from odradek.controller.tokens import DelegationTokenConfig
from odradek.server.auto_topic_creation import wait_until_seen
from odradek.server.context import ANONYMOUS, RequestContext

if TYPE_CHECKING:
    from odradek.metadata.image import MetadataImage


def check_may_request(context: RequestContext) -> None:
    """Check that the client may request tokens: not if it is anonymous, nor if it used a token itself.

    Raises:
        ApiError: DELEGATION_TOKEN_REQUEST_NOT_ALLOWED.
    """
    gate = context.connection.gate
    if context.principal == ANONYMOUS or (gate is not None and gate.by_token):
        raise ApiError(ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED)


class ShownToken:
    """The token that a client shows in a request, which it names by nothing else."""

    def __init__(self, context: RequestContext, shown: bytes) -> None:
        self._publisher = context.broker.publisher
        self._ids = ids_of_tokens(context.broker.settings.build(DelegationTokenConfig).secret_key or "")
        self._shown = shown
        self._token_id = self._id_in(context.broker.image)

    async def wait_until_it_ends(self, ends_ms: int) -> None:
        """Wait until this node knows that it ends then, or that it has ended: logins here go by that."""

        def is_seen(image: MetadataImage) -> bool:
            if self._token_id is None:  # made through another node just now
                self._token_id = self._id_in(image)
                if self._token_id is None:
                    return False
            token = image.delegation_tokens.get(self._token_id)
            return token is None or token.expiration_timestamp_ms == ends_ms

        await wait_until_seen(self._publisher, is_seen)

    def _id_in(self, image: MetadataImage) -> str | None:
        return self._ids.find(self._shown, image.delegation_tokens)
