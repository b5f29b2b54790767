"""The queries: transactions → decisions, on a reply topic with the request's own header, and in analysts' tables."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as fn
from pyspark.sql.streaming.query import StreamingQuery

from examples.cards.rules import History, Rules, Transaction, decide, refuse

TRANSACTION = (
    "id STRING, card STRING, merchant STRING, amount_cents LONG, at_ms LONG, latitude DOUBLE, longitude DOUBLE"
)
DECISION = "id STRING, card STRING, approved BOOLEAN, reasons ARRAY<STRING>, rules_version INT"
REQUESTS, REPLIES, DEAD = "card-transactions", "card-decisions", "card-dead-letters"
# Other rules write their decisions into a topic of their own: a terminal must not get a second answer a week later.
REPLAYED = "card-decisions-replayed"


def requests(spark: SparkSession, bootstrap: str, group: str = "card-rules") -> DataFrame:
    """The stream of transactions; what does not decode becomes a dead letter with the reason."""
    source = spark.readStream.format("odradek").option("kafka.bootstrap.servers", bootstrap)
    source = source.option("subscribe", REQUESTS).option("startingOffsets", "earliest").option("groupId", group)
    source = source.option("includeHeaders", "true").option("deadLetterTopic", DEAD)
    return source.option("valueFormat", "json").option("valueSchema", TRANSACTION).load()


def decisions(stream: DataFrame, rules: Rules) -> DataFrame:
    """One decision for each transaction, with the history of each card as state.

    One that lacks a field is refused and leaves the history as it is.
    """

    def decide_group(key: tuple[str], batches: Iterable[Any], state: Any) -> Iterator[Any]:
        import pandas as pd

        history = History.from_json(state.get[0]) if state.exists else History()
        rows = pd.concat(list(batches)).sort_values("offset")
        made = []
        for row in rows.to_dict("records"):
            transaction = Transaction.of(row)
            decision = refuse(rules, row) if transaction is None else decide(rules, history, transaction)
            made.append(asdict(decision) | {"correlation": row["correlation"]})
        state.update((history.to_json(),))
        yield pd.DataFrame(made)

    # `get` has null where there is no such header: an index would end the query.
    correlation = fn.expr("get(filter(headers, header -> header.key = 'correlation-id'), 0).value")
    asked = stream.select("value.*", "offset", correlation.alias("correlation"))
    return asked.groupBy("card").applyInPandasWithState(
        decide_group, f"{DECISION}, correlation BINARY", "history STRING", "append", "NoTimeout"
    )


def answer(
    decided: DataFrame, bootstrap: str, checkpoint: Path, topic: str = REPLIES, **trigger: Any
) -> StreamingQuery:
    """Each decision exactly once on the reply topic, under its card as key, with the request's correlation id."""
    header = fn.struct(fn.lit("correlation-id").alias("key"), fn.col("correlation").alias("value"))
    rows = decided.select(
        fn.col("card").alias("key"),
        fn.to_json(fn.struct("id", "card", "approved", "reasons", "rules_version")).alias("value"),
        fn.when(fn.col("correlation").isNotNull(), fn.array(header)).alias("headers"),
    )
    writer = rows.writeStream.format("odradek").queryName(checkpoint.name).option("kafka.bootstrap.servers", bootstrap)
    writer = writer.option("topic", topic).option("checkpointLocation", str(checkpoint))
    return writer.trigger(**trigger).start()


def keep(spark: SparkSession, bootstrap: str, table: Path, checkpoint: Path, **trigger: Any) -> StreamingQuery:
    """Every decision exactly once in a Delta table for analysts, with the version of the rules that made it."""
    rows = answered(spark, bootstrap, "card-store")
    writer = rows.writeStream.format("odradek").queryName("card-store").option("sink", "delta")
    return writer.option("checkpointLocation", str(checkpoint)).trigger(**trigger).start(str(table))


def keep_in_database(
    spark: SparkSession, bootstrap: str, connection: str, checkpoint: Path, **trigger: Any
) -> StreamingQuery:
    """The same in the table `card_decisions` of a PostgreSQL, beside which its marker is changed."""
    rows = answered(spark, bootstrap, "card-database")
    writer = rows.writeStream.format("odradek").queryName("card-database").option("sink", "postgres")
    writer = writer.options(connection=connection, table="card_decisions", createTable="true")
    return writer.option("checkpointLocation", str(checkpoint)).trigger(**trigger).start()


def answered(spark: SparkSession, bootstrap: str, group: str) -> DataFrame:
    """The decisions that terminals have got, those of a replay, and when."""
    source = spark.readStream.format("odradek").option("kafka.bootstrap.servers", bootstrap)
    source = source.option("kafka.isolation.level", "read_committed").option("groupId", group)
    source = source.option("subscribe", f"{REPLIES},{REPLAYED}").option("startingOffsets", "earliest")
    replies = source.option("valueFormat", "json").option("valueSchema", DECISION).load()
    return replies.select("value.*", fn.col("timestamp").alias("decided_at"))
