"""Delegation tokens (KIP-48): the secret of a token follows from its id and the key that all nodes share."""

from __future__ import annotations

import hmac
from collections.abc import Collection
from functools import lru_cache

from odradek.common.scram import encode64

# HMACs of tokens that are no more are forgotten once there are so many, and as many as of present ones.
SPARE_IDS = 1000


def token_hmac(secret_key: str, token_id: str) -> bytes:
    """The HMAC of a token, with which its owner renews or expires it."""
    return hmac.digest(secret_key.encode(), token_id.encode(), "sha512")


class TokenIds:
    """Finds tokens by their HMACs, each of which is computed once: anyone who is logged in may show some HMAC."""

    def __init__(self, secret_key: str) -> None:
        self._secret_key = secret_key
        self._known: set[str] = set()
        self._by_hmac: dict[bytes, str] = {}

    def find(self, shown: bytes, token_ids: Collection[str]) -> str | None:
        """The id of the token with this HMAC; None if it is not among `token_ids`.

        Args:
            token_ids: all present tokens; a collection in which an id is looked up, such as a mapping.
        """
        if len(self._known) > 2 * len(token_ids) + SPARE_IDS:
            self._known.clear()
            self._by_hmac.clear()
        for token_id in token_ids:
            if token_id not in self._known:
                self._known.add(token_id)
                self._by_hmac[token_hmac(self._secret_key, token_id)] = token_id
        found = self._by_hmac.get(shown)
        return found if found in token_ids else None


@lru_cache(maxsize=4)
def ids_of_tokens(secret_key: str) -> TokenIds:
    """The tokens of a cluster with this `delegation.token.secret.key`."""
    return TokenIds(secret_key)


def token_password(token: bytes) -> str:
    """The SCRAM password of a token, whose id is the user name."""
    return encode64(token)
