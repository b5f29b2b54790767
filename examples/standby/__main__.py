"""Two queries of which one stands by: start both, send movements, kill one or switch, and see what came out.

python -m examples.standby send --movements 20000 --rate 200
python -m examples.standby query --group a --dir build/a
python -m examples.standby query --group b --dir build/b --standby
odradek groups switch a b
python -m examples.standby check
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

from confluent_kafka import Producer

from examples.dead_letters import fields_of, put_aside
from examples.standby.generator import BALANCES, DEAD, MOVEMENTS, movements
from examples.topics import create_topic, records, refuse_failure

PARTITIONS = 2
# A movement's number, its number among those of its account, and the balance after it.
Booked = tuple[int, int, int]


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="python -m examples.standby", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--bootstrap", default="127.0.0.1:9092")
    parts = parser.add_subparsers(dest="part", required=True)
    sending = parts.add_parser("send")
    sending.add_argument("--movements", type=int, default=20_000)
    sending.add_argument("--accounts", type=int, default=50)
    sending.add_argument("--seed", type=int, default=1)
    sending.add_argument("--rate", type=float, default=200.0, help="movements a second")
    querying = parts.add_parser("query")
    querying.add_argument("--group", required=True)
    querying.add_argument("--dir", type=Path, required=True, help="for the checkpoint, which is the query's own")
    querying.add_argument("--standby", action="store_true", help="leave it to another group to begin")
    parts.add_parser("check")
    given = parser.parse_args()
    create_topics(given.bootstrap)
    if given.part == "send":
        send(given.bootstrap, given.seed, given.accounts, given.movements, given.rate)
    elif given.part == "query":
        query(given.bootstrap, given.group, given.dir, standby=given.standby)
    else:
        found = check(given.bootstrap)
        print(found)
        return 0 if found.holds else 1
    return 0


def create_topics(bootstrap: str) -> None:
    """Movements and balances, both by account, and what is no movement."""
    for topic in (MOVEMENTS, BALANCES, DEAD):
        create_topic(bootstrap, topic, PARTITIONS)


def send(bootstrap: str, seed: int, accounts: int, count: int, rate: float) -> None:
    """Send movements at a steady pace."""
    producer = Producer({"bootstrap.servers": bootstrap, "enable.idempotence": True, "linger.ms": 5})
    began = time.monotonic()
    for movement in movements(seed, accounts, count):
        while (early_s := movement.number / rate - (time.monotonic() - began)) > 0:
            producer.poll(early_s)
        producer.produce(MOVEMENTS, movement.to_json(), movement.account, on_delivery=refuse_failure)
    if producer.flush(30):
        raise TimeoutError("movements are not acknowledged after 30 s")


def query(bootstrap: str, group: str, folder: Path, *, standby: bool) -> None:
    """Run one of the queries until it is stopped."""
    from examples.standby import pipeline
    from pyspark_odradek import session

    spark = session(f"standby-{group}", master="local[2]")
    pipeline.start(spark, bootstrap, group, folder / "checkpoint", standby=standby).awaitTermination()


@dataclass(frozen=True)
class Check:
    """Compares the output with the input."""

    movements: int
    booked: int
    lost: int
    twice: int
    wrong: int
    dead: int

    @property
    def holds(self) -> bool:
        """Whether each movement is booked once, with the balance that it had to get."""
        return not (self.lost or self.twice or self.wrong)

    def __str__(self) -> str:
        return (
            f"{self.movements:,} movements, {self.booked:,} booked, {self.lost:,} lost, {self.twice:,} twice, "
            f"{self.wrong:,} with a wrong balance; {self.dead:,} dead letters"
        )


def check(bootstrap: str) -> Check:
    """Book all movements of the topic here, one after another, and compare with what the queries wrote."""
    balances: dict[str, tuple[int, int]] = {}
    expected: Counter[Booked] = Counter()
    dead = put_aside(bootstrap, DEAD, MOVEMENTS)
    for message in records(bootstrap, MOVEMENTS):
        if (message.partition(), message.offset()) in dead:
            continue
        movement = fields_of(message.value())
        number, account, cents = (movement.get(name) for name in ("number", "account", "cents"))
        if number is None or account is None or cents is None:
            expected[-1, 0, 0] += 1  # a dead letter that is not written yet
            continue
        entry, balance_cents = balances.get(account, (0, 0))
        balances[account] = (entry + 1, balance_cents + cents)
        expected[number, entry + 1, balance_cents + cents] += 1
    found: Counter[Booked] = Counter()
    for message in records(bootstrap, BALANCES, settled=True):
        row = json.loads(message.value() or b"{}")
        found[row["number"], row["entry"], row["balance_cents"]] += 1
    sent, booked = (Counter(number for number, _, _ in each.elements()) for each in (expected, found))
    twice = (booked - sent).total()
    wrong = (found - expected).total() - twice
    return Check(sent.total(), booked.total(), (sent - booked).total(), twice, wrong, len(dead))


if __name__ == "__main__":
    sys.exit(main())
