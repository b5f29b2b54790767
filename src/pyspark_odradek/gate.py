"""Standing by: a query whose output is gated reads no further than the output goes, and writes when it is its turn.

The gate (`odradek.common.gates`) says who writes and up to where the output covers the input. What follows for a batch
is decided here, by its bounds:

    all of it covered                            SKIP   computed for its state alone, nothing is written
    begins where the output ends, our turn       WRITE  and the gate moves to the batch's end, in the same transaction
    reaches further, another group's turn        WAIT   until that group has covered it, or the turn is ours

A query that stands by plans its batches up to what is covered, never beyond, so that no batch of it lies across the
position where it is to go on. The one that was fenced may have planned a batch beyond it: that one waits.
"""

from __future__ import annotations

import enum
import json
from collections.abc import Mapping
from typing import Any, NamedTuple

from odradek.common.gates import Covered, Gate
from pyspark_odradek.checkpoint import offsets_file
from pyspark_odradek.errors import GateError, OptionError
from pyspark_odradek.offsets import Positions, from_json


class Verdict(enum.Enum):
    """What is to be done with the output of a batch."""

    WRITE = "write"
    SKIP = "skip"
    WAIT = "wait"


class Span(NamedTuple):
    """What a batch reads: from `start` (inclusive; None where that is not written down) to `end` (exclusive)."""

    start: Positions | None
    end: Positions

    def moved(self) -> Positions:
        """The end of each partition of which the batch reads something, or may."""
        start = self.start or {}
        return {partition: offset for partition, offset in self.end.items() if start.get(partition) != offset}

    def is_covered(self, gate: Gate) -> bool:
        """Whether the output for all that the batch reads is written."""
        return all(offset <= gate.covered.get(partition, -1) for partition, offset in self.moved().items())


def judge(gate: Gate, group: str, span: Span) -> Verdict:
    """What becomes of a batch's output.

    Raises:
        GateError: it is this group's turn, and the batch does not begin where the output ends.
    """
    if span.is_covered(gate):
        return Verdict.SKIP
    if gate.group != group:
        return Verdict.WAIT
    start = span.start or {}
    for partition, offset in sorted(span.moved().items()):
        covered = gate.covered.get(partition)
        first = start.get(partition)
        if covered is None or first == covered or (first is None and offset >= covered):
            continue
        where = f"{partition.topic}-{partition.partition_id}"
        raise GateError(
            f"this batch reads {where} from offset {first if first is not None else '?'} to {offset}, and the output "
            f"goes up to {covered}: to write it would leave a gap or write something twice. Nothing was written; turn "
            "the gate to another group, or start this query with a new checkpoint and startingOffsets=earliest."
        )
    return Verdict.WRITE


def as_covered(positions: Positions) -> Covered:
    """Positions as a gate has them."""
    return {(topic, partition_id): offset for (topic, partition_id), offset in positions.items()}


def batch_span(checkpoint: str, batch_id: int) -> Span:
    """What a batch reads, as Spark wrote it down in the query's checkpoint before it ran the batch.

    Raises:
        OptionError: the query is none whose output can be gated, or the checkpoint cannot be read.
    """
    end = _written_down(checkpoint, batch_id)
    return Span(_written_down(checkpoint, batch_id - 1) if batch_id > 0 else None, end)


def _written_down(checkpoint: str, batch_id: int) -> Positions:
    try:
        text, path = offsets_file(checkpoint, batch_id)
    except OSError as error:
        raise OptionError(f"gate: the offsets of batch {batch_id} cannot be read in {checkpoint}: {error}") from None
    return parse_offsets_file(text, path)


def parse_offsets_file(text: str, path: str) -> Positions:
    """The end of a batch from Spark's file of it: a version, a line of metadata, a line for each source."""
    version, *lines = text.splitlines()
    if version != "v1" or len(lines) < 2:
        raise OptionError(f"gate: {path} is of a version of Spark that is not known here ({version[:20]!r})")
    metadata: Mapping[str, Any] = json.loads(lines[0])
    if metadata.get("batchWatermarkMs", 0):
        raise OptionError(
            "gate: a query with a watermark cannot stand by: when it emits depends on how its input is cut into "
            "batches, and two queries cut theirs differently. Write its output without a gate, or leave the "
            "watermark away"
        )
    if len(lines) != 2:
        raise OptionError(f"gate: the query has {len(lines) - 1} sources; one that is gated reads from one")
    try:
        return from_json(json.loads(lines[1]))
    except (AttributeError, TypeError, ValueError):
        raise OptionError("gate: the query reads from another source than the format odradek") from None
