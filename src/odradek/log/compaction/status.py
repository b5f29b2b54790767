"""How dirty a log is, as a node reports it to tools: a tagged field of a partition in DescribeLogDirs.

Kafka's protocol has no place for it. A tagged field that a client does not know is passed over (KIP-482), so this one
has a number that is far from those that Kafka gives out, and only a log that is compacted has it.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from odradek.log.compaction.plan import Dirtiness

DIRTINESS_TAG = 10_534
_FIELDS = struct.Struct(">qqqBII")
_RUNNING, _UNCLEANABLE = 1, 2


@dataclass(frozen=True, slots=True)
class CompactionState:
    """What is reported of one log.

    Attributes:
        cleaned_offset: exclusive.
        clean_bytes, dirty_bytes: of closed segments that may be cleaned.
        running: a cleaning is under way, with so many of its segment groups done.
        uncleanable: the log is left as it is; the node's log says why.
    """

    cleaned_offset: int
    clean_bytes: int
    dirty_bytes: int
    running: bool = False
    uncleanable: bool = False
    groups_done: int = 0
    groups: int = 0

    @classmethod
    def of(cls, cleaned_offset: int, dirtiness: Dirtiness) -> CompactionState:
        """The state of a log at rest."""
        return cls(cleaned_offset, dirtiness.clean_bytes, dirtiness.dirty_bytes)

    @property
    def dirty_ratio(self) -> float:
        total = self.clean_bytes + self.dirty_bytes
        return self.dirty_bytes / total if total else 0.0

    def tagged(self) -> tuple[int, bytes]:
        """The tagged field."""
        flags = _RUNNING * self.running | _UNCLEANABLE * self.uncleanable
        data = _FIELDS.pack(
            self.cleaned_offset, self.clean_bytes, self.dirty_bytes, flags, self.groups_done, self.groups
        )
        return DIRTINESS_TAG, data


def read_tagged(fields: Sequence[tuple[int, bytes]]) -> CompactionState | None:
    """What a node reported in tagged fields; None where it reported nothing, as other brokers do."""
    for tag, data in fields:
        if tag == DIRTINESS_TAG and len(data) == _FIELDS.size:
            cleaned, clean, dirty, flags, done, groups = _FIELDS.unpack(data)
            return CompactionState(
                cleaned, clean, dirty, bool(flags & _RUNNING), bool(flags & _UNCLEANABLE), done, groups
            )
    return None
