"""Reading a stream with Spark 4.0 and 4.1, which ask for the end of a batch without saying where reading stands.

The reader remembers: Spark asks for the start of a new query, and plans each batch with the same process; a query that
starts again plans the last end that its checkpoint has, before it asks for the next one.
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

    Spark does not say either whether a query ends by itself (`availableNow`): it asks once, and reads to there.
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
        """Where a new query starts: the same each time, since Spark asks for the first end before it asks for this."""
        if self._start is None:
            self._start = super().initialOffset()
        return self._start

    def latestOffset(self) -> SourceOffset:  # type: ignore[override]  # noqa: N802 - Spark's name
        """Where the next batch ends. Raises DataLossError, ClusterError."""
        stands = self._stands if self._stands is not None else self.initialOffset()
        return super().latestOffset(stands, self.getDefaultReadLimit())

    def partitions(self, start: SourceOffset, end: SourceOffset) -> Sequence[InputPartition]:
        """The tasks of a batch. Raises DataLossError, ClusterError."""
        self._stands = end
        return [] if start == end else super().partitions(start, end)

    def commit(self, end: SourceOffset) -> None:
        """Commit progress: a run that ends by itself asks for no further batch, in which it would be."""
        self._commit_progress(self._known(end)[0])
