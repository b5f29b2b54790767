"""Delegation tokens (KIP-48): the secret of a token follows from its id and the key that all nodes share."""

from __future__ import annotations

import hmac

from odradek.common.scram import encode64


def token_hmac(secret_key: str, token_id: str) -> bytes:
    """The HMAC of a token, with which its owner renews or expires it."""
    return hmac.digest(secret_key.encode(), token_id.encode(), "sha512")


def token_password(token: bytes) -> str:
    """The SCRAM password of a token, whose id is the user name."""
    return encode64(token)
