"""Delegation tokens (KIP-48): the secret of a token follows from its id and the key that all nodes share."""

from __future__ import annotations

import hmac

from odradek.common.scram import encode64


def token_hmac(secret_key: str, token_id: str) -> bytes:
    """What the owner gets, and shows to renew the token or to end it."""
    return hmac.digest(secret_key.encode(), token_id.encode(), "sha512")


def token_password(token: bytes) -> str:
    """With what a client logs in by SCRAM, whose user name is the token's id."""
    return encode64(token)
