"""A client of TLS 1.2 that asks to shake hands again and again on one connection (RFC 5246, 7.4.1), which Python's TLS
never does.

OpenSSL shakes hands; the records after that are made here, of the secret that it writes for analysts (SSLKEYLOGFILE).
"""

from __future__ import annotations

import contextlib
import hmac
import os
import socket
import ssl
import struct
from pathlib import Path

from cryptography.hazmat.primitives.ciphers.aead import AESGCM

_SUITE = "ECDHE-ECDSA-AES256-GCM-SHA384"
_KEY_BYTES, _SALT_BYTES, _RANDOM_BYTES = 32, 4, 32
_ALERT, _HANDSHAKE, _CLIENT_HELLO, _SUITE_NUMBER = 21, 22, 1, 0xC02C
_HEADERS = 5 + 4  # of a record, and of the message in it


class Renegotiation:
    """A connection whose handshake is done, and records to be sent on it in the order in which they are made."""

    def __init__(self, port: int, keys: Path) -> None:
        """
        Args:
            keys: a file for secrets of this connection, which is not there yet.
        """
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.maximum_version = ssl.TLSVersion.TLSv1_2
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
        context.set_ciphers(_SUITE)
        context.keylog_filename = str(keys)
        self.socket = socket.create_connection(("127.0.0.1", port), 60)
        incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        client = context.wrap_bio(incoming, outgoing)
        heard = self._shake_hands(client, incoming, outgoing)
        _, client_random, secret = keys.read_text().splitlines()[-1].split()
        # The server's hello is the first message: its version, and then its random bytes.
        seed = heard[_HEADERS + 2 : _HEADERS + 2 + _RANDOM_BYTES] + bytes.fromhex(client_random)
        block = _expanded(bytes.fromhex(secret), b"key expansion" + seed, 2 * (_KEY_BYTES + _SALT_BYTES))
        self._cipher = AESGCM(block[:_KEY_BYTES])
        self._salt = block[2 * _KEY_BYTES : 2 * _KEY_BYTES + _SALT_BYTES]
        self._number = 1  # the end of the handshake was the first

    def _shake_hands(self, client: ssl.SSLObject, incoming: ssl.MemoryBIO, outgoing: ssl.MemoryBIO) -> bytes:
        heard = bytearray()
        while True:
            try:
                client.do_handshake()
            except ssl.SSLWantReadError:
                self.socket.sendall(outgoing.read())
                piece = self.socket.recv(0x10000)
                heard += piece
                incoming.write(piece)
            else:
                return bytes(heard)

    def asks(self, count: int) -> bytes:
        """`count` first messages of another handshake."""
        offer = struct.pack(">BHHBB", 0, 2, _SUITE_NUMBER, 1, 0)  # no session, one suite, no compression
        body = struct.pack(">H", 0x0303) + os.urandom(_RANDOM_BYTES) + offer
        hello = struct.pack(">BBH", _CLIENT_HELLO, 0, len(body)) + body
        return b"".join(self._record(hello) for _ in range(count))

    def _record(self, payload: bytes) -> bytes:
        number = self._number.to_bytes(8)
        self._number += 1
        head = struct.pack(">BH", _HANDSHAKE, 0x0303)
        covered = number + head + struct.pack(">H", len(payload))
        sealed = number + self._cipher.encrypt(self._salt + number, payload, covered)
        return head + struct.pack(">H", len(sealed)) + sealed

    def hear_refusals(self, count: int) -> None:
        """Wait for so many alerts. Raises AssertionError for anything else, and for the end of the connection."""
        with self.socket.makefile("rb") as heard:
            for _ in range(count):
                header = heard.read(5)
                assert header[:1] == bytes((_ALERT,)), f"no alert: {header.hex()}"
                heard.read(int.from_bytes(header[3:]))

    def hear_the_end(self) -> None:
        """Read until the other side has ended the connection."""
        with contextlib.suppress(ConnectionError):
            while self.socket.recv(0x10000):
                pass

    def close(self) -> None:
        self.socket.close()


def _expanded(secret: bytes, seed: bytes, size: int) -> bytes:
    """P_SHA384 (RFC 5246, 5)."""
    found, inner = b"", seed
    while len(found) < size:
        inner = hmac.digest(secret, inner, "sha384")
        found += hmac.digest(secret, inner + seed, "sha384")
    return found[:size]
