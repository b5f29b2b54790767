"""A producer that lies within what Produce lets through: the log takes it, answers for it, and finds it again."""

from __future__ import annotations

import struct
from random import Random
from uuid import UUID

from odradek.common.errors import ApiError
from odradek.log.log import Log
from odradek.log.search import search_timestamp
from odradek.record.batch import BatchHeader
from odradek.record.validation import BatchRules, admit
from tests.fuzz.engine import Target
from tests.fuzz.targets_logs import PARTITION, a_disk, a_manager, read_all
from tests.fuzz.targets_records import CAP_BYTES, INT64, RESEAL, generate_batches, resealed
from tests.support.models.batches import NOW_MS, batch

RULES = BatchRules(max_decompressed_bytes=CAP_BYTES)


def generate_produced(rng: Random) -> bytes:
    """Some batches, each behind its length: in order from one producer, from any producers, and with wrong headers."""
    pieces, sequence = [], 0
    for _ in range(rng.randrange(1, 6)):
        if rng.random() < 0.5:
            count = rng.randrange(1, 4)
            data = batch(
                *[b"v"] * count,
                producer_id=rng.choice((7, 7, 2**63 - 1)),
                producer_epoch=rng.choice((0, 0, 0, 1, 32_767)),
                sequence=rng.choice((sequence, sequence, 0, 2**31 - 1)),
                transactional=rng.random() < 0.2,
            )
            sequence += count
        else:
            data = generate_batches(rng)[1:]
        pieces.append(struct.pack(">H", len(data) & 0xFFFF) + data[:0xFFFF])
    return bytes((RESEAL,)) + b"".join(pieces)


def run_produced(data: bytes) -> None:
    disk = a_disk({})
    manager = a_manager(disk)
    manager.lock_dirs()
    manager.load()
    log = manager.create(*PARTITION, UUID(int=7), {})
    taken, position = 0, 1
    while position + 2 <= len(data) and taken < 20:
        (size,) = struct.unpack_from(">H", data, position)
        position += 2
        taken += _offer(log, data[position : position + size])
        position += size
    _query(log)
    if not taken:
        return
    whole = read_all(log)
    if data[0] & 2:
        manager.close()
    else:
        disk.process_died()
    again = a_manager(disk)
    again.lock_dirs()
    again.load()
    found = again.logs[PARTITION]
    assert read_all(found) == whole and found.log_end_offset == log.log_end_offset
    assert _last_sequences(found) == _last_sequences(log), "producers are known again after a restart"
    _query(found)


def _last_sequences(log: Log) -> dict[int, tuple[int, int]]:
    return {
        entry.producer_id: (entry.producer_epoch, entry.last_sequence) for entry in log.producers.producers.values()
    }


def _offer(log: Log, data: bytes) -> int:
    """Append as a Produce request does; returns how many batches were appended."""
    data = resealed(data)
    try:
        taken, header = admit(data, RULES, now_ms=NOW_MS, api_version=13)
        before = log.log_end_offset
        info = log.append_as_leader([taken], [header], leader_epoch=0, now_ms=NOW_MS)
    except ApiError:
        return 0
    if info.duplicate:
        assert log.log_end_offset == before and info.last_offset < before
        return 0
    assert info.base_offset == before and info.last_offset + 1 == log.log_end_offset
    log.update_high_watermark(log.log_end_offset)
    return 1


def _query(log: Log) -> None:
    for timestamp_ms in (-(2**63), -1, 0, NOW_MS, 2**63 - 1):
        try:
            found = search_timestamp(log, timestamp_ms).run()
        except ApiError:
            continue
        assert found is None or (found.timestamp_ms in INT64 and 0 <= found.offset < log.log_end_offset)
    try:
        newest = search_timestamp(log, None).run()
    except ApiError:
        return
    assert newest is None or newest.timestamp_ms in INT64
    for offset in range(log.log_end_offset):
        chunks = log.read(offset, max_bytes=1).chunks
        header = BatchHeader.read(chunks[0].read())
        assert header.base_offset <= offset <= header.last_offset


TARGETS = (Target("produced", generate_produced, run_produced, (b"\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01",)),)
