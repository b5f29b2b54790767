"""The output lease, which names the one of several consumer groups that writes an output, and the input's offsets.

Queries that compute the same output are standbys of each other. The lease is a group without members. Its committed
offsets are the positions of the input up to which the output is written; their metadata names the group that writes
from there on. Both change in one transaction with the output, under a transactional id of the lease and the group that
holds it. A client that initializes that id fences the holder, and then reads a state that no longer changes. Users give
the lease's name in the option `gate`.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from typing import Final, NamedTuple, TypeAlias

Covered: TypeAlias = Mapping[tuple[str, int], int]

LEASE_GROUP_PREFIX: Final = "odradek-gate."
STANDBY: Final = "standby"
ACTIVE: Final = "active"
_NAME = re.compile(r"[A-Za-z0-9._-]{1,200}")


class OutputLease(NamedTuple):
    """The state of a lease.

    Attributes:
        group: the group that holds it and writes the output.
        epoch: the number of transfers.
        run_id: the run of the holder's query that wrote last; empty if none has since the transfer.
        covered: by (topic, partition) the first offset of the input whose output is not written (exclusive end).
    """

    group: str
    epoch: int
    run_id: str
    covered: Covered

    def transferred_to(self, group: str) -> OutputLease:
        """The lease after a transfer to another group at the same position."""
        return OutputLease(group, self.epoch + 1, "", self.covered)

    def metadata(self) -> str:
        """The metadata of each committed offset of the lease."""
        return json.dumps({"group": self.group, "turn": self.epoch, "run": self.run_id}, separators=(",", ":"))


def is_lease_name(name: str) -> bool:
    """Whether a name is valid for a lease; it becomes part of other names."""
    return _NAME.fullmatch(name) is not None


def lease_group(lease: str) -> str:
    """The group that stores the lease."""
    return LEASE_GROUP_PREFIX + lease


def progress_group(lease: str, group: str) -> str:
    """The group, without members, in which a query reports its position and whether it is a standby."""
    return f"odradek-progress.{lease}/{group}"


def writer_id(lease: str, group: str) -> str:
    """The transactional id under which a group writes, and is fenced."""
    return f"{LEASE_GROUP_PREFIX}{lease}/{group}"


def creation_id(lease: str) -> str:
    """The transactional id under which a lease is created, so that only one of several queries creates it."""
    return f"odradek-claim.{lease}"


def lag(position: Covered, covered: Covered) -> int:
    """The number of offsets by which a position is behind; a missing partition is at 0."""
    return sum(max(0, offset - position.get(partition, 0)) for partition, offset in covered.items())


def first_ahead(position: Covered, covered: Covered) -> tuple[str, int] | None:
    """The first partition whose position is ahead of the written output; None if there is none.

    A query that continued there would skip the offsets between.
    """
    for partition, offset in sorted(position.items()):
        if offset > covered.get(partition, offset):
            return partition
    return None


def parse_lease(offsets: Iterable[tuple[str, int, int, str]]) -> OutputLease | None:
    """The lease from (topic, partition, committed offset, metadata); None if there is none.

    Raises:
        ValueError: the offsets are not those of a lease.
    """
    covered: dict[tuple[str, int], int] = {}
    newest: tuple[int, str, str] | None = None
    for topic, partition_id, offset, metadata in offsets:
        if offset < 0:
            continue
        covered[topic, partition_id] = offset
        try:
            found = json.loads(metadata)
            entry = (int(found["turn"]), str(found["run"]), str(found["group"]))
        except (ValueError, TypeError, KeyError):
            raise ValueError(f"{topic}-{partition_id} has the metadata {metadata[:60]!r}, which no gate has") from None
        # Partitions that the query no longer reads keep older metadata: the highest epoch counts.
        if newest is None or entry[0] > newest[0] or (entry[0] == newest[0] and entry[1] and not newest[1]):
            newest = entry
    if newest is None:
        return None
    return OutputLease(newest[2], newest[0], newest[1], covered)
