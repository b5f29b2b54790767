"""Markers of transactions: for topics that are failed back, for mirrors, and requests that end early."""

from __future__ import annotations

import asyncio
import gc
from types import SimpleNamespace
from typing import Any, cast

import pytest

from odradek.common.errors import ApiError, ErrorCode
from odradek.coordinator.group.records import OFFSETS_TOPIC
from odradek.protocol.messages.write_txn_markers_request import (
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
)
from odradek.server.transactions import marker_writer
from odradek.server.transactions.marker_writer import MarkerWriter


@pytest.mark.parametrize(("is_failing_back", "code"), [(True, ErrorCode.NOT_ENOUGH_REPLICAS), (False, ErrorCode.NONE)])
def test_markers_wait_for_the_end_of_a_failback(*, is_failing_back: bool, code: ErrorCode) -> None:
    """Should it be given up, its coordinator's decision counts: a mirror's transactions were ended by its source."""
    replicas = SimpleNamespace(
        mirrors=frozenset({"t"}),
        failing_back=frozenset({"t"} if is_failing_back else ()),
        find=lambda *_: SimpleNamespace(check_leader=lambda: None),
    )
    work = MarkerWriter(cast(Any, replicas), cast(Any, None), cast(Any, None), lambda: cast(Any, None))
    topic = WritableTxnMarkerTopic(name="t", partition_indexes=[0])
    marker = WritableTxnMarker(
        producer_id=1, producer_epoch=0, transaction_result=True, topics=[topic], coordinator_epoch=0
    )
    response = asyncio.run(work.write(WriteTxnMarkersRequest(markers=[marker])))
    (answer,) = response.markers[0].topics[0].partitions
    assert answer.error_code == code


class Parts:
    """Partitions of the topic `t` that have their markers, not committed yet, and a group coordinator that waits."""

    def __init__(self, broken: int | None = None) -> None:
        """`broken` is the partition of `t` for which an unexpected error is raised."""
        self.broken = broken
        self.commits: list[asyncio.Future[None]] = []
        self.begun: list[int] = []
        self.ended: list[int] = []
        # The markers of __consumer_offsets wait for this.
        self.offsets: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        # What the event loop has reported: errors that no one has looked at.
        self.reported: list[str] = []
        asyncio.get_running_loop().set_exception_handler(lambda _, context: self.reported.append(context["message"]))
        producers = SimpleNamespace(clear_verification=lambda *_: None, must_write_marker=lambda *_: False)
        self.partition = SimpleNamespace(
            check_leader=lambda: None,
            log=SimpleNamespace(producers=producers, log_end_offset=1),
            wait_replicated=self.wait_replicated,
        )
        replicas = SimpleNamespace(mirrors=frozenset(), find=self.find)
        self.writer = MarkerWriter(cast(Any, replicas), cast(Any, self), cast(Any, None), lambda: cast(Any, None))

    def find(self, topic: str, partition_id: int, image: object) -> object:
        if partition_id == self.broken:
            raise RuntimeError("unexpected")
        return self.partition

    def wait_replicated(self, end_offset: int) -> asyncio.Future[None]:
        self.commits.append(asyncio.get_running_loop().create_future())
        return self.commits[-1]

    async def end_transaction(self, partition_id: int, end: object, transaction_version: int) -> None:
        self.begun.append(partition_id)
        try:
            await asyncio.shield(self.offsets)
        finally:
            self.ended.append(partition_id)

    def leave(self) -> None:
        """The broker stops to lead the partitions: commits that are waited for fail."""
        for commit in self.commits:
            if not commit.done():
                commit.set_exception(ApiError(ErrorCode.NOT_LEADER_OR_FOLLOWER))

    def assert_nothing_is_left(self) -> None:
        """Check that there are no tasks, no commits whose errors are not looked at, no coroutines never awaited."""
        assert asyncio.all_tasks() == {asyncio.current_task()}
        assert self.begun == self.ended
        self.leave()
        self.commits.clear()
        # Pytest makes errors of the warnings that the collector finds.
        gc.collect()
        assert self.reported == []


def markers(*topics: tuple[str, list[int]]) -> WriteTxnMarkersRequest:
    marker = WritableTxnMarker(producer_id=1, producer_epoch=0, transaction_result=True, coordinator_epoch=0)
    marker.topics = [WritableTxnMarkerTopic(name=name, partition_indexes=numbers) for name, numbers in topics]
    return WriteTxnMarkersRequest(markers=[marker])


SOME = [(OFFSETS_TOPIC, [3, 4]), ("t", [0, 1]), (OFFSETS_TOPIC, [5])]


async def test_no_marker_waits_for_the_commit_of_another() -> None:
    parts = Parts()
    work = asyncio.create_task(parts.writer.write(markers(*SOME)))
    for _ in range(5):
        await asyncio.sleep(0)
    assert (parts.begun, len(parts.commits), work.done()) == ([3, 4, 5], 2, False)
    parts.offsets.set_result(None)
    parts.commits[0].set_result(None)
    parts.leave()
    (marker,) = (await work).markers
    codes = [[answer.error_code for answer in topic.partitions] for topic in marker.topics]
    assert codes == [[0, 0], [0, ErrorCode.NOT_LEADER_OR_FOLLOWER], [0]]
    parts.assert_nothing_is_left()


@pytest.mark.parametrize("per_turn", [1, 4, 100])
@pytest.mark.parametrize("turns", range(1, 12))
async def test_a_cancelled_request_leaves_nothing(turns: int, per_turn: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Cancellation while markers are begun, before their tasks run, and while commits are waited for."""
    monkeypatch.setattr(marker_writer, "MARKERS_PER_TURN", per_turn)
    parts = Parts()
    work = asyncio.create_task(parts.writer.write(markers(*SOME)))
    for _ in range(turns):
        await asyncio.sleep(0)
    work.cancel()
    with pytest.raises(asyncio.CancelledError):
        await work
    parts.assert_nothing_is_left()


@pytest.mark.parametrize("per_turn", [1, 4, 100])
async def test_an_unexpected_error_while_markers_are_begun(per_turn: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(marker_writer, "MARKERS_PER_TURN", per_turn)
    parts = Parts(broken=2)
    with pytest.raises(RuntimeError, match="unexpected"):
        await parts.writer.write(markers((OFFSETS_TOPIC, [3, 4]), ("t", [0, 1, 2]), (OFFSETS_TOPIC, [5])))
    parts.assert_nothing_is_left()


@pytest.mark.parametrize("has_failed", [True, False])
async def test_an_unexpected_error_while_commits_are_waited_for(*, has_failed: bool) -> None:
    """The other markers are not waited for."""
    parts = Parts()
    if has_failed:
        parts.offsets.set_exception(RuntimeError("unexpected"))
    else:
        asyncio.get_running_loop().call_soon(lambda: parts.commits[0].set_exception(RuntimeError("unexpected")))
    with pytest.raises(RuntimeError, match="unexpected"):
        await parts.writer.write(markers((OFFSETS_TOPIC, [3, 4]), ("t", [0, 1])))
    parts.assert_nothing_is_left()
