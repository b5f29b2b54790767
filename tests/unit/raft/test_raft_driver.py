"""A replica whose disk or program fails, or that has lost leadership: the results of calls, and the notifications."""

from __future__ import annotations

import asyncio
import errno
from collections.abc import Callable
from random import Random
from types import SimpleNamespace
from typing import Any

import pytest

from odradek.common.errors import ApiError, ConfigError, ErrorCode, OdradekError, StorageError
from odradek.common.real_io import RealClock
from odradek.common.steps import all_steps
from odradek.metadata.publisher import MetadataPublisher
from odradek.protocol.messages.topic_record import TopicRecord
from odradek.raft.config import RaftConfig
from odradek.raft.driver import RaftDriver
from odradek.raft.messages import EpochBegun, EpochEnded, LogEnd, Ready, VoteRequested
from odradek.raft.node import ReplicaState
from odradek.raft.quorum_state import ElectionState
from odradek.raft.roles import Role
from odradek.raft.snapshot import SnapshotId
from odradek.raft.snapshot_writer import SnapshotWriter
from odradek.raft.space import Space
from odradek.raft.voters import Voter, VoterSet
from tests.sim.disk import DiskFaults, SimDisk
from tests.support.waiting import PATIENCE_S, eventually_async
from tests.unit.raft.test_raft_edges import HOME, disk_of
from tests.unit.raft.test_raft_node import key

ALONE = VoterSet([Voter(key(1), {})])
PAIR = VoterSet([Voter(key(1), {}), Voter(key(2), {})])
QUICK = {"sync_ms": (0.0, 0.0)}


class Home:
    """Node 1 over a disk that fails when the test says so."""

    def __init__(self, voters: VoterSet = ALONE, peers: Any = None, **raft: Any) -> None:
        self.disk: SimDisk = disk_of(**QUICK)
        self.failures: list[BaseException] = []
        self.elected: list[int] = []
        self.sent: list[tuple[int, Any]] = []
        self.driver = RaftDriver(
            self.disk, RealClock(), Random(1), HOME, me=key(1), voters=voters, cluster_id="c",
            config=RaftConfig(**raft), publisher=MetadataPublisher(), peers=peers,
            on_elected=self.elected.append, on_failed=self.failures.append,
        )  # fmt: skip

    async def start(self) -> Home:
        await self.driver.start()
        await self.driver.durable()
        self.driver._outgoing.enqueue = lambda node_id, message: self.sent.append((node_id, message))  # type: ignore[method-assign]  # the test replaces it
        return self

    async def stop(self) -> None:
        self.disk.faults = DiskFaults(**QUICK)  # type: ignore[arg-type]  # each field is a float
        await self.driver.stop()

    def fails(self) -> None:
        self.disk.faults.write_error = self.disk.faults.sync_error = 1.0

    def is_full(self) -> None:
        self.disk.faults.capacity_bytes = self.disk.used_bytes()

    def append(self) -> int:
        return self.driver.append([all_steps(self.driver.prepare([TopicRecord(name="t")], atomic=True))])


def refused(action: Callable[[], object]) -> ErrorCode:
    with pytest.raises(ApiError) as error:
        action()
    return error.value.code


async def test_several_voters_need_a_way_to_reach_each_other() -> None:
    with pytest.raises(ConfigError, match=r"the quorum has the voters \(1, 2\); this node can only vote alone"):
        await Home(PAIR).driver.start()


async def test_a_leader_whose_log_fails_serves_nothing_more_and_is_reported_once() -> None:
    home = await Home().start()
    end_offset = home.driver.end_offset
    home.fails()
    for _ in range(2):
        with (
            pytest.raises(StorageError, match="simulated write error") if not home.failures else pytest.raises(ApiError)
        ):
            home.append()
    assert len(home.failures) == 1
    assert refused(home.append) is ErrorCode.NOT_CONTROLLER
    assert refused(home.driver.describe) is ErrorCode.NOT_LEADER_OR_FOLLOWER
    for offset in (end_offset, end_offset + 1):
        with pytest.raises(StorageError, match="simulated write error"):
            await home.driver.wait_committed(offset)
    await home.stop()


@pytest.mark.parametrize("error", [RuntimeError("a bug"), ApiError(ErrorCode.NOT_CONTROLLER), StorageError(HOME, "")])
async def test_a_follower_goes_on_after_a_full_disk_alone(error: Exception, monkeypatch: pytest.MonkeyPatch) -> None:
    home = await Home().start()
    ends = [ApiError(ErrorCode.KAFKA_STORAGE_ERROR), error]
    found_full: list[int] = []

    async def fails() -> bool:
        home.driver._leader_changed.set()  # it does not pause
        raise ends.pop(0)

    monkeypatch.setattr(home.driver._follower, "round", fails)
    monkeypatch.setattr(home.driver._space, "on_disk_full", lambda: found_full.append(len(ends)))
    await asyncio.wait_for(home.driver._follow(), PATIENCE_S)
    assert (ends, found_full, home.failures) == ([], [1], [error])
    await home.stop()


