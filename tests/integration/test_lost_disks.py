"""Disks that fail and machines that lose power, for real: a file system that is shut down while it is written to."""

from __future__ import annotations

import shutil
import threading
import time
from pathlib import Path

import pytest

from odradek.common.errors import ErrorCode
from odradek.protocol.apis import ApiKey
from odradek.protocol.messages.describe_log_dirs_request import DescribeLogDirsRequest
from odradek.record.batch import crc_is_valid
from odradek.record.reader import read_batches
from tests.support.clients.api_calls import Calls, batch, bytes_of, name_of, values_in
from tests.support.disks.file_system import LoopDisk, run, skip_unless_root, small_tmpfs
from tests.support.nodes.node import Node
from tests.support.waiting import PATIENCE_S, eventually

MIB = 1 << 20
ROUNDS = 3
# Longer than a busy machine lets a process stand still.


def read_all(calls: Calls, topic: str) -> list[bytes | None]:
    """Every value up to the high watermark; each batch's checksum is looked at."""
    found: list[bytes | None] = []
    end, offset = calls.list_end(topic), 0
    while offset < end:
        data = bytes_of(calls.read(topic, offset, max_bytes=MIB).records)
        for position, header in read_batches(data):
            assert crc_is_valid(memoryview(data)[position : position + header.size_bytes], header)
            assert header.base_offset == offset, "in order, once"
            offset = header.last_offset + 1
        found += values_in(data)
    return found


class Load(threading.Thread):
    """One producer per topic that goes on until its node or its disk is gone; `acknowledged` holds its responses."""

    def __init__(self, port: int, topic: str, partition: int = 0) -> None:
        super().__init__()
        self._port, self._topic, self._partition = port, topic, partition
        self.acknowledged: list[bytes] = []
        self.refusals: list[str] = []

    def wait_for(self, count: int) -> None:
        """Return when so many batches are acknowledged."""
        eventually(lambda: len(self.acknowledged) >= count, lambda: self.refusals, pause_s=0.005)

    def run(self) -> None:
        try:
            with Calls(self._port) as calls:
                for number in range(1_000_000):
                    value = b"%08d" % number + bytes(number * 37 % 3000)
                    answer = calls.produce(self._topic, batch(value), partition=self._partition)
                    if answer.error_code:
                        self.refusals.append(name_of(answer.error_code))
                        return
                    self.acknowledged.append(value)
        except OSError:
            return


def test_records_acknowledged_as_durable_survive_a_loss_of_power(tmp_path: Path) -> None:
    with (
        LoopDisk(tmp_path / "image", tmp_path / "disk", 128 * MIB) as disk,
        Node(tmp_path / "node", {"log.dirs": disk.path / "data", "log.index.interval.bytes": 500}) as node,
    ):
        for number in range(ROUNDS):
            with Calls(node.port) as calls:
                synced = calls.create_topic(flush_messages=1, segment_bytes=MIB)
                cached = calls.create_topic()
            loads = [Load(node.port, synced), Load(node.port, cached)]
            for load in loads:
                load.start()
            loads[0].wait_for(12 + 20 * number)
            disk.lose_power()
            _ended_by_itself(node)
            for load in loads:
                load.join(PATIENCE_S)
                assert not load.is_alive()
            disk.unmount()
            disk.mount()
            node.start()
            with Calls(node.port) as calls:
                for topic, load in zip((synced, cached), loads, strict=True):
                    calls.wait_for_leaders(topic, 1)
                    found = read_all(calls, topic)
                    both = min(len(found), len(load.acknowledged))
                    assert found[:both] == load.acknowledged[:both], topic
                    assert topic == cached or both == len(load.acknowledged) > 10, "synced, so it is there"
        node.kill()
        assert "Traceback" not in node.log_text()


def _ended_by_itself(node: Node) -> int:
    assert node.process is not None
    code = node.process.wait(PATIENCE_S)
    node.process = None
    return code


