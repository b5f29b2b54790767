"""The queries: orders → the same under their customer as key; orders ⟕ customers ⟕ articles → enriched orders."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as fn
from pyspark.sql.streaming.query import StreamingQuery

ORDERS, CUSTOMERS, ARTICLES = "rekeyed-orders", "rekeyed-customers", "rekeyed-articles"
BY_CUSTOMER, ENRICHED = "orders-by-customer", "orders-enriched"
PARTITIONS = 6
ORDER = "order STRING, customer STRING, article STRING, pieces INT"
CUSTOMER = "customer STRING, city STRING"
ARTICLE = "article STRING, cents LONG"


def orders(spark: SparkSession, bootstrap: str, group: str) -> DataFrame:
    """The stream of orders, as bytes and as columns."""
    source = spark.readStream.format("odradek").option("kafka.bootstrap.servers", bootstrap)
    stream = source.option("subscribe", ORDERS).option("startingOffsets", "earliest").option("groupId", group).load()
    return stream.select("value", fn.from_json(fn.col("value").cast("string"), ORDER).alias("row")).select(
        "value", "row.*"
    )


def table(spark: SparkSession, bootstrap: str, topic: str, schema: str) -> DataFrame:
    """A compacted topic as a table: the newest value under each key, read again for every batch that asks."""
    source = spark.read.format("odradek").option("kafka.bootstrap.servers", bootstrap).option("subscribe", topic)
    newest = source.load().groupBy("key").agg(fn.max_by("value", "offset").alias("value"))
    rows = newest.where("value IS NOT NULL").select(fn.from_json(fn.col("value").cast("string"), schema).alias("row"))
    return rows.select("row.*")


def rekey(rows: DataFrame, bootstrap: str, folder: Path, **trigger: Any) -> StreamingQuery:
    """The same bytes under another key, and so in another partition: that in which a Java client looks for it."""
    keyed = rows.select(fn.col("customer").alias("key"), "value")
    return _to_topic("rekey", keyed, bootstrap, BY_CUSTOMER, folder, trigger)


def enrich(rows: DataFrame, bootstrap: str, folder: Path, **trigger: Any) -> StreamingQuery:
    """Each order with the city of its customer and its price, as they are when it is read; null where it is unknown.

    What is no order, or has no name, goes on as it came.
    """
    spark = rows.sparkSession
    customers = table(spark, bootstrap, CUSTOMERS, CUSTOMER)
    articles = table(spark, bootstrap, ARTICLES, ARTICLE)
    joined = rows.join(fn.broadcast(customers), "customer", "left").join(fn.broadcast(articles), "article", "left")
    whole = joined.withColumn("total_cents", fn.col("pieces") * fn.col("cents"))
    names = ("order", "customer", "article", "pieces", "city", "total_cents")
    enriched = fn.to_json(fn.struct(*names)).cast("binary")
    value = fn.when(fn.col("order").isNull(), fn.col("value")).otherwise(enriched)
    keyed = whole.select(fn.col("order").alias("key"), value.alias("value"))
    return _to_topic("enrich", keyed, bootstrap, ENRICHED, folder, trigger)


def _to_topic(
    name: str, rows: DataFrame, bootstrap: str, topic: str, folder: Path, trigger: dict[str, Any]
) -> StreamingQuery:
    writer = rows.writeStream.format("odradek").queryName(name).option("kafka.bootstrap.servers", bootstrap)
    writer = writer.option("topic", topic).option("createTopic", "true").option("topicPartitions", PARTITIONS)
    return writer.option("checkpointLocation", str(folder / "checkpoints" / name)).trigger(**trigger).start()
