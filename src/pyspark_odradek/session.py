"""A Spark session with the settings that this connector was measured with."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.resources import files
from pathlib import Path
from typing import Any

from pyspark import SparkConf, SparkContext
from pyspark.sql import SparkSession

from pyspark_odradek.last_words import print_at_the_end
from pyspark_odradek.spark_api import CHECKPOINTS_ON_DISK


def session(
    app_name: str = "odradek",
    *,
    master: str | None = "local[*]",
    quiet: bool = True,
    log_file: str | os.PathLike[str] | None = None,
    config: dict[str, Any] | None = None,
    metrics: str | None = None,
) -> SparkSession:
    """Get a session, started where there is none.

    Args:
        app_name: shown by Spark's tools.
        master: as Spark writes it; None leaves it to spark-submit, whose own one then says what is set.
        quiet: errors only in the log, and no progress bars between the lines of a program.
        log_file: gets what the JVM and the Python workers write to stderr; by default they share ours.
        config: further settings of Spark, which win over ours.
        metrics: host:port at which lag, rates, durations and state of all queries are served (`query_metrics`).

    Ours: Python workers run this interpreter and talk over a Unix socket, and with a local master checkpoints are
    written by plain renames; together they bring the floor of a micro-batch from 164 to 49 ms. Local masters fork
    workers that have this package loaded (`daemon`); elsewhere it may lie where only tasks find it. Times are in UTC.
    A program that ends by an error of ours prints its sentence last (`last_words`).
    """
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    os.environ.setdefault("PYSPARK_DRIVER_PYTHON", sys.executable)
    settings = measured(submitted() if master is None else master)
    if quiet:
        log4j = files("pyspark_odradek") / "log4j2.properties"
        settings |= {
            "spark.ui.showConsoleProgress": "false",
            "spark.driver.extraJavaOptions": f"-Dlog4j2.configurationFile=file:{log4j}",
        }
    builder = SparkSession.builder.appName(app_name)
    if master is not None:
        builder = builder.master(master)
    for name, value in (settings | (config or {})).items():
        builder = builder.config(name, str(value))
    print_at_the_end()
    with _stderr_to(log_file):
        spark = builder.getOrCreate()
    if metrics is not None:
        from pyspark_odradek.query_metrics import publish

        publish(spark, metrics)
    return spark


def submitted() -> str | None:
    """The master that spark-submit has been given; None where it did not start this program."""
    if "PYSPARK_GATEWAY_PORT" not in os.environ:
        return None  # no JVM runs, and one that is started for the question would miss the settings
    SparkContext._ensure_initialized()
    return SparkConf().get("spark.master")


def measured(master: str | None) -> dict[str, Any]:
    """The settings for a master; None is one that is not known here."""
    settings: dict[str, Any] = {
        "spark.python.unix.domain.socket.enabled": "true",
        "spark.sql.execution.arrow.maxRecordsPerBatch": 20_000,
        "spark.sql.shuffle.partitions": max(2, os.cpu_count() or 2),
        "spark.sql.session.timeZone": "UTC",
        "spark.ui.enabled": "false",
    }
    if master is not None and (master == "local" or master.startswith("local[")):
        settings["spark.python.daemon.module"] = "pyspark_odradek.daemon"
        # A rename that finds its target taken is no refusal on every shared storage, where two drivers may meet.
        settings["spark.sql.streaming.checkpointFileManagerClass"] = CHECKPOINTS_ON_DISK
    return settings


@contextmanager
def _stderr_to(path: str | os.PathLike[str] | None) -> Iterator[None]:
    """Let a JVM that is started now inherit a file as its stderr; ours is the same as before when this ends."""
    if path is None:
        yield
        return
    sys.stderr.flush()
    ours = os.dup(2)
    try:
        with Path(path).open("ab") as file:
            os.dup2(file.fileno(), 2)
        yield
    finally:
        os.dup2(ours, 2)
        os.close(ours)
