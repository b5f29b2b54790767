"""Accounts: what somebody asks for, what happened, and how things are. Plain functions: no Kafka, no database.

`decide` looks at an account and says what happens when somebody asks for something, or that nothing does.
`apply` looks at an account and what happened, and says how the account is then. It never refuses: it did happen.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass

OPEN, DEPOSIT, WITHDRAW, CLOSE = "open", "deposit", "withdraw", "close"


@dataclass(frozen=True, slots=True)
class Command:
    """A request of a person; `cents` is the amount of a deposit or withdrawal."""

    account: str
    ask: str
    at_ms: int
    cents: int = 0
    owner: str = ""


@dataclass(frozen=True, slots=True)
class Event:
    """An event: the account was opened, its balance changed by `cents`, or it was closed."""

    account: str
    kind: str
    number: int
    at_ms: int
    cents: int = 0
    owner: str = ""

    def to_json(self) -> bytes:
        return json.dumps(asdict(self)).encode()

    @staticmethod
    def from_json(value: bytes | None) -> Event:
        return Event(**json.loads(value or b"{}"))


@dataclass(frozen=True, slots=True)
class Account:
    """How an account is after its event `number`."""

    account: str
    owner: str
    open: bool
    balance_cents: int
    number: int

    def to_json(self) -> bytes:
        return json.dumps(asdict(self)).encode()


def decide(account: Account | None, command: Command) -> Event | str:
    """The event that follows from a request, or the reason of its refusal."""
    if command.ask == OPEN:
        if account is not None:
            return "there is such an account"
        return Event(command.account, "opened", 1, command.at_ms, owner=command.owner)
    if account is None or not account.open:
        return "there is no such account"
    changes = {DEPOSIT: ("deposited", command.cents), WITHDRAW: ("withdrawn", -command.cents), CLOSE: ("closed", 0)}
    kind, cents = changes[command.ask]
    if account.balance_cents + cents < 0:
        return "there is not enough money"
    if kind == "closed" and account.balance_cents:
        return "there is money left"
    return Event(command.account, kind, account.number + 1, command.at_ms, cents)


def apply(account: Account | None, event: Event) -> Account:
    """The account after one more event; None is one that does not exist yet."""
    if account is None:
        return Account(event.account, event.owner, True, 0, event.number)
    balance_cents = account.balance_cents + event.cents
    return Account(account.account, account.owner, event.kind != "closed", balance_cents, event.number)
