"""A driver of its own: copies one topic to another, exactly once, and ends when it has read what there is.

python -m tests.spark.copy_job BOOTSTRAP TOPIC FOLDER [--master M] [--die "after end"] [--kill-executor-at N]
"""

from __future__ import annotations

import argparse
import os
from pathlib import Path
from typing import Any


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("bootstrap")
    parser.add_argument("topic")
    parser.add_argument("folder", type=Path)
    parser.add_argument("--master", default="local[2]")
    parser.add_argument(
        "--die", default="", help="before or after, and a step of the commit: the driver is killed there"
    )
    parser.add_argument("--kill-executor-at", type=int, help="the executor of this number's row is killed, once")
    parser.add_argument("--speculate", action="store_true", help="slow tasks are run twice, and some tasks are slow")
    parser.add_argument("--forever", action="store_true", help="do not end")
    given = parser.parse_args()
    from pyspark_odradek import session
    from tests.spark.dying_source import DyingSource

    config: dict[str, Any] = {
        "spark.sql.shuffle.partitions": 2,
        "spark.executorEnv.PYTHONPATH": os.environ["PYTHONPATH"],
    }
    if given.master.startswith("spark:"):
        config |= {"spark.executor.memory": "500m", "spark.driver.host": "127.0.0.1"}
        config |= {"spark.executor.extraJavaOptions": "-XX:TieredStopAtLevel=1"}
    if given.speculate:
        config |= {"spark.speculation": "true", "spark.speculation.interval": "100ms"}
        config |= {"spark.speculation.multiplier": "1.1", "spark.speculation.quantile": "0.3"}
    spark = session("copy", master=given.master, config=config)
    spark.dataSource.register(DyingSource)
    plan = given.folder / "plan"
    plan.write_text(f"{given.die} {os.getpgrp()}" if given.die else "")
    options = {"kafka.bootstrap.servers": given.bootstrap, "subscribe": given.topic, "startingOffsets": "earliest"}
    stream = spark.readStream.format("odradek").options(**options, maxOffsetsPerTrigger="200", minPartitions="4").load()
    rows = stream.select("key", "value")
    if given.kill_executor_at is not None or given.speculate:
        rows = rows.mapInArrow(troubled(given.folder, given.kill_executor_at, given.speculate), rows.schema)
    sink = {"kafka.bootstrap.servers": given.bootstrap, "topic": f"{given.topic}-copy", "plan": str(plan)}
    writer = rows.writeStream.format("odradek_dying").options(**sink)
    writer = writer.option("checkpointLocation", str(given.folder / "checkpoint"))
    if not given.forever:
        writer = writer.trigger(availableNow=True)
    query = writer.start()
    query.awaitTermination()


def troubled(folder: Path, kill_at: int | None, slow: bool) -> Any:
    """A function over batches that kills the executor it runs in, or is slow in one of two attempts."""

    def work(batches: Any) -> Any:
        import signal
        import time

        from pyspark import TaskContext

        context = TaskContext.get()
        flag = folder / "killed"
        for batch in batches:
            numbers = {int(value) for value in batch.column("value").to_pylist()}
            if kill_at in numbers and not flag.exists():
                flag.write_text("")
                daemon = Path(f"/proc/{os.getppid()}/stat").read_text()
                os.kill(int(daemon.rpartition(")")[2].split()[1]), signal.SIGKILL)
                time.sleep(60)
            if slow and context.partitionId() == 0 and context.attemptNumber() == 0:
                time.sleep(5)
            yield batch

    return work


if __name__ == "__main__":
    main()
