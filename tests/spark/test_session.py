"""The session that `pyspark_odradek.session` starts."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pyarrow as pa


def test_workers_have_the_package_loaded(spark: Any) -> None:
    """Before a task asks for it: they are forked from a daemon that has loaded it."""

    def look(batches: Iterator[Any]) -> Iterator[Any]:
        import sys

        for _ in batches:
            yield pa.record_batch({"loaded": ["pyspark_odradek.exact_sink" in sys.modules]})

    (row,) = spark.range(1).coalesce(1).mapInArrow(look, "loaded boolean").collect()
    assert row.loaded
