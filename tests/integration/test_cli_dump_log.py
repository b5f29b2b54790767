"""`odradek dump-log` over the directories of a node, ours and Apache Kafka's, beside Kafka's own dumper."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer

from odradek.cli import errors
from odradek.cli.app import run
from odradek.cli.log_files import Damage, DumpOptions, kind_of, read_entries
from tests.support.clients.confluent import commit_alone, create_topic, produce_all
from tests.support.nodes.apache_kafka import ApacheKafka, require_kafka, run_tool
from tests.support.nodes.node import Node

DUMPER = "org.apache.kafka.tools.DumpLogSegments"


def fill(bootstrap: str) -> None:
    """Records of every codec, in several segments, and offsets of a group."""
    create_topic(bootstrap, "dumped", 1, segment_bytes=1_048_576, index_interval_bytes=512)
    for codec in ("none", "gzip", "snappy", "lz4", "zstd"):
        records = [(b"%d" % n, bytes([n % 256]) * 900) for n in range(1400 if codec == "none" else 500)]
        produce_all(
            bootstrap, "dumped", records, compression_type=codec, batch_size=20_000, enable_idempotence=codec == "none"
        )
    produce_all(bootstrap, "dumped", [(b"k", b"v"), (None, None)])
    commit_alone(bootstrap, "readers", {("dumped", 0): 42})


def fill_more(bootstrap: str) -> None:
    """A transaction, whose markers are control records, and records that are not a text."""
    create_topic(bootstrap, "odd", 1)
    producer = Producer({"bootstrap.servers": bootstrap, "transactional.id": "dumper"})
    producer.init_transactions(60)
    producer.begin_transaction()
    for key, value in (
        (b"k", b"v"),
        (None, b"v"),
        (b"", None),
        (None, None),
        (b"\0\1\xff", b"\0\1\xff"),
        (b"k", b"\1\2\0"),
    ):
        producer.produce("odd", value, key)
    producer.commit_transaction(60)


@pytest.fixture(scope="module")
def ours(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The data directory of our node, which was stopped."""
    with Node(tmp_path_factory.mktemp("ours"), {"log.segment.bytes": 1_048_576}) as node:
        fill(node.bootstrap)
        fill_more(node.bootstrap)
    return node.data_dir


