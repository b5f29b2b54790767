"""The example of orders: in order and once through moves and deaths, and the same again from offset 0."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from examples.orders.__main__ import EVENTS, ORDERS, PARTITIONS, check, placed, show
from examples.orders.generator import events
from examples.orders.model import Order, OutOfOrderError, apply
from examples.topics import create_topic
from odradek.testing.processes import ProcessCluster
from tests.support.clients.confluent import admin, produce_all, read_all
from tests.support.nodes.node import Node

ROOT = Path(__file__).resolve().parents[2]
SETTINGS = {
    "min.insync.replicas": 2,
    "default.replication.factor": 3,
    "offsets.topic.num.partitions": 2,
    "transaction.state.log.num.partitions": 2,
    "group.initial.rebalance.delay.ms": 0,
}


def folded(seed: int, orders: int) -> dict[str, Order]:
    found: dict[str, Order] = {}
    for event in events(seed, orders):
        found[event.order] = apply(found.get(event.order), event)
    return found


def test_events_are_the_same_each_time_and_end_orders() -> None:
    made = list(events(3, 400))
    assert made == list(events(3, 400)) != list(events(4, 400))
    assert all(event.order.startswith("generated-") for event in made)
    orders = folded(3, 400)
    assert len(orders) == 400
    assert {order.status for order in orders.values()} == {"open", "closed", "cancelled"}
    assert {event.kind for event in made} == {"created", "updated", "closed", "cancelled"}


def test_an_order_takes_no_event_out_of_turn() -> None:
    first, second = next((a, b) for a in events(1, 50) for b in events(1, 50) if a.order == b.order and b.number == 2)
    created = apply(None, first)
    assert apply(created, second).number == 2
    with pytest.raises(OutOfOrderError):
        apply(None, second)
    with pytest.raises(OutOfOrderError):
        apply(created, first)
    with pytest.raises(OutOfOrderError, match=r"event 2 \(closed\) after event 1 \(cancelled\)"):
        apply(replace(created, status="cancelled"), replace(second, kind="closed"))


def test_placed_by_customer_keeps_each_key_and_the_order_of_a_customer() -> None:
    places = {(event.customer, placed(event, "customer")[1]) for event in events(1, 300)}
    assert len(places) == len(dict(places)), "a customer is in one partition"
    assert {partition for _, partition in places} == set(range(PARTITIONS))
    assert len({placed(event, "customer")[0] for event in events(1, 300)}) == 300


@contextmanager
def program(bootstrap: str, *arguments: str) -> Iterator[subprocess.Popen[str]]:
    path = os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])
    command = [sys.executable, "-m", "examples.orders", "--bootstrap", bootstrap, *arguments]
    process = subprocess.Popen(
        command,
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": path},
        stdout=subprocess.PIPE,
        text=True,
        # A shell that starts the tests in the background has them, and all below, ignore Ctrl-C.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
    )
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


def written(bootstrap: str, topic: str) -> list[tuple[str, int]]:
    """Order and number of every state in the topic that is committed, each partition in its order."""
    messages = read_all(bootstrap, topic, PARTITIONS, isolation_level="read_committed")
    messages.sort(key=lambda message: (message.partition(), message.offset()))
    states = [Order(**json.loads(message.value() or b"")) for message in messages]
    return [(state.order, state.number) for state in states]


def assert_in_order(states: list[tuple[str, int]]) -> None:
    """Check that the states of each order are in sequence, none twice, none left out."""
    last: Counter[str] = Counter()
    for order, number in states:
        assert number == last[order] + 1, f"{order}: {number} after {last[order]}"
        last[order] = number


def await_states(bootstrap: str, count: int) -> None:
    deadline = time.monotonic() + 180
    while (found := len(written(bootstrap, ORDERS))) < count:
        assert time.monotonic() < deadline, f"{found} of {count} states"
        time.sleep(0.5)


def test_a_follower_shows_that_it_lives_and_ends_at_ctrl_c(node: Node) -> None:
    """It prints lines before the topic exists, when it is assigned partitions, while events come, and at the end."""
    with program(node.bootstrap, "follow", "--group", "seen") as following:
        assert following.stdout is not None
        lines = iter(following.stdout.readline, "")
        assert "member a of group seen waits for partitions of order-events" in next(lines)
        assert "partitions 0, 1, 2, 3, 4, 5 are ours" in next(lines)
        with program(node.bootstrap, "send", "--orders", "20") as sending:
            count = sending.communicate(timeout=180)[0].split()[0]
        for line in lines:
            if f" {count} events followed, " in line:
                break
            assert " events followed, " in line
        assert "20 orders known" in line
        following.send_signal(signal.SIGINT)
        assert following.wait(120) == 130
        assert next(line for line in lines if "in all" in line).endswith(f" {count} events followed in all\n")
        assert not list(lines), "nothing behind it"


@pytest.mark.timeout(900)
def test_orders_stay_in_order_through_rebalance_and_failover(tmp_path: Path) -> None:
    """Three nodes; members join, are killed and come back, and the leader of a partition dies, while events come in."""
    orders = folded(1, 250)
    with ProcessCluster(tmp_path, brokers=3, settings=SETTINGS) as cluster:
        bootstrap = cluster.bootstrap_servers
        create_topic(bootstrap, EVENTS, PARTITIONS)
        create_topic(bootstrap, ORDERS, PARTITIONS, {"cleanup.policy": "compact"})
        with (
            program(bootstrap, "send", "--orders", "250", "--rate", "120") as sending,
            program(bootstrap, "follow", "--member", "a") as first,
        ):
            await_states(bootstrap, 50)
            with program(bootstrap, "follow", "--member", "b") as second:
                await_states(bootstrap, 250)
                first.kill()
                leader = admin(bootstrap).list_topics(EVENTS, timeout=30).topics[EVENTS].partitions[0].leader
                cluster[leader].kill()
                with program(bootstrap, "follow", "--member", "a") as again:
                    assert "events sent" in sending.communicate(timeout=180)[0]
                    cluster[leader].start()
                    await_states(bootstrap, sum(order.number for order in orders.values()))
                    assert (second.poll(), again.poll()) == (None, None), "no member met an event out of order"
        assert_in_order(written(bootstrap, ORDERS))
        now = show(bootstrap, ORDERS)
        assert now == {name.encode(): order.to_json() for name, order in orders.items()}
        with program(bootstrap, "follow", "--group", "again", "--into", "orders-again", "--until-idle") as replaying:
            assert replaying.wait(180) == 0
        assert show(bootstrap, "orders-again") == now
        assert [check(bootstrap, topic) for topic in (ORDERS, "orders-again")] == [True, True]
        produce_all(bootstrap, "orders-again", [next(iter(now.items()))])
        assert not check(bootstrap, "orders-again"), "one state is there twice"
        # The same events once more are out of turn, and an example says so.
        with program(bootstrap, "check") as checking:
            assert checking.wait(180) == 0
        with program(bootstrap, "send", "--orders", "3") as sending:
            assert sending.wait(180) == 0
        with program(bootstrap, "check") as checking:
            assert checking.wait(180) == 1
