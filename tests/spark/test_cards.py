"""The example of card approval: its rules by themselves, its made-up data, and its queries."""

from __future__ import annotations

import json
import math
import re
from collections import Counter
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer

from examples.cards import __main__ as example
from examples.cards import pipeline, proof
from examples.cards.generator import FRAUDS, Labelled, transactions
from examples.cards.rules import HOUR_MS, History, Rules, Transaction, decide, distance_km, refuse
from examples.place import Place
from tests.support.clients.confluent import create_topic, produce_all, read_committed
from tests.support.nodes.node import Node
from tests.support.nodes.postgres import Postgres

RULES = Rules()


def asked(
    at_ms: int = 0, amount_cents: int = 1000, merchant: str = "grocer", at: tuple[float, float] = (0, 0)
) -> Transaction:
    return Transaction(f"t{at_ms}", "c", merchant, amount_cents, at_ms, *at)


def reasons(history: History, transaction: Transaction) -> tuple[str, ...]:
    return decide(RULES, history, transaction).reasons


def test_a_burst_is_refused_from_the_sixth_on_and_a_minute_later_no_more() -> None:
    history = History()
    assert [reasons(history, asked(at_ms)) for at_ms in range(0, 7000, 1000)] == [()] * 5 + [("velocity",)] * 2
    assert reasons(history, asked(66_001)) == ()


def test_an_amount_far_above_the_mean_is_refused_once_there_is_a_history() -> None:
    history = History()
    assert reasons(history, asked(0, 500_000)) == ()
    history = History()
    for turn in range(5):
        assert reasons(history, asked(turn * HOUR_MS)) == ()
    assert reasons(history, asked(6 * HOUR_MS, 10_001)) == ("amount",)
    assert reasons(history, asked(7 * HOUR_MS, 10_000)) == (), "ten times the mean is not above it"


def test_no_one_is_in_two_cities_at_once() -> None:
    lisbon, prague = (38.72, -9.14), (50.08, 14.43)
    assert 2200 < distance_km(*lisbon, *prague) < 2300
    history = History()
    assert reasons(history, asked(0, at=lisbon)) == ()
    assert reasons(history, asked(2 * HOUR_MS, at=prague)) == ("impossible-travel",)
    assert reasons(history, asked(3 * HOUR_MS, at=prague)) == ()
    assert reasons(history, asked(2 * HOUR_MS, at=lisbon)) == ("impossible-travel",), "a clock that goes back"


def test_a_value_without_a_field_is_no_transaction() -> None:
    fields = asdict(asked(5))
    assert Transaction.of(fields | {"amount_cents": 1000.0, "more": 1}) == asked(5)
    for name in fields:
        for value in (None, math.nan, math.inf):
            lacking = fields | {name: value}
            assert Transaction.of(lacking) is None
            decision = refuse(RULES, lacking)
            assert (decision.approved, decision.reasons) == (False, ("incomplete",))
            assert (decision.id, decision.card) == tuple(
                None if name == each else fields[each] for each in ("id", "card")
            )
    del fields["at_ms"]
    assert Transaction.of(fields) is None
    assert distance_km(91, 0, 89, 180) == 0, "rounding leaves no root of less than nothing"


def test_blocked_merchants_and_refused_payments_do_not_count() -> None:
    history = History()
    assert reasons(history, asked(0, merchant="lucky-wheel")) == ("blocked-merchant",)
    assert (history.approved, history.total_cents) == (0, 0)
    assert History.from_json(history.to_json()) == history


def test_the_made_up_fraud_is_found_and_nothing_else() -> None:
    made = list(transactions(7, 40, 15))
    assert made == list(transactions(7, 40, 15))
    assert {labelled.fraud for labelled in made} == {None, *FRAUDS}
    histories: dict[str, History] = {}
    for labelled in made:
        history = histories.setdefault(labelled.transaction.card, History())
        expected = (labelled.fraud,) if labelled.fraud else ()
        assert reasons(history, labelled.transaction) == expected, labelled


def send_all(bootstrap: str, made: list[Labelled]) -> None:
    producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 5})
    for labelled in made:
        transaction = labelled.transaction
        headers: dict[str, str | bytes | None] = {"correlation-id": transaction.id.encode()}
        producer.produce(pipeline.REQUESTS, labelled.value(), transaction.card.encode(), headers=headers)
    assert producer.flush(30) == 0


# Transactions that lack a field, are none at all, have a number that is none, or no correlation id: (value, header).
ODD: list[tuple[bytes | None, tuple[str, bytes]]] = [
    (b'{"merchant": "grocer"}', ("another-header", b"1")),
    (None, ("correlation-id", b"odd-empty")),
    (b'{"id": "odd-where", "card": "c", "latitude": 1e999}', ("correlation-id", b"odd-where")),
    (b"no JSON", ("correlation-id", b"odd-unreadable")),
]


def send_odd(bootstrap: str, made: list[Labelled]) -> None:
    """Send the values of `ODD`, and a transaction without an amount for each card."""
    producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 5})
    for value, header in ODD:
        producer.produce(pipeline.REQUESTS, value, b"odd", headers=[header])
    for card in {each.transaction.card: each.transaction for each in made}.values():
        fields = asdict(card) | {"id": f"odd-{card.card}"}
        del fields["amount_cents"]
        headers = [("correlation-id", fields["id"].encode())]
        producer.produce(pipeline.REQUESTS, json.dumps(fields), card.card.encode(), headers=headers)
    assert producer.flush(30) == 0