async def test_a_leader_whose_log_fails_leaves_leading_to_the_others() -> None:
    home = await Home().start()
    home.driver.node.voters_changed(PAIR, 0)
    home.fails()
    with pytest.raises(StorageError):
        home.append()
    ((to, ended),) = home.sent
    assert (to, type(ended)) == (2, EpochEnded)
    await home.stop()


async def test_one_that_resigned_says_that_it_is_no_controller() -> None:
    home = await Home().start()
    end_offset = home.driver.end_offset
    home.driver.node.voters_changed(PAIR, 0)
    ready = Ready()
    home.driver.node.resign(RealClock().monotonic_ms(), ready)
    home.driver.apply_ready(ready)
    assert refused(home.append) is ErrorCode.NOT_CONTROLLER
    assert refused(home.driver.describe) is ErrorCode.NOT_LEADER_OR_FOLLOWER
    await home.driver.wait_committed(end_offset)
    with pytest.raises(ApiError) as error:
        await home.driver.wait_committed(end_offset + 1)
    assert error.value.code is ErrorCode.NOT_CONTROLLER
    with pytest.raises(ApiError) as error:
        await home.driver.changes.upgrade(1)
    assert error.value.code is ErrorCode.NOT_LEADER_OR_FOLLOWER
    await home.stop()


@pytest.mark.parametrize("fault", ["fails", "is_full"])
async def test_a_single_voter_that_cannot_store_its_vote_stops(fault: str) -> None:
    """A full disk too: without the vote it could lead an epoch twice."""
    home = await Home().start()
    getattr(home, fault)()
    with pytest.raises(StorageError, match="the vote cannot be made durable"):
        home.driver.apply_ready(Ready(persist=ElectionState(9, -1, key(1))))
    assert len(home.failures) == 1
    await home.stop()


async def test_a_single_voter_refuses_what_it_has_no_space_for_and_goes_on() -> None:
    home = await Home().start()
    home.is_full()
    assert refused(home.append) is ErrorCode.KAFKA_STORAGE_ERROR
    assert home.driver.leads
    home.disk.faults = DiskFaults(**QUICK)  # type: ignore[arg-type]  # each field is a float
    await home.driver.wait_committed(home.append())
    await home.stop()


@pytest.mark.parametrize("voters", [ALONE, PAIR], ids=["alone", "others"])
async def test_an_epoch_that_cannot_be_written_has_no_leader(voters: VoterSet) -> None:
    home = await Home().start()
    home.driver.node.voters_changed(voters, 0)
    home.is_full()
    before = len(home.elected)
    ready = Ready(elected=True)
    if voters is ALONE:
        assert refused(lambda: home.driver.apply_ready(ready)) is ErrorCode.KAFKA_STORAGE_ERROR
    else:
        home.driver.apply_ready(ready)
        await asyncio.sleep(0)
        assert home.driver.node.role is Role.RESIGNED
        assert [type(message) for _, message in home.sent] == [EpochEnded], "no voter hears of a leader"
    assert len(home.elected) == before and not home.failures
    await home.stop()


@pytest.mark.parametrize(
    "part", ["node.tick", "storage.log.begin_flush", "_follower.round", "changes.send_membership_request"]
)
async def test_a_bug_in_the_background_stops_the_node(monkeypatch: pytest.MonkeyPatch, part: str) -> None:
    for name in ("node.IDLE_TICK_MS", "driver.IDLE_TICK_MS", "driver.VOTER_CHANGE_INTERVAL_MS"):
        monkeypatch.setattr(f"odradek.raft.{name}", 1)
    home = await Home(peers=SimpleNamespace(close=lambda: None)).start()
    error: Exception = RuntimeError("a bug")
    owner: Any = home.driver
    *names, last = part.split(".")
    for name in names:
        owner = getattr(owner, name)

    def fail(*_: object) -> None:
        raise error

    monkeypatch.setattr(owner, last, fail)
    if part.startswith("storage"):
        home.append()
    await eventually_async(lambda: home.failures)
    assert home.failures == [error] and not home.driver.leads
    await home.stop()


class Silent:
    """Peers that never answer."""

    def __init__(self) -> None:
        self.asked: list[Any] = []

    async def send(self, endpoint: Any, *_: object, **__: object) -> Any:
        self.asked.append(endpoint)
        await asyncio.get_running_loop().create_future()

    def drop(self, endpoint: Any, key: Any) -> None: ...

    def close(self) -> None: ...


async def test_a_follower_that_waits_asks_a_new_leader_at_once() -> None:
    peers = Silent()
    members = VoterSet(Voter(key(each), {"CONTROLLER": (f"node-{each}", 9093)}) for each in (1, 2, 3))
    home = await Home(members, peers).start()
    for leader_id, leader_epoch in ((2, 1), (3, 2), (2, 3)):
        begun = EpochBegun(leader_id, leader_epoch)
        home.driver.apply_ready(home.driver.node.step(begun, RealClock().monotonic_ms()))
        await eventually_async(lambda leader_id=leader_id: peers.asked[-1:] == [(f"node-{leader_id}", 9093)])
    await home.stop()


