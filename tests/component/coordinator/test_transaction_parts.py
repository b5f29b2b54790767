"""The producer that may use a transactional id, the metrics of expiry, and a log that is placed late."""

from __future__ import annotations

import pytest

from odradek.common.errors import ApiError, ErrorCode
from odradek.coordinator.group.records import OFFSETS_TOPIC
from odradek.coordinator.transaction.config import TransactionConfig
from odradek.coordinator.transaction.machine import Request
from tests.component.coordinator.test_group_service import Node as GroupNode
from tests.component.coordinator.test_group_service import offsets_image
from tests.component.coordinator.test_transaction_service import Node


async def test_a_producer_of_another_id_ends_no_transaction() -> None:
    node = Node()
    await node.wait_until(lambda: node.service.shards[0].runtime.active)
    request = await node.begin()
    producer_id, epoch = request.producer_id, request.producer_epoch
    for other in ((producer_id + 1, epoch), (-1, epoch)):
        with pytest.raises(ApiError) as refused:
            await node.service.init_producer_id("x", 60_000, other)
        assert refused.value.code is ErrorCode.PRODUCER_FENCED
        assert node.state() == "Ongoing", "it has not aborted what another has open"
    await node.service.close()


async def test_transactions_and_ids_whose_time_is_over_are_counted() -> None:
    node = Node(config=TransactionConfig(abort_check_interval_ms=5, expiry_check_interval_ms=5, id_expiration_ms=300))
    await node.wait_until(lambda: node.service.shards[0].runtime.active)
    shard = node.service.shards[0]
    for name in ("x", "y"):
        producer_id, epoch = await node.service.init_producer_id(name, 1, None)
        await node.service.add_partitions(Request(name, producer_id, epoch, 2), [("t", 0)])
    await node.wait_until(lambda: not shard.machine.ids)
    assert (node.service.counts.timed_out, node.service.counts.expired_ids) == (2, 2)
    await node.service.close()


async def test_a_shard_whose_log_is_placed_late_is_begun_by_the_leader_alone() -> None:
    node = GroupNode()
    node.service.log_placed("another", 0)
    node.service.log_placed(OFFSETS_TOPIC, 5)
    node.image = offsets_image(leader=2)
    node.service.log_placed(OFFSETS_TOPIC, 0)
    assert not node.service.shards
    node.image = offsets_image(leader=1)
    node.service.log_placed(OFFSETS_TOPIC, 0)
    await node.loaded()
    await node.service.close()
