"""A controller over real files: committed state survives a stop, a kill, a snapshot; damage is reported."""

from __future__ import annotations

import asyncio
import json
import os
import random
from contextlib import suppress
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

from odradek.common.errors import ApiError, ErrorCode, StorageError
from odradek.common.real_io import RealDisk, RealFile
from odradek.metadata.features import default_levels
from odradek.metadata.image import MetadataImage
from odradek.protocol.messages.create_topics_request import CreateTopicsRequest
from odradek.protocol.messages.delete_topics_request import DeleteTopicsRequest
from odradek.protocol.messages.describe_quorum_request import DescribeQuorumRequest
from odradek.protocol.messages.feature_level_record import FeatureLevelRecord
from odradek.protocol.messages.update_features_request import UpdateFeaturesRequest
from odradek.protocol.messages.voters_record import Endpoint, KRaftVersionFeature, Voter, VotersRecord
from odradek.raft.metadata_log import DIRECTORY, SYNCED_OFFSET
from odradek.raft.quorum_state import uuid_text
from odradek.raft.snapshot import SnapshotId, encode_snapshot, read_snapshot, snapshot_ids, write_snapshot
from odradek.raft.voters import ReplicaKey
from odradek.record.reader import read_batches
from tests.support.models.controller_harness import wanted
from tests.support.nodes.quorum_node import QuorumNode


async def test_a_new_cluster_begins_with_the_default_features(tmp_path: Path) -> None:
    node = await QuorumNode(tmp_path).start()
    assert dict(node.publisher.image.features) == default_levels(30)
    assert node.publisher.image.config(4, "") == {"min.insync.replicas": "1"}
    assert node.publisher.image.controller_id == 1
    state = json.loads((node.directory / "quorum-state").read_text())
    assert (state["leaderId"], state["leaderEpoch"], state["votedId"], state["data_version"]) == (1, 1, 1, 0)
    await node.stop()
    assert (node.directory / "partition.metadata").exists() and (node.directory / "leader-epoch-checkpoint").exists()


async def test_a_new_cluster_begins_with_the_formatted_state(tmp_path: Path) -> None:
    records = [FeatureLevelRecord(name="metadata.version", feature_level=25)]
    node = await QuorumNode(tmp_path, bootstrap=records).start()
    assert dict(node.publisher.image.features) == {"metadata.version": 25}
    await node.stop()


@pytest.mark.parametrize("clean", [True, False])
async def test_acknowledged_changes_survive_a_restart(tmp_path: Path, clean: bool) -> None:
    node = await QuorumNode(tmp_path).start()
    await node.add_broker(1)
    await node.service.create_topics(CreateTopicsRequest(topics=[wanted("a", 3), wanted("b")]))
    await node.service.delete_topics(DeleteTopicsRequest(topic_names=["b"], timeout_ms=5000))
    assert await node.set_config(2, "a", "retention.ms", "7") == 0
    before = node.publisher.image
    await (node.stop() if clean else node.drop())
    again = await QuorumNode(tmp_path).start()
    after = again.publisher.image
    assert after.topics_by_name == before.topics_by_name and after.configs == before.configs
    assert after.brokers == before.brokers and after.offset == before.offset
    assert again.driver.leader_epoch == 2
    assert (await again.service.create_topics(CreateTopicsRequest(topics=[wanted("a")]))).topics[
        0
    ].error_code == ErrorCode.TOPIC_ALREADY_EXISTS
    assert not again.failures
    await again.stop()


async def test_twenty_thousand_changes_are_there_after_a_kill(tmp_path: Path) -> None:
    node = await QuorumNode(tmp_path).start()
    for start in range(0, 20_000, 1000):
        answers = await asyncio.gather(
            *(node.set_config(32, f"group-{number % 500}", "x", str(number)) for number in range(start, start + 1000))
        )
        assert not any(answers)
    before = node.publisher.image
    await node.drop()
    async with asyncio.timeout(120):  # against a hang
        again = await QuorumNode(tmp_path).start()
    assert again.publisher.image.configs == before.configs
    assert again.publisher.image.config(32, "group-499") == {"x": "19999"}
    await again.stop()