async def test_a_snapshot_is_written_in_time_though_nothing_is_appended(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    home = await Home(snapshot_interval_ms=3_600_000).start()
    await home.driver.wait_committed(home.append())
    await home.driver.durable()
    assert not home.driver.storage.snapshots
    monkeypatch.setattr(home.driver._snapshots, "_began_ms", RealClock().monotonic_ms() - 3_600_000)
    home.driver._tick_now.set()
    await eventually_async(lambda: home.driver.storage.snapshots)
    await home.stop()


# -- parts ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "error", [OSError(errno.ENOSPC, "full"), OSError(errno.EIO, "broken"), RuntimeError("a bug")], ids=repr
)
async def test_only_for_want_of_space_a_node_goes_on_without_a_snapshot(error: Exception) -> None:
    failures: list[BaseException] = []

    def write() -> None:
        raise error

    storage: Any = SimpleNamespace(
        snapshot_due=lambda ms: True, snapshot_writer=lambda now_ms: (SnapshotId(1, 1), write)
    )
    writer = SnapshotWriter(
        storage, disk=disk_of(**QUICK), clock=RealClock(), sync_soon=lambda: None, on_failed=failures.append
    )
    writer.write_if_due()
    await writer.close()
    assert failures == ([] if getattr(error, "errno", 0) == errno.ENOSPC else [error])


@pytest.mark.parametrize("error", [OSError(errno.EIO, "broken"), StorageError(HOME, "the vote")], ids=repr)
async def test_a_disk_that_fails_a_trial_write_stops_the_node(error: Exception) -> None:
    class Host:
        def apply_ready(self, ready: Ready) -> None:
            if isinstance(error, OdradekError):
                raise error

        def call_soon(self, work: Callable[[], None]) -> None: ...

        async def pause(self, pause_ms: int) -> None: ...

    def probe() -> None:
        if isinstance(error, OSError):
            raise error

    home = await Home().start()
    storage: Any = SimpleNamespace(probe=probe, directory=HOME)
    space = Space(Host(), home.driver.node, storage, disk=home.disk, clock=RealClock(), cluster_id="c")
    failures: list[BaseException] = []
    space._full = True
    await space.watch(failures.append)
    (failure,) = failures
    assert isinstance(failure, StorageError) and failure.log_dir == HOME
    await home.stop()


async def test_a_description_has_the_times_of_each_replica() -> None:
    """The times are of the wall clock; -1 if a replica has not fetched or not caught up yet."""
    home = await Home().start()
    node = home.driver.node
    node.replicas[key(7)] = ReplicaState(end_offset=3, last_fetch_ms=0, last_caught_up_ms=-1)
    node.replicas[key(8)] = ReplicaState(end_offset=2, last_fetch_ms=400, last_caught_up_ms=100)
    topic = home.driver._incoming.describe(1_000_000, 500).topics[0]
    (partition,) = topic.partitions
    assert (partition.leader_id, partition.leader_epoch) == (1, node.leader_epoch)
    assert (partition.high_watermark, partition.error_code) == (node.high_watermark, ErrorCode.NONE)
    found = [
        (each.replica_id, each.log_end_offset, each.last_fetch_timestamp, each.last_caught_up_timestamp)
        for each in (*partition.current_voters, *partition.observers)
    ]
    end = home.driver.end_offset
    assert found == [(1, end, 1_000_000, 1_000_000), (7, 3, 999_500, -1), (8, 2, 999_900, 999_600)]
    assert len(partition.current_voters) == 1
    await home.stop()


async def test_without_space_for_a_vote_none_is_asked_for() -> None:
    """On a full disk a pre-vote, which does not depend on the own vote, is still sent."""
    home = await Home().start()
    home.driver.node.voters_changed(PAIR, 0)
    vote, pre_vote = (VoteRequested(key(1), 9, LogEnd(0, 0), pre_vote=each) for each in (False, True))
    for is_full, left in ((False, [vote, pre_vote]), (True, [pre_vote])):
        if is_full:
            home.is_full()
        ready = Ready(persist=ElectionState(9, -1, key(1)), messages=[(2, vote), (2, pre_vote)])
        home.driver._space.persist(ready)
        assert [message for _, message in ready.messages] == left
        assert home.driver._space._is_state_unsynced is is_full
    await home.stop()


async def test_a_commit_is_waited_for_as_long_as_is_asked() -> None:
    home = await Home().start()
    end_offset = home.driver.end_offset
    await home.driver.wait_committed_within(end_offset, 0)
    for timeout_ms in (0, 1):
        with pytest.raises(ApiError, match=f"not committed within {timeout_ms} ms") as error:
            await asyncio.wait_for(home.driver.wait_committed_within(end_offset + 1, timeout_ms), PATIENCE_S)
        assert error.value.code is ErrorCode.REQUEST_TIMED_OUT
    await home.stop()
