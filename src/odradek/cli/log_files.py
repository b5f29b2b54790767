"""Reads the entries of a file of a log directory of Odradek or Kafka, for `odradek dump-log`.

`read_entries` yields one dict for each entry of a file and a `Damage` wherever the file is not as it must be. It reads
a log batch by batch and goes on behind a batch that is only wrong inside; if the next one cannot be found it ends.
Nothing is written, so that the files of a running broker can be looked at too.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

from odradek.cli.log_records import Decoder, as_they_are, decode_record
from odradek.common.errors import ApiError
from odradek.log.producer_state import CorruptSnapshotError, ProducerState
from odradek.record.batch import (
    COMPRESSION_NAMES,
    HEADER_BYTES,
    LOG_APPEND_TIME,
    MAGIC,
    BatchHeader,
    advance_sequence,
    crc_is_valid,
)
from odradek.record.reader import read_records
from odradek.record.record import Record

_OFFSET_ENTRY = struct.Struct(">ii")
_TIME_ENTRY = struct.Struct(">qi")
_TXN_ENTRY = struct.Struct(">hqqqq")
# The suffixes of files that a broker is about to delete or to swap in.
_SUFFIXES = (".deleted", ".cleaned", ".swap", ".part")
TEXT_FILES = frozenset(
    {
        "cleaner-offset-checkpoint",
        "leader-epoch-checkpoint",
        "log-start-offset-checkpoint",
        "recovery-point-offset-checkpoint",
        "replication-offset-checkpoint",
    }
)
PROPERTIES_FILES = frozenset({"meta.properties", "partition.metadata"})
JSON_FILES = frozenset({"quorum-state", ".kafka_cleanshutdown"})
BOOTSTRAP = "bootstrap.checkpoint"
_SEGMENT_SUFFIXES = frozenset({".log", ".index", ".timeindex", ".txnindex", ".snapshot", ".checkpoint"})


@dataclass(frozen=True, slots=True)
class Damage:
    """A damaged place of a file; `position` is in bytes, None if it has no position."""

    position: int | None
    reason: str

    def __str__(self) -> str:
        return self.reason if self.position is None else f"at byte {self.position:,}: {self.reason}"


@dataclass(frozen=True, slots=True)
class DumpOptions:
    """The options of reading.

    Attributes:
        records: the records too, not only the headers of the batches.
        decoder: how keys and values are decoded; None takes it from the name of the directory.
        max_bytes: stop before a batch that begins behind so many bytes; None reads all.
    """

    records: bool = False
    decoder: Decoder | None = None
    max_bytes: int | None = None


def kind_of(path: Path) -> str | None:
    """The suffix or name that determines the format; None for other files."""
    name = path.name
    for suffix in _SUFFIXES:
        name = name.removesuffix(suffix)
    if name in TEXT_FILES | PROPERTIES_FILES | JSON_FILES:
        return name
    suffix = Path(name).suffix
    return suffix if suffix in _SEGMENT_SUFFIXES else None


def read_entries(path: Path, options: DumpOptions) -> Iterator[dict[str, Any] | Damage]:
    """The entries and damaged places of a file, in order.

    Raises:
        ValueError: a file that is none of a log directory's; OSError as the system says.
    """
    kind = kind_of(path)
    if kind is None:
        raise ValueError("not a file of a log directory")
    if kind in (".log", ".checkpoint"):
        yield from _Batches(path, options, is_snapshot=kind == ".checkpoint").entries()
    elif kind == ".index":
        yield from _offset_index(path)
    elif kind == ".timeindex":
        yield from _time_index(path)
    elif kind == ".txnindex":
        yield from _transaction_index(path)
    elif kind == ".snapshot":
        yield from _producers(path)
    elif kind in TEXT_FILES:
        yield from _checkpoint(path)
    elif kind in PROPERTIES_FILES:
        yield from _properties(path)
    else:
        yield from _json(path)


def base_offset_of(path: Path) -> int:
    """The offset in a file's name. Raises ValueError."""
    digits = path.name.partition(".")[0].partition("-")[0]
    if not digits.isdigit():
        raise ValueError("its name must begin with the base offset of the segment")
    return int(digits)


