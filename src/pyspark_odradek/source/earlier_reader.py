"""Reads a stream with Spark 4.0 and 4.1, which request the end of a batch without the present position.

The reader stores the position: Spark requests the start of a new query, and plans each batch with the same process. A
restarted query plans the last end of its checkpoint before it requests the next one.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import TYPE_CHECKING

from pyspark.sql.datasource import InputPartition
from pyspark.sql.types import StructType

from pyspark_odradek.client.offsets import SourceOffset
from pyspark_odradek.options import ReadOptions
from pyspark_odradek.source.readers import StreamReader
from pyspark_odradek.spark_api import ReadAllAvailable

if TYPE_CHECKING:
    from pyspark_odradek.standby.source import LeasedSource

log = logging.getLogger("pyspark_odradek")


class EarlierStreamReader(StreamReader):
    """`StreamReader` for Spark before 4.2.

    Spark does not pass the trigger `availableNow` either: it requests the end once, and reads up to it.
    """

    def __init__(self, options: ReadOptions, schema: StructType, lease: LeasedSource | None = None) -> None:
        super().__init__(options, schema, lease)
        self._stands: SourceOffset | None = None
        self._start: SourceOffset | None = None
        if not isinstance(self.getDefaultReadLimit(), ReadAllAvailable):
            log.warning(
                "before Spark 4.2 a run with the trigger availableNow ends after one batch, as large as the limits "
                "allow: leave out maxOffsetsPerTrigger, minOffsetsPerTrigger and maxBytesPerTrigger there"
            )

    def initialOffset(self) -> SourceOffset:  # noqa: N802 - Spark's name
        """The start of a new query: the same each time, since Spark requests the first end before this."""
        if self._start is None:
            self._start = super().initialOffset()
        return self._start

    def latestOffset(self) -> SourceOffset:  # type: ignore[override]  # noqa: N802 - Spark's name
        """The end of the next batch. Raises DataLossError, ClusterError."""
        stands = self._stands if self._stands is not None else self.initialOffset()
        return super().latestOffset(stands, self.getDefaultReadLimit())

    def partitions(self, start: SourceOffset, end: SourceOffset) -> Sequence[InputPartition]:
        """The tasks of a batch. Raises DataLossError, ClusterError."""
        self._stands = end
        return [] if start == end else super().partitions(start, end)

    def commit(self, end: SourceOffset) -> None:
        """Commit progress here, since a run with `availableNow` requests no further batch."""
        self._commit_progress(self._known(end)[0])
