"""The example of re-keying and enriching: a Java client finds its customer where it looks, and nothing is left out."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from examples.place import Place
from examples.rekeyed import __main__ as example
from examples.rekeyed import generator, pipeline
from tests.support.clients.confluent import read_committed
from tests.support.nodes.apache_kafka import require_kafka, run_tool

ROOT = Path(__file__).resolve().parents[2]
ORDERS = generator.orders(1, 600)
# Orders that lack a field, and values that are no order: none is left out.
ODD = [
    generator.Record("odd", value)
    for value in (
        b'{"order": "odd-1", "article": "generated-article-00", "pieces": 1}',
        b'{"order": "odd-2", "customer": "generated-customer-007", "article": "generated-article-00"}',
        b'{"customer": "generated-customer-030", "pieces": 1}',
        b"no JSON",
        None,
    )
]


@pytest.fixture(scope="module")
def made(spark: Any, odradek: str, tmp_path_factory: pytest.TempPathFactory) -> str:
    """The node with all five topics, as the example makes them."""
    assert example.run(Place(spark, odradek, tmp_path_factory.mktemp("rekeyed")), ORDERS + ODD)
    return odradek


def test_under_another_key(made: str) -> None:
    found = read_committed(made, pipeline.BY_CUSTOMER, pipeline.PARTITIONS)
    assert Counter(m.value() for m in found) == Counter(order.value for order in ORDERS + ODD)
    keyed = [m for m in found if m.key() is not None]
    assert len(keyed) == len(ORDERS) + 2
    assert all((m.key() or b"").decode() == json.loads(m.value() or b"")["customer"] for m in keyed)
    assert len({(m.key(), m.partition()) for m in keyed}) == len({m.key() for m in keyed}) == 31


@pytest.mark.slow  # Java compiles the program first
def test_a_java_client_finds_its_customer_in_one_partition(made: str) -> None:
    require_kafka()
    program = str(ROOT / "examples" / "rekeyed" / "ReadCustomer.java")
    customer = "generated-customer-007"
    done = run_tool(program, [made, pipeline.BY_CUSTOMER, customer])
    read = [json.loads(line)["order"] for line in done.stdout.splitlines() if line.startswith("{")]
    ordered = [order.key for order in ORDERS if json.loads(order.value or b"")["customer"] == customer]
    ordered.append("odd-2")
    assert sorted(read) == sorted(ordered) != [], done.stderr


def test_enriched_from_two_others(made: str) -> None:
    cities = {key: json.loads(value or b"")["city"] for key, value in generator.customers(1)}
    cents = {key: json.loads(value)["cents"] if value else None for key, value in generator.articles(1)}
    assert None in cents.values()
    expected = {}
    for key, value in ORDERS:
        order = json.loads(value or b"")
        price = cents[order["article"]]
        known = {"city": cities.get(order["customer"]), "total_cents": price and price * order["pieces"]}
        expected[key] = {name: each for name, each in {**order, **known}.items() if each is not None}
    enriched = read_committed(made, pipeline.ENRICHED, pipeline.PARTITIONS)
    assert len(enriched) == len(ORDERS + ODD)
    assert Counter(m.value() for m in enriched if m.key() is None) == Counter(order.value for order in ODD[2:])
    expected["odd-1"] = {**json.loads(ODD[0].value or b""), "total_cents": cents["generated-article-00"]}
    expected["odd-2"] = {**json.loads(ODD[1].value or b""), "city": cities["generated-customer-007"]}
    assert {(m.key() or b"").decode(): json.loads(m.value() or b"") for m in enriched if m.key()} == expected


def test_the_example_says_what_is_lost_and_what_is_twice(made: str, capsys: pytest.CaptureFixture[str]) -> None:
    came = example.values(made, pipeline.ORDERS)
    assert example.compare(made, pipeline.BY_CUSTOMER, came)
    one = next(text for text in came if text.startswith("{"))
    assert not example.compare(made, pipeline.BY_CUSTOMER, came + Counter([one]))
    assert not example.compare(made, pipeline.BY_CUSTOMER, came - Counter([one]))
    assert not example.compare(made, pipeline.ENRICHED, came)
    reported = capsys.readouterr().out
    assert "606 in, 605 out, 1 lost, 0 twice" in reported and "604 in, 605 out, 0 lost, 1 twice" in reported
