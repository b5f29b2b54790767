"""The example of re-keying and enriching: a Java client finds its customer where it looks, and nothing is left out."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from examples.rekeyed import generator, pipeline
from examples.rekeyed.__main__ import fill
from tests.support.apache_kafka import require_kafka, run_tool
from tests.support.clients import read_all

ROOT = Path(__file__).resolve().parents[2]


ORDERS = generator.orders(1, 600)


@pytest.fixture(scope="module")
def filled(odradek: str) -> str:
    """The node with the three topics."""
    fill(odradek, ORDERS)
    return odradek


def test_under_another_key(spark: Any, filled: str, tmp_path: Path) -> None:
    rows = pipeline.orders(spark, filled, "rekey")
    assert pipeline.rekey(rows, filled, tmp_path, availableNow=True).awaitTermination(200)
    found = read_all(filled, pipeline.BY_CUSTOMER, pipeline.PARTITIONS, isolation_level="read_committed")
    assert Counter(m.value() for m in found) == Counter(order.value for order in ORDERS)
    assert all((m.key() or b"").decode() == json.loads(m.value() or b"")["customer"] for m in found)
    assert len({(m.key(), m.partition()) for m in found}) == len({m.key() for m in found}) == 31

    require_kafka()
    program = str(ROOT / "examples" / "rekeyed" / "ReadCustomer.java")
    customer = "generated-customer-007"
    done = run_tool(program, [filled, pipeline.BY_CUSTOMER, customer])
    read = [json.loads(line)["order"] for line in done.stdout.splitlines() if line.startswith("{")]
    ordered = [order.key for order in ORDERS if json.loads(order.value or b"")["customer"] == customer]
    assert sorted(read) == sorted(ordered) != [], done.stderr


def test_enriched_from_two_others(spark: Any, filled: str, tmp_path: Path) -> None:
    cities = {key: json.loads(value or b"")["city"] for key, value in generator.customers(1)}
    cents = {key: json.loads(value)["cents"] if value else None for key, value in generator.articles(1)}
    assert None in cents.values()
    expected = {}
    for key, value in ORDERS:
        order = json.loads(value or b"")
        price = cents[order["article"]]
        known = {"city": cities.get(order["customer"]), "total_cents": price and price * order["pieces"]}
        expected[key] = {name: each for name, each in {**order, **known}.items() if each is not None}

    rows = pipeline.orders(spark, filled, "enrich")
    assert pipeline.enrich(rows, filled, tmp_path, availableNow=True).awaitTermination(200)
    enriched = read_all(filled, pipeline.ENRICHED, pipeline.PARTITIONS, isolation_level="read_committed")
    assert len(enriched) == len(ORDERS)
    assert {(m.key() or b"").decode(): json.loads(m.value() or b"") for m in enriched} == expected