class _Batches:
    """A single pass over a log or snapshot, including checks at its end."""

    def __init__(self, path: Path, options: DumpOptions, *, is_snapshot: bool) -> None:
        own = Decoder.CLUSTER_METADATA if is_snapshot else Decoder.of_directory(path.parent.name)
        self._path = path
        self._max_bytes = options.max_bytes
        self._decoder = options.decoder or own
        # A decoder that was only asked for may be the wrong one: what it cannot read is then no damage of the file.
        self._foreign = _Foreign(self._decoder) if self._decoder is not own else None
        self._with_records = is_snapshot or options.records or self._decoder is not Decoder.NONE
        self._needs_footer = is_snapshot and options.max_bytes is None
        self._end = 0
        self._last_offset = -1

    def entries(self) -> Iterator[dict[str, Any] | Damage]:
        for found in _whole_batches(self._path, self._max_bytes):
            if isinstance(found, Damage):
                yield found
                return
            yield from self._batch(*found)
        if self._foreign is not None and self._foreign.first:
            yield Damage(None, str(self._foreign))
        if self._needs_footer:
            yield Damage(self._end, "the snapshot ends without its footer")

    def _batch(self, position: int, header: BatchHeader, batch: bytes) -> Iterator[dict[str, Any] | Damage]:
        self._end = position + header.size_bytes
        intact = crc_is_valid(batch, header)
        yield _batch_entry(header, position, intact)
        if not intact:
            yield Damage(position, f"the checksum of the batch at offset {header.base_offset} does not match")
        if header.base_offset <= self._last_offset:
            yield Damage(position, f"the batch at offset {header.base_offset} goes back behind {self._last_offset}")
        self._last_offset = max(self._last_offset, header.last_offset)
        if intact and self._with_records:
            for entry in _records(batch, header, position, self._decoder, self._foreign):
                self._needs_footer = self._needs_footer and not _is_footer(entry)
                yield entry


def _whole_batches(path: Path, max_bytes: int | None) -> Iterator[tuple[int, BatchHeader, bytes] | Damage]:
    """The batches that begin in the first `max_bytes` of a file, with their positions; damage ends the iteration."""
    position, end = 0, path.stat().st_size
    with path.open("rb") as file:
        while position < end and (max_bytes is None or position < max_bytes):
            found = _next_batch(file, position, end)
            if found is None:
                return
            if isinstance(found, Damage):
                yield found
                return
            header, batch = found
            yield position, header, batch
            position += header.size_bytes


def _next_batch(file: BinaryIO, position: int, end: int) -> tuple[BatchHeader, bytes] | Damage | None:
    """The batch at `position`; None if only reserved zeros follow."""
    file.seek(position)
    head = file.read(HEADER_BYTES)
    if not any(head) and _only_zeros(file):
        return None
    if len(head) < HEADER_BYTES:
        return Damage(position, f"{len(head)} bytes are not a whole header of a batch")
    header = BatchHeader.read(head)
    if header.magic != MAGIC:
        # Older formats have the same length field, but Kafka 4 reads them no more than we do.
        known = "an older message format that Kafka 4 does not read" if header.magic in (0, 1) else "no message format"
        return Damage(position, f"magic {header.magic} is {known}")
    if header.size_bytes < HEADER_BYTES:
        return Damage(position, f"a batch of {header.size_bytes} bytes is shorter than its header")
    if header.size_bytes > end - position:
        return Damage(position, f"the batch has {header.size_bytes:,} bytes, {end - position:,} are left in the file")
    return header, head + file.read(header.size_bytes - HEADER_BYTES)


def _only_zeros(file: BinaryIO) -> bool:
    while piece := file.read(1 << 20):
        if any(piece):
            return False
    return True


def _batch_entry(header: BatchHeader, position: int, intact: bool) -> dict[str, Any]:
    codec = header.compression
    return {
        "kind": "batch",
        "base_offset": header.base_offset,
        "last_offset": header.last_offset,
        "count": header.record_count,
        "base_sequence": header.base_sequence,
        "last_sequence": header.last_sequence,
        "producer_id": header.producer_id,
        "producer_epoch": header.producer_epoch,
        "partition_leader_epoch": header.partition_leader_epoch,
        "is_transactional": header.is_transactional,
        "is_control": header.is_control,
        "delete_horizon_ms": header.base_timestamp if header.has_delete_horizon else None,
        "position": position,
        "timestamp_type": "LogAppendTime" if header.timestamp_type == LOG_APPEND_TIME else "CreateTime",
        "timestamp_ms": header.max_timestamp,
        "size": header.size_bytes,
        "magic": header.magic,
        "compression": COMPRESSION_NAMES[codec] if codec < len(COMPRESSION_NAMES) else str(codec),
        "crc": header.crc,
        "is_valid": intact,
    }


