"""The results of appends and reads."""

from __future__ import annotations

from typing import NamedTuple

from odradek.log.files import FileSlice


class AppendInfo(NamedTuple):
    """The offsets of an append (inclusive).

    Attributes:
        log_append_time_ms: the broker's time for topics with LogAppendTime, else -1.
        duplicate: the batch had been appended before; the offsets are the earlier ones.
    """

    base_offset: int
    last_offset: int
    log_append_time_ms: int = -1
    duplicate: bool = False


class ReadResult(NamedTuple):
    """The slices of files that a read found; empty at the end of the readable range."""

    chunks: list[FileSlice]
    size_bytes: int


NOTHING = ReadResult([], 0)
