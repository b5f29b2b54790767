"""`odradek dump-log` over files that our own rooms wrote, whole and damaged."""

from __future__ import annotations

import json
import struct
from pathlib import Path
from typing import Any

import pytest

from odradek.cli import errors
from odradek.cli.app import run
from odradek.cli.log_files import Damage, DumpOptions, read_entries
from odradek.cli.log_records import Decoder
from odradek.log.index import AbortedTransaction
from odradek.log.producer_state import ProducerState
from odradek.protocol.messages.config_record import ConfigRecord
from odradek.protocol.messages.group_metadata_key import GroupMetadataKey
from odradek.protocol.messages.group_metadata_value import GroupMetadataValue, MemberMetadata
from odradek.protocol.messages.offset_commit_key import OffsetCommitKey
from odradek.protocol.messages.offset_commit_value import OffsetCommitValue
from odradek.protocol.messages.topic_record import TopicRecord
from odradek.protocol.messages.transaction_log_key import TransactionLogKey
from odradek.protocol.record_types import encode_coordinator_key, encode_coordinator_value, encode_metadata_record
from odradek.raft.snapshot import encode_snapshot
from odradek.record.batch import BatchHeader
from odradek.record.builder import build_batch
from odradek.record.control import transaction_marker
from odradek.record.record import Record
from tests.support.models.batches import NOW_MS

NAME = "00000000000000000010.log"


def batch(*values: bytes | None, base_offset: int = 10, key: bytes | None = b"k", **settings: Any) -> bytes:
    headers = (("h", b"1"),)
    records = [Record(key, value, headers, timestamp_ms=NOW_MS + index) for index, value in enumerate(values)]
    return build_batch(records, base_offset=base_offset, **settings)


def write(directory: Path, data: bytes, name: str = NAME) -> Path:
    directory.mkdir(parents=True, exist_ok=True)
    (directory / name).write_bytes(data)
    return directory / name


def entries(path: Path, **options: Any) -> list[dict[str, Any]]:
    found = list(read_entries(path, DumpOptions(**options)))
    assert not [entry for entry in found if isinstance(entry, Damage)], found
    return [entry for entry in found if isinstance(entry, dict)]


def damages(path: Path, **options: Any) -> list[str]:
    return [str(entry) for entry in read_entries(path, DumpOptions(**options)) if isinstance(entry, Damage)]


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_batches_and_records(codec: str, tmp_path: Path) -> None:
    first = batch(b"a", None, b"\xff", compression=codec, producer_id=7, producer_epoch=1, base_sequence=5)
    path = write(tmp_path / "t-0", first + batch(b"b", base_offset=13))
    found = entries(path, records=True)
    heads = [entry for entry in found if entry["kind"] == "batch"]
    assert [(head["base_offset"], head["last_offset"], head["count"], head["position"]) for head in heads] == [
        (10, 12, 3, 0),
        (13, 13, 1, len(first)),
    ]
    assert heads[0]["compression"] == codec
    assert (heads[0]["producer_id"], heads[0]["base_sequence"], heads[0]["last_sequence"]) == (7, 5, 7)
    assert all(head["is_valid"] for head in heads)
    records = [entry for entry in found if entry["kind"] == "record"]
    assert [(record["offset"], record["key"], record["value"]) for record in records] == [
        (10, "k", "a"),
        (11, "k", None),
        (12, "k", {"base64": "/w=="}),
        (13, "k", "b"),
    ]
    assert [record["sequence"] for record in records] == [5, 6, 7, -1]
    assert records[0]["headers"] == ["h"]
    assert [entry["kind"] for entry in entries(path)] == ["batch", "batch"]
    assert [entry["kind"] for entry in entries(path, max_bytes=1)] == ["batch"]


@pytest.mark.parametrize(
    ("name", "value", "shown"),
    [
        ("listener.name.x.ssl.key.password", "hunter2", "(hidden)"),
        ("ssl.key.password", "odradek.sealed.1:ab:cd", "odradek.sealed.1:ab:cd"),
        ("ssl.keystore.location", "/a.pem", "/a.pem"),
    ],
)
def test_a_secret_in_plain_text_is_hidden(name: str, value: str, shown: str, tmp_path: Path) -> None:
    record = encode_metadata_record(ConfigRecord(resource_type=4, resource_name="1", name=name, value=value), 0)
    found = entries(write(tmp_path / "__cluster_metadata-0", batch(record)), records=True)
    assert found[-1]["value"]["data"]["value"] == shown