@pytest.fixture(scope="module")
def kafkas(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The data directory of Apache Kafka, which still runs: indexes of open segments are then larger than they are."""
    require_kafka()
    with ApacheKafka(tmp_path_factory.mktemp("kafka")) as kafka:
        fill(kafka.bootstrap)
        yield kafka.data_dir


def files(data_dir: Path) -> list[Path]:
    return sorted(path for path in data_dir.rglob("*") if path.is_file() and kind_of(path) is not None)


def entries(path: Path) -> list[dict[str, Any]]:
    found = list(read_entries(path, DumpOptions(records=True)))
    assert not [entry for entry in found if isinstance(entry, Damage)], (path, found)
    return [entry for entry in found if isinstance(entry, dict)]


def all_is_read(data_dir: Path) -> None:
    kinds = {kind_of(path) for path in files(data_dir)}
    assert kinds >= {".log", ".index", ".timeindex", ".snapshot", ".checkpoint", "partition.metadata", "quorum-state"}
    assert kinds >= {"meta.properties", "leader-epoch-checkpoint"}
    found = {path: entries(path) for path in files(data_dir)}
    logs = [path for path in found if path.suffix == ".log" and path.parent.name == "dumped-0"]
    records = [entry for path in logs for entry in found[path] if entry["kind"] == "record"]
    assert [record["offset"] for record in records] == list(range(1400 + 4 * 500 + 2))
    assert len(logs) > 1
    codecs = {entry["compression"] for path in logs for entry in found[path] if entry["kind"] == "batch"}
    assert codecs == {"none", "gzip", "snappy", "lz4", "zstd"}
    groups = [
        entry["value"]["data"]["offset"]
        for path in found
        if path.suffix == ".log" and path.parent.name.startswith("__consumer_offsets")
        for entry in found[path]
        if entry["kind"] == "record" and entry["key"]["type"] == "OFFSET_COMMIT_KEY"
    ]
    assert groups == [42]
    metadata = [
        entry["value"]["data"]["name"]
        for path in found
        if path.suffix == ".log" and path.parent.name == "__cluster_metadata-0"
        for entry in found[path]
        if entry["kind"] == "record" and entry.get("value", {}).get("type") == "TOPIC_RECORD"
    ]
    assert "dumped" in metadata


def test_all_of_our_files_are_read(ours: Path) -> None:
    all_is_read(ours)


@pytest.mark.java
def test_all_of_kafkas_files_are_read(kafkas: Path) -> None:
    all_is_read(kafkas)


def lines(text: str) -> list[str]:
    """Lines of a dump that say something about entries; ours leaves an absent delete horizon out."""
    kept = [
        re.sub(r" deleteHorizonMs: OptionalLong.empty| currentTxnFirstOffset: OptionalLong.empty", "", line)
        for line in text.splitlines()
        if not line.startswith(("Dumping ", "WARN"))
    ]
    # The last batch of a producer: Kafka says its time twice.
    return [re.sub(r"( offsetDelta: \d+) timestamp: \d+", r"\1", line).strip() for line in kept]


def same_as_kafkas_dumper(path: Path, capsys: pytest.CaptureFixture[str], *options: str) -> None:
    assert run(["dump-log", str(path), *options]) == errors.OK
    ours = lines(capsys.readouterr().out)
    assert ours
    assert ours == lines(run_tool(DUMPER, ["--files", path, *options]).stdout)


@pytest.mark.java
@pytest.mark.parametrize("whose", ["ours", pytest.param("kafkas", marks=pytest.mark.slow)])
def test_our_lines_are_those_of_kafkas_dumper(
    whose: str, request: pytest.FixtureRequest, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    require_kafka()
    directory = request.getfixturevalue(whose) / "dumped-0"
    first = sorted(directory.glob("*.log"))[0]
    same_as_kafkas_dumper(first, capsys)
    same_as_kafkas_dumper(first, capsys, "--deep-iteration")
    for path in (
        first.with_suffix(".index"),
        first.with_suffix(".timeindex"),
        *sorted(directory.glob("*.snapshot"))[:1],
    ):
        same_as_kafkas_dumper(path, capsys)
    # Only values that are text are compared: Kafka's dumper takes all for UTF-8.
    last = sorted(directory.glob("*.log"))[-1]
    assert run(["dump-log", str(last), "--print-data-log"]) == errors.OK
    tail = lines(capsys.readouterr().out)[-2:]
    assert tail == lines(run_tool(DUMPER, ["--files", last, "--print-data-log"]).stdout)[-2:]


def test_a_damaged_file_is_reported_with_its_place(ours: Path, tmp_path: Path) -> None:
    directory = tmp_path / "dumped-0"
    shutil.copytree(ours / "dumped-0", directory)
    log = sorted(directory.glob("*.log"))[0]
    batches = [entry for entry in entries(log) if entry["kind"] == "batch"]
    broken = batches[3]
    data = bytearray(log.read_bytes())
    data[broken["position"] + 100] ^= 1
    log.write_bytes(bytes(data))
    command = [sys.executable, "-m", "odradek", "dump-log", str(directory), "--verify-index-only"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert done.returncode == errors.FAILED
    assert not done.stdout
    (line,) = done.stderr.splitlines()
    assert line == (
        f"odradek: {log}: damaged at byte {broken['position']:,}: "
        f"the checksum of the batch at offset {broken['base_offset']} does not match"
    )


DECODERS = {
    "--offsets-decoder": "__consumer_offsets",
    "--transaction-log-decoder": "__transaction_state",
    "--cluster-metadata-decoder": "__cluster_metadata",
    "--share-group-state-decoder": "__share_group_state",
}


@pytest.mark.parametrize("decoder", DECODERS)
@pytest.mark.parametrize("form", ["--print-data-log", "--json", "--skip-record-metadata", "--verify-index-only"])
def test_every_decoder_over_every_log_ends_in_clear_lines(
    decoder: str, form: str, ours: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    logs = [path for path in files(ours) if path.suffix == ".log" and path.stat().st_size]
    assert {path.parent.name.rpartition("-")[0] for path in logs} >= {
        "dumped", "odd", "__consumer_offsets", "__transaction_state", "__cluster_metadata"
    }  # fmt: skip
    for path in logs:
        fits = path.parent.name.rpartition("-")[0] == DECODERS[decoder]
        code = run(["dump-log", str(path), decoder, form])
        printed = capsys.readouterr()
        assert code == (errors.OK if fits else errors.FAILED), (path, printed.err)
        said = printed.err.splitlines()
        if fits:
            assert not said
            continue
        (line,) = said
        if form == "--json":
            refused = json.loads(line)
            assert refused["exit_code"] == errors.FAILED
            line = f"odradek: {refused['error']}"
        assert re.match(
            rf"odradek: {re.escape(str(path))}: [\d,]+ of [\d,]+ records are none of {DECODERS[decoder]} and were read "
            r"without the decoder; the first, at offset \d+: [a-zA-Z]",
            line,
        ), line


def test_bytes_that_a_decoder_cannot_read_are_printed_raw(ours: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (path,) = (ours / "odd-0").glob("*.log")
    assert run(["dump-log", str(path), "--offsets-decoder"]) == errors.FAILED
    lines_of_records = [line for line in capsys.readouterr().out.splitlines() if line.startswith("|")]
    assert lines_of_records[0].endswith("key: k payload: v")
    assert 'key: {"base64":"AAH/"} payload: {"base64":"AAH/"}' in lines_of_records[4]
    assert "COMMIT: " in lines_of_records[-1]
