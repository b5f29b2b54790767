"""Orders: send events that are made up, follow them with several members, and see what became of the orders.

python -m examples.orders send --orders 500 --rate 200      events, keyed by order
python -m examples.orders send --by customer                keyed by customer and order, placed by customer
python -m examples.orders follow --member a                 start several, kill some
python -m examples.orders follow --group again --into orders-again --until-idle
python -m examples.orders show                              every order as it is now
python -m examples.orders check                             each event once and in order? the exit code says it, too
"""

from __future__ import annotations

import argparse
import sys
import time
import zlib

from confluent_kafka import Producer

from examples.orders.follow import Follower
from examples.orders.generator import events
from examples.orders.model import Event, Order, OutOfOrderError, apply
from examples.topics import create_topic, records, refuse_failure

EVENTS, ORDERS = "order-events", "orders"
PARTITIONS = 6


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="python -m examples.orders", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--bootstrap", default="127.0.0.1:9092")
    commands = parser.add_subparsers(dest="command", required=True)
    sending = commands.add_parser("send")
    sending.add_argument("--orders", type=int, default=500)
    sending.add_argument("--seed", type=int, default=1)
    sending.add_argument("--rate", type=float, default=1000.0, help="events a second")
    sending.add_argument("--by", choices=["order", "customer"], default="order")
    following = commands.add_parser("follow")
    following.add_argument("--group", default="order-followers")
    following.add_argument("--member", default="a")
    following.add_argument("--into", default=ORDERS)
    following.add_argument("--until-idle", action="store_true", help="end when every partition is read to its end")
    for name in ("show", "check"):
        commands.add_parser(name).add_argument("--topic", default=ORDERS)
    given = parser.parse_args()
    try:
        return run(given)
    except OutOfOrderError as error:
        print(f"out of order: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130


def run(given: argparse.Namespace) -> int:
    """Do what the command line asks for; returns the exit code. Raises OutOfOrderError."""
    if given.command == "send":
        create_topic(given.bootstrap, EVENTS, PARTITIONS)
        print(f"{send(given.bootstrap, given.seed, given.orders, given.rate, given.by)} events sent")
    elif given.command == "follow":
        create_topic(given.bootstrap, EVENTS, PARTITIONS)  # a follower may be there before the first event
        create_topic(given.bootstrap, given.into, PARTITIONS, {"cleanup.policy": "compact"})
        follower = Follower(given.bootstrap, given.group, given.member, EVENTS, given.into, tell)
        follower.run(until_idle=given.until_idle)
    elif given.command == "check":
        return 0 if check(given.bootstrap, given.topic) else 1
    else:
        for _, order in sorted(show(given.bootstrap, given.topic).items()):
            print(order.decode())
    return 0


def tell(line: str) -> None:
    """A line for a person who looks on, with the time."""
    print(time.strftime("%H:%M:%S"), line, flush=True)


def send(bootstrap: str, seed: int, orders: int, rate: float, by: str) -> int:
    """Send all events; returns how many. Idempotence keeps a partition in order when the producer tries again."""
    producer = Producer({"bootstrap.servers": bootstrap, "enable.idempotence": True, "linger.ms": 5})
    count, began = 0, time.monotonic()
    for event in events(seed, orders):
        key, partition = placed(event, by)
        producer.produce(EVENTS, event.to_json(), key, partition, on_delivery=refuse_failure)
        count += 1
        while (early_s := count / rate - (time.monotonic() - began)) > 0:
            producer.poll(early_s)
    producer.flush()
    return count


def placed(event: Event, by: str) -> tuple[str, int]:
    """The key of an event, and its partition; -1 leaves it to the key.

    Keyed by customer and order, compaction keeps something of every order; placed by customer alone, all that a
    customer does stays in order. The checksum is how librdkafka places keys: a topic keyed by customer fits beside it.
    """
    if by == "order":
        return event.order, -1
    return f"{event.customer}/{event.order}", zlib.crc32(event.customer.encode()) % PARTITIONS


def show(bootstrap: str, topic: str) -> dict[bytes, bytes]:
    """The newest state under every key."""
    return {message.key() or b"": message.value() or b"" for message in records(bootstrap, topic)}


def check(bootstrap: str, topic: str) -> bool:
    """Whether a topic has the orders that the events make, one after the other, each once; printed in two lines."""
    expected: dict[str, list[Order]] = {}
    for message in records(bootstrap, EVENTS):
        event = Event.from_json(message.value())
        states = expected.setdefault(event.order, [])
        states.append(apply(states[-1] if states else None, event))
    found: dict[str, list[Order]] = {}
    for message in records(bootstrap, topic):
        order = Order.from_json(message.value())
        found.setdefault(order.order, []).append(order)
    events, written = sum(map(len, expected.values())), sum(map(len, found.values()))
    behind = sum(found.get(name, []) != states for name, states in expected.items())
    strange = len(found.keys() - expected.keys())
    print(f"{events:,} events of {len(expected):,} orders, {written:,} states of {len(found):,} orders in {topic}")
    print(f"{behind + strange:,} orders that have lost one, have one twice or not in order")
    return not behind and not strange


if __name__ == "__main__":
    sys.exit(main())
