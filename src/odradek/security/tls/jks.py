"""Java's own format of key stores (JKS), read only.

The format is that of `sun.security.provider.JavaKeyStore`: big-endian numbers, entries with a private key or a
certificate, and a SHA-1 digest over password and contents at the end. A private key is hidden by a keystream of SHA-1
digests. Nothing else of Java's is needed, and no library that reads it installs without a C compiler (docs/adr/0001).
"""

from __future__ import annotations

import hashlib
import hmac
import struct
from dataclasses import dataclass, field

MAGIC = b"\xfe\xed\xfe\xed"
_DIGEST_BYTES = 20
_WHITENER = b"Mighty Aphrodite"
_KEY_ENTRY, _CERTIFICATE_ENTRY = 1, 2
_VERSIONS = (1, 2)
_OCTET_STRING = 0x04
_SEQUENCE = 0x30
_LONG_FORM = 0x80


class JksError(ValueError):
    """No key store of this format, a damaged one, or a wrong password."""


@dataclass(frozen=True, slots=True)
class JksStore:
    """The contents of a store, as DER.

    Attributes:
        keys: PKCS#8 key, still protected, with its certificates, the key's own first.
        trusted: certificates of trusted authorities.
    """

    keys: list[tuple[bytes, list[bytes]]] = field(default_factory=list, repr=False)
    trusted: list[bytes] = field(default_factory=list)


class _Reader:
    def __init__(self, data: bytes) -> None:
        self._data = data
        self._position = 0

    def read(self, size: int) -> bytes:
        end = self._position + size
        if end > len(self._data):
            raise JksError("the file ends too early")
        taken, self._position = self._data[self._position : end], end
        return taken

    def number(self) -> int:
        return int(struct.unpack(">I", self.read(4))[0])

    def text(self) -> bytes:
        return self.read(int(struct.unpack(">H", self.read(2))[0]))

    def certificate(self, version: int) -> bytes:
        if version > 1 and self.text() not in (b"X.509", b"X509"):
            raise JksError("it holds a certificate that is not X.509")
        return self.read(self.number())


def read_jks(data: bytes, password: str | None) -> JksStore:
    """Read a store.

    Args:
        password: of the store; None does not check that the file is whole, as Java does for trusted certificates.
    Raises:
        JksError.
    """
    body = data[:-_DIGEST_BYTES]
    if not data.startswith(MAGIC):
        raise JksError("it is no JKS key store")
    if password is not None:
        digest = hashlib.sha1(_password_bytes(password) + _WHITENER + body, usedforsecurity=False).digest()
        if not hmac.compare_digest(digest, data[-_DIGEST_BYTES:]):
            raise JksError("the password is wrong, or the file is damaged")
    reader = _Reader(body)
    reader.read(len(MAGIC))
    version = reader.number()
    if version not in _VERSIONS:
        raise JksError(f"version {version} of the format is unknown")
    store = JksStore()
    for _ in range(reader.number()):
        tag = reader.number()
        reader.text()  # alias
        reader.read(8)  # date
        if tag == _KEY_ENTRY:
            key = reader.read(reader.number())
            store.keys.append((key, [reader.certificate(version) for _ in range(reader.number())]))
        elif tag == _CERTIFICATE_ENTRY:
            store.trusted.append(reader.certificate(version))
        else:
            raise JksError(f"an entry of kind {tag} is unknown")
    return store


def recover_key(protected: bytes, password: str) -> bytes:
    """The private key (PKCS#8, DER) out of its protection.

    Raises:
        JksError: the password is wrong, or it was protected in another way.
    """
    hidden = _octet_string(protected)
    salt, hidden, check = hidden[:_DIGEST_BYTES], hidden[_DIGEST_BYTES:-_DIGEST_BYTES], hidden[-_DIGEST_BYTES:]
    secret = _password_bytes(password)
    stream, digest = bytearray(), salt
    while len(stream) < len(hidden):
        digest = hashlib.sha1(secret + digest, usedforsecurity=False).digest()
        stream += digest
    key = bytes(a ^ b for a, b in zip(hidden, stream, strict=False))
    if not hmac.compare_digest(hashlib.sha1(secret + key, usedforsecurity=False).digest(), check):
        raise JksError("the password of the key is wrong")
    return key


def _password_bytes(password: str) -> bytes:
    return password.encode("utf-16-be")


def _octet_string(data: bytes) -> bytes:
    """The contents of an EncryptedPrivateKeyInfo: SEQUENCE of an algorithm and an OCTET STRING."""
    tag, outer, _ = _element(data, 0)
    _, _, behind = _element(outer, 0)
    inner_tag, hidden, _ = _element(outer, behind)
    if tag != _SEQUENCE or inner_tag != _OCTET_STRING or len(hidden) < 2 * _DIGEST_BYTES:
        raise JksError("a private key is not protected as JKS protects it")
    return hidden


def _element(data: bytes, position: int) -> tuple[int, bytes, int]:
    """Tag, contents and end of the DER element at a position."""
    try:
        tag, size = data[position], data[position + 1]
        begin = position + 2
        if size & _LONG_FORM:
            begin += size & ~_LONG_FORM
            size = int.from_bytes(data[position + 2 : begin], "big")
    except IndexError:
        raise JksError("a private key is cut off") from None
    return tag, data[begin : begin + size], begin + size
