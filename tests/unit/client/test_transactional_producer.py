"""Commits of librdkafka that need several calls."""

from __future__ import annotations

from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException

from odradek.client.transactional_producer import TransactionalProducer

TIMED_OUT = KafkaException(KafkaError(KafkaError._TIMED_OUT))
TOO_LARGE = KafkaException(KafkaError(KafkaError.MSG_SIZE_TOO_LARGE))


class Client:
    """A librdkafka producer with these outcomes of `commit_transaction`, and a record that it sends no more."""

    def __init__(self, *outcomes: Exception | None) -> None:
        self.outcomes = list(outcomes)

    def __call__(self, settings: dict[str, Any]) -> Client:
        return self

    def init_transactions(self, timeout_s: float) -> None:
        pass

    def flush(self, timeout_s: float) -> int:
        pytest.fail("a commit waits for a record that librdkafka sends no more")

    def commit_transaction(self, timeout_s: float) -> None:
        if (outcome := self.outcomes.pop(0)) is not None:
            raise outcome


@pytest.mark.parametrize("interrupted", [TIMED_OUT, SystemError("returned NULL without setting an exception")])
@pytest.mark.parametrize("outcome", [None, TOO_LARGE])
def test_a_commit_takes_as_many_calls_as_it_needs(
    monkeypatch: pytest.MonkeyPatch, interrupted: Exception, outcome: KafkaException | None
) -> None:
    """librdkafka keeps records that were waiting behind a refused one until the transaction times out."""
    client = Client(interrupted, interrupted, outcome)
    monkeypatch.setattr("odradek.client.transactional_producer.Producer", client)
    producer = TransactionalProducer({}, "name", timeout_ms=60_000)
    if outcome is None:
        producer.commit()
    else:
        with pytest.raises(KafkaException) as refused:
            producer.commit()
        assert refused.value is outcome
    assert not client.outcomes


def test_a_commit_ends_after_the_transactions_timeout(monkeypatch: pytest.MonkeyPatch) -> None:
    client = Client(*[TIMED_OUT] * 100)
    monkeypatch.setattr("odradek.client.transactional_producer.Producer", client)
    with pytest.raises(KafkaException, match="TIMED_OUT"):
        TransactionalProducer({}, "name", timeout_ms=60_000).commit()
    assert len(client.outcomes) == 10, "after 60 and 30 calls of a second each"
