"""Spark's file of a batch in the query's checkpoint, written before it runs the batch: `offsets/<number>`.

The file stays as it is when the batch runs again; it bears the time of its planning, so that no two batches that were
planned apart have the same. This module knows nothing of what the sinks make of it.
"""

from __future__ import annotations

import hashlib
import json
import logging
import posixpath

from pyspark_odradek.errors import OptionError, one_line
from pyspark_odradek.micro_batch.staging import open_place

log = logging.getLogger("pyspark_odradek")

TRIES = 3  # batches in a row


def offsets_file(checkpoint: str, batch_id: int) -> tuple[str, str]:
    """(the text of the file, its path). Raises OSError; OptionError for a place that makes no sense."""
    system, root = open_place(checkpoint, "checkpointLocation")
    path = posixpath.join(root, "offsets", str(batch_id))
    with system.open_input_stream(path) as stream:
        return stream.read().decode(), path


def plan_of(checkpoint: str, batch_id: int) -> str:
    """By what a batch is known from another one of its number; empty where the checkpoint cannot be read from here.

    That is logged once, and tried again with the next batch; no more where the place is invalid, or TRIES batches in
    a row could not be read: each try may wait for a store that this process does not reach.
    """
    if not checkpoint or _FAILED.get(checkpoint, 0) >= TRIES:
        return ""
    try:
        text, _ = offsets_file(checkpoint, batch_id)
    except (OSError, ValueError) as error:  # pyarrow has ValueErrors of its own
        if checkpoint not in _FAILED:
            log.warning(
                "the checkpoint %s cannot be read here: until then batches are distinguished by their numbers "
                "alone, and a checkpoint that was put back by one batch is not noticed: %s",
                checkpoint,
                one_line(error),
            )
        _FAILED[checkpoint] = TRIES if isinstance(error, OptionError) else _FAILED.get(checkpoint, 0) + 1
        return ""
    if checkpoint in _FAILED:
        _FAILED[checkpoint] = 0
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def planned_ms(checkpoint: str, batch_id: int) -> int | None:
    """When a batch was planned, ms since 1970 UTC by the clock of the driver then; None where that is not known."""
    if not checkpoint or _FAILED.get(checkpoint):
        return None
    try:
        text, _ = offsets_file(checkpoint, batch_id)
        return int(json.loads(text.splitlines()[1])["batchTimestampMs"])  # v1, what holds for the batch, its offsets
    except (OSError, ValueError, IndexError, KeyError, TypeError) as error:
        log.debug("the planning time of batch %d is not known: %s", batch_id, error)
        return None


# How many batches in a row this process could not read, of each checkpoint of which it could not read one.
_FAILED: dict[str, int] = {}