def test_records_that_compaction_left_keep_their_sequence(tmp_path: Path) -> None:
    records = [Record(b"k", b"v", (), NOW_MS, offset) for offset in (12, 14)]
    data = build_batch(records, base_offset=10, producer_id=7, producer_epoch=0, base_sequence=5)
    shown = [each for each in entries(write(tmp_path / "t-0", data), records=True) if each["kind"] == "record"]
    assert [(each["offset"], each["sequence"]) for each in shown] == [(12, 7), (14, 9)]


def test_preallocated_space_is_no_damage(tmp_path: Path) -> None:
    path = write(tmp_path / "t-0", batch(b"a") + bytes(5000))
    assert len(entries(path)) == 1
    assert entries(write(tmp_path / "t-0", b"")) == []
    assert entries(write(tmp_path / "t-0", bytes(80))) == []


def test_a_batch_that_is_cut_off_at_any_byte(tmp_path: Path) -> None:
    whole, last = batch(b"first"), batch(b"second", base_offset=11)
    # The first seven bytes are zeros, as space that was only reserved is.
    for cut in range(8, len(last)):
        path = write(tmp_path / "t-0", whole + last[:cut])
        (damage,) = damages(path, records=True)
        assert damage.startswith(f"at byte {len(whole)}: "), (cut, damage)


def test_a_flipped_bit_at_any_byte_is_reported(tmp_path: Path) -> None:
    whole, last = batch(b"first"), batch(b"second", base_offset=11)
    # The checksum covers neither base offset nor leader epoch; a wrong offset that does not go back goes unnoticed.
    reported = [*range(8, 12), *range(16, len(last))]
    for at in reported:
        broken = bytearray(last)
        broken[at] ^= 0x40
        path = write(tmp_path / "t-0", whole + bytes(broken))
        found = damages(path, records=True)
        assert len(found) == 1, (at, found)
        assert found[0].startswith(f"at byte {len(whole)}: "), (at, found)


def test_a_broken_batch_does_not_hide_the_next(tmp_path: Path) -> None:
    broken = bytearray(batch(b"first"))
    broken[-1] ^= 1
    path = write(tmp_path / "t-0", bytes(broken) + batch(b"second", base_offset=11))
    found = list(read_entries(path, DumpOptions(records=True)))
    heads = [entry for entry in found if isinstance(entry, dict) and entry["kind"] == "batch"]
    assert [head["is_valid"] for head in heads] == [False, True]
    assert damages(path) == ["at byte 0: the checksum of the batch at offset 10 does not match"]


def test_offsets_that_go_back(tmp_path: Path) -> None:
    path = write(tmp_path / "t-0", batch(b"a", b"b") + batch(b"c", base_offset=11))
    (damage,) = damages(path)
    assert "the batch at offset 11 goes back behind 11" in damage


def test_older_formats_and_nonsense(tmp_path: Path) -> None:
    old = bytearray(batch(b"a"))
    old[16] = 1
    assert "older message format" in damages(write(tmp_path / "t-0", bytes(old)))[0]
    old[16] = 9
    assert "magic 9 is no message format" in damages(write(tmp_path / "t-0", bytes(old)))[0]
    old[16] = 2
    struct.pack_into(">i", old, 8, -12)
    assert "shorter than its header" in damages(write(tmp_path / "t-0", bytes(old)))[0]


def test_transaction_markers(tmp_path: Path) -> None:
    data = b"".join(
        transaction_marker(commit=commit, producer_id=1, producer_epoch=0, coordinator_epoch=4, timestamp_ms=NOW_MS)
        for commit in (True, False)
    )
    second = len(data) // 2
    data = data[:second] + struct.pack(">q", 1) + data[second + 8 :]
    records = [entry for entry in entries(write(tmp_path / "t-0", data), records=True) if entry["kind"] == "record"]
    assert [record["control"] for record in records] == [
        {"type": "COMMIT", "data": {"coordinator_epoch": 4}},
        {"type": "ABORT", "data": {"coordinator_epoch": 4}},
    ]


def coordinator_record(key: Any, value: Any, version: int) -> bytes:
    encoded = None if value is None else encode_coordinator_value(value, version)
    return batch(encoded, key=encode_coordinator_key(key), base_offset=0)


def test_records_of_groups_are_decoded_by_their_directory(tmp_path: Path) -> None:
    key = OffsetCommitKey(group="g", topic="t", partition=3)
    path = write(
        tmp_path / "__consumer_offsets-7", coordinator_record(key, OffsetCommitValue(offset=42, metadata="m"), 3)
    )
    (record,) = [entry for entry in entries(path) if entry["kind"] == "record"]
    assert record["key"] == {"type": "OFFSET_COMMIT_KEY", "data": {"group": "g", "topic": "t", "partition": 3}}
    assert record["value"]["type"] == "OFFSET_COMMIT_VALUE"
    assert record["value"]["data"]["offset"] == 42
    # Version 3 has neither of these.
    assert not {"expire_timestamp", "topic_id"} & record["value"]["data"].keys()
    elsewhere = write(tmp_path / "copies", path.read_bytes())
    assert [entry["kind"] for entry in entries(elsewhere)] == ["batch"]
    assert entries(elsewhere, decoder=Decoder.GROUP)[1]["key"] == record["key"]


