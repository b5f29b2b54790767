"""An output lease: which one of several consumer groups writes an output, and how far into the input that output goes.

Queries that compute the same output stand by for one another. The lease is a group of the cluster without members. Its
committed offsets are the positions of the input up to which the output is written; their metadata names the group
that writes from there on. Both change in one transaction with the output itself, under a transactional id that belongs
to the lease and the group that holds it. So a client that initializes that id has fenced the holder, and what it reads
then does not change any more. Users give the lease's name by the option `gate`.
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
        epoch: how often it was transferred.
        run_id: the run of the holder's query that wrote last; empty where none has since the transfer.
        covered: by (topic, partition) the first offset of the input whose output is not written (exclusive end).
    """

    group: str
    epoch: int
    run_id: str
    covered: Covered

    def transferred_to(self, group: str) -> OutputLease:
        """The same output, written by another group from here on."""
        return OutputLease(group, self.epoch + 1, "", self.covered)

    def metadata(self) -> str:
        """The metadata of each committed offset of the lease."""
        return json.dumps({"group": self.group, "turn": self.epoch, "run": self.run_id}, separators=(",", ":"))


def is_lease_name(name: str) -> bool:
    """Whether a lease may have this name: it becomes part of other names, which must not mean two leases."""
    return _NAME.fullmatch(name) is not None


def lease_group(lease: str) -> str:
    """The group whose offsets are the lease."""
    return LEASE_GROUP_PREFIX + lease


def progress_group(lease: str, group: str) -> str:
    """The group, without members, in which a query reports how far it is and whether it is a standby."""
    return f"odradek-progress.{lease}/{group}"


def writer_id(lease: str, group: str) -> str:
    """The transactional id under which a group writes, and under which it is fenced."""
    return f"{LEASE_GROUP_PREFIX}{lease}/{group}"


def creation_id(lease: str) -> str:
    """The transactional id under which a lease is created: of two queries that begin at once one creates it."""
    return f"odradek-claim.{lease}"


def lag(position: Covered, covered: Covered) -> int:
    """How many offsets a position is behind what is covered; a partition that it lacks is at 0."""
    return sum(max(0, offset - position.get(partition, 0)) for partition, offset in covered.items())


def first_ahead(position: Covered, covered: Covered) -> tuple[str, int] | None:
    """The first partition that was read further than its output is written; None where there is none.

    A query that went on from such a position would leave out what lies between.
    """
    for partition, offset in sorted(position.items()):
        if offset > covered.get(partition, offset):
            return partition
    return None


def parse_lease(offsets: Iterable[tuple[str, int, int, str]]) -> OutputLease | None:
    """The lease from (topic, partition, committed offset, metadata); None where it was never created.

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
        # An entry of a partition that the query does not read any more keeps older metadata: the highest epoch counts.
        if newest is None or entry[0] > newest[0] or (entry[0] == newest[0] and entry[1] and not newest[1]):
            newest = entry
    if newest is None:
        return None
    return OutputLease(newest[2], newest[0], newest[1], covered)
