"""One record, as readers and builders see it."""

from __future__ import annotations

from dataclasses import dataclass

Header = tuple[str, bytes | None]


@dataclass(frozen=True, slots=True)
class Record:
    """One record of a batch.

    Attributes:
        key, value: None is Kafka's null, which is not the same as empty.
        timestamp_ms: ms since 1970 UTC; -1 where there is none.
        offset: of the record in its partition; -1 where it has none yet.
    """

    key: bytes | None = None
    value: bytes | None = None
    headers: tuple[Header, ...] = ()
    timestamp_ms: int = -1
    offset: int = -1
