"""Orders under another key, and enriched: made-up ones are sent, and both topics made of them.

python -m examples.rekeyed                          a broker inside this process
python -m examples.rekeyed --bootstrap HOST:PORT
"""

from __future__ import annotations

import json
import sys
from collections import Counter
from collections.abc import Iterable
from typing import Any

from confluent_kafka import Message, Producer

from examples.dead_letters import fields_of
from examples.place import Place, arguments, place
from examples.rekeyed import generator, pipeline
from examples.topics import create_topic, records, refuse_failure


def main() -> int:
    parser = arguments("rekeyed", __doc__)
    parser.add_argument("--orders", type=int, default=1000)
    given = parser.parse_args()
    with place("rekeyed", given) as found:
        return 0 if run(found, generator.orders(1, given.orders)) else 1


def run(at: Place, orders: Iterable[generator.Record]) -> bool:
    """Fill the topics, run both queries, and tell what came out; whether that is what it must be."""
    fill(at.bootstrap, orders)
    for make, group in ((pipeline.rekey, "rekey"), (pipeline.enrich, "enrich")):
        rows = pipeline.orders(at.spark, at.bootstrap, group)
        make(rows, at.bootstrap, at.folder, availableNow=True).awaitTermination()
    came = values(at.bootstrap, pipeline.ORDERS)
    expected = {pipeline.BY_CUSTOMER: came, pipeline.ENRICHED: enriched(at.bootstrap, came)}
    equal = [compare(at.bootstrap, topic, wanted) for topic, wanted in expected.items()]
    return all(equal)


def fill(bootstrap: str, orders: Iterable[generator.Record]) -> None:
    """Make the three topics, and send customers, articles and orders."""
    create_topic(bootstrap, pipeline.ORDERS, pipeline.PARTITIONS)
    for topic in (pipeline.CUSTOMERS, pipeline.ARTICLES):
        create_topic(bootstrap, topic, 2, {"cleanup.policy": "compact"})
    send(bootstrap, pipeline.CUSTOMERS, generator.customers(1))
    send(bootstrap, pipeline.ARTICLES, generator.articles(1))
    send(bootstrap, pipeline.ORDERS, orders)


def send(bootstrap: str, topic: str, made: Iterable[generator.Record]) -> None:
    producer = Producer({"bootstrap.servers": bootstrap, "enable.idempotence": True, "linger.ms": 5})
    for key, value in made:
        producer.produce(topic, value, key, on_delivery=refuse_failure)
        producer.poll(0)
    producer.flush()


def compare(bootstrap: str, topic: str, expected: Counter[str]) -> bool:
    """Whether a topic has these values, each as often; printed in one line, and shown by one of them."""
    found = values(bootstrap, topic)
    lost, twice = (expected - found).total(), (found - expected).total()
    print(f"{topic}: {expected.total():,} in, {found.total():,} out, {lost:,} lost, {twice:,} twice or others")
    print(f"  for example {next(iter(found), 'nothing')}")
    return not lost and not twice


def values(bootstrap: str, topic: str) -> Counter[str]:
    """The values of a topic, as JSON in one order of its fields, and how often each is there."""
    return Counter(text_of(message) for message in records(bootstrap, topic, settled=True))


def text_of(message: Message) -> str:
    """The value of a record: what is no object of JSON as it is."""
    fields = fields_of(message.value())
    return json.dumps(fields, sort_keys=True) if fields else (message.value() or b"").decode(errors="replace")


def newest(bootstrap: str, topic: str) -> dict[str, dict[str, Any]]:
    """A compacted topic as a table; a row whose newest value is none is not there."""
    found = {(message.key() or b"").decode(): message.value() for message in records(bootstrap, topic, settled=True)}
    return {key: json.loads(value) for key, value in found.items() if value is not None}


def enriched(bootstrap: str, orders: Counter[str]) -> Counter[str]:
    """The expected enriched orders, by plain Python."""
    customers, articles = newest(bootstrap, pipeline.CUSTOMERS), newest(bootstrap, pipeline.ARTICLES)
    expected = Counter[str]()
    for text, count in orders.items():
        order = fields_of(text)
        # As Spark writes JSON: what is not known is left out.
        if order.get("customer") in customers:
            order["city"] = customers[order["customer"]]["city"]
        if order.get("article") in articles and "pieces" in order:
            order["total_cents"] = order["pieces"] * articles[order["article"]]["cents"]
        expected[json.dumps(order, sort_keys=True) if "order" in order else text] += count
    return expected


if __name__ == "__main__":
    sys.exit(main())
