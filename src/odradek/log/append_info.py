"""What an append and a read of a log give back."""

from __future__ import annotations

from dataclasses import dataclass

from odradek.log.files import FileSlice


@dataclass(frozen=True, slots=True)
class AppendInfo:
    """Where an append lies; offsets inclusive.

    Attributes:
        log_append_time_ms: the broker's time where the topic wants it, else -1.
        duplicate: the batch had been appended before; the offsets are those of then.
    """

    base_offset: int
    last_offset: int
    log_append_time_ms: int = -1
    duplicate: bool = False


@dataclass(frozen=True, slots=True)
class ReadResult:
    """What a read found: slices of files, nothing copied; empty at the end of what may be read."""

    chunks: list[FileSlice]
    size_bytes: int


NOTHING = ReadResult([], 0)