def test_metadata_of_group_members_is_decoded(tmp_path: Path) -> None:
    topics = b"\0\0\0\0\0\1\0\1t"
    member = MemberMetadata(
        member_id="m",
        client_id="c",
        client_host="/h",
        session_timeout=1,
        subscription=topics + b"\xff\xff\xff\xff",
        assignment=topics + b"\0\0\0\1\0\0\0\5" + b"\xff\xff\xff\xff",
    )
    value = GroupMetadataValue(protocol_type="consumer", generation=1, protocol="range", leader="m", members=[member])
    path = write(tmp_path / "__consumer_offsets-0", coordinator_record(GroupMetadataKey(group="g"), value, 3))
    (shown,) = entries(path)[1]["value"]["data"]["members"]
    assert (shown["subscription"], shown["assignment"]) == (["t"], ["t-5"])


def test_tombstones_and_transactions(tmp_path: Path) -> None:
    key = TransactionLogKey(transactional_id="tx")
    path = write(tmp_path / "__transaction_state-0", coordinator_record(key, None, 0))
    record = entries(path)[1]
    assert record["key"]["data"] == {"transactional_id": "tx"}
    assert record["value"] is None


def test_a_record_of_another_log_is_reported(tmp_path: Path) -> None:
    path = write(tmp_path / "__consumer_offsets-0", batch(b"\0\1short", key=b"\0\1xx"))
    (damage,) = damages(path)
    assert damage.startswith("at byte 0: the record at offset 10: ")
    path = write(tmp_path / "__cluster_metadata-0", batch(b"nonsense"))
    assert damages(path)


def test_the_metadata_log_and_its_snapshots(tmp_path: Path) -> None:
    topic = TopicRecord(name="orders")
    path = write(tmp_path / "__cluster_metadata-0", batch(encode_metadata_record(topic, 0), key=None))
    value = entries(path)[1]["value"]
    assert (value["type"], value["version"], value["data"]["name"]) == ("TOPIC_RECORD", 0, "orders")
    data = encode_snapshot([topic], last_timestamp_ms=5, leader_epoch=1, now_ms=NOW_MS, metadata_version=30)
    name = "00000000000000000010-0000000001.checkpoint"
    shown = entries(write(tmp_path, data, name))
    assert [entry["control"]["type"] for entry in shown if "control" in entry] == ["SNAPSHOT_HEADER", "SNAPSHOT_FOOTER"]
    end = sum(entry["size"] for entry in shown[:-2] if entry["kind"] == "batch")
    assert damages(write(tmp_path, data[:end], name)) == [f"at byte {end}: the snapshot ends without its footer"]


def test_indexes(tmp_path: Path) -> None:
    first = batch(b"a", b"b")
    write(tmp_path / "t-0", first + batch(b"c", base_offset=12))
    pairs = [(2, len(first))]
    index = write(
        tmp_path / "t-0", b"".join(struct.pack(">ii", *pair) for pair in pairs) + bytes(800), NAME[:-3] + "index"
    )
    assert entries(index) == [{"kind": "index", "offset": 12, "position": len(first)}]
    write(tmp_path / "t-0", struct.pack(">ii", 1, len(first)), index.name)
    assert damages(index) == [f"at byte 0: the log has no batch with offset 11 at position {len(first)}"]
    write(tmp_path / "t-0", struct.pack(">ii", 9, 5000), index.name)
    assert "is behind the end of the log" in damages(index)[0]
    write(tmp_path / "t-0", struct.pack(">ii", 2, len(first)) * 2, index.name)
    assert "does not rise" in damages(index)[0]
    write(tmp_path / "t-0", struct.pack(">ii", 2, len(first)) + b"abc", index.name)
    assert damages(index) == ["at byte 8: 3 bytes are not a whole entry"]
    times = write(tmp_path / "t-0", struct.pack(">qiqi", 1000, 1, 2000, 2) + bytes(1200), NAME[:-3] + "timeindex")
    assert [(entry["timestamp_ms"], entry["offset"]) for entry in entries(times)] == [(1000, 11), (2000, 12)]
    write(tmp_path / "t-0", struct.pack(">qiqi", 2000, 1, 1000, 2), times.name)
    assert damages(times) == ["at byte 12: timestamp 1000 or offset 12 goes back"]