def test_a_node_whose_only_disk_fails_stops_and_says_why(tmp_path: Path) -> None:
    with (
        LoopDisk(tmp_path / "image", tmp_path / "disk", 64 * MIB) as disk,
        Node(tmp_path / "node", {"log.dirs": disk.path / "data"}) as node,
    ):
        with Calls(node.port) as calls:
            topic = calls.create_topic()
        load = Load(node.port, topic)
        load.start()
        time.sleep(0.3)
        disk.lose_power()
        assert _ended_by_itself(node) == 1
        load.join(PATIENCE_S)
        lines = [line for line in node.log_text().splitlines() if "fatal error: the node stops" in line]
        assert len(lines) == 1 and str(disk.path) in lines[0]
        assert "Traceback" not in node.log_text()


def test_one_of_two_directories_fails_and_the_other_is_served(tmp_path: Path) -> None:
    with LoopDisk(tmp_path / "image", tmp_path / "disk", 64 * MIB) as disk:
        good, bad = tmp_path / "good", disk.path / "data"
        with Node(tmp_path / "node", {"log.dirs": f"{good},{bad}"}) as node, Calls(node.port) as calls:
            topic = calls.create_topic(4)
            loads = [Load(node.port, topic, partition) for partition in range(4)]
            for load in loads:
                load.start()
            time.sleep(0.3)
            on_bad = {int(path.name.rpartition("-")[2]) for path in bad.glob(f"{topic}-*")}
            assert len(on_bad) == 2, "partitions lie where there are fewest"
            disk.lose_power()
            for partition in on_bad:
                loads[partition].join(PATIENCE_S)
                assert not loads[partition].is_alive()
                assert loads[partition].refusals[0] in ("KAFKA_STORAGE_ERROR", "NOT_LEADER_OR_FOLLOWER")
            kept = [load for number, load in enumerate(loads) if number not in on_bad]
            before = [len(load.acknowledged) for load in kept]
            eventually(
                lambda: all(len(load.acknowledged) > count for load, count in zip(kept, before, strict=True)),
                "the good directory is not served",
            )
            answer = calls.request(ApiKey.DESCRIBE_LOG_DIRS, 4, DescribeLogDirsRequest(topics=None))
            assert {result.log_dir: result.error_code for result in answer.results} == {
                str(good): 0,
                str(bad): ErrorCode.KAFKA_STORAGE_ERROR,
            }
            for partition in on_bad:
                refused = calls.produce(topic, batch(b"no"), partition=partition).error_code
                assert refused in (ErrorCode.KAFKA_STORAGE_ERROR, ErrorCode.NOT_LEADER_OR_FOLLOWER), name_of(refused)
            assert node.process is not None and node.process.poll() is None
            node.kill()
            for load in loads:
                load.join(PATIENCE_S)
        assert "Traceback" not in node.log_text()


def test_a_directory_that_vanishes_goes_offline_and_the_other_is_served(tmp_path: Path) -> None:
    good, gone = tmp_path / "good", tmp_path / "gone"
    settings = {"log.dirs": f"{good},{gone}", "replica.high.watermark.checkpoint.interval.ms": 100}
    with Node(tmp_path / "node", settings) as node, Calls(node.port) as calls:
        topic = calls.create_topic(4)
        on_gone = {int(path.name.rpartition("-")[2]) for path in gone.glob(f"{topic}-*")}
        shutil.rmtree(gone.rename(tmp_path / "forgotten"))  # at once: checkpoints are written there meanwhile
        eventually(lambda: "log directory offline" in node.log_text())
        for partition in range(4):
            code = calls.produce(topic, batch(b"x"), partition=partition).error_code
            assert bool(code) == (partition in on_gone), name_of(code)
        node.kill()
    assert "Traceback" not in node.log_text()


def test_a_file_system_that_is_read_only_is_one_line_at_the_start(tmp_path: Path) -> None:
    with small_tmpfs(tmp_path / "disk", 16 * MIB) as mounted:
        node = Node(tmp_path / "node", {"log.dirs": mounted / "data"}).start()
        node.stop()
        run("mount", "-o", "remount,ro", mounted)
        node.launch()
        assert _ended_by_itself(node) != 0
        assert "Read-only file system" in node.log_text()
        assert "Traceback" not in node.log_text()


