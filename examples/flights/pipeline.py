"""The four streaming queries of the demo; every sink is exactly-once.

flights ⟕ weather (stream to stream) ⟕ airlines, planes, airports (stream to static) → Delta table `flights`
flights → delays by origin, carrier and hour of event time, with a watermark → topic `delays-by-hour`
topic `delays-by-hour` → Delta table `delays`
flights → those known more than twelve hours after their hour → topic `late-flights`
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as fn
from pyspark.sql.streaming.query import StreamingQuery

from examples.starting import start_all

FLIGHT = (
    "id LONG, carrier STRING, flight INT, tailnum STRING, origin STRING, dest STRING, time_hour TIMESTAMP, minute INT, "
    "dep_delay INT, arr_delay INT, air_time INT, distance INT"
)
WEATHER = "origin STRING, time_hour TIMESTAMP, temp DOUBLE, wind_speed DOUBLE, precip DOUBLE, visib DOUBLE"
DELAYS = (
    "origin STRING, carrier STRING, hour TIMESTAMP, flights LONG, departed LONG, delay_minutes LONG, worst_minutes INT"
)
AIRLINE = "carrier STRING, name STRING"
PLANE = "tailnum STRING, manufacturer STRING, model STRING, seats INT"
AIRPORT = "faa STRING, name STRING"
# Events come up to 21 hours late and the feed goes by days, so two days would do; the third is for a clock's comfort.
WATERMARK = "3 days"
LATE_HOURS = 12
TRIGGER = "2 seconds"


@dataclass
class Pipeline:
    """The running queries by name, those that feed others before them; and the Delta tables that some of them fill."""

    queries: dict[str, StreamingQuery]
    tables: dict[str, Path]

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
    tables = {"enrich": folder / "tables" / "flights", "keep": folder / "tables" / "delays"}
    flights = events(spark, bootstrap, "flights", FLIGHT)
    weather = events(spark, bootstrap, "weather", WEATHER)

    def start_one(name: str, rows: DataFrame, **options: str) -> StreamingQuery:
        writer = rows.writeStream.format("odradek").queryName(name).trigger(processingTime=TRIGGER)
        return writer.option("checkpointLocation", str(folder / "checkpoints" / name)).options(**options).start()

    def to_topic(name: str, key: str, rows: DataFrame, topic: str) -> StreamingQuery:
        records = rows.selectExpr(f"{key} AS key", "to_json(struct(*)) AS value")
        return start_one(name, records, **{"kafka.bootstrap.servers": bootstrap, "topic": topic})

    def to_table(name: str, rows: DataFrame) -> StreamingQuery:
        return start_one(name, rows, sink="delta", path=str(tables[name]))

    hours = events(spark, bootstrap, "delays-by-hour", DELAYS).drop("known_at")
    hour_key = "concat_ws('|', origin, carrier, hour)"
    starts = {
        "enrich": lambda: to_table("enrich", enriched(spark, bootstrap, flights, weather)),
        "delays": lambda: to_topic("delays", hour_key, delays_by_hour(flights), "delays-by-hour"),
        "late": lambda: to_topic("late", "tailnum", late_flights(flights), "late-flights"),
        "keep": lambda: to_table("keep", hours),
    }
    return Pipeline(dict(zip(starts, start_all(*starts.values()), strict=True)), tables)


def events(spark: SparkSession, bootstrap: str, topic: str, schema: str) -> DataFrame:
    """A topic of JSON as a stream of what is committed; `known_at` is the record's own time."""
    source = spark.readStream.format("odradek").option("kafka.bootstrap.servers", bootstrap).option("subscribe", topic)
    source = source.option("kafka.isolation.level", "read_committed")
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
