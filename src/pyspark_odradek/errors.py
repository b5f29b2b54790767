"""The errors of the connector, each with one sentence that says what to do."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import NamedTuple

log = logging.getLogger("pyspark_odradek")


class OptionError(ValueError):
    """An option of the query is unknown, contradicts another one or has a value that makes no sense."""


class LostRange(NamedTuple):
    """Offsets of one partition that were gone before they were read; `end` is exclusive."""

    topic: str
    partition_id: int
    start: int
    end: int
    reason: str

    def __str__(self) -> str:
        count = self.end - self.start
        whole = f"offsets {self.start} to {self.end - 1} ({count:,} offsets)"
        what = whole if count > 0 else f"from offset {self.start} on"
        return f"{self.topic}-{self.partition_id}: {what}, {self.reason}"


class DataLossError(Exception):
    """Records that the query should have read exist no more, and `failOnDataLoss` is true.

    `ranges` are the exact offsets. Gaps that compaction, aborted transactions or markers leave are no loss.
    """

    def __init__(self, ranges: Sequence[LostRange]) -> None:
        self.ranges = tuple(ranges)
        super().__init__(
            f"data was lost: {describe(ranges)}. Records are deleted by retention, DeleteRecords or with their topic. "
            "Set failOnDataLoss=false to go on with what is left, and with a topic that is another one now from its "
            "beginning; or begin with another checkpoint."
        )

    def __reduce__(self) -> tuple[type[DataLossError], tuple[tuple[LostRange, ...]]]:
        return DataLossError, (self.ranges,)


class BadRecordError(Exception):
    """A record does not decode by the schema, and the options do not say where it may go."""


class ClusterError(Exception):
    """The cluster did not answer as needed in time, or refused."""


class FencedError(ClusterError):
    """Another run of the same query writes to the sink; this one must end."""


class AttemptFencedError(FencedError):
    """Another attempt of the same task writes; this one must end, and the query goes on."""


class LeaseError(ClusterError):
    """An output lease does not let this query go on: it would leave something out, or write it twice."""


class StagingError(Exception):
    """A staged file of a task cannot be written or read."""


def one_line(error: BaseException) -> str:
    """The message of an error as a part of a sentence: without line ends and a full stop."""
    return " ".join(str(error).split()).rstrip(".") or type(error).__name__


def describe(ranges: Sequence[LostRange]) -> str:
    """All lost ranges in one line."""
    return "; ".join(map(str, ranges))


def report(lost: Sequence[LostRange], *, fail: bool) -> None:
    """Raise DataLossError, or warn with the same words."""
    if lost and fail:
        raise DataLossError(lost)
    if lost:
        log.warning("data was lost and is skipped (failOnDataLoss=false): %s", describe(lost))
