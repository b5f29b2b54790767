"""A run's events as one number: every callback with its host and its time, responses of clients, every byte
that a disk took or a wire carried. Equal for equal seeds, and different if any event differs.

Facts are gathered and hashed in large pieces: hashing each would cost as much as the callback itself.
"""

from __future__ import annotations

import struct
from hashlib import blake2b

from odradek.common.ports import Buffer

DIGEST_BYTES = 16
PIECE_BYTES = 1 << 16
_STEP = struct.Struct("<dH")
_DATA = struct.Struct("<cHII")


class Trace:
    """A running digest of 128 bits over all facts, in their order."""

    __slots__ = ("_facts", "_hash", "_names", "_next_mark_s", "marks")

    def __init__(self) -> None:
        self._hash = blake2b(digest_size=DIGEST_BYTES)
        self._facts = bytearray()
        self._names: dict[str, int] = {}
        self._next_mark_s = 0.0
        # (time, digest of all before) at the first step of each simulated second, to tell when two runs part.
        self.marks: list[tuple[float, str]] = []

    def step(self, now_s: float, host: str) -> None:
        """A callback of a host runs."""
        if now_s >= self._next_mark_s:
            self._mark(now_s)
        self._facts += _STEP.pack(now_s, self._number(host))

    def record(self, text: str) -> None:
        """An event in words."""
        self._facts += b"\n%s\n" % text.encode()
        self._settle()

    def data(self, kind: bytes, where: str, position: int, data: Buffer) -> None:
        """Bytes that went somewhere; `kind` is one letter."""
        self._facts += _DATA.pack(kind, self._number(where), position & 0xFFFFFFFF, len(data))
        self._facts += data
        self._settle()

    def digest(self) -> str:
        """The hash of all events so far."""
        self._settle(0)
        return self._hash.hexdigest()

    def _number(self, name: str) -> int:
        """Names are numbered as they come, and hashed once."""
        number = self._names.get(name)
        if number is None:
            number = self._names[name] = len(self._names)
            self._facts += name.encode()
        return number & 0xFFFF

    def _mark(self, now_s: float) -> None:
        self._next_mark_s = float(int(now_s) + 1)
        self.marks.append((now_s, self.digest()))

    def _settle(self, limit_bytes: int = PIECE_BYTES) -> None:
        if len(self._facts) > limit_bytes:
            self._hash.update(self._facts)
            self._facts.clear()


def parted_s(one: list[tuple[float, str]], other: list[tuple[float, str]]) -> float | None:
    """The last simulated second up to which two runs were the same; None where all marks of both are equal."""
    last_s = 0.0
    for mine, theirs in zip(one, other, strict=False):
        if mine != theirs:
            return last_s
        last_s = mine[0]
    return None if len(one) == len(other) else last_s