async def test_snapshots_are_written_and_old_files_go(tmp_path: Path) -> None:
    limits: dict[str, Any] = {"snapshot_bytes": 20_000, "retention_bytes": 60_000}
    node = await QuorumNode(tmp_path, **limits).start()
    epoch = await node.add_broker(1)
    for number in range(1500):
        await node.set_config(32, f"g{number % 20}", "x", "v" * 40 + str(number))
    await node.beat(1, epoch)
    disk = RealDisk()

    def total() -> int:
        sizes = 0
        for path in node.directory.iterdir():
            with suppress(FileNotFoundError):  # an old one that has just gone
                sizes += path.stat().st_size
        return sizes

    async with asyncio.timeout(60):  # what is written and removed beside the loop takes its time
        while total() >= 150_000 or node.driver.log.log_start_offset == 0:  # noqa: ASYNC110 - the log grows beside the loop
            await asyncio.sleep(0.01)
    ids = snapshot_ids(disk, node.directory)
    assert ids and ids[-1].end_offset > 500
    before = node.publisher.image
    await node.drop()
    again = await QuorumNode(tmp_path, **limits).start()
    assert again.publisher.image.configs == before.configs and again.publisher.image.brokers == before.brokers
    machine = again.service._machine
    assert machine is not None and machine.state.configs == before.configs
    assert (await again.service.create_topics(CreateTopicsRequest(topics=[wanted("t")]))).topics[0].error_code == 0
    disk.close()
    await again.stop()


async def test_a_snapshot_by_hand_holds_the_image(tmp_path: Path) -> None:
    node = await QuorumNode(tmp_path).start()
    await node.add_broker(1)
    await node.service.create_topics(CreateTopicsRequest(topics=[wanted("a", 50)]))
    snapshot_id = await node.driver.write_snapshot()
    image = node.publisher.image
    snapshot = read_snapshot(node.disk, node.directory / snapshot_id.file_name)
    assert snapshot.complete and snapshot_id.end_offset == image.offset + 1
    from odradek.metadata.delta import MetadataDelta

    delta = MetadataDelta(MetadataImage(cluster_id=image.cluster_id, controller_id=image.controller_id))
    for record in snapshot.records:
        delta.replay(record)
    assert delta.apply(image.offset, image.leader_epoch) == image
    await node.stop()


async def test_a_torn_tail_is_cut(tmp_path: Path) -> None:
    node = await QuorumNode(tmp_path).start()
    await node.set_config(32, "g", "x", "1")
    before = node.publisher.image
    await node.drop()
    path = node.directory / f"{0:020d}.log"
    whole, synced = path.read_bytes(), (node.directory / SYNCED_OFFSET).read_bytes()
    for torn in (b"\0" * 40, b"\xff" * 70, whole[:100], whole[-90:-1]):
        path.write_bytes(whole + torn)
        again = await QuorumNode(tmp_path).start()
        assert again.publisher.image.configs == before.configs
        assert again.driver.log.cut_bytes == len(torn)
        await again.set_config(32, "g", "x", "2")
        await again.drop()
        third = await QuorumNode(tmp_path).start()
        assert third.publisher.image.config(32, "g") == {"x": "2"} and third.driver.log.cut_bytes == 0
        await third.drop()
        path.write_bytes(whole)
        (node.directory / SYNCED_OFFSET).write_bytes(synced)