def test_aborted_transactions_and_producers(tmp_path: Path) -> None:
    aborted = AbortedTransaction(7, 1, 5, 1)
    path = write(tmp_path, struct.pack(">hqqqq", 0, *aborted), NAME[:-3] + "txnindex")
    assert entries(path)[0] | {"kind": ""} == {"kind": "", "version": 0, **aborted._asdict()}
    write(tmp_path, struct.pack(">hqqqq", 3, *aborted), path.name)
    assert "an entry of version 3" in damages(path)[0]
    state = ProducerState()
    state.update(BatchHeader.read(batch(b"a", b"b", producer_id=7, producer_epoch=2, base_sequence=0)))
    snapshot = write(tmp_path, state.snapshot(), NAME[:-3] + "snapshot")
    (producer,) = entries(snapshot)
    assert (producer["producer_id"], producer["producer_epoch"]) == (7, 2)
    assert (producer["first_sequence"], producer["last_sequence"], producer["last_offset"]) == (0, 1, 11)
    data = bytearray(state.snapshot())
    data[-1] ^= 1
    assert "checksum" in damages(write(tmp_path, bytes(data), snapshot.name))[0]


@pytest.mark.parametrize(
    ("name", "text", "shown"),
    [
        ("leader-epoch-checkpoint", "0\n2\n0 0\n3 17\n", [(0, 0), (3, 17)]),
        ("replication-offset-checkpoint", "0\n1\nmy topic 3 42\n", None),
        ("recovery-point-offset-checkpoint", "0\n1\nt 3 42\n", [("t", 3, 42)]),
        ("log-start-offset-checkpoint", "0\n2\nt 3 42\n", None),
        ("log-start-offset-checkpoint", "garbage", None),
        ("leader-epoch-checkpoint", "", []),
        ("partition.metadata", "version: 0\ntopic_id: abc", [("version", "0"), ("topic_id", "abc")]),
        ("partition.metadata", "version: 0", None),
        ("quorum-state", '{"leaderId": 1}', [("leaderId", 1)]),
        ("quorum-state", "{", None),
        ("quorum-state", "[]", None),
    ],
)
def test_text_files(name: str, text: str, shown: list[tuple[object, ...]] | None, tmp_path: Path) -> None:
    path = write(tmp_path, text.encode(), name)
    if shown is None:
        assert damages(path)
    else:
        assert [tuple(entry.values())[1:] for entry in entries(path)] == shown


def test_the_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    directory = tmp_path / "t-0"
    path = write(directory, batch(b"a"))
    write(directory, b"0\n1\n0 0\n", "leader-epoch-checkpoint")
    write(directory, b"mine", "notes.txt")
    assert run(["dump-log", str(directory), "--print-data-log"]) == errors.OK
    out = capsys.readouterr().out
    assert f"Dumping {path}\nLog starting offset: 10\nbaseOffset: 10 lastOffset: 10 count: 1 " in out
    assert " position: 0 CreateTime: " in out
    assert "| offset: 10 CreateTime: " in out
    assert "headerKeys: [h] key: k payload: a\n" in out
    assert "leaderEpoch: 0 startOffset: 0" in out
    assert "notes" not in out
    assert run(["dump-log", "--json", "--files", str(path)]) == errors.OK
    (line,) = capsys.readouterr().out.splitlines()
    assert json.loads(line)["file"] == str(path)


def test_the_command_says_where_a_file_is_damaged(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = write(tmp_path / "t-0", batch(b"a") + b"garbage")
    assert run(["dump-log", str(path), "--verify-index-only"]) == errors.FAILED
    shown = capsys.readouterr()
    assert not shown.out
    size = len(batch(b"a"))
    assert shown.err == f"odradek: {path}: damaged at byte {size}: 7 bytes are not a whole header of a batch\n"


@pytest.mark.parametrize(
    ("name", "code", "said"),
    [
        ("missing.log", errors.NOT_FOUND, "does not exist"),
        ("notes.txt", errors.USAGE, "is no .log, .index"),
        ("notanumber.index", errors.USAGE, "its name must begin with the base offset"),
        ("empty", errors.NOT_FOUND, "has no files of a log"),
    ],
)
def test_files_of_unknown_formats(
    name: str, code: int, said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "empty").mkdir()
    (tmp_path / "notes.txt").write_text("x")
    (tmp_path / "notanumber.index").write_bytes(bytes(8))
    assert run(["dump-log", str(tmp_path / name)]) == code
    err = capsys.readouterr().err
    assert said in err
    assert err.count("\n") == 1
