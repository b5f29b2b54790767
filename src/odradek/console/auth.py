"""Users of the console: a file of names and hashes of passwords.

A line is `name:scrypt:N:r:p:salt:hash`, the last two in base64; `odradek console password` writes it. scrypt (RFC 7914)
takes 16 MB and some 50 ms for each guess.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import os
import secrets
import stat
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from odradek.common.errors import ConfigError

COST, BLOCK, PARALLEL = 1 << 14, 8, 1
SALT_BYTES, HASH_BYTES = 16, 32
# The limit of memory for a hash in the file: 1 GB would stop the console.
MAX_COST, MAX_BLOCK, MAX_PARALLEL = 1 << 17, 16, 8
MAX_PASSWORD_BYTES = 1024
MIN_PASSWORD = 8


@dataclass(frozen=True, slots=True)
class PasswordHash:
    """One password, hashed."""

    cost: int
    block: int
    parallel: int
    salt: bytes = field(repr=False)
    digest: bytes = field(repr=False)

    def matches(self, password: str) -> bool:
        """Whether this is the password; takes as long for a wrong one. Blocks."""
        given = password.encode(errors="surrogatepass")[:MAX_PASSWORD_BYTES]
        found = hashlib.scrypt(
            given,
            salt=self.salt,
            n=self.cost,
            r=self.block,
            p=self.parallel,
            maxmem=256 * self.cost * self.block,
            dklen=len(self.digest),
        )
        return hmac.compare_digest(found, self.digest)

    def text(self) -> str:
        """The hash as in the file, after the name."""
        salt, digest = (base64.b64encode(each).decode() for each in (self.salt, self.digest))
        return f"scrypt:{self.cost}:{self.block}:{self.parallel}:{salt}:{digest}"


def hashed(password: str) -> PasswordHash:
    """A new hash of a password, with a salt of its own. Blocks."""
    salt = secrets.token_bytes(SALT_BYTES)
    given = password.encode(errors="surrogatepass")[:MAX_PASSWORD_BYTES]
    digest = hashlib.scrypt(given, salt=salt, n=COST, r=BLOCK, p=PARALLEL, maxmem=256 * COST * BLOCK, dklen=HASH_BYTES)
    return PasswordHash(COST, BLOCK, PARALLEL, salt, digest)


class Users:
    """The users of a file. It is read again after a change, so that a removed user is logged out at once."""

    def __init__(self, path: Path) -> None:
        """Raises ConfigError."""
        self._path = path
        self._seen: tuple[int, int] | None = None
        self._hashes: Mapping[str, PasswordHash] = {}
        # An unknown user takes as long as a known one.
        self._unknown = hashed(secrets.token_urlsafe())
        self.reload()

    def reload(self) -> None:
        """Raises ConfigError: it cannot be read, or a line is wrong."""
        try:
            status = self._path.stat()
            seen = (status.st_mtime_ns, status.st_size)
            if seen != self._seen:
                self._hashes = read_users(self._path.read_text(encoding="utf-8"), str(self._path))
                self._seen = seen
        except (OSError, UnicodeDecodeError) as error:
            raise ConfigError([f"{self._path}: {getattr(error, 'strerror', None) or error}"]) from None

    def __contains__(self, name: str) -> bool:
        return name in self._hashes

    def check(self, name: str, password: str) -> bool:
        """Whether a user with this password may in. Blocks for the time of a hash. Raises ConfigError."""
        self.reload()
        known = self._hashes.get(name)
        matches = (known or self._unknown).matches(password)
        return matches and known is not None


def read_users(text: str, source: str) -> dict[str, PasswordHash]:
    """The hashes by name. Raises ConfigError with the number of the line, without its content."""
    found: dict[str, PasswordHash] = {}
    problems = []
    for number, line in enumerate(text.splitlines(), 1):
        if not line.strip() or line.startswith("#"):
            continue
        name, _, rest = line.strip().partition(":")
        known = _parse_hash(rest)
        if known is None or not name or name == "*":
            problems.append(f"{source}: line {number} is not as `odradek console password` writes it")
        else:
            found[name] = known
    if problems:
        raise ConfigError(problems)
    return found


def _parse_hash(text: str) -> PasswordHash | None:
    try:
        kind, cost, block, parallel, salt, digest = text.split(":")
        found = PasswordHash(
            int(cost),
            int(block),
            int(parallel),
            base64.b64decode(salt, validate=True),
            base64.b64decode(digest, validate=True),
        )
    except (ValueError, binascii.Error):
        return None
    is_power = found.cost > 1 and found.cost & (found.cost - 1) == 0
    is_bounded = found.cost <= MAX_COST and 0 < found.block <= MAX_BLOCK and 0 < found.parallel <= MAX_PARALLEL
    return found if kind == "scrypt" and is_power and is_bounded and found.salt and found.digest else None


def with_user(text: str, name: str, password: str) -> str:
    """The text of a file with one user added, or with a new password for one that is there. Raises ConfigError."""
    if not name or not all(sign.isalnum() or sign in "._-@" for sign in name):
        raise ConfigError([f"{name!r}: a name has letters, digits, '.', '_', '-' and '@'"])
    if len(password) < MIN_PASSWORD:
        raise ConfigError([f"a password has at least {MIN_PASSWORD} characters"])
    lines = [line for line in text.splitlines() if line.partition(":")[0] != name]
    return "\n".join([*lines, f"{name}:{hashed(password).text()}"]) + "\n"


def rewrite(path: Path, text: str) -> None:
    """Replace a file of users atomically, with the same owner and mode.

    Raises:
        ConfigError: the owner cannot be kept, since this user is not root; nothing is changed.
        OSError: it cannot be written.
    """
    path = path.resolve()  # the target of a link is written, not the link
    before = path.stat() if path.exists() else None
    number, name = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
    made = Path(name)
    try:
        with os.fdopen(number, "w", encoding="utf-8") as file:
            if before is not None:
                _copy_owner(file.fileno(), path, before)
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        made.replace(path)
    except BaseException:
        made.unlink()
        raise


def _copy_owner(number: int, path: Path, before: os.stat_result) -> None:
    now = os.fstat(number)
    if (now.st_uid, now.st_gid) != (before.st_uid, before.st_gid):
        try:
            os.fchown(number, before.st_uid, before.st_gid)
        except PermissionError:
            raise ConfigError([f"{path} belongs to another user: run this as that user, or as root"]) from None
    os.fchmod(number, stat.S_IMODE(before.st_mode))
