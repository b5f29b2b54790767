"""The write side: decides about each wish with the account before it, and keeps what happened as events."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Iterable, Iterator

from confluent_kafka import Producer

from examples.accounts.model import Account, Command, Event, apply, decide
from examples.topics import records

EVENTS = "account-events"
PARTITIONS = 3
PORTION = 200
# Events are the truth: nothing else can say how things came to be, so none is ever deleted.
KEPT_FOREVER = {"retention.ms": "-1", "retention.bytes": "-1"}


def handle(bootstrap: str, commands: Iterable[Command]) -> Counter[str]:
    """Decide about commands one after another; counts what happened, and why what was refused was.

    It knows the accounts by reading all events once, and keeps them in memory. Only one process may decide at a time:
    the transactional id sees to it, as a second one fences the first before it reads.
    """
    producer = Producer({"bootstrap.servers": bootstrap, "transactional.id": "account-write-side"})
    producer.init_transactions(30)
    accounts = accounts_at(bootstrap)
    counted: Counter[str] = Counter()
    waiting = iter(commands)
    while portion := list(itertools.islice(waiting, PORTION)):
        producer.begin_transaction()
        for command in portion:
            decided = decide(accounts.get(command.account), command)
            counted[decided.kind if isinstance(decided, Event) else decided] += 1
            if isinstance(decided, Event):
                accounts[decided.account] = apply(accounts.get(decided.account), decided)
                producer.produce(EVENTS, decided.to_json(), decided.account, timestamp=decided.at_ms)
        # Raises where an event was not kept; what was decided after it ends with this process.
        producer.commit_transaction(30)
    return counted


def accounts_at(bootstrap: str, at_ms: int | None = None) -> dict[str, Account]:
    """The accounts as all events make them, or those until a time, inclusive."""
    accounts: dict[str, Account] = {}
    for event in events(bootstrap):
        if at_ms is None or event.at_ms <= at_ms:
            accounts[event.account] = apply(accounts.get(event.account), event)
    return accounts


def events(bootstrap: str) -> Iterator[Event]:
    """All that ever happened; in order for each account."""
    for message in records(bootstrap, EVENTS):
        yield Event.from_json(message.value())
