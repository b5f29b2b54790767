"""The three streaming queries of the demo.

flights ⟕ weather (stream to stream) ⟕ airlines, planes, airports (stream to static) → Delta table `flights`
flights → delays by origin, carrier and hour of event time, with a watermark → topic `delays-by-hour`, Delta `delays`
flights → those known more than twelve hours after their hour → topic `late-flights`
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as fn
from pyspark.sql.streaming.query import StreamingQuery

from examples.flights.tables import ExactlyOnceTable

FLIGHT = (
    "id LONG, carrier STRING, flight INT, tailnum STRING, origin STRING, dest STRING, time_hour TIMESTAMP, minute INT, "
    "dep_delay INT, arr_delay INT, air_time INT, distance INT"
)
WEATHER = "origin STRING, time_hour TIMESTAMP, temp DOUBLE, wind_speed DOUBLE, precip DOUBLE, visib DOUBLE"
AIRLINE = "carrier STRING, name STRING"
PLANE = "tailnum STRING, manufacturer STRING, model STRING, seats INT"
AIRPORT = "faa STRING, name STRING"
# Events come up to 21 hours late and the feed goes by days, so two days would do; the third is for a clock's comfort.
WATERMARK = "3 days"
LATE_HOURS = 12
TRIGGER = "2 seconds"


@dataclass
class Pipeline:
    """The running queries by name, and the tables that they fill."""

    queries: dict[str, StreamingQuery]
    flights: ExactlyOnceTable
    delays: ExactlyOnceTable

    def stop(self) -> None:
        """Stop all queries."""
        for query in self.queries.values():
            query.stop()

    def batches(self) -> dict[str, int]:
        """How many batches each query has done in this run."""
        last = {name: query.lastProgress for name, query in self.queries.items()}
        return {name: 0 if progress is None else progress.batchId + 1 for name, progress in last.items()}

    def failure(self) -> str | None:
        """Why a query ended, where one did."""
        for name, query in self.queries.items():
            if not query.isActive:
                return f"query {name} ended: {query.exception()}"
        return None


def start(spark: SparkSession, bootstrap: str, folder: Path) -> Pipeline:
    """Start the queries, with their checkpoints and tables in a folder."""
    flights_table = ExactlyOnceTable(folder / "tables" / "flights", "enrich")
    delays_table = ExactlyOnceTable(folder / "tables" / "delays", "delays")
    flights = events(spark, bootstrap, "flights", FLIGHT)
    weather = events(spark, bootstrap, "weather", WEATHER)

    def to_flights_table(batch: DataFrame, batch_id: int) -> None:
        flights_table.append(batch.toArrow(), batch_id)

    def to_delays(batch: DataFrame, batch_id: int) -> None:
        if delays_table.has(batch_id):
            return
        batch.persist()
        try:
            rows = batch.selectExpr("concat_ws('|', origin, carrier, hour) AS key", "to_json(struct(*)) AS value")
            sink = rows.write.format("odradek").option("kafka.bootstrap.servers", bootstrap)
            sink.option("topic", "delays-by-hour").mode("append").save()
            delays_table.append(batch.toArrow(), batch_id)
        finally:
            batch.unpersist()

    def named(name: str, stream: DataFrame) -> Any:
        writer = stream.writeStream.queryName(name).trigger(processingTime=TRIGGER)
        return writer.option("checkpointLocation", str(folder / "checkpoints" / name))

    late = late_flights(flights).selectExpr("tailnum AS key", "to_json(struct(*)) AS value")
    to_topic = named("late", late).format("odradek").option("kafka.bootstrap.servers", bootstrap)
    queries = {
        "enrich": named("enrich", enriched(spark, bootstrap, flights, weather)).foreachBatch(to_flights_table).start(),
        "delays": named("delays", delays_by_hour(flights)).foreachBatch(to_delays).start(),
        "late": to_topic.option("topic", "late-flights").start(),
    }
    return Pipeline(queries, flights_table, delays_table)


def events(spark: SparkSession, bootstrap: str, topic: str, schema: str) -> DataFrame:
    """A topic of JSON as a stream; `known_at` is the record's own time, the groups' progress is visible to any tool."""
    source = spark.readStream.format("odradek").option("kafka.bootstrap.servers", bootstrap).option("subscribe", topic)
    stream = source.option("startingOffsets", "earliest").load()
    parsed = stream.select(fn.from_json(fn.col("value").cast("string"), schema).alias("event"), "timestamp")
    return parsed.select("event.*", fn.col("timestamp").alias("known_at"))


def table(spark: SparkSession, bootstrap: str, topic: str, schema: str) -> DataFrame:
    """A compacted topic as a table: read once, kept in memory."""
    source = spark.read.format("odradek").option("kafka.bootstrap.servers", bootstrap).option("subscribe", topic)
    parsed = source.load().select(fn.from_json(fn.col("value").cast("string"), schema).alias("row"))
    return parsed.select("row.*").persist()


def enriched(spark: SparkSession, bootstrap: str, flights: DataFrame, weather: DataFrame) -> DataFrame:
    """Every flight once, with the weather of its origin and hour, and the names of its airline, plane and goal."""
    left = flights.withWatermark("time_hour", WATERMARK)
    right = weather.select(
        fn.col("origin").alias("at"), fn.col("time_hour").alias("observed_at"), "temp", "wind_speed", "precip", "visib"
    ).withWatermark("observed_at", WATERMARK)
    with_weather = left.join(
        right, (fn.col("origin") == fn.col("at")) & (fn.col("time_hour") == fn.col("observed_at")), "leftOuter"
    ).drop("at", "observed_at")
    airlines = table(spark, bootstrap, "airlines", AIRLINE).withColumnRenamed("name", "airline")
    planes = table(spark, bootstrap, "planes", PLANE)
    airports = table(spark, bootstrap, "airports", AIRPORT).selectExpr("faa AS dest", "name AS goal")
    return (
        with_weather.join(fn.broadcast(airlines), "carrier", "left")
        .join(fn.broadcast(planes), "tailnum", "left")
        .join(fn.broadcast(airports), "dest", "left")
    )


def delays_by_hour(flights: DataFrame) -> DataFrame:
    """Flights, departures and minutes of delay by origin, carrier and scheduled hour; an hour is emitted once."""
    hours = flights.withWatermark("time_hour", WATERMARK).groupBy(
        fn.window("time_hour", "1 hour").alias("window"), "origin", "carrier"
    )
    totals = hours.agg(
        fn.count(fn.lit(1)).alias("flights"),
        fn.count("dep_delay").alias("departed"),
        fn.sum("dep_delay").alias("delay_minutes"),
        fn.max("dep_delay").alias("worst_minutes"),
    )
    return totals.select(
        "origin",
        "carrier",
        fn.col("window.start").alias("hour"),
        "flights",
        "departed",
        "delay_minutes",
        "worst_minutes",
    )


def late_flights(flights: DataFrame) -> DataFrame:
    """Flights whose record came into being more than LATE_HOURS after the hour that they count for."""
    late = fn.expr(f"known_at > time_hour + INTERVAL {LATE_HOURS} HOURS")
    return flights.where(late & fn.col("id").isNotNull()).select(
        "id", "carrier", "flight", "tailnum", "origin", "dest", "time_hour", "known_at", "dep_delay"
    )
