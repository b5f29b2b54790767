"""A transaction coordinator whose log fails or is lost, or whose markers are refused."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from odradek.common.errors import ApiError, ErrorCode, StorageError
from odradek.coordinator.transaction import service
from odradek.statemachine.runtime import State
from tests.component.coordinator.test_transaction_service import MemoryLog, Node, Records, node, reported

__all__ = ["node"]


class LoadedOnRequest(MemoryLog):
    """Its records can be read once `readable` is set; then its disk fails where there is an error."""

    def __init__(self, batches: list[bytes], error: StorageError | None = None) -> None:
        super().__init__()
        self.batches = batches
        self.end_offset = 100
        self.readable = asyncio.Event()
        self.error = error

    async def read_all(self) -> AsyncIterator[Records]:
        await self.readable.wait()
        if self.error is not None:
            raise self.error
        async for records in super().read_all():
            yield records


async def refused(asking: Any) -> ErrorCode:
    with pytest.raises(ApiError) as caught:
        await asking
    return caught.value.code


async def test_a_write_that_is_refused_changes_nothing(node: Node) -> None:
    request = await node.begin()
    node.log.refuse = ApiError(ErrorCode.NOT_ENOUGH_REPLICAS)
    for asking in (
        node.service.add_partitions(request, [("t", 2)]),
        node.service.end(request, commit=True),
        node.service.init_producer_id("y", 60_000, None),
    ):
        assert await refused(asking) is ErrorCode.COORDINATOR_NOT_AVAILABLE
    node.log.refuse = None
    assert (node.state(), node.sent) == ("Ongoing", [])
    assert await node.service.verify_partitions(request, [("t", 0), ("t", 2)]) == {("t", 0)}
    assert (await node.service.describe("y")).error_code == ErrorCode.TRANSACTIONAL_ID_NOT_FOUND


async def test_an_end_whose_completion_is_refused_is_completed_later(
    node: Node, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(service, "COMPLETE_AGAIN_S", 0.01)
    request = await node.begin()
    node.answers = [ErrorCode.NOT_LEADER_OR_FOLLOWER] * 2
    await node.service.end(request, commit=True)
    node.log.refuse = ApiError(ErrorCode.NOT_ENOUGH_REPLICAS)
    await node.wait_until(lambda: len(reported(caplog, "transaction cannot be completed yet")) >= 2)
    assert node.state() == "PrepareCommit"
    node.log.refuse = None
    await node.wait_until(lambda: node.state() == "CompleteCommit")
    assert set(node.sent) == {(1, 0, 1, True), (2, 1, 1, True)}


async def test_between_two_attempts_to_complete_an_end_is_a_pause(
    node: Node, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(service, "COMPLETE_AGAIN_S", 3600)
    request = await node.begin()
    node.answers = [ErrorCode.NOT_LEADER_OR_FOLLOWER] * 2
    await node.service.end(request, commit=True)
    node.log.refuse = ApiError(ErrorCode.NOT_ENOUGH_REPLICAS)
    await node.wait_until(lambda: bool(reported(caplog, "transaction cannot be completed yet")))
    await asyncio.sleep(0.05)
    assert len(reported(caplog, "transaction cannot be completed yet")) == 1 and len(node.sent) == 2


async def test_a_partition_that_has_a_later_epoch_needs_no_marker(node: Node, caplog: pytest.LogCaptureFixture) -> None:
    request = await node.begin()
    node.answers = [ErrorCode.INVALID_PRODUCER_EPOCH] * 2
    await node.service.end(request, commit=True)
    await node.wait_until(lambda: node.state() == "CompleteCommit")
    late = reported(caplog, "marker has an old producer epoch")
    assert node.sent == [] and late == [{"partition": f"t-{each}", "transactional_id": "x"} for each in (0, 1)]


async def test_a_bug_while_markers_are_sent_is_logged_and_others_are_served(
    node: Node, caplog: pytest.LogCaptureFixture
) -> None:
    request = await node.begin()
    node.answers = [ZeroDivisionError("ours")]
    await node.service.end(request, commit=True)
    await node.wait_until(lambda: bool(reported(caplog, "completing a transaction failed")))
    (bug,) = reported(caplog, "completing a transaction failed")
    assert (str(bug["error"]), bug["transactional_id"]) == ("ours", "x")
    assert (await node.service.describe("x")).transaction_state == "PrepareCommit"
    await node.service.init_producer_id("y", 60_000, None)


async def test_after_a_disk_that_fails_no_marker_is_sent(node: Node, caplog: pytest.LogCaptureFixture) -> None:
    request = await node.begin()
    node.answers = [ErrorCode.NOT_LEADER_OR_FOLLOWER] * 1000
    await node.service.end(request, commit=True)
    shard = node.service.shards[0]
    node.log.refuse = StorageError(Path("data"), "the disk is dead")
    assert await refused(node.service.init_producer_id("y", 60_000, None)) is ErrorCode.NOT_COORDINATOR
    assert reported(caplog, "coordinator unloaded")
    node.answers = []
    await node.wait_until(lambda: not shard._tasks)
    assert node.sent == []
    assert (await node.service.describe("x")).error_code == ErrorCode.NOT_COORDINATOR


async def test_a_partition_that_cannot_be_read_has_no_coordinator(caplog: pytest.LogCaptureFixture) -> None:
    log = LoadedOnRequest([], StorageError(Path("data"), "the disk is dead"))
    node = Node(log)
    assert await refused(node.service.init_producer_id("x", 1, None)) is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    log.readable.set()
    await node.wait_until(lambda: node.service.shards[0].runtime.state is State.ENDED)
    assert await refused(node.service.init_producer_id("x", 1, None)) is ErrorCode.NOT_COORDINATOR
    await node.service.close()
    assert [record.getMessage() for record in caplog.records] == ["coordinator unloaded"]


@pytest.mark.parametrize("is_loaded", [False, True])
async def test_a_leadership_that_ends_as_it_begins_sends_no_marker(
    node: Node, is_loaded: bool, caplog: pytest.LogCaptureFixture
) -> None:
    """The leadership ends before the log is read, or before the records that were read are known to be committed."""
    caplog.set_level(logging.INFO)
    request = await node.begin()
    node.answers = [ErrorCode.NOT_LEADER_OR_FOLLOWER] * 1000
    await node.service.end(request, commit=True)
    log = LoadedOnRequest(node.log.batches)
    log.end_offset = node.log.end_offset
    log.committed.clear()
    after = Node(log)
    shard = after.service.shards[0]
    if is_loaded:
        log.readable.set()
        await after.wait_until(lambda: shard.runtime.active)
        await asyncio.sleep(0)
    after.service.on_resigned(0)
    log.readable.set()
    log.committed.set()
    await after.wait_until(lambda: not shard._tasks)
    assert after.sent == []
    assert len(reported(caplog, "transactions loaded")) == is_loaded
    assert not [each for each in caplog.records if each.levelno > logging.INFO]
    await after.service.close()