@dataclass(slots=True)
class _Foreign:
    """The records that a decoder could not read in a directory of another kind; one line reports them."""

    decoder: Decoder
    record_count: int = 0
    unread_count: int = 0
    first: str = ""

    def unread(self, offset: int, reason: str) -> None:
        self.unread_count += 1
        self.first = self.first or f"offset {offset}: {reason}"

    def __str__(self) -> str:
        return (
            f"{self.unread_count:,} of {self.record_count:,} records are none of {self.decoder.topic} and were read "
            f"without the decoder; the first, at {self.first}"
        )


def _records(
    batch: bytes, header: BatchHeader, position: int, decoder: Decoder, foreign: _Foreign | None
) -> Iterator[dict[str, Any] | Damage]:
    try:
        records = read_records(batch, header)
    except ApiError as error:
        yield Damage(position, f"the batch at offset {header.base_offset}: {error.message or error.code.name}")
        return
    for record in records:
        entry = _record_entry(record, header)
        decoded = decode_record(record, decoder, is_control=header.is_control)
        if foreign is not None:
            foreign.record_count += 1
        if not isinstance(decoded, str):
            yield entry | decoded
            continue
        yield entry | as_they_are(record)
        if foreign is None:
            yield Damage(position, f"the record at offset {record.offset}: {decoded}")
        else:
            foreign.unread(record.offset, decoded)


def _record_entry(record: Record, header: BatchHeader) -> dict[str, Any]:
    # Compaction leaves gaps, and what is left keeps its sequence.
    delta = record.offset - header.base_offset
    return {
        "kind": "record",
        "offset": record.offset,
        "timestamp_type": "LogAppendTime" if header.timestamp_type == LOG_APPEND_TIME else "CreateTime",
        "timestamp_ms": record.timestamp_ms,
        "key_size": -1 if record.key is None else len(record.key),
        "value_size": -1 if record.value is None else len(record.value),
        "sequence": -1 if header.base_sequence < 0 else advance_sequence(header.base_sequence, delta),
        "headers": [name for name, _ in record.headers],
    }


def _is_footer(entry: dict[str, Any] | Damage) -> bool:
    return isinstance(entry, dict) and entry.get("control", {}).get("type") == "SNAPSHOT_FOOTER"


def _offset_index(path: Path) -> Iterator[dict[str, Any] | Damage]:
    base = base_offset_of(path)
    log = path.with_name(path.name.replace(".index", ".log"))
    log_file = log.open("rb") if log.exists() else None
    last_relative = last_position = -1
    try:
        for at, (relative, position) in _entries(path, _OFFSET_ENTRY):
            if isinstance(relative, Damage):
                yield relative
                return
            yield {"kind": "index", "offset": base + relative, "position": position}
            if relative <= last_relative or position <= last_position:
                yield Damage(at, f"offset {base + relative} or position {position} does not rise")
            elif log_file is not None and (wrong := _not_in_log(log_file, base + relative, position)):
                yield Damage(at, wrong)
            last_relative, last_position = relative, position
    finally:
        if log_file is not None:
            log_file.close()


def _not_in_log(file: BinaryIO, offset: int, position: int) -> str | None:
    file.seek(position)
    head = file.read(HEADER_BYTES)
    if len(head) < HEADER_BYTES:
        return f"position {position} for offset {offset} is behind the end of the log"
    header = BatchHeader.read(head)
    if not header.base_offset <= offset <= header.last_offset:
        return f"the log has no batch with offset {offset} at position {position}"
    return None


def _time_index(path: Path) -> Iterator[dict[str, Any] | Damage]:
    base = base_offset_of(path)
    last_timestamp, last_relative = -1, -1
    for at, (timestamp, relative) in _entries(path, _TIME_ENTRY):
        if isinstance(timestamp, Damage):
            yield timestamp
            return
        yield {"kind": "timeindex", "timestamp_ms": timestamp, "offset": base + relative}
        if timestamp < last_timestamp or relative < last_relative:
            yield Damage(at, f"timestamp {timestamp} or offset {base + relative} goes back")
        last_timestamp, last_relative = timestamp, relative


