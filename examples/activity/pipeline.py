"""The queries: lines → a lake in Delta by hour; lines → sessions; lines → error rates by minute, and alerts."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as fn
from pyspark.sql.streaming.query import StreamingQuery

from examples.topics import create_topic

LINES, RATES, ALERTS = "access-lines", "error-rates", "alerts"
# What is within quotes may hold quotes that are escaped. Possessive, so that Java keeps no frame on its stack for each
# round: a request of some thousand characters would end the JVM.
QUOTED = r'"([^"\\]*+(?:\\.[^"\\]*+)*+)"'
COMBINED = rf"(?s)^(\S+) \S+ (\S+) \[([^\]]+)\] {QUOTED} (\d{{3}}) (\d+|-) {QUOTED} {QUOTED}"
FIELDS = ("visitor", "user", "time", "request", "status", "bytes", "referrer", "agent")
UNREADABLE = "unreadable"
LATENESS = "1 minute"
SESSION_GAP = "30 minutes"
# A minute with fewer requests says nothing about the servers.
ALERT_SHARE, ALERT_REQUESTS = 0.2, 10


def create_topics(bootstrap: str) -> None:
    """Records have the time of their line, and retention goes by that: those of an old file would be gone at once."""
    for topic in (LINES, RATES, ALERTS):
        create_topic(bootstrap, topic, 2, {"retention.ms": "-1"})


def hits(spark: SparkSession, bootstrap: str, group: str) -> DataFrame:
    """Every line as a row; one that is no such line has nothing but `line`."""
    source = spark.readStream.format("odradek").option("kafka.bootstrap.servers", bootstrap)
    source = source.option("subscribe", LINES).option("startingOffsets", "earliest").option("groupId", group)
    lines = source.load().select(fn.col("value").cast("string").alias("line"))
    fields = lines.select("line", *[_field(number, name) for number, name in enumerate(FIELDS, 1)])
    return fields.select(
        "visitor",
        "user",
        fn.try_to_timestamp("time", fn.lit("dd/MMM/yyyy:HH:mm:ss Z")).alias("at"),
        fn.split_part("request", fn.lit(" "), fn.lit(1)).alias("method"),
        fn.split_part("request", fn.lit(" "), fn.lit(2)).alias("path"),
        fn.col("status").cast("int"),
        fn.expr("try_cast(bytes AS LONG)").alias("bytes"),
        "referrer",
        "agent",
        "line",
    )


def is_combined(line: str) -> bool:
    """Whether plain Python reads a line as the queries do."""
    return re.match(COMBINED, line, re.ASCII) is not None  # in Java \S and \d are ASCII's


def _field(number: int, name: str) -> Column:
    found = fn.regexp_extract("line", COMBINED, number)
    return fn.when(found != "", found).alias(name)


def lake(rows: DataFrame, folder: Path, **trigger: Any) -> StreamingQuery:
    """Every line exactly once, in a folder for each hour; what cannot be read in one of its own, as it is."""
    hour = fn.coalesce(fn.date_format("at", "yyyy-MM-dd-HH"), fn.lit(UNREADABLE))
    kept = rows.withColumn("hour", hour).withColumn("line", fn.when(fn.col("at").isNull(), fn.col("line")))
    return _to_delta("lake", kept, folder, trigger, partitionColumns="hour")


def sessions(rows: DataFrame, folder: Path, **trigger: Any) -> StreamingQuery:
    """The requests of a visitor without a pause of half an hour, once it is over."""
    window = fn.session_window("at", SESSION_GAP).alias("session")
    grouped = rows.where("at IS NOT NULL").withWatermark("at", LATENESS).groupBy("visitor", window)
    found = grouped.agg(
        fn.count(fn.lit(1)).alias("hits"),
        fn.count_if(fn.col("status") >= 400).alias("errors"),
        fn.max("at").alias("last_at"),
        fn.max_by("path", "at").alias("last_path"),
    )
    over = found.select("visitor", fn.col("session.start").alias("began_at"), "last_at", "hits", "errors", "last_path")
    return _to_delta("sessions", over, folder, trigger)


def rates(rows: DataFrame, bootstrap: str, folder: Path, **trigger: Any) -> StreamingQuery:
    """Requests and errors of each minute to one topic; minutes that went wrong also to another, in one transaction."""
    minutes = rows.where("at IS NOT NULL").withWatermark("at", LATENESS).groupBy(fn.window("at", "1 minute"))
    counted = minutes.agg(fn.count(fn.lit(1)).alias("requests"), fn.count_if(fn.col("status") >= 500).alias("errors"))
    wrong = (fn.col("errors") >= ALERT_SHARE * fn.col("requests")) & (fn.col("requests") >= ALERT_REQUESTS)
    topics = fn.when(wrong, fn.array(fn.lit(RATES), fn.lit(ALERTS))).otherwise(fn.array(fn.lit(RATES)))
    rates = counted.select(
        fn.explode(topics).alias("topic"),
        fn.date_format("window.start", "yyyy-MM-dd'T'HH:mm'Z'").alias("key"),
        fn.to_json(fn.struct(fn.col("window.start").alias("minute"), "requests", "errors")).alias("value"),
    )
    writer = rates.writeStream.format("odradek").queryName("rates").option("kafka.bootstrap.servers", bootstrap)
    return writer.option("checkpointLocation", str(folder / "checkpoints" / "rates")).trigger(**trigger).start()


def _to_delta(name: str, rows: DataFrame, folder: Path, trigger: dict[str, Any], **options: str) -> StreamingQuery:
    writer = rows.writeStream.format("odradek").queryName(name).option("sink", "delta").options(**options)
    writer = writer.option("checkpointLocation", str(folder / "checkpoints" / name)).trigger(**trigger)
    return writer.start(str(folder / name))
