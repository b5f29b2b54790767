"""A broker's periodic jobs: each does its work, again and again, and a dead disk ends none of them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from random import Random
from uuid import UUID

import pytest

from odradek.common.real_io import RealClock
from odradek.log.checkpoints import HIGH_WATERMARK, LOG_START, RECOVERY_POINT
from odradek.log.config import LogConfig
from odradek.log.log import Log
from odradek.log.manager import LogManager
from odradek.metadata.publisher import MetadataPublisher
from odradek.protocol.messages.partition_record import PartitionRecord
from odradek.protocol.messages.remove_topic_record import RemoveTopicRecord
from odradek.protocol.messages.topic_record import TopicRecord
from odradek.replica.manager import ReplicaManager
from odradek.server.background.maintenance import Maintenance, MaintenanceConfig
from odradek.server.network.listeners import ConnectionConfig
from tests.support.disks.failing import FailingDisk
from tests.support.models.batches import NOW_MS, batch, header_of
from tests.support.nodes.listener import ScriptedListener
from tests.support.waiting import eventually_async

NEVER_MS = 3_600_000


class House:
    """Logs, partitions and listener, with the jobs around them."""

    def __init__(self, directories: list[Path], config: LogConfig) -> None:
        self.disk, self.clock = FailingDisk(), RealClock()
        self.logs = LogManager(self.disk, self.clock, directories, config, Random(1))
        self.logs.lock_dirs()
        self.logs.load()
        self.failed: list[Path] = []
        self.replicas = ReplicaManager(1, self.logs, fetch_max_bytes=2**20, on_storage_failed=self.failed.append)
        self.publisher = MetadataPublisher()
        self.publisher.subscribe(self.replicas.on_metadata)
        self._offset = 0
        self._jobs: list[Maintenance] = []

    def publish(self, *records: object) -> None:
        for record in records:
            self._offset += 1
            self.publisher.committed([(self._offset, record)], 1)

    def add_topic(self, partitions: int = 1) -> list[Log]:
        self.publish(TopicRecord(name="t", topic_id=UUID(int=5)))
        for number in range(partitions):
            self.publish(
                PartitionRecord(
                    partition_id=number, topic_id=UUID(int=5), replicas=[1], isr=[1], leader=1, leader_epoch=0
                )
            )
        return [self.log(number) for number in range(partitions)]

    def log(self, number: int = 0) -> Log:
        found = self.replicas.partition("t", number)
        assert found is not None
        return found.log

    def append(self, number: int = 0, timestamp_ms: int = NOW_MS) -> None:
        partition = self.replicas.partition("t", number)
        assert partition is not None
        data = bytearray(batch(b"value", timestamp_ms=timestamp_ms))
        now_ms = self.clock.now_ms()
        partition.append_as_leader([data], [header_of(bytes(data))], required_acks=1, now_ms=now_ms)

    def start(self, listener: ScriptedListener, **often: int) -> None:
        """Begin the jobs that are named, each so often; the others never come to their turn."""
        names = (
            "retention_check_ms",
            "flush_check_ms",
            "recovery_checkpoint_ms",
            "start_checkpoint_ms",
            "watermark_checkpoint_ms",
        )
        config = MaintenanceConfig(**(dict.fromkeys(names, NEVER_MS) | often))
        maintenance = Maintenance(config, self.clock, self.disk, self.logs, self.replicas, listener.dispatcher)
        maintenance.start()
        self._jobs.append(maintenance)

    async def close(self) -> None:
        for maintenance in self._jobs:
            await maintenance.stop()
        await self.replicas.close()
        self.logs.unlock()
        self.disk.close()


@pytest.fixture
async def listener() -> AsyncIterator[ScriptedListener]:
    async with ScriptedListener(ConnectionConfig(idle_ms=100)) as opened:
        yield opened


@pytest.fixture
async def house(tmp_path: Path) -> AsyncIterator[House]:
    config = LogConfig(segment_bytes=200, file_delete_delay_ms=0)
    built = House([tmp_path / "d1", tmp_path / "d2"], config)
    yield built
    await built.close()


def lines(path: Path) -> list[str]:
    return path.read_text().splitlines() if path.exists() else []


async def test_old_segments_go_and_their_files_later(house: House, listener: ScriptedListener) -> None:
    (log,) = house.add_topic()
    for _ in range(10):
        house.append(timestamp_ms=1000)
    assert log.log_start_offset == 0
    before = len(list(log.directory.glob("*.log")))
    house.start(listener, retention_check_ms=10)
    await eventually_async(lambda: log.log_start_offset == 10)
    await eventually_async(lambda: len(list(log.directory.glob("*.log*"))) == 1 < before)
    for _ in range(10):
        house.append(timestamp_ms=1000)
    await eventually_async(lambda: log.log_start_offset == 20)


async def test_checkpoints_are_written_again_and_again(house: House, listener: ScriptedListener) -> None:
    house.add_topic(2)
    house.append(0)
    house.start(listener, watermark_checkpoint_ms=10)
    path = house.log(0).log_dir / HIGH_WATERMARK
    await eventually_async(lambda: "t 0 1" in lines(path))
    house.append(0)
    await eventually_async(lambda: "t 0 2" in lines(path))
    for name in (RECOVERY_POINT, LOG_START):
        assert lines(house.log(0).log_dir / name)[:1] == ["0"], name


async def test_a_topic_that_asks_is_flushed(tmp_path: Path, listener: ScriptedListener) -> None:
    house = House([tmp_path / "d"], LogConfig(flush_ms=20))
    (log,) = house.add_topic()
    house.append()
    assert log.recovery_point == 0
    house.start(listener, flush_check_ms=5)
    await eventually_async(lambda: log.recovery_point == 1)
    house.append()
    await eventually_async(lambda: log.recovery_point == 2)
    await house.close()


async def test_deleted_logs_are_removed_from_disk(house: House, listener: ScriptedListener) -> None:
    (log,) = house.add_topic()
    house.append()
    house.start(listener)
    directory = log.directory
    house.publish(RemoveTopicRecord(topic_id=UUID(int=5)))
    assert not directory.exists(), "renamed at once"
    await eventually_async(lambda: not any(path.name.endswith("-delete") for path in log.log_dir.iterdir()))


async def test_idle_connections_are_closed_without_being_asked(house: House, listener: ScriptedListener) -> None:
    client = await listener.client()
    await client.beat(1)
    assert await client.numbers(1) == [1]
    house.start(listener)
    assert await client.is_closed()
    client.close()


async def test_a_disk_that_dies_takes_its_directory_and_no_job(house: House, listener: ScriptedListener) -> None:
    one, two = sorted(house.add_topic(2), key=lambda log: log.log_dir)
    house.append(0)
    house.append(1)
    house.start(listener, watermark_checkpoint_ms=10)
    await eventually_async(lambda: (two.log_dir / HIGH_WATERMARK).exists())
    house.disk.dead.add(one.log_dir)
    await eventually_async(lambda: house.failed == [one.log_dir])
    kept = 1 if house.replicas.partition("t", 0) is None else 0
    house.append(kept)
    await eventually_async(lambda: f"t {kept} 2" in lines(two.log_dir / HIGH_WATERMARK))
    assert house.failed == [one.log_dir]


async def test_stopping_waits_for_what_is_under_way(house: House, listener: ScriptedListener) -> None:
    house.add_topic(2)
    house.start(listener, watermark_checkpoint_ms=1, flush_check_ms=1, retention_check_ms=1)
    await asyncio.sleep(0.02)
    await house._jobs[0].stop()
    assert all(job.done() for job in house._jobs[0]._jobs)
