"""Compares the output with the rules applied to the same transactions one after another, without Spark."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass

from confluent_kafka import Message

from examples.cards import pipeline
from examples.cards.generator import Labelled
from examples.cards.rules import History, Rules, Transaction, decide, refuse
from examples.dead_letters import fields_of, put_aside
from examples.topics import records

# The correlation id, which transaction, whether it was approved, why not, and by which rules.
Answer = tuple[bytes | None, str | None, bool, tuple[str, ...], int]


@dataclass(frozen=True)
class Proof:
    """Counts; decisions are those of the terminals and those of the replay.

    Attributes:
        lost: decisions that the rules make and no answer has.
        twice: decisions that were answered more often than they were made.
        found: frauds that were refused for what they are.
        wronged: ordinary transactions that were refused.
        changed: decisions that the corrected rules make otherwise.
        stores: rows in each store of the analysts.
    """

    decisions: int
    lost: int
    twice: int
    frauds: int
    found: int
    wronged: int
    changed: int
    stores: dict[str, int]

    @property
    def holds(self) -> bool:
        """Whether each decision was answered and kept once, is that of the rules, and finds fraud and nothing else."""
        exact = not self.lost and not self.twice and all(rows == self.decisions for rows in self.stores.values())
        return exact and self.found == self.frauds and not self.wronged

    def __str__(self) -> str:
        stores = ", ".join(f"{rows:,} in {name}" for name, rows in self.stores.items())
        verdict = "all is as it must be" if self.holds else "NOT as it must be"
        return (
            f"frauds: {self.found:,} of {self.frauds:,} refused, and {self.wronged:,} ordinary transactions\n"
            f"replay with the corrected rules: {self.changed:,} transactions are decided otherwise\n"
            f"{self.decisions:,} decisions by both rules: {self.lost:,} lost, {self.twice:,} twice or others\n"
            f"{stores}: {verdict}"
        )


def prove(bootstrap: str, rules: Rules, corrected: Rules, asked: Iterable[Labelled], stores: dict[str, int]) -> Proof:
    """Decide on all transactions of the topic here, and compare; `asked` knows which are fraud."""
    made = {each: Counter(decisions(bootstrap, each)) for each in (rules, corrected)}
    answered = Counter(
        decision for topic in (pipeline.REPLIES, pipeline.REPLAYED) for decision in answers(bootstrap, topic)
    )
    expected = made[rules] + made[corrected]
    reasons = {name: why for _, name, _, why, version in answered if version == rules.version}
    labels = {each.transaction.id: each.fraud for each in asked}
    refused = {name for _, name, _, why, _ in made[rules] if why}
    still = {name for _, name, _, why, _ in made[corrected] if why}
    return Proof(
        decisions=expected.total(),
        lost=(expected - answered).total(),
        twice=(answered - expected).total(),
        frauds=sum(fraud is not None for fraud in labels.values()),
        found=sum(fraud is not None and reasons.get(name) == (fraud,) for name, fraud in labels.items()),
        wronged=sum(fraud is None and bool(reasons.get(name)) for name, fraud in labels.items()),
        changed=len(refused ^ still),
        stores=stores,
    )


def decisions(bootstrap: str, rules: Rules) -> Iterable[Answer]:
    """The decision of the rules on each transaction; those of a card are in one partition, and so in order."""
    histories: dict[str, History] = {}
    unreadable = put_aside(bootstrap, pipeline.DEAD, pipeline.REQUESTS)
    for message in records(bootstrap, pipeline.REQUESTS):
        if (message.partition(), message.offset()) in unreadable:
            continue
        fields = fields_of(message.value())
        asked = Transaction.of(fields)
        if asked is None:
            decision = refuse(rules, fields)
        else:
            decision = decide(rules, histories.setdefault(asked.card, History()), asked)
        yield correlation_of(message), decision.id, decision.approved, decision.reasons, decision.rules_version


def answers(bootstrap: str, topic: str) -> Iterable[Answer]:
    """The decisions of a topic; each must bear the correlation id of its transaction."""
    for message in records(bootstrap, topic, settled=True):
        row = fields_of(message.value())
        yield correlation_of(message), row.get("id"), row["approved"], tuple(row["reasons"]), row["rules_version"]


def correlation_of(message: Message) -> bytes | None:
    """The id by which a terminal knows its answer; None if the record has none."""
    found = [value for name, value in list(message.headers() or []) if name == "correlation-id"]
    first = found[0] if found else None
    return first.encode() if isinstance(first, str) else first
