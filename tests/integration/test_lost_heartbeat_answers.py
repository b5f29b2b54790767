"""A stock consumer that does not get the one answer to a heartbeat that asks it to give up partitions."""

from __future__ import annotations

import logging
from contextlib import closing
from pathlib import Path
from typing import Any

from confluent_kafka import Consumer

from odradek.protocol.apis import ApiKey
from odradek.protocol.messages.consumer_group_heartbeat_request import ConsumerGroupHeartbeatRequest
from tests.support.clients.confluent import create_topic
from tests.support.clients.wire import Wire
from tests.support.nodes.node import Node
from tests.support.waiting import eventually

TOPIC = "halves"
SETTINGS = {
    "group.consumer.min.heartbeat.interval.ms": 1000,
    "group.consumer.heartbeat.interval.ms": 1000,  # librdkafka waits as long for the answer
    "group.consumer.min.session.timeout.ms": 60_000,
    "group.consumer.session.timeout.ms": 60_000,
}
LOST = "Timed out ConsumerGroupHeartbeatRequest in flight"


class Lines(logging.Handler):
    """A handler that collects the log lines of a client."""

    def __init__(self) -> None:
        super().__init__()
        self.lines: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.lines.append(record.getMessage())


def test_a_member_gives_up_a_half_though_it_did_not_hear_so_at_first(tmp_path: Path) -> None:
    logged = Lines()
    logger = logging.Logger("client")
    logger.addHandler(logged)
    with Node(tmp_path, SETTINGS) as node:
        create_topic(node.bootstrap, TOPIC, 6)
        config = {"bootstrap.servers": node.bootstrap, "group.id": TOPIC, "group.protocol": "consumer"}
        with closing(Consumer(config, logger=logger)) as consumer, Wire(node.port) as wire:
            consumer.subscribe([TOPIC])
            epoch = 0

            def owned() -> int:
                consumer.poll(0.05)
                return len(consumer.assignment())

            def beat(**fields: Any) -> int:
                """The number of partitions that the other member is assigned."""
                nonlocal epoch
                request = ConsumerGroupHeartbeatRequest(group_id=TOPIC, member_id="m", **fields)
                answer = wire.request(ApiKey.CONSUMER_GROUP_HEARTBEAT, 1, request)
                assert answer.error_code == 0, answer
                epoch = answer.member_epoch
                given = answer.assignment.topic_partitions if answer.assignment else []
                return sum(len(each.partitions) for each in given)

            eventually(lambda: owned() == 6, "the first member has all")
            beat(rebalance_timeout_ms=60_000, subscribed_topic_names=[TOPIC], topic_partitions=[])
            node.pause()
            logged.lines.clear()
            try:
                eventually(lambda: owned() and any(LOST in line for line in logged.lines), lambda: logged.lines)
            finally:
                node.resume()
            eventually(lambda: owned() == 3, "it gives up a half")
            eventually(lambda: beat(member_epoch=epoch) == 3, "the other member gets it")
            beat(member_epoch=-1)