def _transaction_index(path: Path) -> Iterator[dict[str, Any] | Damage]:
    for at, fields in _entries(path, _TXN_ENTRY):
        if isinstance(fields[0], Damage):
            yield fields[0]
            return
        version, producer_id, first, last, stable = fields
        yield {
            "kind": "txnindex",
            "version": version,
            "producer_id": producer_id,
            "first_offset": first,
            "last_offset": last,
            "last_stable_offset": stable,
        }
        if version != 0 or first > last:
            yield Damage(at, f"an entry of version {version} from offset {first} to {last}")


def _entries(path: Path, entry: struct.Struct) -> Iterator[tuple[int, tuple[Any, ...]]]:
    """(position, fields) of each entry; the file of an open segment is preallocated, and ends in zeros."""
    data = path.read_bytes()
    used = len(data) - len(data) % entry.size
    end = len(data.rstrip(b"\0"))
    for at in range(0, used, entry.size):
        # An entry may itself end in zeros; only the last one that has anything in it does.
        if at >= end:
            return
        yield at, entry.unpack_from(data, at)
    if used < len(data) and any(data[used:]):
        yield used, (Damage(used, f"{len(data) - used} bytes are not a whole entry"), None)


def _producers(path: Path) -> Iterator[dict[str, Any] | Damage]:
    try:
        state = ProducerState.from_snapshot(path.read_bytes(), base_offset_of(path))
    except CorruptSnapshotError as error:
        yield Damage(None, str(error))
        return
    for producer in state.producers.values():
        last = producer.batches[-1] if producer.batches else None
        yield {
            "kind": "producer",
            "producer_id": producer.producer_id,
            "producer_epoch": producer.producer_epoch,
            "coordinator_epoch": producer.coordinator_epoch,
            "transaction_start": producer.transaction_start if producer.transaction_start >= 0 else None,
            "last_timestamp_ms": producer.last_timestamp_ms,
            "first_sequence": last.first_sequence if last else None,
            "last_sequence": last.last_sequence if last else None,
            "last_offset": last.last_offset if last else None,
            "offset_delta": last.offset_delta if last else None,
        }


def _checkpoint(path: Path) -> Iterator[dict[str, Any] | Damage]:
    lines = path.read_text(errors="replace").splitlines()
    if not lines:
        return
    if lines[0].strip() != "0" or len(lines) < 2 or not lines[1].strip().isdigit():
        yield Damage(0, "it must begin with a version 0 and a count of lines")
        return
    is_epochs = path.name.startswith("leader-epoch")
    for number, line in enumerate(lines[2:], 3):
        parts = line.split(" ")
        try:
            if is_epochs:
                epoch, offset = parts
                yield {"kind": "epoch", "leader_epoch": int(epoch), "start_offset": int(offset)}
            else:
                topic, partition, offset = parts
                yield {"kind": "offset", "topic": topic, "partition": int(partition), "offset": int(offset)}
        except ValueError:
            yield Damage(None, f"line {number}: {line[:60]!r} is not an entry of such a file")
    if int(lines[1]) != len(lines) - 2:
        yield Damage(None, f"it announces {lines[1].strip()} entries and has {len(lines) - 2}")


def _properties(path: Path) -> Iterator[dict[str, Any] | Damage]:
    from odradek.settings.properties import parse_properties

    try:
        values = parse_properties(path.read_text(encoding="utf-8"))
    except ValueError as error:
        yield Damage(None, f"not a properties file: {error}")
        return
    for key, value in values.items():
        yield {"kind": "property", "key": key, "value": value}
    needed = {"version", "topic_id"} if path.name == "partition.metadata" else {"version", "cluster.id"}
    if missing := sorted(needed - values.keys()):
        yield Damage(None, f"{', '.join(missing)} is missing")


def _json(path: Path) -> Iterator[dict[str, Any] | Damage]:
    text = path.read_text(errors="replace")
    if not text and path.name == ".kafka_cleanshutdown":
        return
    try:
        found = json.loads(text)
    except (ValueError, RecursionError) as error:
        yield Damage(None, f"not JSON: {error}")
        return
    if not isinstance(found, dict):
        yield Damage(None, "not a JSON object")
        return
    for key, value in found.items():
        yield {"kind": "property", "key": key, "value": value}
