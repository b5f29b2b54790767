"""The values of a field of type `records`: bytes in memory, or slices of a file."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, TypeAlias


@dataclass(slots=True)
class RecordsChunks:
    """Record batches in pieces: the codec writes `size_bytes` as the length and passes the pieces on untouched.

    A piece is bytes-like, or an object with `read() -> bytes`, such as a slice of a log's file.
    """

    chunks: list[Any] = field(default_factory=list)
    size_bytes: int = 0


Records: TypeAlias = bytes | bytearray | memoryview | RecordsChunks | None


def received(records: Records) -> bytes | bytearray | memoryview:
    """The batches of a response from the network, which are bytes."""
    assert not isinstance(records, RecordsChunks), "decoded records are bytes"
    return records or b""
