"""Fetching over real sockets from a leader that a test plays: connections, timeouts, and the fetched partitions."""

from __future__ import annotations

import gc
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from odradek.common.errors import ErrorCode, StorageError
from odradek.common.real_io import RealClock, RealNetwork
from odradek.common.token_bucket import UNLIMITED
from odradek.log.config import LogConfig
from odradek.protocol.api_key import ApiKey
from odradek.protocol.framing import encode_response
from odradek.protocol.messages.fetch_request import FetchRequest
from odradek.protocol.messages.fetch_response import FetchableTopicResponse, FetchResponse, PartitionData
from odradek.protocol.messages.list_offsets_request import ListOffsetsRequest
from odradek.protocol.messages.list_offsets_response import ListOffsetsResponse
from odradek.record.builder import build_batch
from odradek.record.record import Record
from odradek.replica.config import FetcherConfig
from odradek.replica.fetcher import Fetcher
from odradek.replica.fetcher_manager import ReplicaFetcherManager
from odradek.replica.throttle import Throttled
from tests.component.client.conftest import ScriptedPeer
from tests.support.models.batches import NOW_MS
from tests.support.waiting import eventually_async, some_turns
from tests.unit.replica.test_fetcher import LEADER, ME, TOPIC_ID, Follower, data, forgotten, offsets, positions, sent

LONG_MS = 600_000


class Fetching:
    """Broker 2 with a few partitions that broker 1 leads, which is played here."""

    def __init__(self, directory: Path, peer: ScriptedPeer, **log_config: Any) -> None:
        self.peer = peer
        self.node = Follower(directory, 4, log_config=LogConfig(**log_config))
        self.answers: list[list[PartitionData]] = []
        self.address: tuple[str, int] | None = peer.address
        self.reached: list[int] = []
        self.lost: list[int] = []
        self.failed: list[StorageError] = []
        self.manager = self.make()
        peer.on(ApiKey.FETCH, self._answer)

    def make(self, **settings: int) -> ReplicaFetcherManager:
        self.config = FetcherConfig(**{"backoff_ms": 20, "socket_timeout_ms": LONG_MS, **settings})
        self.manager = ReplicaFetcherManager(
            self.config,
            RealNetwork(),
            RealClock(),
            broker_id=ME,
            broker_epoch=lambda: 77,
            address_of=lambda leader_id: self.address if leader_id == LEADER else None,
            on_storage_failed=self.failed.append,
            on_reached=self.reached.append,
            on_lost=self.lost.append,
        )
        return self.manager

    def follow(self, *numbers: int) -> None:
        for number in numbers:
            self.manager.add_partition(self.node.partitions[number])

    def _answer(self, request: FetchRequest, version: int) -> FetchResponse | None:
        """The next answer; without one the request waits, as at a leader that has nothing new."""
        if not self.answers:
            return None
        topic = FetchableTopicResponse(topic_id=TOPIC_ID, partitions=self.answers.pop(0))
        return FetchResponse(session_id=9, responses=[topic])

    def asked(self) -> list[FetchRequest]:
        return [request for key, _, request in self.peer.asked if key is ApiKey.FETCH]

    async def asked_for(self, count: int) -> FetchRequest:
        await eventually_async(lambda: len(self.asked()) >= count)
        return self.asked()[count - 1]

    async def close(self) -> None:
        await self.manager.close()
        self.node.close()


@pytest.fixture
async def fetching(tmp_path: Path) -> AsyncIterator[Fetching]:
    peer = ScriptedPeer()
    await peer.start()
    made = Fetching(tmp_path, peer)
    yield made
    await made.close()
    await peer.stop()


async def test_a_follower_asks_on_from_what_it_got(fetching: Fetching) -> None:
    records = sent(0, 2, 3)
    fetching.answers = [[data(0, records=records, high_watermark=1)]]
    fetching.follow(0)
    first, second = await fetching.asked_for(1), await fetching.asked_for(2)
    assert (first.replica_state.replica_id, first.replica_state.replica_epoch) == (ME, 77)
    assert (positions(first), positions(second)) == ({0: 0}, {0: 2})
    assert (second.session_id, second.session_epoch) == (9, 1)
    assert fetching.node.log.high_watermark == 1
    assert fetching.manager.appended_bytes == len(records)
    assert (fetching.manager.failed_count, fetching.reached, fetching.lost) == (0, [LEADER], [])
    assert [each.partition for each in fetching.manager] == [fetching.node.partitions[0]]


