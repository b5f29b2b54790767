"""Card approval, running: made-up transactions are sent one after another, and each answer is awaited and timed.

python -m examples.cards                              a broker inside this process
python -m examples.cards --bootstrap HOST:PORT        a cluster that runs already
python -m examples.cards --transactions 300 --rate 20
python -m examples.cards --database postgresql://user@host/cards     the decisions go there, too
"""

from __future__ import annotations

import itertools
import statistics
import sys
import time
from collections import deque
from collections.abc import Callable
from dataclasses import replace

from confluent_kafka import Producer
from deltalake import DeltaTable
from pyspark.sql.streaming.query import StreamingQuery

from examples.cards import pipeline
from examples.cards.generator import Labelled, transactions
from examples.cards.proof import Proof, prove
from examples.cards.rules import Rules
from examples.place import Place, arguments, place
from examples.topics import create_topic, from_now_on, records, refuse_failure, settle

RULES = Rules()
# Somebody has found out that the merchant is an honest one.
CORRECTED = replace(RULES, version=2, blocked_merchants=frozenset())
PURCHASES = 20  # of each card; a fraud comes behind its ninth
WARM_UP = 10  # so many are asked one by one and not counted: the first answers wait for Spark's compiler
ANSWER_WITHIN_S = 120.0


def main() -> int:
    parser = arguments("cards", __doc__)
    parser.add_argument("--transactions", type=int, default=200)
    parser.add_argument("--rate", type=float, default=20.0, help="transactions a second")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--database", help="of PostgreSQL, for the table card_decisions")
    given = parser.parse_args()
    made = transactions(given.seed, max(4, given.transactions // PURCHASES), PURCHASES)
    asked = list(itertools.islice(made, given.transactions))
    with place("cards", given) as found:
        proof = run(found, asked, given.rate, given.database)
    return 0 if proof.holds else 1


def run(at: Place, asked: list[Labelled], rate: float, database: str | None) -> Proof:
    """Ask, decide on the past again with the corrected rules, keep all decisions, and prove what came out."""
    for topic, partitions in (
        (pipeline.REQUESTS, 4),
        (pipeline.REPLIES, 4),
        (pipeline.REPLAYED, 4),
        (pipeline.DEAD, 1),
    ):
        create_topic(at.bootstrap, topic, partitions)
    if any(message.key() == asked[0].transaction.card.encode() for message in records(at.bootstrap, pipeline.REQUESTS)):
        raise SystemExit("these cards have a history already, so their purchases would be strange: give another --seed")
    frauds = sum(each.fraud is not None for each in asked)
    print(f"{len(asked):,} generated transactions, {frauds:,} of them fraud", flush=True)
    query = decisions_query(at, RULES, "card-rules", pipeline.REPLIES, processingTime="0 seconds")
    try:
        for each in asked[:WARM_UP]:
            ask(at.bootstrap, [each], rate, lambda: refuse_end(query))
        delays_ms = ask(at.bootstrap, asked[WARM_UP:], rate, lambda: refuse_end(query))
    finally:
        query.stop()
    print(f"from question to answer, {len(delays_ms):,} times: {latency(delays_ms)}", flush=True)
    decisions_query(at, CORRECTED, "card-rules-corrected", pipeline.REPLAYED, availableNow=True).awaitTermination()
    settle(at.bootstrap, pipeline.REPLAYED)  # all of it is there for the next query
    store = at.folder / "decisions"
    pipeline.keep(at.spark, at.bootstrap, store, at.folder / "card-store", availableNow=True).awaitTermination()
    stores = {"Delta": DeltaTable(str(store)).to_pyarrow_table().num_rows}
    if database is not None:
        checkpoint = at.folder / "card-database"
        pipeline.keep_in_database(at.spark, at.bootstrap, database, checkpoint, availableNow=True).awaitTermination()
        stores["PostgreSQL"] = count_rows(database)
    proof = prove(at.bootstrap, RULES, CORRECTED, asked, stores)
    print(proof)
    return proof


def decisions_query(at: Place, rules: Rules, name: str, topic: str, **trigger: object) -> StreamingQuery:
    """A query with a checkpoint and a group of its own, so that several rules run beside one another."""
    decided = pipeline.decisions(pipeline.requests(at.spark, at.bootstrap, name), rules)
    return pipeline.answer(decided, at.bootstrap, at.folder / name, topic, **trigger)


def ask(bootstrap: str, asked: list[Labelled], rate: float, look: Callable[[], None]) -> list[float]:
    """Send at a steady rate; milliseconds from each send to the answer with its correlation id, in order of answers.

    Args:
        look: raises where no answers come any more.
    """
    producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 0})
    replies = from_now_on(bootstrap, pipeline.REPLIES)
    sent_at: dict[bytes, float] = {}
    delays_ms: list[float] = []
    waiting = deque(asked)
    began = last = time.monotonic()
    while len(delays_ms) < len(asked):
        if waiting and time.monotonic() - began >= len(sent_at) / rate:
            correlation = waiting[0].transaction.id.encode()
            sent_at[correlation] = last = time.monotonic()
            send(producer, waiting.popleft())
        message = replies.poll(0.005)
        if message is not None and message.error() is None:
            answered = dict(message.headers() or []).get("correlation-id")
            if isinstance(answered, bytes) and answered in sent_at:  # others may be asked by other terminals
                delays_ms.append((time.monotonic() - sent_at[answered]) * 1000)
                last = time.monotonic()
        elif message is None:
            look()
            if time.monotonic() - last > ANSWER_WITHIN_S:
                raise TimeoutError(f"{len(sent_at) - len(delays_ms)} questions have no answer")
    replies.close()
    return delays_ms


def send(producer: Producer, labelled: Labelled) -> None:
    """One question: its card is the key, so that the transactions of a card keep their order."""
    transaction = labelled.transaction
    headers: list[tuple[str, str | bytes | None]] = [("correlation-id", transaction.id.encode())]
    producer.produce(
        pipeline.REQUESTS, labelled.value(), transaction.card.encode(), headers=headers, on_delivery=refuse_failure
    )
    producer.flush(10)


def refuse_end(query: StreamingQuery) -> None:
    """Raise why a query has ended, where it has."""
    error = query.exception()
    if error is not None:
        raise error


def latency(delays_ms: list[float]) -> str:
    """Median, 95th percentile and worst."""
    counted = sorted(delays_ms)
    p95 = counted[int(len(counted) * 0.95)]
    return f"median {statistics.median(counted):.0f} ms, p95 {p95:.0f} ms, worst {counted[-1]:.0f} ms"


def count_rows(database: str) -> int:
    import psycopg

    with psycopg.connect(database) as connection:
        found = connection.execute("SELECT count(*) FROM card_decisions").fetchone()
    assert found is not None
    return int(found[0])


if __name__ == "__main__":
    sys.exit(main())
