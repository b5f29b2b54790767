"""A fuzzer that cannot fail proves nothing: for each target a bug is planted, and it must be found within seconds."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import cramjam
import pytest

from odradek.cli import log_files
from odradek.client import cluster
from odradek.common.errors import ApiError, ProtocolError
from odradek.log import recovery, verification
from odradek.protocol import codec, record_types
from odradek.raft import metadata_log, quorum_state
from odradek.record import compression, validation, walk
from odradek.record.reader import read_records
from odradek.security.acl import authorizer
from odradek.security.acl.index import find_rule
from odradek.security.quota import entities
from odradek.security.quota.entities import limit_of_client
from odradek.security.sasl import scram
from odradek.server.network.request_reader import BufferPool
from odradek.settings import listeners
from pyspark_odradek.record import decode
from tests.fuzz import engine, targets_protocol
from tests.fuzz.engine import Finding, executions
from tests.fuzz.targets import TARGETS

SEED = 3
PATIENCE_S = 200.0


def acquire_while_used(self: BufferPool, size_bytes: int) -> bytearray | None:
    """A buffer is used again while a handler still reads its frame."""
    return next((buffer for buffer in self._buffers if len(buffer) >= size_bytes), None)


def decode_and_leak(*arguments: Any, **options: Any) -> Any:
    """A message that is cut short raises IndexError instead of ProtocolError."""
    try:
        return codec.decode(*arguments, **options)
    except ProtocolError as error:
        if "cut" in str(error) or "end" in str(error):
            raise IndexError(str(error)) from None
        raise


def decode_rows_late(self: decode.Decoder, fetched: memoryview, group: Any) -> Any:
    """The decoder skips the first record of the fetched bytes."""
    self.start_offset = group[0].header.base_offset + 1
    return decode_group(self, fetched, group)


decode_group = decode.Decoder._decode_group


def read_records_unchecked(batch: Any, header: Any, **options: Any) -> Any:
    """Damaged records raise ValueError instead of ApiError."""
    try:
        return read_records(batch, header, **options)
    except ApiError as error:
        raise ValueError(str(error)) from None


def skip_producers(state: Any, segment: Any, position: int, header: Any, notes: list[str]) -> None:
    """A restart recovers no producer state."""
    state.map_end_offset = header.last_offset + 1


def read_first_byte(block: memoryview, limit: int) -> bytes:
    """An empty block raises IndexError, because its first byte is read."""
    return bytes(cramjam.snappy.decompress_raw(block)) if block[0] >= 0 else b""


def accept_anything(*_: object) -> bool:
    return True


def find_own_rule(side: Any, principal: str, operation: int, host: str) -> Any:
    """ACLs for all users are not applied."""
    return find_rule({name: each for name, each in side.items() if name == principal}, principal, operation, host)


def limit_of_user(quotas: Any, key: str, user: str, client_id: str) -> Any:
    """Quotas of single client ids are not applied."""
    return limit_of_client(quotas, key, user, "")


BUGS: tuple[tuple[str, Any, str, Callable[..., Any]], ...] = (
    ("frames", BufferPool, "acquire", acquire_while_used),
    ("requests", targets_protocol, "decode", decode_and_leak),
    ("responses", targets_protocol, "decode", decode_and_leak),
    ("stored_records", record_types, "decode", decode_and_leak),
    ("compression", compression, "_snappy_block", read_first_byte),
    ("walk", walk, "_deltas_follow", accept_anything),
    ("batches", validation, "crc_is_valid", accept_anything),
    ("damaged_log", verification, "crc_is_valid", accept_anything),
    ("small_files", quorum_state, "_number", lambda fields, name: int(fields[name])),
    ("damaged_metadata", metadata_log, "_read_synced", lambda data: None),
    ("properties", listeners, "parse_natural", lambda text, limit: int(text)),
    ("small_texts", cluster, "parse_natural", lambda text, limit: int(text)),
    ("logins", scram, "_is_proof", accept_anything),
    ("permissions", authorizer, "find_rule", find_own_rule),
    ("quotas", entities, "limit_of_client", limit_of_user),
    ("produced", recovery, "replay_batch", skip_producers),
    ("spark_decode", decode.Decoder, "_decode_group", decode_rows_late),
    ("dump_log", log_files, "read_records", read_records_unchecked),
)
# One of each kind of input: messages, batches, files, settings, security, Spark. The others are slow tests.
IN_SHORT = ("requests", "batches", "damaged_log", "small_texts", "permissions", "spark_decode")


@pytest.mark.parametrize(
    ("name", "place", "attribute", "bug"),
    [pytest.param(*each, id=each[0], marks=[] if each[0] in IN_SHORT else pytest.mark.slow) for each in BUGS],
)
def test_a_planted_bug_is_found(
    name: str, place: Any, attribute: str, bug: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    target = next(target for target in TARGETS if target.name == name)
    monkeypatch.setattr(place, attribute, bug)
    # Kept inputs were found with bugs of long ago; a new bug must be found by new ones.
    monkeypatch.setattr(engine, "corpus_of", lambda name: [])
    with pytest.raises(Finding):
        for _ in executions(target, SEED, PATIENCE_S):
            pass


def test_every_target_has_a_planted_bug() -> None:
    assert {name for name, *_ in BUGS} == {target.name for target in TARGETS}


def test_an_input_that_takes_too_much_is_a_finding() -> None:
    greedy = engine.Target("greedy", lambda rng: b"", lambda data: None, max_cpu_s=-1.0)
    with pytest.raises(Finding, match="processor time"):
        engine.run_one(greedy, b"")

    def eat(data: bytes) -> None:
        assert bytearray(b"x" * (500 << 20))

    hungry = engine.Target("hungry", lambda rng: b"", eat)
    with pytest.raises(Finding, match="memory grew"):
        engine.run_one(hungry, b"")


def test_the_same_number_is_the_same_input() -> None:
    for target in TARGETS:
        corpus = engine.corpus_of(target.name)
        first = [engine.input_number(target, corpus, 7, number) for number in range(20)]
        assert first == [engine.input_number(target, corpus, 7, number) for number in range(20)]


def test_a_finding_is_made_shorter() -> None:
    def run(data: bytes) -> None:
        assert b"X" not in data

    target = engine.Target("short", lambda rng: b"", run)
    with pytest.raises(Finding) as found:
        engine.run_one(target, b"abcdefghXijklmnop" * 10)
    assert engine.shrink(target, found.value) == b"X"
