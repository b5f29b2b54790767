"""A damaged batch is fetched from a replica that a test plays: the requests, the accepted batches, and the retries."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest

from odradek.client.connection import Connection, connect
from odradek.common.errors import ErrorCode, OdradekError, StorageError
from odradek.common.real_io import RealNetwork
from odradek.log.files import FileCache
from odradek.log.recovery import load_producers
from odradek.log.truncation import truncate_fully_and_start_at, truncate_to
from odradek.protocol.api_key import ApiKey
from odradek.protocol.messages.fetch_request import FetchRequest
from odradek.protocol.messages.fetch_response import FetchableTopicResponse, FetchResponse, PartitionData
from odradek.record.batch import HEADER_BYTES
from odradek.replica.partition import Partition
from odradek.replica.repair_service import RepairService
from odradek.replica.waiters import DataWait
from tests.component.client.conftest import ScriptedPeer
from tests.support.models.batches import batch
from tests.support.waiting import eventually_async, some_turns
from tests.unit.replica.test_partition import ME, Home

PAUSE_MS = 1_000


class Repairing:
    """Broker 1 leads five batches that broker 2 has too; the second one is damaged here."""

    def __init__(self, directory: Path, peer: ScriptedPeer, **config: Any) -> None:
        self.at_ms = 1000
        self.peer = peer
        self.home = Home(directory, (ME, 2), **config)
        for number in range(5):
            self.home.append(b"%05d" % number * 20)
        self.home.fetched(2, 5)
        self.segment = self.home.log.segments[0]
        self.size = self.segment.size_bytes // 5
        self.path = directory / "t-0" / "00000000000000000000.log"
        self.whole = self.path.read_bytes()
        damaged = bytearray(self.whole)
        damaged[2 * self.size - 1] ^= 1
        self.path.write_bytes(damaged)
        self.failed: list[StorageError] = []
        self.connect_error: Exception | None = None
        self.answers: list[PartitionData | FetchResponse] = []
        peer.on(ApiKey.FETCH, self._answer)
        clock: Any = self
        self.service = RepairService(
            self.home.disk,
            clock,
            FileCache(self.home.disk),
            broker_id=ME,
            connect_to=self._connect,
            on_storage_failed=self.failed.append,
        )

    def now_ms(self) -> int:
        return self.at_ms

    def monotonic_ms(self) -> int:
        return self.at_ms

    async def _connect(self, broker_id: int) -> Connection:
        assert broker_id == 2
        error, self.connect_error = self.connect_error, None
        if error is not None:
            raise error
        return await connect(RealNetwork(), *self.peer.address, client_id="test", timeout_s=60)

    def _answer(self, request: FetchRequest, version: int) -> FetchResponse:
        answer = self.answers.pop(0) if self.answers else PartitionData(records=self.whole[self.size :])
        if isinstance(answer, FetchResponse):
            return answer
        return FetchResponse(
            responses=[FetchableTopicResponse(topic_id=self.home.partition.topic_id, partitions=[answer])]
        )

    def request(self) -> bool:
        return self.service.request(self.home.partition, self.segment, self.size)

    async def ends(self) -> None:
        await eventually_async(lambda: not self.home.partition.is_being_repaired)

    def asked(self) -> list[FetchRequest]:
        return [request for key, _, request in self.peer.asked if key is ApiKey.FETCH]


@pytest.fixture
async def repairing(tmp_path: Path) -> AsyncIterator[Repairing]:
    peer = ScriptedPeer()
    await peer.start()
    made = Repairing(tmp_path, peer)
    yield made
    await made.service.close()
    await peer.stop()
    made.home.disk.close()


async def test_damaged_batches_are_fetched_as_a_consumer_fetches(repairing: Repairing) -> None:
    reader = DataWait([repairing.home.partition], missing_bytes=1 << 20, timeout_ms=600_000)
    assert repairing.request()
    assert repairing.request(), "it is under way"
    assert repairing.home.partition.is_being_repaired
    await repairing.ends()
    assert repairing.path.read_bytes() == repairing.whole
    (asked,) = repairing.asked()
    (part,) = asked.topics[0].partitions
    assert asked.topics[0].topic_id == repairing.home.partition.topic_id
    assert (part.partition, part.fetch_offset, part.current_leader_epoch) == (0, 1, -1)
    assert (asked.max_wait_ms, asked.min_bytes, asked.session_epoch) == (0, 0, -1)
    assert asked.max_bytes == part.partition_max_bytes == 4 * 1024 * 1024
    counts = repairing.service.counts
    assert (counts.repaired_batches, counts.repaired_bytes, counts.failures) == (1, repairing.size, 0)
    assert repairing.home.log.damage.repair_count == 1
    assert repairing.failed == []
    assert reader.future.done(), "who waits there reads again"


async def test_the_last_batch_of_a_log_is_repaired(repairing: Repairing) -> None:
    damaged, size = bytearray(repairing.whole), repairing.size
    damaged[-1] ^= 1
    repairing.path.write_bytes(damaged)
    repairing.answers = [PartitionData(records=repairing.whole[4 * size :])]
    assert repairing.service.request(repairing.home.partition, repairing.segment, 4 * size)
    await repairing.ends()
    assert repairing.path.read_bytes() == repairing.whole


async def test_the_leader_is_asked_first_then_replicas_in_sync_then_the_others(repairing: Repairing) -> None:
    asked: list[int] = []

    async def connect_to(broker_id: int) -> Connection:
        asked.append(broker_id)
        raise OdradekError("it is stopped")

    repairing.service._connect_to = connect_to
    replicas = (ME, 4, 0, 3)
    repairing.home.change(replicas=replicas, isr=(ME, 0, 3), leader=3, leader_epoch=1)
    assert repairing.request()
    await repairing.ends()
    repairing.home.change(replicas=replicas, isr=(4, 0), leader=-1, leader_epoch=2)
    repairing.at_ms += PAUSE_MS
    assert repairing.request()
    await repairing.ends()
    assert asked == [3, 0, 4, 4, 0, 3]


async def test_four_partitions_are_repaired_at_once(
    repairing: Repairing, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    running: list[str] = []
    gate = asyncio.Event()

    async def repair(partition: Partition, segment: object, position: int) -> bool:
        running.append(partition.name)
        await gate.wait()
        return True

    monkeypatch.setattr(repairing.service, "_repair", repair)
    homes = []
    for number in range(5):
        (tmp_path / f"{number}").mkdir()
        homes.append(Home(tmp_path / f"{number}", (ME, 2)))
        assert repairing.service.request(homes[-1].partition, repairing.segment, 0)
    await some_turns()
    assert len(running) == 4
    gate.set()
    await eventually_async(lambda: not any(home.partition.is_being_repaired for home in homes))
    assert len(running) == 5
    for home in homes:
        home.disk.close()


@pytest.mark.parametrize(
    "answer",
    [
        PartitionData(error_code=ErrorCode.NOT_LEADER_OR_FOLLOWER),
        FetchResponse(error_code=ErrorCode.UNKNOWN_SERVER_ERROR),
        PartitionData(error_code=ErrorCode.OFFSET_OUT_OF_RANGE),
    ],
    ids=["it is no replica", "an error of the whole", "it has not so much"],
)
async def test_where_no_replica_has_it_the_next_try_comes_after_a_pause(
    repairing: Repairing, answer: PartitionData | FetchResponse
) -> None:
    damaged = repairing.path.read_bytes()
    repairing.answers = [answer]
    assert repairing.request()
    await repairing.ends()
    assert repairing.path.read_bytes() == damaged
    assert (repairing.service.counts.failures, repairing.service.counts.repaired_batches) == (1, 0)
    repairing.at_ms += PAUSE_MS - 1
    assert not repairing.request()
    repairing.at_ms += 1
    assert repairing.request()
    await repairing.ends()
    assert repairing.path.read_bytes() == repairing.whole


async def test_pauses_grow_while_no_replica_has_it(repairing: Repairing) -> None:
    """The other replicas may be stopped: then readers wait at most twice as long as that takes."""
    damaged = repairing.path.read_bytes()
    for is_whole, pause_ms in (
        [(False, 1_000 << n) for n in range(5)] + [(False, 30_000)] * 2 + [(True, 0), (False, 1_000)]
    ):
        repairing.path.write_bytes(damaged)
        repairing.answers = [] if is_whole else [PartitionData(error_code=ErrorCode.OFFSET_OUT_OF_RANGE)]
        assert repairing.request()
        await repairing.ends()
        repairing.at_ms += pause_ms - 1
        assert is_whole or not repairing.request()
        repairing.at_ms += 1


@pytest.mark.parametrize("error", [StorageError(Path("/data"), "gone"), ValueError("of ours")], ids=["disk", "other"])
async def test_an_error_ends_a_repair_and_not_the_service(
    repairing: Repairing, error: Exception, caplog: pytest.LogCaptureFixture
) -> None:
    repairing.connect_error = error
    assert repairing.request()
    await repairing.ends()
    is_storage = isinstance(error, StorageError)
    assert repairing.failed == ([error] if is_storage else [])
    assert ("a repair failed" in caplog.text) is not is_storage
    assert repairing.service.counts.failures == 1
    assert not repairing.request(), "the next try comes after a pause"
    repairing.at_ms += PAUSE_MS
    assert repairing.request()
    await repairing.ends()
    assert repairing.path.read_bytes() == repairing.whole


async def test_a_log_that_is_cut_meanwhile_is_not_written(repairing: Repairing) -> None:
    log = repairing.home.log

    def cuts(request: FetchRequest, version: int) -> FetchResponse:
        truncate_to(log, 1)
        return repairing._answer(request, version)

    repairing.peer.on(ApiKey.FETCH, cuts)
    assert repairing.request()
    await repairing.ends()
    assert repairing.path.read_bytes() == repairing.whole[: repairing.size]
    assert (repairing.service.counts.failures, repairing.service.counts.repaired_batches) == (1, 0)


async def test_a_log_that_begins_again_amid_a_repair_was_not_repaired(repairing: Repairing) -> None:
    log, run = repairing.home.log, repairing.home.disk.run_blocking

    async def restarting(work: Callable[[], Any]) -> Any:
        result = await run(work)
        truncate_fully_and_start_at(log, 9)
        return result

    repairing.home.disk.run_blocking = restarting  # type: ignore[method-assign]  # the test replaces it
    assert repairing.request()
    await repairing.ends()
    assert (repairing.service.counts.failures, repairing.service.counts.repaired_batches) == (1, 0)
    assert log.damage.repair_count == 0 and not repairing.failed


async def test_a_replica_that_has_nothing_yet_is_asked_again(repairing: Repairing) -> None:
    repairing.answers = [PartitionData(records=b""), PartitionData(records=None)]
    assert repairing.request()
    await repairing.ends()
    assert repairing.path.read_bytes() == repairing.whole
    assert len(repairing.asked()) == 3


async def test_patience_has_an_end(repairing: Repairing) -> None:
    repairing.answers = [PartitionData(records=b"")] * 99
    assert repairing.request()
    await eventually_async(lambda: len(repairing.asked()) == 2)
    repairing.at_ms += 5000
    await repairing.ends()
    assert repairing.service.counts.failures == 1 and len(repairing.asked()) <= 4


async def test_a_hole_may_come_in_pieces(repairing: Repairing) -> None:
    size = repairing.size
    damaged = bytearray(repairing.whole)
    for number in (2, 3, 4):
        damaged[number * size - 1] ^= 1
    repairing.path.write_bytes(damaged)
    first, rest = repairing.whole[size : 3 * size + size // 2], repairing.whole[3 * size :]
    repairing.answers = [PartitionData(records=first), PartitionData(records=rest)]
    assert repairing.request()
    await repairing.ends()
    assert repairing.path.read_bytes() == repairing.whole
    assert [asked.topics[0].partitions[0].fetch_offset for asked in repairing.asked()] == [1, 3]


async def test_a_shorter_batch_in_the_place_of_a_damaged_one_is_not_taken(repairing: Repairing) -> None:
    """It has the same offset and leader epoch, and would leave a gap of bytes in the segment."""
    damaged, size = repairing.path.read_bytes(), repairing.size
    other = bytearray(batch(b"short"))
    other[0:8], other[12:16] = repairing.whole[size : size + 8], repairing.whole[size + 12 : size + 16]
    assert len(other) < size
    repairing.answers = [PartitionData(records=bytes(other) + repairing.whole[2 * size :])]
    assert repairing.request()
    await repairing.ends()
    assert repairing.path.read_bytes() == damaged
    assert (repairing.service.counts.failures, repairing.service.counts.repaired_batches) == (1, 0)


async def test_an_earlier_hole_is_repaired_first_and_the_one_asked_for_too(repairing: Repairing) -> None:
    size = repairing.size
    damaged = bytearray(repairing.whole)
    for number in (2, 4):
        damaged[number * size - 1] ^= 1
    repairing.path.write_bytes(damaged)
    repairing.answers = [PartitionData(records=repairing.whole[number * size :]) for number in (1, 3)]
    reported = repairing.home.log.damage._reported
    for number in (1, 3):
        repairing.home.log.damage.report(repairing.segment, number * size, number)
    assert repairing.service.request(repairing.home.partition, repairing.segment, 3 * size)
    await repairing.ends()
    assert repairing.path.read_bytes() == repairing.whole
    assert [asked.topics[0].partitions[0].fetch_offset for asked in repairing.asked()] == [1, 3]
    assert repairing.service.counts.repaired_batches == 2
    assert (repairing.segment.base_offset, size) not in reported, "damage there would be reported again"


async def test_batches_compacted_away_elsewhere_are_left_out(repairing: Repairing, tmp_path: Path) -> None:
    (tmp_path / "other").mkdir()
    other = Repairing(tmp_path / "other", repairing.peer, cleanup_policy=("compact",))
    log, size = other.home.log, other.size
    other.answers = [PartitionData(records=other.whole[2 * size :])]
    assert other.request()
    await other.ends()
    assert other.segment not in log.segments, "another file has the batches around the hole"
    assert other.path.read_bytes() == other.whole[:size] + other.whole[2 * size :]
    assert (other.service.counts.failures, log.damage.repair_count) == (0, 1)
    assert log.log_end_offset == 5
    await other.service.close()
    other.home.disk.close()


NOT_THERE = "no replica has an intact copy of a damaged batch"


@pytest.mark.parametrize("is_closed", [False, True])
async def test_a_partition_that_is_closed_meanwhile_misses_nothing(
    repairing: Repairing, caplog: pytest.LogCaptureFixture, is_closed: bool
) -> None:
    def refuses(request: FetchRequest, version: int) -> FetchResponse:
        if is_closed:
            repairing.home.partition.close()
        return FetchResponse(error_code=ErrorCode.UNKNOWN_SERVER_ERROR)

    repairing.peer.on(ApiKey.FETCH, refuses)
    damaged = repairing.path.read_bytes()
    assert repairing.request()
    await repairing.ends()
    assert [each for each in caplog.messages if each == NOT_THERE] == ([] if is_closed else [NOT_THERE])
    assert (repairing.service.counts.failures, repairing.path.read_bytes()) == (1, damaged)


async def test_deleted_or_single_replicas_are_not_repaired(repairing: Repairing) -> None:
    repairing.home.change(isr=(ME,), replicas=(ME,))
    assert not repairing.request(), "there is no other replica"
    repairing.home.change(replicas=(ME, 2))
    await repairing.service.close()
    assert not repairing.request()
    repairing.home.partition.close()
    assert not repairing.request()


@pytest.mark.parametrize(("version", "is_asked"), [(14, False), (15, True)])
async def test_a_replica_that_is_too_old_is_not_asked(repairing: Repairing, version: int, is_asked: bool) -> None:
    repairing.peer.on(ApiKey.FETCH, repairing._answer, versions=(4, version))
    assert repairing.request()
    await repairing.ends()
    assert (len(repairing.asked()), repairing.service.counts.failures) == (int(is_asked), int(not is_asked))


async def test_a_close_ends_what_is_under_way(repairing: Repairing) -> None:
    repairing.peer.on(ApiKey.FETCH, lambda request, version: None)
    assert repairing.request()
    await eventually_async(lambda: len(repairing.asked()) == 1)
    await repairing.service.close()
    assert not repairing.home.partition.is_being_repaired
    assert repairing.service.counts.failures == 0, "it was not given a chance"


async def test_the_producer_of_a_batch_that_a_start_did_not_see_is_known_again(repairing: Repairing) -> None:
    log, size = repairing.home.log, repairing.segment.size_bytes
    repairing.path.write_bytes(repairing.whole)
    repairing.home.append(b"p", producer_id=7, sequence=3)
    repairing.home.append(b"q", producer_id=8, sequence=4)
    repairing.home.fetched(2, 7)
    whole = repairing.path.read_bytes()
    repairing.path.write_bytes(whole[:size] + bytes(HEADER_BYTES) + whole[size + HEADER_BYTES :])
    log.producers = load_producers(repairing.home.disk, log.directory, list(log.segments), log.log_end_offset, [])
    assert list(log.producers.producers) == [8]
    repairing.answers = [PartitionData(records=whole[size:])]
    assert repairing.service.request(repairing.home.partition, repairing.segment, size)
    await repairing.ends()
    assert repairing.path.read_bytes() == whole
    assert {key: each.last_sequence for key, each in log.producers.producers.items()} == {7: 3, 8: 4}
