"""A client of TLS 1.3 that asks for new keys again and again (RFC 8446, 4.6.3), which neither Python's TLS nor tools do
as fast as a hostile peer.

OpenSSL shakes hands; the records after that are made here, of the secret that it writes for analysts (SSLKEYLOGFILE).
"""

from __future__ import annotations

import hmac
import socket
import ssl
import struct
from pathlib import Path

from cryptography.hazmat.primitives.ciphers.aead import AESGCM

# A KeyUpdate that asks the peer for one as well.
_KEY_UPDATE = bytes((24, 0, 0, 1, 1))
_HANDSHAKE, _DATA = 22, 23
_TAG_BYTES, _NONCE_BYTES = 16, 12
_SUITES = {"TLS_AES_256_GCM_SHA384": ("sha384", 32), "TLS_AES_128_GCM_SHA256": ("sha256", 16)}


class KeyUpdates:
    """A connection whose handshake is done, and records to be sent on it in the order in which they are made."""

    def __init__(self, port: int, keys: Path, *, receive_bytes: int) -> None:
        """
        Args:
            keys: a file for secrets of this connection, which is not there yet.
            receive_bytes: the size of the kernel's buffer for responses that are not read.
        """
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.minimum_version = ssl.TLSVersion.TLSv1_3
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
        context.keylog_filename = str(keys)
        self.socket = socket.socket()
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_bytes)
        self.socket.settimeout(60)
        self.socket.connect(("127.0.0.1", port))
        incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        client = context.wrap_bio(incoming, outgoing)
        self._shake_hands(client, incoming, outgoing)
        cipher = client.cipher()
        assert cipher is not None
        self._hash, self._key_bytes = _SUITES[cipher[0]]
        (line,) = (line for line in keys.read_text().splitlines() if line.startswith("CLIENT_TRAFFIC_SECRET_0 "))
        self._secret = bytes.fromhex(line.split()[2])
        self._number = 0  # of records by this secret

    def _shake_hands(self, client: ssl.SSLObject, incoming: ssl.MemoryBIO, outgoing: ssl.MemoryBIO) -> None:
        while True:
            try:
                client.do_handshake()
            except ssl.SSLWantReadError:
                self.socket.sendall(outgoing.read())
                incoming.write(self.socket.recv(0x10000))
            else:
                self.socket.sendall(outgoing.read())
                return

    def updates(self, count: int) -> bytes:
        """`count` requests for new keys."""
        return b"".join(self._update() for _ in range(count))

    def data(self, payload: bytes, *, padding: int = 0) -> bytes:
        """A record of data, with so many bytes of padding (RFC 8446, 5.4)."""
        return self._record(_DATA, payload, padding)

    def _update(self) -> bytes:
        record = self._record(_HANDSHAKE, _KEY_UPDATE)
        self._secret = self._expand("traffic upd", len(self._secret))
        self._number = 0
        return record

    def _record(self, kind: int, payload: bytes, padding: int = 0) -> bytes:
        key, start = self._expand("key", self._key_bytes), self._expand("iv", _NONCE_BYTES)
        nonce = (int.from_bytes(start) ^ self._number).to_bytes(_NONCE_BYTES)
        self._number += 1
        header = struct.pack(">BHH", 23, 0x0303, len(payload) + 1 + padding + _TAG_BYTES)
        return header + AESGCM(key).encrypt(nonce, payload + bytes((kind,)) + bytes(padding), header)

    def _expand(self, label: str, size: int) -> bytes:
        """HKDF-Expand-Label, of no more than one hash."""
        name = b"tls13 " + label.encode()
        info = struct.pack(">HB", size, len(name)) + name + b"\0\1"
        return hmac.digest(self._secret, info, self._hash)[:size]

    def close(self) -> None:
        self.socket.close()
