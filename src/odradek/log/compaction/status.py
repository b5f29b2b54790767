"""The compaction state of a log, which a node reports to tools in a tagged field of DescribeLogDirs.

Kafka's protocol has no field for it. Clients skip unknown tagged fields (KIP-482); this one has a number far from
Kafka's, and only compacted logs have it.
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
    """The reported state of one log.

    Attributes:
        cleaned_offset: exclusive.
        clean_bytes, dirty_bytes: of closed segments that may be cleaned.
        running: whether a cleaning runs; `groups_done` of its groups of segments are done.
        uncleanable: whether the log is not cleaned; the node's log has the reason.
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
        """The state of a log without a running cleaning."""
        return cls(cleaned_offset, dirtiness.clean_bytes, dirtiness.dirty_bytes)

    @property
    def dirty_ratio(self) -> float:
        total = self.clean_bytes + self.dirty_bytes
        return self.dirty_bytes / total if total else 0.0

    def tagged(self) -> tuple[int, bytes]:
        """The number and content of the tagged field."""
        flags = _RUNNING * self.running | _UNCLEANABLE * self.uncleanable
        data = _FIELDS.pack(
            self.cleaned_offset, self.clean_bytes, self.dirty_bytes, flags, self.groups_done, self.groups
        )
        return DIRTINESS_TAG, data


def read_tagged(fields: Sequence[tuple[int, bytes]]) -> CompactionState | None:
    """The state in a node's tagged fields; None if there is none, as from other brokers."""
    for tag, data in fields:
        if tag == DIRTINESS_TAG and len(data) == _FIELDS.size:
            cleaned, clean, dirty, flags, done, groups = _FIELDS.unpack(data)
            return CompactionState(
                cleaned, clean, dirty, bool(flags & _RUNNING), bool(flags & _UNCLEANABLE), done, groups
            )
    return None
