"""A login of our own client beside a loop that has other work."""

from __future__ import annotations

import hashlib
import threading
from random import Random
from typing import Any

import pytest

from odradek.client.connection import connect
from odradek.client.login import RefusedLoginError
from odradek.client.sasl import MOST_ITERATIONS, Credentials
from odradek.client.security import OutgoingSecurity
from odradek.common.real_io import RealNetwork
from odradek.protocol.api_key import ApiKey
from odradek.protocol.messages.sasl_authenticate_response import SaslAuthenticateResponse
from odradek.protocol.messages.sasl_handshake_response import SaslHandshakeResponse

from .conftest import ScriptedPeer


@pytest.mark.parametrize("iterations", [4096, MOST_ITERATIONS])
async def test_a_password_is_hashed_beside_the_loop(
    peer: ScriptedPeer, monkeypatch: pytest.MonkeyPatch, iterations: int
) -> None:
    """However much the broker asks for: other connections of the loop go on meanwhile."""
    hashing: list[int] = []
    hashed = hashlib.pbkdf2_hmac

    def seen(*arguments: Any) -> bytes:
        hashing.append(threading.get_ident())
        return hashed(*arguments)

    def challenge(request: Any, version: int) -> SaslAuthenticateResponse:
        said = bytes(request.auth_bytes)
        if b",p=" in said:
            return SaslAuthenticateResponse(error_code=58, error_message="no user of mine")
        nonce = said.rpartition(b"r=")[2]
        return SaslAuthenticateResponse(auth_bytes=b"r=%sx,s=c2FsdA==,i=%d" % (nonce, iterations))

    monkeypatch.setattr(hashlib, "pbkdf2_hmac", seen)
    peer.on(ApiKey.SASL_HANDSHAKE, lambda request, version: SaslHandshakeResponse(mechanisms=["SCRAM-SHA-512"]))
    peer.on(ApiKey.SASL_AUTHENTICATE, challenge)
    who = Credentials("SCRAM-SHA-512", "alice", f"secret {iterations}", Random(1))
    with pytest.raises(RefusedLoginError, match="no user of mine"):
        await connect(
            RealNetwork(), *peer.address, client_id="test", timeout_s=60, security=OutgoingSecurity(sasl=lambda: who)
        )
    (thread,) = hashing
    assert thread != threading.get_ident()