def test_a_link_out_of_the_log_directory_is_left_alone(tmp_path: Path) -> None:
    with Node(tmp_path / "node") as node:
        with Calls(node.port) as calls:
            topic = calls.create_topic(2)
            calls.produce(topic, batch(b"before"), partition=1)
        node.stop()
        elsewhere = tmp_path / "elsewhere"
        (node.data_dir / f"{topic}-0").rename(elsewhere)
        (node.data_dir / f"{topic}-0").symlink_to(elsewhere)
        before = {path.name: path.read_bytes() for path in elsewhere.iterdir()}
        node.start()
        with Calls(node.port) as calls:
            assert calls.produce(topic, batch(b"x"), partition=0).error_code == ErrorCode.KAFKA_STORAGE_ERROR
            assert calls.produce(topic, batch(b"x"), partition=1).error_code == 0
        assert {path.name: path.read_bytes() for path in elsewhere.iterdir()} == before
        assert "a symbolic link" in node.log_text()


class Unprivileged(Node):
    """A node whose permissions count, though root starts it."""

    def command(self) -> list[str]:
        return ["setpriv", "--bounding-set=-dac_override,-dac_read_search", *super().command()]


@pytest.mark.slow  # six starts of a command; a read-only file system is the short form
def test_a_log_directory_without_permissions_is_one_line_at_the_start(tmp_path: Path) -> None:
    skip_unless_root("setpriv")
    node = Unprivileged(tmp_path / "node").start()
    with Calls(node.port) as calls:
        topic = calls.create_topic()
        assert calls.produce(topic, batch(b"kept")).error_code == 0
    node.stop()
    for place, mode in ((node.data_dir, 0o000), (node.data_dir, 0o500), (node.data_dir / "meta.properties", 0o000)):
        before = place.stat().st_mode
        place.chmod(mode)
        node.launch()
        assert _ended_by_itself(node) != 0
        place.chmod(before)
        last = node.log_text().splitlines()[-1]
        assert "Permission denied" in last and str(node.data_dir) in last, last
    assert "Traceback" not in node.log_text()
    node.start()
    with Calls(node.port) as calls:
        calls.wait_for_leaders(topic, 1)
        assert values_in(bytes_of(calls.read(topic).records)) == [b"kept"]
    node.stop()


@pytest.mark.slow  # a disk that fails and a directory that vanishes are the short form
@pytest.mark.parametrize("what", ["file", "partition"])
def test_one_of_two_directories_loses_its_permissions(tmp_path: Path, what: str) -> None:
    skip_unless_root("setpriv")
    good, bad = tmp_path / "good", tmp_path / "bad"
    settings = {"log.dirs": f"{good},{bad}", "replica.high.watermark.checkpoint.interval.ms": 100}
    node = Unprivileged(tmp_path / "node", settings).start()
    with Calls(node.port) as calls:
        topic = calls.create_topic(4)
        for partition in range(4):
            assert calls.produce(topic, batch(b"kept"), partition=partition).error_code == 0
    on_bad = {int(path.name.rpartition("-")[2]) for path in bad.glob(f"{topic}-*")}
    assert len(on_bad) == 2
    node.kill()
    partition_dir = bad / f"{topic}-{min(on_bad)}"
    place = partition_dir if what == "partition" else partition_dir / f"{0:020d}.log"
    place.chmod(0o000)
    node.start()
    with Calls(node.port) as calls:
        for partition in range(4):
            code = calls.produce(topic, batch(b"more"), partition=partition).error_code
            assert bool(code) == (partition in on_bad), (partition, name_of(code))
    assert "Permission denied" in node.log_text() and "Traceback" not in node.log_text()
    node.kill()
    place.chmod(0o700)
    node.start()
    with Calls(node.port) as calls:
        calls.wait_for_leaders(topic, 4)
        for partition in range(4):
            assert calls.list_end(topic, partition) == 1 + (partition not in on_bad), "nothing was lost meanwhile"
    node.stop()
