"""Card approval, running: made-up transactions are sent one after another, and each answer is awaited and timed.

python -m examples.cards                              a broker inside this process
python -m examples.cards --bootstrap HOST:PORT        a cluster that runs already
python -m examples.cards --transactions 300 --rate 20
python -m examples.cards --database postgresql://user@host/cards     the decisions go there, too
"""

from __future__ import annotations

import argparse
import contextlib
import itertools
import statistics
import tempfile
import time
from pathlib import Path
from typing import Any

from confluent_kafka import Consumer, Producer
from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]

from examples.cards import pipeline
from examples.cards.generator import Labelled, transactions
from examples.cards.rules import Rules

WARM_UP = 20  # the first answers wait for Spark's compiler


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m examples.cards", description=__doc__)
    parser.add_argument("--bootstrap", help="host:port of a cluster that runs already")
    parser.add_argument("--transactions", type=int, default=200)
    parser.add_argument("--rate", type=float, default=20.0, help="transactions a second")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--database", help="of PostgreSQL, for the table card_decisions")
    given = parser.parse_args()
    from pyspark_odradek import session

    with tempfile.TemporaryDirectory() as folder, contextlib.ExitStack() as stack:
        bootstrap = given.bootstrap
        if bootstrap is None:
            from odradek.testing import EmbeddedBroker

            bootstrap = stack.enter_context(EmbeddedBroker()).bootstrap_servers
        create_topics(bootstrap)
        spark = session("cards", log_file=Path(folder) / "spark.log")
        stack.callback(spark.stop)
        decided = pipeline.decisions(pipeline.requests(spark, bootstrap), Rules())
        query = pipeline.answer(decided, bootstrap, Path(folder) / "rules", processingTime="0 seconds")
        stack.callback(query.stop)
        asked = list(itertools.islice(transactions(given.seed, 25, 20), given.transactions))
        delays_ms = ask(bootstrap, asked, given.rate)
        query.stop()
        store = Path(folder) / "decisions"
        pipeline.keep(spark, bootstrap, store, Path(folder) / "store", availableNow=True).awaitTermination()
        if given.database is not None:
            checkpoint = Path(folder) / "database"
            pipeline.keep_in_database(
                spark, bootstrap, given.database, checkpoint, availableNow=True
            ).awaitTermination()
        from deltalake import DeltaTable

        kept = DeltaTable(str(store)).to_pyarrow_table().num_rows
    counted = sorted(delays_ms[min(WARM_UP, len(delays_ms) // 2) :])
    print(f"{len(delays_ms)} answers, {kept} rows in the store; generated transactions, seed {given.seed}")
    p95 = counted[int(len(counted) * 0.95)]
    print(f"from question to answer: median {statistics.median(counted):.0f} ms, p95 {p95:.0f} ms")


def create_topics(bootstrap: str) -> None:
    """Requests and replies by card; what does not decode."""
    wished = [NewTopic(pipeline.REQUESTS, 4, 1), NewTopic(pipeline.REPLIES, 4, 1), NewTopic(pipeline.DEAD, 1, 1)]
    for future in AdminClient({"bootstrap.servers": bootstrap}).create_topics(wished, operation_timeout=30).values():
        future.result(30)


def ask(bootstrap: str, asked: list[Labelled], rate: float) -> list[float]:
    """Send at a steady rate; milliseconds from each send to the answer with its correlation id, in order of answers."""
    producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 0})
    replies = Consumer({"bootstrap.servers": bootstrap, "group.id": "terminals", "auto.offset.reset": "earliest"})
    replies.subscribe([pipeline.REPLIES])
    sent_at: dict[bytes, float] = {}
    delays_ms: list[float] = []
    began = time.monotonic()
    waiting = iter(asked)
    following: Any = next(waiting, None)
    while len(delays_ms) < len(asked):
        if following is not None and time.monotonic() - began >= len(sent_at) / rate:
            send(producer, following)
            sent_at[following.transaction.id.encode()] = time.monotonic()
            following = next(waiting, None)
        message = replies.poll(0.005)
        if message is not None and message.error() is None:
            correlation = dict(message.headers() or [])["correlation-id"]
            assert isinstance(correlation, bytes)
            delays_ms.append((time.monotonic() - sent_at[correlation]) * 1000)
    replies.close()
    return delays_ms


def send(producer: Producer, labelled: Labelled) -> None:
    """One question: its card is the key, so that the transactions of a card keep their order."""
    transaction = labelled.transaction
    headers: list[tuple[str, str | bytes | None]] = [("correlation-id", transaction.id.encode())]
    producer.produce(pipeline.REQUESTS, labelled.value(), transaction.card.encode(), headers=headers)
    producer.flush(10)


if __name__ == "__main__":
    main()
