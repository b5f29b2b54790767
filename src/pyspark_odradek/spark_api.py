"""Parts of Spark's Python API that only some versions from 4.0 on have, with the interface of the newest.

| since | what | before |
|---|---|---|
| 4.2 | a streaming reader learns where reading stands, and whether the query ends by itself | `earlier_reader` |
| 4.1 | writers of streams that take Arrow batches | Spark 4.0 asks only whether the writer of a batch query does |

The rest of the package imports these names from here. `tests/spark/test_versions.py` runs it with each version.
"""

from __future__ import annotations

import inspect
from typing import TYPE_CHECKING, Any

from pyspark import __version__
from pyspark.sql.pandas import types as _pandas_types
from pyspark.sql.types import StructType

VERSION = tuple(int(part) for part in __version__.split(".")[:2])

if TYPE_CHECKING or VERSION >= (4, 2):
    from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit, ReadMaxRows, SupportsTriggerAvailableNow
else:
    from dataclasses import dataclass

    class ReadLimit:
        """The limit of a batch's reads."""

    class ReadAllAvailable(ReadLimit):
        """All that there is."""

    @dataclass
    class ReadMaxRows(ReadLimit):
        """At most so many."""

        max_rows: int

    class SupportsTriggerAvailableNow:
        """A reader that fixes the end of a run by itself; Spark does not ask for it yet."""


if TYPE_CHECKING or VERSION >= (4, 1):
    from pyspark.sql.datasource import DataSourceStreamArrowWriter
else:
    from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamWriter

    class DataSourceStreamArrowWriter(DataSourceStreamWriter, DataSourceArrowWriter):
        """A writer of a stream that gets Arrow batches: by its second base Spark 4.0 knows it."""


HAS_ADMISSION_CONTROL = VERSION >= (4, 2)
# Of checkpoints on a disk that the driver alone writes; the package was moved in Spark 4.1.
CHECKPOINTS_ON_DISK = (
    "org.apache.spark.sql.execution.streaming."
    f"{'checkpointing.' if VERSION >= (4, 1) else ''}FileSystemBasedCheckpointFileManager"
)
_HAS_TIMEZONE = "timezone" in inspect.signature(_pandas_types.to_arrow_schema).parameters


def arrow_schema(schema: StructType) -> Any:
    """The schema of Arrow batches (`pyarrow.Schema`) for columns of Spark; timestamps are in UTC."""
    if _HAS_TIMEZONE:
        return _pandas_types.to_arrow_schema(schema, timezone="UTC")
    return _pandas_types.to_arrow_schema(schema)


__all__ = [
    "CHECKPOINTS_ON_DISK",
    "HAS_ADMISSION_CONTROL",
    "DataSourceStreamArrowWriter",
    "ReadAllAvailable",
    "ReadLimit",
    "ReadMaxRows",
    "SupportsTriggerAvailableNow",
    "arrow_schema",
]
