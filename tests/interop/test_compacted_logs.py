"""Logs that we compacted, under Apache Kafka: its dumper reads every file, its broker serves and compacts them on."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from pathlib import Path
from random import Random

import pytest
from confluent_kafka import Consumer, TopicPartition

from odradek.common.real_io import RealDisk
from odradek.log.opening import close_log
from tests.interop.test_one_directory import Ours, committed
from tests.support.clients.confluent import commit_alone, create_topic, produce_all, read_all
from tests.support.models.compacted_log import CODECS, RETENTION_MS, CompactedLog, kept_batches, kept_records
from tests.support.nodes.apache_kafka import ApacheKafka, require_kafka, run_tool
from tests.support.waiting import eventually

pytestmark = pytest.mark.timeout(600)
TOPIC, GROUP = "kept-last", "many-commits"
KEYS = 20


@pytest.fixture
def compacted(tmp_path: Path) -> Iterator[CompactedLog]:
    disk = RealDisk(workers=1)
    random = Random(3)
    compacted = CompactedLog(disk, directory=tmp_path / "topic-0", segment_bytes=2000, table_bytes=3000)
    for step in range(120):
        pairs = [
            (b"key-%d" % random.randrange(8), random.choice([None, b"value-%d" % step]))
            for _ in range(random.randint(1, 6))
        ]
        kind = random.random()
        if kind < 0.5:
            compacted.append(pairs, codec=random.choice(CODECS), producer_id=random.choice([-1, 7]))
        elif kind < 0.8:
            compacted.in_transaction(random.choice([8, 9]), pairs, random.choice(CODECS))
        else:
            compacted.end_transaction(random.choice([8, 9]), commit=random.random() < 0.5)
        if step % 30 == 29:
            compacted.roll()
            compacted.clean()
            compacted.now_ms += RETENTION_MS // 2
    close_log(compacted.log)
    yield compacted
    disk.close()


def dumped(paths: list[Path], *arguments: str) -> str:
    files = ",".join(map(str, paths))
    return run_tool("org.apache.kafka.tools.DumpLogSegments", ["--files", files, *arguments]).stdout


def test_kafkas_dumper_reads_every_file_of_a_compacted_log(compacted: CompactedLog) -> None:
    require_kafka()
    files = sorted(compacted.directory.iterdir())
    logs = [path for path in files if path.suffix == ".log"]
    assert len(logs) > 1
    text = dumped(logs, "--print-data-log", "--deep-iteration")
    assert "isvalid: false" not in text
    records = re.findall(r"^\| offset: (\d+) .*? key: (\S+)(?: payload: (\S*))?$", text, re.MULTILINE)
    ours = kept_records(compacted.log)
    assert [(int(offset), key, value) for offset, key, value in records] == [
        (record.offset, (record.key or b"").decode(), (record.value or b"").decode()) for record in ours.values()
    ]
    batches = re.findall(r"^baseOffset: (\d+) lastOffset: (\d+) count: (\d+) .*? producerId: (-?\d+) ", text, re.M)
    headers = [header for header, _ in kept_batches(compacted.log)]
    assert [tuple(map(int, each)) for each in batches] == [
        (header.base_offset, header.last_offset, header.record_count, header.producer_id) for header in headers
    ]
    assert any(header.record_count == 0 for header in headers), "batches were emptied"
    horizons = re.findall(r"deleteHorizonMs: OptionalLong\[(\d+)\]", text)
    assert [int(each) for each in horizons] == [
        header.base_timestamp for header in headers if header.has_delete_horizon
    ]
    assert horizons, "tombstones wait for their time"
    rest = [path for path in files if path.suffix in (".index", ".timeindex", ".txnindex", ".snapshot")]
    problems = re.findall(r"(?i)mismatch.*|found timestamp.*|exception.*", dumped(rest, "--index-sanity-check"))
    assert not problems
    assert not re.findall(r"(?i)mismatch.*|exception.*", dumped(rest))


def write(bootstrap: str, who: bytes, rounds: int) -> None:
    for number in range(rounds):
        codec = CODECS[number % len(CODECS)]
        records = [(b"key-%d" % key, b"%s-%d-%d" % (who, number, key)) for key in range(KEYS)]
        produce_all(bootstrap, TOPIC, records, compression_type=codec, enable_idempotence=True)
        time.sleep(0.25)  # segment.ms=200


def expected(who: bytes, rounds: int) -> dict[bytes, bytes]:
    return {b"key-%d" % key: b"%s-%d-%d" % (who, rounds - 1, key) for key in range(KEYS)}


def latest(bootstrap: str) -> tuple[dict[bytes | None, bytes | None], int]:
    """(the last value of each key, how many records there are)."""
    messages = read_all(bootstrap, TOPIC)
    return {message.key(): message.value() for message in messages}, len(messages)


def until_compacted(bootstrap: str, at_most: int) -> None:
    eventually(lambda: latest(bootstrap)[1] <= at_most, f"more than {at_most} records", pause_s=0.5)


def commit(bootstrap: str, count: int) -> None:
    commit_alone(bootstrap, GROUP, {(TOPIC, 0): 0})
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": GROUP})
    for number in range(1, count + 1):
        if number == count:
            time.sleep(0.5)  # the last one begins a segment, and those before may be cleaned
        consumer.commit(offsets=[TopicPartition(TOPIC, 0, number)], asynchronous=False)
    consumer.close()


def offsets_bytes(kafka: ApacheKafka) -> int:
    return sum(path.stat().st_size for path in kafka.data_dir.glob("__consumer_offsets-*/*.log"))


@pytest.mark.slow
def test_kafka_and_odradek_continue_each_others_compacted_logs(tmp_path: Path) -> None:
    require_kafka()
    settings = {
        "log.cleaner.backoff.ms": 200,
        "log.cleaner.min.cleanable.ratio": 0.01,
        "log.roll.ms": 200,
        "log.segment.delete.delay.ms": 0,
    }
    kafka = ApacheKafka(tmp_path / "node", settings)
    kafka.format()
    with Ours(kafka):
        create_topic(kafka.bootstrap, TOPIC, cleanup_policy="compact", segment_ms=200)
        write(kafka.bootstrap, b"ours", 8)
        until_compacted(kafka.bootstrap, 3 * KEYS)
        before = latest(kafka.bootstrap)
        assert before[0] == expected(b"ours", 8)
        commit(kafka.bootstrap, 300)
        eventually(lambda: offsets_bytes(kafka) <= 9000, lambda: offsets_bytes(kafka), pause_s=0.2)
        assert committed(kafka.bootstrap, GROUP, TOPIC) == 300
    with kafka:
        assert latest(kafka.bootstrap)[0] == expected(b"ours", 8)
        assert committed(kafka.bootstrap, GROUP, TOPIC) == 300
        write(kafka.bootstrap, b"kafka", 6)
        until_compacted(kafka.bootstrap, 3 * KEYS)
        commit(kafka.bootstrap, 60)
    with Ours(kafka):
        assert latest(kafka.bootstrap)[0] == expected(b"kafka", 6)
        assert committed(kafka.bootstrap, GROUP, TOPIC) == 60
        write(kafka.bootstrap, b"again", 6)
        until_compacted(kafka.bootstrap, 3 * KEYS)
        assert latest(kafka.bootstrap)[0] == expected(b"again", 6)
