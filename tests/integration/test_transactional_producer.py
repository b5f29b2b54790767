"""The producer of `odradek capture` and `odradek merge` on a real broker."""

from __future__ import annotations

from contextlib import closing

import pytest
from confluent_kafka import KafkaError, KafkaException

from odradek.client.transactional_producer import TransactionalProducer
from tests.support.clients.confluent import create_topic
from tests.support.nodes.node import Node


def test_a_record_after_a_refused_one_has_the_reason(node: Node) -> None:
    """The error names the reason of the refusal, and not the state of the client."""
    topic = "after.a.refused.one"
    create_topic(node.bootstrap, topic)
    settings = {"bootstrap.servers": node.bootstrap, "message.max.bytes": 3_000_000, "log_level": 2}
    with closing(TransactionalProducer(settings, topic, timeout_ms=60_000)) as producer:
        producer.begin()
        with pytest.raises(KafkaException) as refused, producer.aborting():
            producer.produce(topic, bytes(2_000_000), None)
            while True:
                producer.produce(topic, b"", None)
    assert refused.value.args[0].code() == KafkaError.MSG_SIZE_TOO_LARGE
