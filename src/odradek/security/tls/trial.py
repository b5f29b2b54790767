"""Tries whether nodes with the same settings accept each other: a handshake in memory, before settings are applied."""

from __future__ import annotations

import ssl

from odradek.security.tls.config import TlsConfig
from odradek.security.tls.contexts import client_context, server_context
from odradek.security.tls.stores import ReadFile, load_identity, load_trusted

# A handshake takes three turns.
_MOST_TURNS = 10


def refusal_between_nodes(config: TlsConfig, read: ReadFile) -> str:
    """Why a node would refuse another one with the same settings; "" if it would not.

    Host names are not compared, as each node has its own. Without a certificate, or with the system's authorities,
    nothing is tried.

    Raises:
        TlsSettingError: as `server_context` and `client_context`.
    """
    if load_identity(config, read) is None or load_trusted(config, read) is None:
        return ""
    client, server = client_context(config, read).context, server_context(config, read).context
    client.check_hostname = False
    to_client, to_server = ssl.MemoryBIO(), ssl.MemoryBIO()
    sides = client.wrap_bio(to_client, to_server), server.wrap_bio(to_server, to_client, server_side=True)
    for _ in range(_MOST_TURNS):
        try:
            ends = [_is_done(side) for side in sides]
        except ssl.SSLCertVerificationError as error:
            return error.verify_message
        except ssl.SSLError as error:
            return (error.reason or str(error)).lower().replace("_", " ")
        if all(ends):
            return ""
    return "the handshake does not end"


def _is_done(side: ssl.SSLObject) -> bool:
    """Run one step of a handshake; raises SSLError if it fails."""
    try:
        side.do_handshake()
    except ssl.SSLWantReadError:
        return False
    return True
