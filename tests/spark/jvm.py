"""The options of a JVM of Spark that lives for seconds: one compiler, one collector thread, an archive of its classes.

Such a JVM spends half of its processor time on loading Spark's classes. `make test` creates the archive once:

    python -m tests.spark.jvm
"""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from tests.support.nodes import class_archive
from tests.support.nodes.apache_kafka import CACHE, SHORT_JVM_OPTIONS, KafkaUnavailableError, find_java

ROOT = Path(__file__).resolve().parents[2]
HOME = CACHE / "spark"
ARCHIVE = "spark.jsa"
TIMEOUT_S = 300


def options() -> str:
    """The value of `JAVA_TOOL_OPTIONS`, with the archive if it exists."""
    archive = class_archive.found(HOME, name())
    return " ".join((*SHORT_JVM_OPTIONS, *class_archive.read_options(archive and archive / ARCHIVE)))


def name() -> str:
    """The name of the archive for this Java and this Spark; raises KafkaUnavailableError if there is no Java."""
    import pyspark

    jars = (Path(pyspark.__file__).parent / "jars").glob("*.jar")
    return class_archive.fingerprint(find_java(), jars, *SHORT_JVM_OPTIONS)


def make_archive(folder: Path) -> None:
    """Fill a folder with the archive: of the classes that a JVM has loaded at the end of `main`."""
    writing = " ".join((*SHORT_JVM_OPTIONS, *class_archive.write_options(folder / ARCHIVE)))
    subprocess.run(
        [sys.executable, "-m", "tests.spark.jvm", "--queries"],
        cwd=ROOT,
        env=os.environ | {"JAVA_TOOL_OPTIONS": writing},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        stdin=subprocess.DEVNULL,
        timeout=TIMEOUT_S,
        check=True,
    )


def run_queries(folder: Path) -> None:
    """Load the classes that most tests need, by their kinds of queries: groups, files, a stream, Python in a task."""
    from pyspark_odradek import session

    config = {"spark.sql.codegen.wholeStage": "false", "spark.sql.shuffle.partitions": 1}
    spark = session("classes", master="local[1]", config=config)
    virtual_machine: subprocess.Popen[bytes] = spark.sparkContext._gateway.proc  # type: ignore[union-attr]  # there is one without Spark Connect
    rows = (
        spark.range(10)
        .selectExpr("id", "string(id % 3) name")
        .mapInArrow(lambda batches: batches, "id long, name string")
    )
    rows.groupBy("name").count().orderBy("name").collect()
    rows.write.parquet(str(folder / "rows"))
    spark.read.parquet(str(folder / "rows")).createOrReplaceTempView("kept")
    spark.sql("SELECT name, sum(id) FROM kept WHERE id > 2 GROUP BY ALL").collect()
    stream = spark.readStream.format("rate-micro-batch").option("rowsPerBatch", 5).load().groupBy("value").count()
    writer = stream.writeStream.outputMode("complete").option("checkpointLocation", str(folder / "checkpoint"))
    query = writer.foreachBatch(_count).start()
    while query.lastProgress is None:
        query.awaitTermination(1)
    query.stop()
    spark.stop()
    # The JVM ends with its input, and writes the archive then.
    assert virtual_machine.stdin is not None
    virtual_machine.stdin.close()
    virtual_machine.wait()


def _count(rows: Any, batch: int) -> None:
    rows.count()


def main() -> None:
    """Make the archive where it is missing; without Java or Spark, or with a Java that makes none, tests do without."""
    if "--queries" in sys.argv:
        with tempfile.TemporaryDirectory(prefix="spark-classes-") as folder:
            run_queries(Path(folder))
        return
    with contextlib.suppress(KafkaUnavailableError, ImportError):
        class_archive.archives(HOME, name(), make_archive)


if __name__ == "__main__":
    main()
