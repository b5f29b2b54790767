"""The session that `pyspark_odradek.session` starts."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyspark
import pytest

from pyspark_odradek.session import measured, submitted


def test_workers_have_the_package_loaded(spark: Any) -> None:
    """Workers are forked from a daemon that has loaded the package, before a task needs it."""

    def look(batches: Iterator[Any]) -> Iterator[Any]:
        import sys

        for _ in batches:
            yield pa.record_batch({"loaded": ["pyspark_odradek.topic_sink.exact_sink" in sys.modules]})

    (row,) = spark.range(1).coalesce(1).mapInArrow(look, "loaded boolean").collect()
    assert row.loaded


def test_settings_for_one_machine_are_set_for_local_masters_only() -> None:
    alone = {"spark.python.daemon.module", "spark.sql.streaming.checkpointFileManagerClass"}
    assert measured("local").keys() - measured(None).keys() == alone
    assert measured("local[2]").keys() - measured("spark://host:7077").keys() == alone


@pytest.mark.slow  # a Spark of its own
def test_a_local_master_of_spark_submit_is_one(spark: Any, tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text("from pyspark_odradek.session import submitted\nprint(submitted())\n")
    submit = Path(pyspark.__file__).parent / "bin/spark-submit"
    environment = {**os.environ, "PYSPARK_PYTHON": sys.executable, "SPARK_HOME": str(submit.parents[1])}
    environment.pop("PYSPARK_GATEWAY_PORT", None)
    done = subprocess.run(
        [submit, "--master", "local[3]", program], env=environment, capture_output=True, text=True, timeout=120
    )
    assert done.stdout.split() == ["local[3]"], done.stderr
    assert submitted() is None, "spark-submit did not start this process"