async def test_batches_that_were_never_synced_may_be_torn_in_any_order(tmp_path: Path) -> None:
    node = await QuorumNode(tmp_path).start()
    await node.set_config(32, "g", "x", "1")
    kept = (node.directory / f"{0:020d}.log").stat().st_size
    synced = (node.directory / SYNCED_OFFSET).read_bytes()
    await node.set_config(32, "g", "x", "2")
    await node.set_config(32, "g", "x", "3")
    await node.drop()
    path = node.directory / f"{0:020d}.log"
    data = bytearray(path.read_bytes())
    data[kept + 70] ^= 1  # in the first of the two batches; the second is whole
    path.write_bytes(data)
    (node.directory / SYNCED_OFFSET).write_bytes(synced)
    again = await QuorumNode(tmp_path).start()
    assert again.publisher.image.config(32, "g") == {"x": "1"} and again.driver.log.cut_bytes == len(data) - kept
    await again.drop()


async def test_a_log_that_ends_below_the_durable_offset_is_reported(tmp_path: Path) -> None:
    node = await QuorumNode(tmp_path).start()
    await node.set_config(32, "g", "x", "1")
    await node.drop()
    path = node.directory / f"{0:020d}.log"
    last = list(read_batches(path.read_bytes()))[-1][0]
    path.write_bytes(path.read_bytes()[:last])
    broken = QuorumNode(tmp_path)
    with pytest.raises(StorageError, match="was durable up to"):
        await broken.driver.start()
    broken.disk.close()


async def test_a_flipped_bit_is_reported_and_nothing_is_cut(tmp_path: Path) -> None:
    node = await QuorumNode(tmp_path).start()
    for number in range(10):
        await node.set_config(32, "g", "x", str(number))
    await node.drop()
    path = node.directory / f"{0:020d}.log"
    whole = path.read_bytes()
    last_batch = [position for position, _ in read_batches(whole)][-1]
    chance = random.Random(5)
    for _ in range(80):
        damaged = bytearray(whole)
        # The last batch looks like a torn write; everything before it does not.
        damaged[chance.randrange(last_batch)] ^= 1 << chance.randrange(8)
        path.write_bytes(damaged)
        broken = QuorumNode(tmp_path)
        with pytest.raises(StorageError, match="damaged"):
            await broken.driver.start()
        assert path.read_bytes() == damaged
        broken.disk.close()


async def test_a_damaged_snapshot_or_quorum_state_is_reported(tmp_path: Path) -> None:
    node = await QuorumNode(tmp_path).start()
    await node.set_config(32, "g", "x", "1")
    snapshot_id = await node.driver.write_snapshot()
    await node.stop()
    path = node.directory / snapshot_id.file_name
    whole = path.read_bytes()
    for damaged in (whole[:-10], whole[:100] + b"\1" + whole[101:], b""):
        path.write_bytes(damaged)
        broken = QuorumNode(tmp_path)
        with pytest.raises(StorageError, match=snapshot_id.file_name):
            await broken.driver.start()
        broken.disk.close()
    path.write_bytes(whole)
    (node.directory / "quorum-state").write_text("{")
    broken = QuorumNode(tmp_path)
    with pytest.raises(StorageError, match="quorum-state"):
        await broken.driver.start()
    broken.disk.close()


async def test_a_half_written_snapshot_of_a_crash_is_removed(tmp_path: Path) -> None:
    node = await QuorumNode(tmp_path).start()
    await node.stop()
    partial = node.directory / f"{9:020d}-{1:010d}.checkpoint.part"
    partial.write_bytes(b"half")
    again = await QuorumNode(tmp_path).start()
    assert not partial.exists()
    await again.stop()


async def test_a_failed_fsync_ends_the_leader_epoch_and_is_not_tried_again(tmp_path: Path) -> None:
    node = await QuorumNode(tmp_path).start()
    calls = []

    class DeadFile(RealFile):
        def sync(self) -> None:
            calls.append(1)
            raise OSError(5, "input/output error")

    path = node.directory / f"{0:020d}.log"
    node.driver.log._files.pop(0).close()
    node.driver.log._files[0] = DeadFile(path, os.open(path, os.O_RDWR))
    with pytest.raises(ApiError) as caught:
        await node.set_config(32, "g", "x", "1")
    assert caught.value.code is ErrorCode.NOT_CONTROLLER
    with pytest.raises(ApiError):
        await node.set_config(32, "g", "x", "2")
    assert len(calls) == 1 and isinstance(node.failures[0], StorageError)
    await node.drop()


