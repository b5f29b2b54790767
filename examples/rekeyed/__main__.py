"""Orders under another key, and enriched: made-up ones are sent, and both topics made of them.

python -m examples.rekeyed                          a broker inside this process
python -m examples.rekeyed --bootstrap HOST:PORT
"""

from __future__ import annotations

import argparse
import contextlib
import tempfile
from collections.abc import Iterable
from pathlib import Path

from confluent_kafka import Producer

from examples.rekeyed import generator, pipeline
from examples.topics import create_topic, records, refuse_failure
from odradek.testing import EmbeddedBroker
from pyspark_odradek import session


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m examples.rekeyed", description=__doc__)
    parser.add_argument("--bootstrap", help="host:port of a cluster that runs already")
    parser.add_argument("--orders", type=int, default=1000)
    given = parser.parse_args()
    with contextlib.ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        bootstrap = given.bootstrap or stack.enter_context(EmbeddedBroker()).bootstrap_servers
        fill(bootstrap, generator.orders(1, given.orders))
        spark = session("rekeyed", log_file=folder / "spark.log")
        stack.callback(spark.stop)
        pipeline.rekey(
            pipeline.orders(spark, bootstrap, "rekey"), bootstrap, folder, availableNow=True
        ).awaitTermination()
        pipeline.enrich(
            pipeline.orders(spark, bootstrap, "enrich"), bootstrap, folder, availableNow=True
        ).awaitTermination()
        for topic in (pipeline.BY_CUSTOMER, pipeline.ENRICHED):
            found = list(records(bootstrap, topic))
            print(f"{topic}: {len(found):,} records, for example {(found[0].value() or b'').decode()}")


def fill(bootstrap: str, orders: Iterable[generator.Record]) -> None:
    """Make the three topics, and send customers, articles and orders."""
    create_topic(bootstrap, pipeline.ORDERS, pipeline.PARTITIONS)
    send(bootstrap, pipeline.ORDERS, orders)
    for topic, made in ((pipeline.CUSTOMERS, generator.customers(1)), (pipeline.ARTICLES, generator.articles(1))):
        create_topic(bootstrap, topic, 2, {"cleanup.policy": "compact"})
        send(bootstrap, topic, made)


def send(bootstrap: str, topic: str, made: Iterable[generator.Record]) -> None:
    producer = Producer({"bootstrap.servers": bootstrap, "enable.idempotence": True, "linger.ms": 5})
    for key, value in made:
        producer.produce(topic, value, key, on_delivery=refuse_failure)
        producer.poll(0)
    producer.flush()


if __name__ == "__main__":
    main()
