"""Logins by SASL, request by request."""

from __future__ import annotations

from typing import Any

from odradek.client.sasl import Credentials, sasl_exchange
from odradek.protocol.apis import ApiKey
from odradek.protocol.messages.sasl_authenticate_request import SaslAuthenticateRequest
from odradek.protocol.messages.sasl_handshake_request import SaslHandshakeRequest
from tests.support.clients.wire import Wire


def shake(wire: Wire, mechanism: str, version: int = 1) -> Any:
    return wire.request(ApiKey.SASL_HANDSHAKE, version, SaslHandshakeRequest(mechanism=mechanism))


def say(wire: Wire, words: bytes, version: int = 2) -> Any:
    return wire.request(ApiKey.SASL_AUTHENTICATE, version, SaslAuthenticateRequest(auth_bytes=words))


def log_in_as(wire: Wire, who: Credentials, version: int = 2) -> Any:
    """Log in by requests; returns the last answer."""
    assert shake(wire, who.mechanism).error_code == 0
    talk = sasl_exchange(who)
    words = next(talk)
    while True:
        answer = say(wire, words, version)
        if answer.error_code:
            return answer
        try:
            words = talk.send(bytes(answer.auth_bytes))
        except StopIteration:
            return answer
