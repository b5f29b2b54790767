"""A gate: which one of several consumer groups writes an output, and how far into the input that output goes.

Queries that compute the same output stand by for one another. The gate is a group of the cluster without members: its
committed offsets are the positions of the input up to which the output is written, and each bears, as its metadata,
who writes on from there. Both change in one transaction with the output itself, under a transactional id that belongs
to the gate and the group that writes; so a client that initializes that id has fenced the writer, and reads what is
true for good. Here are only the names and the text; `odradek.client.gates` turns a gate, the Spark sink goes by it.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from typing import Final, NamedTuple, TypeAlias

Covered: TypeAlias = Mapping[tuple[str, int], int]

GATE_PREFIX: Final = "odradek-gate."
STANDBY: Final = "standby"
ACTIVE: Final = "active"
_NAME = re.compile(r"[A-Za-z0-9._-]{1,200}")


class Gate(NamedTuple):
    """How a gate is.

    Attributes:
        group: the group that writes the output.
        turn: how often the gate was turned to another group.
        run_id: the run of the writing query that wrote last; empty where none has since the gate was turned.
        covered: by (topic, partition) the first offset of the input whose output is not written (exclusive end).
    """

    group: str
    turn: int
    run_id: str
    covered: Covered

    def turned_to(self, group: str) -> Gate:
        """The same output, written on by another group."""
        return Gate(group, self.turn + 1, "", self.covered)

    def metadata(self) -> str:
        """What each committed offset of the gate bears."""
        return json.dumps({"group": self.group, "turn": self.turn, "run": self.run_id}, separators=(",", ":"))


def is_gate_name(name: str) -> bool:
    """Whether a gate may be called so: it becomes part of other names, which must not mean two gates."""
    return _NAME.fullmatch(name) is not None


def gate_group(gate: str) -> str:
    """The group whose offsets are the gate."""
    return GATE_PREFIX + gate


def progress_group(gate: str, group: str) -> str:
    """The group, without members, in which a query reports how far it is and whether it is a standby."""
    return f"odradek-progress.{gate}/{group}"


def writer_id(gate: str, group: str) -> str:
    """The transactional id under which a group writes, and under which it is fenced."""
    return f"odradek-gate.{gate}/{group}"


def claim_id(gate: str) -> str:
    """The transactional id under which a gate is made, so that of two queries that begin at once one makes it."""
    return f"odradek-claim.{gate}"


def lag(position: Covered, covered: Covered) -> int:
    """How many offsets of what is covered lie behind a position; a partition that it has not is at 0."""
    return sum(max(0, offset - position.get(partition, 0)) for partition, offset in covered.items())


def ahead(position: Covered, covered: Covered) -> tuple[str, int] | None:
    """The first partition that was read further than its output is written; None where there is none.

    A query that went on from such a position would leave out what lies between.
    """
    for partition, offset in sorted(position.items()):
        if offset > covered.get(partition, offset):
            return partition
    return None


def read_gate(offsets: Iterable[tuple[str, int, int, str]]) -> Gate | None:
    """The gate from (topic, partition, committed offset, metadata); None where it was never made.

    An entry of a partition that the query does not read any more keeps older metadata: the highest turn counts.

    Raises:
        ValueError: the offsets are not those of a gate.
    """
    covered: dict[tuple[str, int], int] = {}
    newest: tuple[int, str, str] | None = None
    for topic, partition_id, offset, metadata in offsets:
        if offset < 0:
            continue
        covered[topic, partition_id] = offset
        try:
            found = json.loads(metadata)
            said = (int(found["turn"]), str(found["run"]), str(found["group"]))
        except (ValueError, TypeError, KeyError):
            raise ValueError(f"{topic}-{partition_id} has the metadata {metadata[:60]!r}, which no gate has") from None
        if newest is None or said[0] > newest[0] or (said[0] == newest[0] and said[1] and not newest[1]):
            newest = said
    if newest is None:
        return None
    return Gate(newest[2], newest[0], newest[1], covered)
