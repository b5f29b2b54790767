"""A broker's requests to the controller: topics on first use, blocks of producer ids, and waiting for own metadata."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from odradek.common.errors import ApiError, ErrorCode
from odradek.protocol.messages.create_topics_request import CreateTopicsRequest
from odradek.server.auto_topic_creation import AutoCreateConfig, TopicCreator, wait_until_seen
from odradek.server.transactions.producer_ids import ProducerIdBlocks
from tests.support.models.controller_harness import wanted
from tests.support.nodes.quorum_node import QuorumNode


@pytest.fixture
async def node(tmp_path: Path) -> AsyncIterator[QuorumNode]:
    started = await QuorumNode(tmp_path).start()
    await started.add_broker(1)
    yield started
    await started.stop()


def epoch_of(node: QuorumNode) -> int:
    return node.publisher.image.brokers[1].broker_epoch


class TestTopics:
    async def test_concurrent_requests_create_one_topic(self, node: QuorumNode) -> None:
        creator = TopicCreator(AutoCreateConfig(), node.service, node.publisher)
        await asyncio.gather(*(creator.create("t") for _ in range(20)))
        assert node.publisher.image.topic("t") is not None
        await creator.close()

    async def test_a_cancelled_request_does_not_cancel_the_creation(self, node: QuorumNode) -> None:
        creator = TopicCreator(AutoCreateConfig(), node.service, node.publisher)
        gone = asyncio.ensure_future(creator.create("t"))
        await asyncio.sleep(0)
        staying = asyncio.ensure_future(creator.create("t"))
        await asyncio.sleep(0)
        gone.cancel()
        await staying
        assert node.publisher.image.topic("t") is not None
        await creator.close()

    async def test_a_refusal_is_passed_on(self, node: QuorumNode) -> None:
        creator = TopicCreator(AutoCreateConfig(), node.service, node.publisher)
        with pytest.raises(ApiError) as caught:
            await creator.create("no good")
        assert caught.value.code is ErrorCode.INVALID_TOPIC_EXCEPTION
        with pytest.raises(ApiError) as caught:
            await creator.create_with("t", 1, 3, {})
        assert caught.value.code is ErrorCode.INVALID_REPLICATION_FACTOR
        await creator.create("t")
        await creator.close()


class TestSeeing:
    async def test_an_existing_topic_is_not_waited_for(self, node: QuorumNode) -> None:
        assert await wait_until_seen(node.publisher, lambda image: True, timeout_ms=0)

    async def test_a_created_topic_is_waited_for(self, node: QuorumNode) -> None:
        waiting = asyncio.ensure_future(wait_until_seen(node.publisher, lambda image: image.topic("t") is not None))
        await asyncio.sleep(0)
        await node.service.create_topics(CreateTopicsRequest(topics=[wanted("t")]))
        assert await waiting

    async def test_the_wait_for_a_topic_times_out(self, node: QuorumNode) -> None:
        started = time.monotonic()
        assert not await wait_until_seen(node.publisher, lambda image: False, timeout_ms=50)
        assert time.monotonic() - started > 0.04


class TestProducerIds:
    async def test_ids_over_several_blocks_are_all_different(self, node: QuorumNode) -> None:
        blocks = ProducerIdBlocks(node.service, 1, lambda: epoch_of(node))
        ids = [await blocks.next_id() for _ in range(2500)]
        assert len(set(ids)) == 2500
        together = await asyncio.gather(*(blocks.next_id() for _ in range(1500)))
        assert not set(together) & set(ids)
        assert len(set(together)) == 1500
        await blocks.close()

    async def test_another_start_gets_other_ids(self, node: QuorumNode) -> None:
        found = []
        for _ in range(2):
            blocks = ProducerIdBlocks(node.service, 1, lambda: epoch_of(node))
            found.append(await blocks.next_id())
            await blocks.close()
        assert found[0] < found[1]

    async def test_a_controller_that_gives_none_is_asked_again_later(self, node: QuorumNode) -> None:
        epoch = -1  # which the controller knows of no broker
        blocks = ProducerIdBlocks(node.service, 1, lambda: epoch)
        for _ in range(2):
            with pytest.raises(ApiError) as caught:
                await blocks.next_id()
            assert caught.value.code is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        epoch = epoch_of(node)
        assert await blocks.next_id() >= 0
        await blocks.close()
