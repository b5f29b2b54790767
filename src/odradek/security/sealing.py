"""Secrets of settings that are changed at run time: sealed before they are kept in the metadata of the cluster.

Each node reads the keys from a file of its own. A sealed value names the key that seals it, and belongs to one setting
of one broker: it cannot be moved to another. Sealing is AES-256-GCM.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from odradek.common.errors import ConfigError, OdradekError
from odradek.settings.options import config, option
from odradek.settings.table import SEALED_PREFIX as _PREFIX

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM

KEY_FILE = "odradek.secret.key.file"
_KEY_BYTES, _NONCE_BYTES, _ID_CHARACTERS = 32, 12, 8
_HOW = "each line is a key of 32 bytes in base64, as `openssl rand -base64 32` prints it"


@config
class SecretsConfig:
    """The keys that encrypt (seal) secrets of dynamic settings."""

    key_file: str | None = option(
        KEY_FILE,
        default=None,
        doc="File with the keys by which secrets of dynamic settings are sealed, the same on all nodes: a line in"
        " base64 for each key of 32 bytes; the first one seals, all open. Without it such secrets are refused.",
    )


class SealError(OdradekError):
    """A sealed value cannot be decrypted; the text has the reason, without the value."""


class SecretKeys:
    """The keys of this node."""

    def __init__(self, keys: Sequence[bytes] = (), randbytes: Callable[[int], bytes] = bytes) -> None:
        """
        Args:
            keys: the first one seals; none at all, and secrets are refused.
            randbytes: of nonces; a nonce must not come twice.
        """
        self._keys = {_id_of(key): key for key in keys}
        self._randbytes = randbytes

    def stored(self, broker: str, key: str, text: str, old: str | None) -> str:
        """The stored form of a secret: `old` if that is the same secret, sealed with the present key.

        Args:
            broker, key: the broker and the name of the setting.
        Raises:
            ConfigError: there is no key.
        """
        if not self._keys:
            raise ConfigError(
                [
                    f"{key} is a secret, and the cluster's metadata keeps none in plain text: set {KEY_FILE} on all"
                    " nodes, or give it in the broker's own file"
                ]
            )
        first = next(iter(self._keys))
        if old is not None and old.startswith(f"{_PREFIX}{first}:"):
            try:
                if self.open(broker, key, old) == text:
                    return old
            except SealError:
                pass  # it is replaced
        nonce = self._randbytes(_NONCE_BYTES)
        sealed = nonce + self._cipher(first).encrypt(nonce, text.encode(), _context(broker, key))
        return f"{_PREFIX}{first}:{base64.b64encode(sealed).decode()}"

    def open(self, broker: str, key: str, stored: str) -> str:
        """The secret behind a stored value, which may be an old one in plain text.

        Raises:
            SealError: it was sealed by another key, for another setting, or is damaged.
        """
        if not is_sealed(stored):
            return stored
        key_id, _, sealed = stored.removeprefix(_PREFIX).partition(":")
        if not self._keys:
            raise SealError(f"{KEY_FILE} is not set")
        if key_id not in self._keys:
            raise SealError(f"the file of {KEY_FILE} has no key {key_id}")
        try:
            data = base64.b64decode(sealed, validate=True)
        except (binascii.Error, ValueError):
            raise SealError("it is damaged") from None
        return self._opened(key_id, data, _context(broker, key))

    def _opened(self, key_id: str, data: bytes, context: bytes) -> str:
        from cryptography.exceptions import InvalidTag

        try:
            return self._cipher(key_id).decrypt(data[:_NONCE_BYTES], data[_NONCE_BYTES:], context).decode()
        except (InvalidTag, ValueError):
            raise SealError("it is damaged, or was sealed for another setting") from None

    # Imported only with a key: its library slows the start of a node.
    def _cipher(self, key_id: str) -> AESGCM:
        from cryptography.hazmat.primitives.ciphers.aead import AESGCM

        return AESGCM(self._keys[key_id])


def is_sealed(stored: str) -> bool:
    """Whether a stored value is sealed."""
    return stored.startswith(_PREFIX)


def read_secret_keys(
    settings: SecretsConfig, read: Callable[[Path], bytes], randbytes: Callable[[int], bytes]
) -> SecretKeys:
    """The keys of the file that the settings name; none where they name none.

    Raises:
        ConfigError: the file cannot be read, or has no keys in it.
    """
    if settings.key_file is None:
        return SecretKeys()
    try:
        lines = read(Path(settings.key_file)).decode("ascii").split()
        keys = [base64.b64decode(line, validate=True) for line in lines]
    except OSError as error:
        raise ConfigError([f"{KEY_FILE}={settings.key_file}: cannot be read: {error.strerror or error}"]) from None
    except ValueError:
        raise ConfigError([f"{KEY_FILE}={settings.key_file}: is not a file of keys: {_HOW}"]) from None
    if not keys or any(len(key) != _KEY_BYTES for key in keys):
        raise ConfigError([f"{KEY_FILE}={settings.key_file}: is not a file of keys: {_HOW}"])
    return SecretKeys(keys, randbytes)


def _id_of(key: bytes) -> str:
    """The id of the key in a sealed value; the key cannot be derived from it."""
    return hashlib.sha256(b"odradek.secret" + key).hexdigest()[:_ID_CHARACTERS]


def _context(broker: str, key: str) -> bytes:
    return f"{broker}/{key}".encode()
