"""Targets that read bytes which brokers wrote: the Spark connector's decoder, and `odradek dump-log`."""

from __future__ import annotations

import functools
import tempfile
from pathlib import Path
from random import Random
from typing import Any

from odradek.cli.log_files import Damage, DumpOptions, read_entries
from odradek.common.errors import ApiError
from odradek.log.log_dir import CLEAN_SHUTDOWN
from odradek.raft.quorum_state import FILE_NAME
from odradek.record.batch import crc_is_valid
from odradek.record.builder import build_batch
from odradek.record.reader import read_batches, read_records
from odradek.record.record import Record
from odradek.server.startup.format import META_FILE
from tests.fuzz.engine import Target
from tests.fuzz.targets_files import generate_small_file, metadata_files
from tests.fuzz.targets_logs import scene
from tests.fuzz.targets_protocol import RECORD_KINDS, generate_stored
from tests.fuzz.targets_records import INT64, NOW_MS, RESEAL, generate_batches, resealed

# -- the Spark connector ----------------------------------------------------------------------------------------------


@functools.cache
def _spark() -> Any:
    """(module, schema); imported late, for it takes a second."""
    from pyspark.sql.pandas.types import to_arrow_schema

    from pyspark_odradek.record import decode
    from pyspark_odradek.source.schema import source_schema

    return decode, to_arrow_schema(source_schema(True), timezone="UTC")


def run_spark_decode(data: bytes) -> None:
    if not data:
        return
    fetched = resealed(data[1:]) if data[0] & RESEAL else data[1:]
    module, schema = _spark()
    view = memoryview(fetched)
    try:
        batches = list(module.whole_batches(view))
        visible = module.VisibleBatches([module.AbortedTransaction(5, 0)] if data[0] & 2 else [])
        shown = [batch for batch in batches if visible.shows(batch, view)]
        decoder = module.Decoder(schema, "t", 0, -(2**63), 2**63 - 1)
        rows = [row for part in decoder.decode(view, shown) for row in _rows_of(part)]
    except module.RecordFormatError:
        return
    expected = _as_the_broker_reads(fetched, {batch.header.base_offset for batch in shown}, len(batches))
    if expected is not None and len(shown) == len(batches):
        assert rows == expected, "the connector and the broker read the same bytes differently"


def _rows_of(part: Any) -> list[tuple[Any, ...]]:
    names = ("offset", "key", "value")
    return list(zip(*(part.column(name).to_pylist() for name in names), strict=True))


def _as_the_broker_reads(fetched: bytes, shown: set[int], count: int) -> list[tuple[Any, ...]] | None:
    """Offset, key and value of all records; None where the broker would refuse some of them."""
    rows = []
    for number, (position, header) in enumerate(read_batches(fetched)):
        batch = fetched[position : position + header.size_bytes]
        if number >= count or not crc_is_valid(batch, header):
            return None
        try:
            records = read_records(batch, header, max_output_bytes=1 << 20)
        except ApiError:
            return None
        if any(record.offset not in INT64 or record.offset == INT64.stop - 1 for record in records):
            return None
        rows += [(record.offset, record.key, record.value) for record in records]
    return rows


# -- dump-log ---------------------------------------------------------------------------------------------------------

FOLDERS = ("topic-0", "__cluster_metadata-0", "__consumer_offsets-0", "__transaction_state-0", "__share_group_state-0")
NAMES = (
    f"{0:020d}.log",
    f"{0:020d}.index",
    f"{0:020d}.timeindex",
    f"{0:020d}.txnindex",
    f"{0:020d}.snapshot",
    f"{5:020d}-{1:010d}.checkpoint",
    "leader-epoch-checkpoint",
    "recovery-point-offset-checkpoint",
    "partition.metadata",
    META_FILE,
    FILE_NAME,
    CLEAN_SHUTDOWN,
)


@functools.cache
def _folder() -> tempfile.TemporaryDirectory[str]:
    """Lives as long as the process."""
    return tempfile.TemporaryDirectory(prefix="odradek-fuzz-")


@functools.cache
def _files() -> dict[str, list[bytes]]:
    """Examples of each kind of file, by suffix or name."""
    found: dict[str, list[bytes]] = {}
    for path, data in {**scene(0).files, **metadata_files()}.items():
        found.setdefault(path.suffix or path.name, []).append(data)
    return found


def _internal_log(rng: Random) -> tuple[int, bytes]:
    """(Folder, batch) of a coordinator's log."""
    while True:
        stored = generate_stored(rng)
        kind = stored[0]
        if 0 < kind < len(RECORD_KINDS):
            key, value = stored[2 : 2 + stored[1]], stored[2 + stored[1] :]
            return kind + 1, build_batch([Record(key, value, timestamp_ms=NOW_MS)])


def generate_dumped(rng: Random) -> bytes:
    """Two bytes that choose folder and name, and a file."""
    kind = rng.randrange(4)
    if kind == 0:
        folder, data = _internal_log(rng)
        return bytes((folder, 0)) + data
    if kind == 1:
        return bytes((0, 0)) + resealed(generate_batches(rng)[1:])
    number = rng.randrange(len(NAMES))
    examples = _files().get(Path(NAMES[number]).suffix or NAMES[number], [])
    data = rng.choice(examples) if examples else generate_small_file(rng)[1:]
    return bytes((rng.randrange(len(FOLDERS)), number)) + data


def run_dumped(data: bytes) -> None:
    if len(data) < 2:
        return
    folder = Path(_folder().name) / FOLDERS[data[0] % len(FOLDERS)]
    folder.mkdir(exist_ok=True)
    path = folder / NAMES[data[1] % len(NAMES)]
    path.write_bytes(data[2:])
    try:
        for entry in read_entries(path, DumpOptions(records=True)):
            assert isinstance(entry, dict) or str(entry), "a damage says what it is"
            if isinstance(entry, Damage):
                assert entry.position is None or 0 <= entry.position <= len(data)
    finally:
        path.unlink()


TARGETS = (
    Target("spark_decode", generate_batches, run_spark_decode, (b"\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01",)),
    Target("dump_log", generate_dumped, run_dumped, (b"\n", b"[[[[", b"\xff\xff\xff\xff\x0f", b"=")),
)
