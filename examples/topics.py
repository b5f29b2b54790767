"""What several examples do with topics: make one, write to it without gaps, and read one to its end."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from confluent_kafka import OFFSET_BEGINNING, OFFSET_END, Consumer, KafkaError, KafkaException, Message, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]

TIMEOUT_S = 30.0
REACHED_S = 6.0  # a broker that has not answered by then is not there


def create_topic(bootstrap: str, name: str, partitions: int, config: Mapping[str, str] | None = None) -> None:
    """Make a topic with as many replicas as the cluster gives by default; one that exists stays as it is."""
    client = AdminClient({"bootstrap.servers": bootstrap, "log_level": 2})
    client.list_topics(timeout=REACHED_S)
    wished = NewTopic(name, partitions, config=dict(config or {}))
    try:
        client.create_topics([wished], operation_timeout=TIMEOUT_S)[name].result(TIMEOUT_S)
    except KafkaException as error:
        if error.args[0].code() != KafkaError.TOPIC_ALREADY_EXISTS:
            raise


def refuse_failure(error: KafkaError | None, _: object) -> None:
    """For `on_delivery`: end where a record is not stored. Later ones may be: going on would hide the gap."""
    if error is not None:
        raise KafkaException(error)


def reader(bootstrap: str) -> Consumer:
    """A consumer of committed records without a group, which tells where partitions end. Its owner assigns."""
    return Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "no-group",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "isolation.level": "read_committed",
            "log_level": 2,  # what goes wrong is raised; the client would tell each try beside it
        }
    )


def from_now_on(bootstrap: str, topic: str) -> Consumer:
    """A reader that stands at the end of every partition: what is written once this has returned is not missed."""
    consumer = reader(bootstrap)
    waiting = set(consumer.list_topics(topic, TIMEOUT_S).topics[topic].partitions)
    consumer.assign([TopicPartition(topic, number, OFFSET_END) for number in waiting])
    while waiting:
        message = consumer.poll(1)
        if message is not None:
            waiting.discard(message.partition() or 0)
    return consumer


def records(bootstrap: str, topic: str, partition: int | None = None, until: int = 0) -> Iterator[Message]:
    """The committed records of a topic, or of one of its partitions, from the start to the end as it is when met.

    Args:
        until: an offset that is known to be reached. A leader that is new may show its end a moment too early.
    """
    consumer = reader(bootstrap)
    try:
        found = consumer.list_topics(topic, TIMEOUT_S).topics[topic].partitions
        waiting = set(found) if partition is None else {partition}
        consumer.assign([TopicPartition(topic, number, OFFSET_BEGINNING) for number in waiting])
        while waiting:
            for message in consumer.consume(1000, 0.5):
                error = message.error()
                if error is None:
                    yield message
                elif error.code() == KafkaError._PARTITION_EOF:
                    if (message.offset() or 0) < until:
                        continue
                    waiting.discard(message.partition() or 0)
                else:
                    raise KafkaException(error)
    finally:
        consumer.close()