def run(spark: Any, bootstrap: str, folder: Path) -> None:
    decided = pipeline.decisions(pipeline.requests(spark, bootstrap), RULES)
    checkpoint = folder / "rules"
    assert pipeline.answer(decided, bootstrap, checkpoint, availableNow=True).awaitTermination(400)


@pytest.mark.slow  # the example below is the short form
def test_the_queries(spark: Any, odradek: str, tmp_path: Path) -> None:
    """Two runs of the query give the decisions of the rules applied one after another, each once.

    A value without a field is answered, and changes no card's history.
    """
    for topic in (pipeline.REQUESTS, pipeline.REPLIES, pipeline.REPLAYED, pipeline.DEAD):
        create_topic(odradek, topic, 2)
    made = list(transactions(3, 8, 10))
    half = len(made) // 2
    send_all(odradek, made[:half])
    run(spark, odradek, tmp_path)
    send_odd(odradek, made)
    send_all(odradek, made[half:])
    run(spark, odradek, tmp_path)

    replies = read_committed(odradek, pipeline.REPLIES, 2)
    found, incomplete = {}, []
    for message in replies:
        value = json.loads(message.value() or b"")
        if value["reasons"] == ["incomplete"]:
            assert not value["approved"] and value["rules_version"] == RULES.version
            incomplete.append((value.get("id"), dict(message.headers() or []).get("correlation-id")))
            continue
        assert message.headers() == [("correlation-id", value["id"].encode())]
        assert message.key() == value["card"].encode()
        found[value["id"]] = value["reasons"]
    assert len(found) == len(replies) - len(incomplete) == len(made)
    cards = {each.transaction.card for each in made}
    assert Counter(incomplete) == Counter(
        [(None, None), (None, b"odd-empty"), ("odd-where", b"odd-where")]
        + [(f"odd-{card}", f"odd-{card}".encode()) for card in cards]
    )
    assert found == {m.transaction.id: [m.fraud] if m.fraud else [] for m in made}

    proved = proof.prove(odradek, RULES, RULES, made, {})
    assert (proved.decisions, proved.lost, proved.twice) == (2 * len(replies), len(replies), 0), "by the rules once"
    assert (proved.found, proved.wronged) == (proved.frauds, 0)


def test_the_example_proves_what_it_shows(
    spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Questions, answers, the replay with a corrected rule and the store, as `python -m examples.cards` does it."""
    asked = list(transactions(1, 4, 10))
    monkeypatch.setattr(example, "WARM_UP", 2)
    with Node(tmp_path / "node") as node:
        found = example.run(Place(spark, node.bootstrap, tmp_path), asked, 100.0, None)
        assert found.holds
        assert found.decisions == 2 * len(asked) == found.stores["Delta"]
        assert found.frauds == found.found == len([each for each in asked if each.fraud])
        assert found.changed == 1, "the one that was refused for its merchant alone"
        reported = capsys.readouterr().out
        assert re.search(r"from question to answer, \d+ times: median \d+ ms, p95 \d+ ms, worst \d+ ms", reported)

        # An answer that comes twice, one that says something else, and a store that lacks a row.
        stores = dict(found.stores)
        replay = json.dumps({"id": asked[0].transaction.id, "approved": True, "reasons": [], "rules_version": 1})
        headers = [("correlation-id", asked[0].transaction.id.encode())]
        for value in (replay, replay.replace("true", "false")):
            producer = Producer({"bootstrap.servers": node.bootstrap})
            producer.produce(pipeline.REPLIES, value, b"c", headers=headers)  # type: ignore[arg-type]  # its hints want a list of pairs
            producer.flush()
        damaged = proof.prove(node.bootstrap, RULES, example.CORRECTED, asked, stores)
        assert (damaged.holds, damaged.lost, damaged.twice) == (False, 0, 2)
        with pytest.raises(SystemExit, match="give another --seed"):
            example.run(Place(spark, node.bootstrap, tmp_path), asked, 100.0, None)
    assert not replace(found, stores={"Delta": found.decisions - 1}).holds
    assert not replace(found, found=found.found - 1).holds
    assert not replace(found, wronged=1).holds


@pytest.mark.slow  # the example above keeps them in Delta; test_writing_examples writes to PostgreSQL
def test_the_decisions_are_in_the_database_once(spark: Any, postgres: Postgres, tmp_path: Path) -> None:
    psycopg: Any = pytest.importorskip("psycopg", reason='needs psycopg: pip install "odradek[postgres]"')
    made = list(transactions(4, 5, 10))
    histories: dict[str, History] = {}
    decided = [decide(RULES, histories.setdefault(each.transaction.card, History()), each.transaction) for each in made]
    with Node(tmp_path / "node") as node:
        create_topic(node.bootstrap, pipeline.REPLIES, 2)
        create_topic(node.bootstrap, pipeline.REPLAYED, 1)
        for half in (decided[:20], decided[20:]):
            produce_all(
                node.bootstrap,
                pipeline.REPLIES,
                [(each.card.encode(), json.dumps(asdict(each)).encode()) for each in half],  # type: ignore[union-attr]  # no round of these is empty
            )
            kept = pipeline.keep_in_database(spark, node.bootstrap, postgres.url, tmp_path / "kept", availableNow=True)
            assert kept.awaitTermination(400)
        with psycopg.connect(postgres.url) as database:
            rows = database.execute("SELECT id, approved, reasons, rules_version FROM card_decisions").fetchall()
    assert sorted(rows) == sorted((each.id, each.approved, list(each.reasons), each.rules_version) for each in decided)
