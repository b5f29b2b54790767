"""A driver of its own: copies a topic into one store after another, exactly once, until it has read what is there.

python -m tests.spark.copy_job BOOTSTRAP TOPIC FOLDER [--master M] [--into OPTIONS]... [--die "after end"] [--fail]

Of each store the checkpoint is FOLDER/checkpoint-<sink>. In FOLDER/attempts is a line for each task that has staged
its rows, those included whose rows no batch took: sink, batch, task, and which attempt of it.
"""

from __future__ import annotations

import argparse
import json
import os
from pathlib import Path
from typing import Any

AS_ROWS = ("BIGINT(TRIM(STRING(value))) id", "STRING(value) name")


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("bootstrap")
    parser.add_argument("topic")
    parser.add_argument("folder", type=Path)
    parser.add_argument("--master", default="local[2]")
    parser.add_argument("--into", type=json.loads, action="append", help="options of a sink; by default <topic>-copy")
    parser.add_argument(
        "--die", default="", help="before or after, and a step of the commit: the driver is killed there"
    )
    parser.add_argument("--hold", default="", help="a step of the commit: the driver waits there for FOLDER/go")
    parser.add_argument("--kill-executor-at", type=int, help="the executor is killed that has staged this row, once")
    parser.add_argument("--kill-executor-after", type=int, help="and here when all rows of its task are staged, once")
    parser.add_argument("--fail", action="store_true", help="in each batch a task fails when it has staged its rows")
    parser.add_argument("--speculate", action="store_true", help="slow tasks are run twice, and some tasks are slow")
    parser.add_argument("--forever", action="store_true", help="do not end")
    given = parser.parse_args()
    from pyspark_odradek import session
    from tests.spark.dying_source import DyingSource

    spark = session("copy", master=given.master, config=settings(given.master, given.speculate))
    spark.dataSource.register(DyingSource)
    plan = given.folder / "plan"
    planned = f"{given.die} {os.getpgrp()}" if given.die else f"hold {given.hold}" if given.hold else ""
    plan.write_text(planned)
    trouble = {
        "folder": str(given.folder),
        "kill_at": given.kill_executor_at,
        "kill_after": given.kill_executor_after,
        "fail": given.fail,
        "slow": given.speculate,
    }
    options = {"kafka.bootstrap.servers": given.bootstrap, "subscribe": given.topic, "startingOffsets": "earliest"}
    stream = spark.readStream.format("odradek").options(**options, maxOffsetsPerTrigger="200", minPartitions="4").load()
    for sink in given.into or [{"kafka.bootstrap.servers": given.bootstrap, "topic": f"{given.topic}-copy"}]:
        name = sink.get("sink", "topic")
        rows = stream.select("key", "value") if name == "topic" else stream.selectExpr(*AS_ROWS)
        writer = rows.writeStream.format("odradek_dying").options(**sink, plan=str(plan), trouble=json.dumps(trouble))
        writer = writer.option("checkpointLocation", str(given.folder / f"checkpoint-{name}"))
        if not given.forever:
            writer = writer.trigger(availableNow=True)
        writer.start().awaitTermination()


def settings(master: str, speculate: bool) -> dict[str, Any]:
    """The settings of the session."""
    config: dict[str, Any] = {
        "spark.sql.shuffle.partitions": 2,
        "spark.sql.codegen.wholeStage": "false",  # of no use to so few rows
        "spark.sql.execution.arrow.maxRecordsPerBatch": 20,  # so that a task can be killed between its rows
        "spark.executorEnv.PYTHONPATH": os.environ["PYTHONPATH"],
    }
    if master.startswith("spark:"):
        config |= {"spark.executor.memory": "500m", "spark.driver.host": "127.0.0.1"}
        config |= {"spark.executor.extraJavaOptions": "-XX:TieredStopAtLevel=1"}
    if speculate:
        config |= {"spark.speculation": "true", "spark.speculation.interval": "100ms"}
        config |= {"spark.speculation.multiplier": "1.1", "spark.speculation.quantile": "0.3"}
    return config


if __name__ == "__main__":
    main()
