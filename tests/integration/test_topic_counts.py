"""A node drops its counters of a topic when the topic is deleted, even if it is never scraped."""

from __future__ import annotations

from odradek.common.errors import ErrorCode
from odradek.common.metrics import Metrics
from odradek.protocol.apis import ApiKey
from odradek.protocol.messages.delete_topics_request import DeleteTopicsRequest
from odradek.testing import EmbeddedBroker
from tests.support.clients.api_calls import Calls, batch
from tests.support.waiting import eventually


def counted(metrics: Metrics) -> set[object]:
    return {*metrics.topics, *metrics.consumed, *metrics.replicated, *metrics.refused, *metrics.unread}


def test_counts_of_deleted_topics_are_dropped_without_a_scrape() -> None:
    with EmbeddedBroker() as broker, Calls(int(broker.bootstrap_servers.rpartition(":")[2])) as calls:
        assert broker._node is not None
        metrics = broker._node.broker.services.metrics
        kept, topic = calls.create_topic(), calls.create_topic()
        for each in (kept, topic):
            assert calls.produce(each, batch(b"v")).error_code == ErrorCode.NONE
            assert calls.produce(each, b"no batch").error_code != ErrorCode.NONE
            assert calls.read(each).records
            assert calls.read(each, 99).error_code == ErrorCode.OFFSET_OUT_OF_RANGE
        assert counted(metrics) == {kept, topic}
        calls.request(ApiKey.DELETE_TOPICS, 1, DeleteTopicsRequest(topic_names=[topic], timeout_ms=30_000))
        eventually(lambda: counted(metrics) == {kept})
        assert all(kept in each for each in (metrics.topics, metrics.consumed, metrics.refused, metrics.unread))