async def test_before_it_leads_no_one_is_served(tmp_path: Path) -> None:
    node = QuorumNode(tmp_path)
    with pytest.raises(ApiError) as caught:
        await node.service.update_features(UpdateFeaturesRequest())
    assert caught.value.code is ErrorCode.NOT_CONTROLLER
    node.disk.close()


async def test_a_silent_broker_is_fenced_by_the_clock(tmp_path: Path) -> None:
    from dataclasses import replace

    node = QuorumNode(tmp_path)
    node.service.update_config(replace(node.service._config, broker_session_timeout_ms=80))
    await node.start()
    # The history begins before the broker registers: on a slow disk a heartbeat may take longer than its session.
    history: list[bool] = []
    fenced = asyncio.Event()

    def look(delta: object, image: MetadataImage) -> None:
        if 1 in image.brokers:
            history.append(image.brokers[1].fenced)
            if False in history and history[-1]:
                fenced.set()

    node.publisher.subscribe(look)
    await node.add_broker(1)
    async with asyncio.timeout(60):
        await fenced.wait()
    await node.stop()


async def test_describe_quorum(tmp_path: Path) -> None:
    node = await QuorumNode(tmp_path).start()
    answer = await node.service.describe_quorum(DescribeQuorumRequest())
    partition = answer.topics[0].partitions[0]
    assert (partition.leader_id, partition.leader_epoch) == (1, 1)
    assert [voter.replica_id for voter in partition.current_voters] == [1]
    assert partition.current_voters[0].log_end_offset == partition.high_watermark == node.driver.end_offset
    assert answer.nodes[0].listeners[0].port == 9093
    await node.stop()


async def test_a_dynamic_quorum_of_one_as_storage_format_leaves_it(tmp_path: Path) -> None:
    me = ReplicaKey(1, UUID(int=99))
    voter = Voter(
        voter_id=1,
        voter_directory_id=me.directory_id,
        endpoints=[Endpoint(name="CONTROLLER", host="h", port=9093)],
        k_raft_version_feature=KRaftVersionFeature(min_supported_version=0, max_supported_version=1),
    )
    disk = RealDisk()
    directory = tmp_path / DIRECTORY
    directory.mkdir()
    data = encode_snapshot(
        [], metadata_version=30, leader_epoch=0, now_ms=1, kraft_version=1, voters=VotersRecord(voters=[voter])
    )
    write_snapshot(disk, directory, SnapshotId(0, 0), data)
    disk.close()
    node = await QuorumNode(tmp_path, me=me).start()
    state = json.loads((directory / "quorum-state").read_text())
    assert state["data_version"] == 1 and state["votedDirectoryId"] == uuid_text(me.directory_id)
    quorum = (await node.service.describe_quorum(DescribeQuorumRequest())).topics[0].partitions[0]
    assert quorum.current_voters[0].replica_directory_id == me.directory_id
    await node.set_config(32, "g", "x", "1")
    snapshot_id = await node.driver.write_snapshot()
    await node.drop()
    snapshot = read_snapshot(RealDisk(), directory / snapshot_id.file_name)
    assert snapshot.kraft_version is not None and snapshot.voters == VotersRecord(voters=[voter])
    again = await QuorumNode(tmp_path, me=me).start()
    assert again.publisher.image.config(32, "g") == {"x": "1"}
    await again.stop()
    foreign = QuorumNode(tmp_path, me=ReplicaKey(1, UUID(int=5)))
    await foreign.driver.start()
    assert not foreign.driver.leads  # another disk is another voter
    await foreign.drop()
