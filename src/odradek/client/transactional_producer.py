"""A transactional producer of librdkafka (KIP-98), for commands that write each record once."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from typing import Any

from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from odradek.common.errors import OdradekError

TIMEOUT_S = 30.0
CALL_S = 1.0  # of which a commit has as many as it needs


class TopicCreationError(OdradekError):
    """This user may not create a topic that is needed."""


class TransactionalProducer:
    """Fences an earlier producer with the same transactional id.

    Args:
        settings: of librdkafka.
        timeout_ms: how long a transaction may take.

    Raises:
        KafkaException: the cluster refuses, or does not answer.
    """

    def __init__(self, settings: Mapping[str, Any], transactional_id: str, *, timeout_ms: int) -> None:
        ours = {"transactional.id": transactional_id, "transaction.timeout.ms": timeout_ms}
        self._producer = Producer({**settings, **ours})
        self._producer.init_transactions(TIMEOUT_S)
        self._commit_calls = int((timeout_ms / 1000 + TIMEOUT_S) / CALL_S)

    def close(self) -> None:
        """Disconnect at once: an exception may refer to this object for long, and the client would go on."""
        del self._producer

    def begin(self) -> None:
        self._producer.begin_transaction()

    def produce(self, topic: str, value: str | bytes | None, key: str | bytes | None, **options: Any) -> None:
        """Pass one record to the producer; waits while its queue is full."""
        while True:
            try:
                self._producer.produce(topic, value, key, **options)
                break
            except BufferError:
                self._producer.poll(0.1)
            except KafkaException as error:
                if error.args[0].code() == KafkaError._STATE:  # an earlier record was refused; the commit says which
                    self.commit()
                raise
        self._producer.poll(0)

    def commit(self, offsets: Sequence[TopicPartition] = (), consumer: Consumer | None = None) -> None:
        """Commit the records, and offsets of the consumer's group with them."""
        if consumer is not None:
            self._producer.send_offsets_to_transaction(list(offsets), consumer.consumer_group_metadata(), TIMEOUT_S)
        # May take long after a large transaction: between the calls Python handles signals, and librdkafka continues.
        # Records behind a refused one are not sent any more, so nothing here waits for an empty queue; the next call
        # raises the reason. A fatal error amid a call, as of a fenced producer, comes out of it as SystemError
        # without a reason (confluent-kafka 2.16), and out of the next call with one.
        for calls_left in reversed(range(self._commit_calls)):
            try:
                self._producer.commit_transaction(CALL_S)
                return
            except (SystemError, KafkaException) as error:
                continues = isinstance(error, SystemError) or error.args[0].code() == KafkaError._TIMED_OUT
                if not continues or not calls_left:
                    raise

    @contextmanager
    def aborting(self) -> Iterator[None]:
        """Abort the transaction after an error: `read_committed` consumers would wait for its timeout."""
        try:
            yield
        except BaseException:  # Ctrl-C included
            # There may be none, or another process has fenced this one; the first error is the one to report.
            with suppress(KafkaException):
                self._producer.abort_transaction(TIMEOUT_S)
            raise


def create_missing_topics(admin: AdminClient, topics: Sequence[NewTopic]) -> set[str]:
    """Create the topics that do not exist; returns their names. Users who may not create topics can use others.

    Raises:
        TopicCreationError: one does not exist, and may not be created.
        KafkaException, TimeoutError: the cluster refuses, or does not answer.
    """
    existing = admin.list_topics(timeout=TIMEOUT_S).topics
    missing = [topic for topic in topics if topic.topic not in existing]
    created = admin.create_topics(missing, operation_timeout=TIMEOUT_S) if missing else {}
    for name, future in created.items():
        try:
            future.result(TIMEOUT_S)
        except KafkaException as error:
            code = error.args[0].code()
            if code == KafkaError.TOPIC_AUTHORIZATION_FAILED:
                raise TopicCreationError(
                    f"this user may not create the topic {name}: create it, or allow CREATE"
                ) from None
            if code != KafkaError.TOPIC_ALREADY_EXISTS:
                raise
    return set(created)
