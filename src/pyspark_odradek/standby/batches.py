"""Decides which batches a query writes if it shares its output with others.

The output lease has the group that writes, and the input offsets up to which the output is written. The action for a
batch depends on its bounds:

    all of it covered                              SKIP   computed only for its state, nothing is written
    begins where the output ends, lease is ours    WRITE  the lease moves to the batch's end, in the same transaction
    reaches further, another group has the lease   WAIT   until that group has covered it, or the lease is ours

A standby plans its batches only up to the covered offsets, so that none of them crosses the position at which it will
take over. A fenced writer may have planned a batch beyond that position: this batch waits.
"""

from __future__ import annotations

import enum
import json
from collections.abc import Mapping
from typing import Any, NamedTuple

from odradek.client.output_lease.lease import Covered, OutputLease
from pyspark_odradek.client.offsets import Positions, from_json
from pyspark_odradek.errors import LeaseError, OptionError
from pyspark_odradek.micro_batch.checkpoint import offsets_file


class Action(enum.Enum):
    """The action for the output of a batch."""

    WRITE = "write"
    SKIP = "skip"
    WAIT = "wait"


class Span(NamedTuple):
    """The input of a batch: from `start` (inclusive; None if it is not recorded) to `end` (exclusive)."""

    start: Positions | None
    end: Positions

    def moved(self) -> Positions:
        """The end of each partition of which the batch reads something, or may."""
        start = self.start or {}
        return {partition: offset for partition, offset in self.end.items() if start.get(partition) != offset}

    def is_covered(self, lease: OutputLease) -> bool:
        """Whether the output for all that the batch reads is written."""
        return all(offset <= lease.covered.get(partition, -1) for partition, offset in self.moved().items())


def action_for(lease: OutputLease, group: str, span: Span) -> Action:
    """The action for a batch's output.

    Raises:
        LeaseError: this group has the lease, and the batch does not begin where the output ends.
    """
    if span.is_covered(lease):
        return Action.SKIP
    if lease.group != group:
        return Action.WAIT
    start = span.start or {}
    for partition, offset in sorted(span.moved().items()):
        covered = lease.covered.get(partition)
        first = start.get(partition)
        # A new partition has its own start; the first batch of a query has no start.
        if covered is None or first == covered or (first is None and offset >= covered):
            continue
        where = f"{partition.topic}-{partition.partition_id}"
        raise LeaseError(
            f"this batch reads {where} from offset {first if first is not None else '?'} to {offset}, and the output "
            f"goes up to {covered}: to write it would leave a gap or write something twice. Nothing was written; "
            "switch the gate to another group, or start this query with a new checkpoint and startingOffsets=earliest."
        )
    return Action.WRITE


def as_covered(positions: Positions) -> Covered:
    """Positions as a lease has them."""
    return {(topic, partition_id): offset for (topic, partition_id), offset in positions.items()}


def batch_span(checkpoint: str, batch_id: int) -> Span:
    """The input of a batch, from the query's checkpoint, which Spark writes before it runs the batch.

    Raises:
        OptionError: the query cannot share its output, or the checkpoint cannot be read.
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
            "batches, and two queries cut theirs differently. Write its output without a gate, or remove "
            "the watermark"
        )
    if len(lines) != 2:
        raise OptionError(f"gate: the query has {len(lines) - 1} sources; one that is gated reads from one")
    try:
        return from_json(json.loads(lines[1]))
    except (AttributeError, TypeError, ValueError):
        raise OptionError("gate: the query reads from another source than the format odradek") from None
