"""The times at which snapshots are due and old ones deleted, and the offset at which a replica goes on from one."""

from __future__ import annotations

from pathlib import Path
from random import Random
from typing import Any

from odradek.metadata.publisher import MetadataPublisher
from odradek.raft.config import RaftConfig
from odradek.raft.quorum_state import ElectionState
from odradek.raft.snapshot import SnapshotId
from odradek.raft.storage import QuorumStorage
from odradek.raft.voters import ReplicaKey, VoterSet
from tests.sim.disk import DiskFaults, SimDisk
from tests.support.nodes.quorum_node import QuorumNode

INTERVAL_MS = 3_600_000
GROUP = 32


async def started(root: Path, **raft: Any) -> tuple[QuorumNode, QuorumStorage]:
    settings: dict[str, Any] = {"snapshot_interval_ms": INTERVAL_MS, **raft}
    node = await QuorumNode(root, **settings).start()
    return node, node.driver.storage


async def test_a_snapshot_is_due_by_time_or_bytes_where_there_is_anything_new(tmp_path: Path) -> None:
    node, storage = await started(tmp_path, snapshot_bytes=1 << 20)
    assert await node.set_config(GROUP, "g", "x", "1") == 0
    assert not storage.snapshot_due(INTERVAL_MS - 1)
    assert storage.snapshot_due(INTERVAL_MS)
    storage.bytes_since_snapshot = 1 << 20
    assert storage.snapshot_due(0)
    await node.driver.write_snapshot()
    assert storage.bytes_since_snapshot < 1 << 20
    assert not storage.snapshot_due(INTERVAL_MS), "it would hold the same"
    assert await node.set_config(GROUP, "g", "x", "2") == 0
    assert storage.snapshot_due(INTERVAL_MS)
    await node.stop()


async def test_without_an_interval_only_bytes_count(tmp_path: Path) -> None:
    node, storage = await started(tmp_path, snapshot_interval_ms=0)
    assert await node.set_config(GROUP, "g", "x", "1") == 0
    assert not storage.snapshot_due(1 << 40)
    await node.stop()


async def test_a_snapshot_is_kept_for_its_time_and_the_newest_for_ever(tmp_path: Path) -> None:
    node, storage = await started(tmp_path, retention_ms=INTERVAL_MS)
    made: list[SnapshotId] = []
    for value in ("1", "2"):
        assert await node.set_config(GROUP, "g", "x", value) == 0
        made.append(await node.driver.write_snapshot())
        await node.driver.durable()
    written_ms = node.disk.modified_ms(node.directory / made[0].file_name)
    storage.clean(written_ms + INTERVAL_MS)
    assert storage.snapshots[-2:] == made
    storage.clean(written_ms + INTERVAL_MS + 1)
    assert storage.snapshots == made[1:]
    assert not (node.directory / made[0].file_name).exists()
    storage.clean(written_ms + 1000 * INTERVAL_MS)
    assert storage.snapshots == made[1:]
    await node.stop()


async def test_files_that_a_new_controller_has_yet_to_read_are_not_removed(tmp_path: Path) -> None:
    """It reads the newest snapshot and the log behind it, in slices, between which a newer snapshot may be written."""
    node, storage = await started(tmp_path, retention_bytes=1)
    assert await node.set_config(GROUP, "g", "x", "1") == 0
    first = await node.driver.write_snapshot()
    await node.driver.durable()
    assert await node.set_config(GROUP, "g", "x", "2") == 0
    slices = storage.slices()
    next(slices)
    second = await node.driver.write_snapshot()
    await node.driver.durable()
    end_offset = storage.log.log_end_offset
    storage.clean(0)
    assert storage.snapshots[-2:] == [first, second]
    read = [offset for records in slices for offset, _ in records]
    assert read == [*range(first.end_offset, end_offset)]
    storage.clean(0)
    assert storage.snapshots == [second]
    walk = storage.slices()
    next(walk)
    del walk
    assert await node.set_config(GROUP, "g", "x", "3") == 0
    third = await node.driver.write_snapshot()
    await node.driver.durable()
    storage.clean(0)
    assert storage.snapshots == [third], "a walk that was given up keeps nothing"
    await node.stop()


async def test_a_fetch_from_a_snapshots_end_needs_the_snapshots_history(tmp_path: Path) -> None:
    node, storage = await started(tmp_path, retention_bytes=1)
    for value in ("1", "2"):
        assert await node.set_config(GROUP, "g", "x", value) == 0
        newest = await node.driver.write_snapshot()
        await node.driver.durable()
    start_offset = storage.log.log_start_offset
    assert start_offset == newest.end_offset > 0
    assert storage.check_fetch(start_offset, newest.leader_epoch) is None
    assert storage.check_fetch(start_offset, newest.leader_epoch + 1) == newest
    assert storage.check_fetch(start_offset, newest.leader_epoch - 1) == newest
    assert storage.check_fetch(start_offset - 1, newest.leader_epoch) == newest
    await node.stop()


def test_a_vote_in_a_new_directory_survives_a_loss_of_power() -> None:
    cast = ElectionState(leader_epoch=7, voted=ReplicaKey(2))
    for seed in range(30):
        disk = SimDisk(Random(seed), DiskFaults(), lambda: 0)

        def storage(disk: SimDisk = disk) -> QuorumStorage:
            return QuorumStorage(disk, Path("/data/of/metadata"), RaftConfig(), MetadataPublisher(), VoterSet())

        first = storage()
        first.open()
        first.store_state(cast, "a-cluster")
        disk.lose_power()
        assert storage().open() == cast