async def test_a_partition_assigned_meanwhile_is_fetched_at_once(fetching: Fetching) -> None:
    fetching.answers = [[data(0)]]
    fetching.follow(0)
    await fetching.asked_for(2)
    fetching.follow(1)
    assert positions(await fetching.asked_for(3)) == {1: 0}
    assert fetching.peer.connections == 1


async def test_a_partition_is_fetched_again_after_its_pause_while_others_wait(fetching: Fetching) -> None:
    """The pending request waits at the leader for ten minutes."""
    fetching.answers = [[data(0), data(1, error_code=ErrorCode.NOT_LEADER_OR_FOLLOWER)]]
    fetching.follow(0, 1)
    assert positions(await fetching.asked_for(3)) == {1: 0}
    assert fetching.peer.connections == 1 and fetching.manager.failed_count == 0


async def test_records_are_flushed_before_the_next_request_counts_them(fetching: Fetching, tmp_path: Path) -> None:
    (tmp_path / "durable").mkdir()
    durable = Fetching(tmp_path / "durable", fetching.peer, flush_messages=1)
    durable.node.hold((3, 1))
    durable.answers = [[data(0, records=sent(1, 2, 3))]]
    for expected in (1, 3):
        if expected == 1:
            durable.follow(0)
        await eventually_async(lambda expected=expected: durable.node.log.log_end_offset == expected)
        await some_turns()
        assert len(durable.asked()) == expected // 2, "its fetch offset would say that they are safe"
        durable.node.log.flush()
        durable.node.partitions[0].flushed()
        assert positions(await durable.asked_for(1 + expected // 2)) == {0: expected}
    await durable.close()


@pytest.mark.parametrize("throttled", [Throttled(as_leader=True), Throttled(as_follower=True)])
async def test_bytes_of_throttled_replicas_are_spent_from_the_quota(fetching: Fetching, throttled: Throttled) -> None:
    fetching.manager.quota.change_rate(1000, RealClock().monotonic_ms())
    fetching.node.partitions[0].throttled = throttled
    large = Record(None, b"v" * 1_000_000, timestamp_ms=NOW_MS)
    fetching.answers = [[data(0, records=build_batch([large], base_offset=0, leader_epoch=3))]]
    fetching.follow(0)
    await fetching.asked_for(2)
    assert fetching.manager.quota.is_exhausted(RealClock().monotonic_ms()) == throttled.as_follower


async def test_a_pause_is_waited_for_at_rest(fetching: Fetching, monkeypatch: pytest.MonkeyPatch) -> None:
    looks = 0
    has_work = Fetcher.has_work

    def counted(fetcher: Fetcher, now_ms: int) -> bool:
        nonlocal looks
        looks += 1
        return has_work(fetcher, now_ms)

    monkeypatch.setattr(Fetcher, "has_work", counted)
    fetching.make(backoff_ms=80)
    fetching.address = None
    fetching.follow(0)
    await eventually_async(lambda: fetching.manager.failed_count >= 3)
    assert looks <= 12, "it looks when a pause is over, and once more where its timer was early"


async def test_a_quota_that_is_used_up_holds_back_throttled_replicas_that_lag(fetching: Fetching) -> None:
    now_ms = RealClock().monotonic_ms()
    fetching.manager.quota.change_rate(0, now_ms)
    fetching.node.partitions[0].throttled = Throttled(as_follower=True)
    fetching.follow(0, 1)
    assert positions(await fetching.asked_for(1)) == {1: 0}


@pytest.mark.parametrize("rate", [0, 1])
async def test_where_all_is_held_back_the_leader_is_asked_nothing(fetching: Fetching, rate: int) -> None:
    """The quota holds everything back for ever, or until a rate of a byte a second has made up for a billion bytes."""
    now_ms = RealClock().monotonic_ms()
    fetching.manager.quota.change_rate(rate, now_ms)
    fetching.manager.quota.spend(10**9, now_ms)
    fetching.node.partitions[0].throttled = Throttled(as_follower=True)
    fetching.follow(0)
    await eventually_async(lambda: fetching.reached == [LEADER])
    fetching.manager.quota.change_rate(UNLIMITED, RealClock().monotonic_ms())
    assert positions(await fetching.asked_for(1)) == {0: 0}, "a changed rate is noticed in a second"
    assert fetching.manager.failed_count == 0


async def test_a_leader_that_is_too_old_is_not_asked(fetching: Fetching) -> None:
    fetching.peer.on(ApiKey.FETCH, lambda request, version: None, versions=(4, 14))
    fetching.follow(0)
    await eventually_async(lambda: fetching.manager.failed_count >= 2)
    assert fetching.asked() == []
    (followed,) = fetching.manager
    assert "knows Fetch only up to version 14" in followed.reason
    fetching.peer.on(ApiKey.FETCH, lambda request, version: None, versions=(4, 15))
    await fetching.asked_for(1)


async def test_one_that_does_not_answer_in_time_is_connected_to_again(fetching: Fetching) -> None:
    fetching.make(socket_timeout_ms=30)
    fetching.follow(0)
    second = await fetching.asked_for(2)
    assert fetching.peer.connections >= 2 and fetching.manager.failed_count >= 1
    assert (second.session_id, second.session_epoch, positions(second)) == (0, 0, {0: 0})
    assert fetching.lost == [], "it is the follower who ended it"
    (followed,) = fetching.manager
    await eventually_async(lambda: followed.reason == "RequestTimeoutError: broker 1 does not answer")


async def test_a_connection_that_ends_is_reported_and_made_again(fetching: Fetching) -> None:
    fetching.follow(0)
    await fetching.asked_for(1)
    await fetching.peer.hang_up()
    await fetching.asked_for(2)
    assert (fetching.reached, fetching.lost, fetching.manager.failed_count) == ([LEADER, LEADER], [LEADER], 1)


async def test_no_request_is_sent_on_a_lost_connection(
    fetching: Fetching, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The error of such a request would be raised nowhere, and be logged once its future is collected."""
    peer, received = fetching.peer, Fetcher.received

    def answer(request: FetchRequest, version: int) -> Any:
        if len(fetching.asked()) != 3:
            return fetching._answer(request, version)
        waiting = len(peer.asked) - 2  # the request before this one
        return b"".join(encode_response(ApiKey.FETCH, version, waiting, FetchResponse(session_id=9)))

    def received_and_lost(fetcher: Fetcher, *given: Any, **named: Any) -> Any:
        processed = received(fetcher, *given, **named)
        if len(fetching.asked()) == 3:
            fetching.follow(2)
            (task,) = fetching.manager._tasks.values()
            task._disconnect()
        return processed

    monkeypatch.setattr(Fetcher, "received", received_and_lost)
    peer.on(ApiKey.FETCH, answer)
    fetching.answers = [[data(0)]]
    fetching.follow(0)
    await fetching.asked_for(2)
    fetching.follow(1)
    await fetching.asked_for(4)
    gc.collect()
    assert fetching.manager.failed_count == 1
    assert [each.getMessage() for each in caplog.records if each.name == "asyncio"] == []


async def test_a_leader_without_an_address_is_waited_for(fetching: Fetching) -> None:
    address, fetching.address = fetching.address, None
    fetching.follow(0)
    await eventually_async(lambda: fetching.manager.failed_count >= 2)
    assert fetching.peer.connections == 0
    fetching.address = address
    await fetching.asked_for(1)


async def test_partitions_leave_the_fetch_session_and_the_last_ends_it(fetching: Fetching) -> None:
    fetching.answers = [[data(0), data(1)]]
    fetching.follow(0, 1)
    await fetching.asked_for(2)
    fetching.manager.remove_partition(fetching.node.partitions[1])
    fetching.manager.remove_partition(fetching.node.partitions[1])
    fetching.node.change(2, leader_epoch=4)
    fetching.follow(2)
    third = await fetching.asked_for(3)
    assert (positions(third), forgotten(third)) == ({2: 0}, [1])
    fetching.manager.remove_partition(fetching.node.partitions[0])
    fetching.manager.remove_partition(fetching.node.partitions[2])
    assert list(fetching.manager) == []
    await eventually_async(lambda: fetching.peer.open_connections == 0)
    fetching.follow(0)
    again = await fetching.asked_for(4)
    assert (again.session_id, positions(again), fetching.peer.connections) == (0, {0: 0}, 2)


async def test_another_leader_is_asked_over_another_connection(fetching: Fetching) -> None:
    fetching.follow(0, 1)
    await fetching.asked_for(1)
    fetching.node.partitions[0].leader_id = 5
    fetching.follow(0)
    await eventually_async(lambda: fetching.manager.failed_count >= 1)
    assert {each.partition.name for each in fetching.manager} == {"t-0", "t-1"}
    assert fetching.peer.connections == 1, "nothing is known of where the other one is"


@pytest.mark.parametrize(("count", "connections"), [(1, 1), (2, 2), (4, 4)])
async def test_partitions_are_spread_over_fetchers(fetching: Fetching, count: int, connections: int) -> None:
    fetching.make(fetcher_count=count)
    fetching.follow(0, 1, 2, 3)
    await fetching.asked_for(connections)
    asked = [sorted(positions(request)) for request in fetching.asked()]
    assert sorted(asked) == [list(range(number, 4, count)) for number in range(count)]
    assert fetching.peer.connections == connections


async def test_another_number_of_fetchers_spreads_them_again(fetching: Fetching) -> None:
    fetching.answers = [[data(number) for number in range(4)]]
    fetching.follow(0, 1, 2, 3)
    await fetching.asked_for(2)
    fetching.manager.change_config(FetcherConfig(fetcher_count=2, max_bytes=77, socket_timeout_ms=LONG_MS))
    await fetching.asked_for(4)
    other, own = sorted(fetching.asked()[2:4], key=lambda request: request.session_id)
    assert (other.session_id, own.session_id) == (0, 9)
    assert sorted(positions(other)) == forgotten(own) in ([0, 2], [1, 3])
    assert len(list(fetching.manager)) == 4 and fetching.peer.connections == 2


async def test_other_settings_hold_for_the_next_request(fetching: Fetching) -> None:
    fetching.answers = [[data(0)]]
    fetching.follow(0)
    await fetching.asked_for(2)
    fetching.manager.change_config(FetcherConfig(max_bytes=77, socket_timeout_ms=LONG_MS))
    fetching.follow(1)
    third = await fetching.asked_for(3)
    assert third.topics[0].partitions[0].partition_max_bytes == 77
    assert fetching.peer.connections == 1, "the connection stays"


async def test_after_the_end_nothing_is_fetched(fetching: Fetching) -> None:
    fetching.follow(0)
    await fetching.asked_for(1)
    (task,) = (each.task for each in fetching.manager._tasks.values())
    await fetching.manager.close()
    assert task.done()
    fetching.follow(1)
    assert list(fetching.manager) == [] and len(fetching.asked()) == 1


async def test_a_follower_out_of_range_asks_for_the_leaders_bounds(fetching: Fetching) -> None:
    timestamps: list[int] = []

    def bounds(request: ListOffsetsRequest, version: int) -> ListOffsetsResponse:
        timestamps.append(request.topics[0].partitions[0].timestamp)
        return offsets(10 if timestamps[-1] == -4 else 20)

    fetching.peer.on(ApiKey.LIST_OFFSETS, bounds)
    fetching.answers = [[data(0, error_code=ErrorCode.OFFSET_OUT_OF_RANGE)]]
    fetching.follow(0)
    again = await fetching.asked_for(2)
    assert (timestamps, positions(again)) == ([-4, -1], {0: 10})
    assert fetching.node.log.log_start_offset == 10


async def test_a_disk_that_fails_is_reported_and_its_partition_left(fetching: Fetching, tmp_path: Path) -> None:
    fetching.answers = [[data(0, records=sent(0, 1, 3)), data(1, records=sent(0, 1, 3))]]
    fetching.node.disk.dead = {tmp_path / "t-0"}
    fetching.follow(0, 1)
    await eventually_async(lambda: fetching.node.partitions[1].log.log_end_offset == 1)
    assert [failure.log_dir for failure in fetching.failed] == [tmp_path]
    assert [each.partition.name for each in fetching.manager] == ["t-1"]


async def test_a_bug_of_ours_is_logged_and_does_not_end_the_fetching(
    fetching: Fetching, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(*given: Any, **named: Any) -> Any:
        raise RuntimeError("a bug")

    fetching.answers = [[data(0, records=sent(0, 1, 3))], [data(0, records=sent(0, 1, 3))]]
    monkeypatch.setattr("odradek.replica.fetcher.append_from_leader", fails)
    fetching.follow(0)
    await eventually_async(lambda: fetching.manager.failed_count == 1)
    monkeypatch.undo()
    await eventually_async(lambda: fetching.node.log.log_end_offset == 1)
    assert len([each for each in caplog.records if each.getMessage() == "fetch failed"]) == 1
