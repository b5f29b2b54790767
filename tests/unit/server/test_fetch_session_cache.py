"""The cache of fetch sessions: epochs, changed partitions, and eviction."""

from __future__ import annotations

from random import Random
from typing import Any
from uuid import UUID

import pytest

from odradek.common.errors import ApiError, ErrorCode
from odradek.protocol.messages.fetch_request import FetchPartition
from odradek.protocol.messages.fetch_response import EpochEndOffset, PartitionData
from odradek.server.fetch_session_cache import (
    EVICTION_MS,
    MAX_EPOCH,
    CachedPartition,
    FetchSession,
    FetchSessionCache,
    FetchSessionConfig,
)


class Cache:
    """A cache with a clock that the test turns."""

    def __init__(self, slots: int) -> None:
        self.now_ms = 1_000_000
        self.sessions = FetchSessionCache(FetchSessionConfig(slots=slots), Random(1), lambda: self.now_ms)

    def add(self, count: int = 1, *, privileged: bool = False) -> FetchSession | None:
        session = self.sessions.create(count, privileged=privileged, by_topic_id=False)
        if session is not None:
            session.update([("t", FetchPartition(partition=number)) for number in range(count)], [])
        return session

    def must_add(self, count: int = 1, *, privileged: bool = False) -> FetchSession:
        session = self.add(count, privileged=privileged)
        assert session is not None
        return session

    def has(self, session: FetchSession) -> bool:
        try:
            self.sessions.resume(session.session_id, session.epoch, by_topic_id=session.by_topic_id)
        except ApiError as error:
            assert error.code is ErrorCode.FETCH_SESSION_ID_NOT_FOUND
            return False
        return True


def code_of(cache: Cache, session_id: int, epoch: int, *, by_topic_id: bool = False) -> ErrorCode:
    try:
        cache.sessions.resume(session_id, epoch, by_topic_id=by_topic_id)
    except ApiError as error:
        return error.code
    return ErrorCode.NONE


class TestEpochs:
    def test_each_request_is_one_further(self) -> None:
        cache = Cache(10)
        session = cache.must_add()
        assert [code_of(cache, session.session_id, epoch) for epoch in (1, 2, 2, 4, 3)] == [
            ErrorCode.NONE,
            ErrorCode.NONE,
            ErrorCode.INVALID_FETCH_SESSION_EPOCH,
            ErrorCode.INVALID_FETCH_SESSION_EPOCH,
            ErrorCode.NONE,
        ]

    def test_session_epochs_wrap_around_past_0(self) -> None:
        cache = Cache(10)
        session = cache.must_add()
        session.epoch = MAX_EPOCH
        assert code_of(cache, session.session_id, MAX_EPOCH) is ErrorCode.NONE
        assert code_of(cache, session.session_id, 1) is ErrorCode.NONE

    def test_names_and_ids_do_not_mix(self) -> None:
        cache = Cache(10)
        session = cache.must_add()
        assert code_of(cache, session.session_id, 1, by_topic_id=True) is ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR
        assert code_of(cache, session.session_id, 1) is ErrorCode.NONE

    def test_one_that_was_removed(self) -> None:
        cache = Cache(10)
        session = cache.must_add()
        assert cache.sessions.remove(session.session_id)
        assert not cache.sessions.remove(session.session_id)
        assert code_of(cache, session.session_id, 1) is ErrorCode.FETCH_SESSION_ID_NOT_FOUND


class TestEviction:
    def test_ids_are_positive_and_differ(self) -> None:
        cache = Cache(500)
        ids = {cache.must_add().session_id for _ in range(500)}
        assert len(ids) == 500
        assert min(ids) > 0
        assert len(cache.sessions) == 500

    def test_no_room_while_all_are_young(self) -> None:
        cache = Cache(2)
        first, second = cache.must_add(1), cache.must_add(1)
        cache.now_ms += EVICTION_MS
        assert cache.add(100) is None
        assert cache.has(first)
        assert cache.has(second)

    def test_one_that_no_one_used_makes_room_for_anyone(self) -> None:
        cache = Cache(2)
        unused, used = cache.must_add(50), cache.must_add(1)
        cache.now_ms += EVICTION_MS
        assert cache.has(used)
        cache.now_ms += 1
        assert cache.add(1) is not None
        assert not cache.has(unused)
        assert cache.sessions.evicted_count == 1

    def test_a_small_one_that_had_its_time_makes_room_for_a_larger(self) -> None:
        cache = Cache(2)
        small, large = cache.must_add(2), cache.must_add(5)
        cache.now_ms += EVICTION_MS + 1
        assert cache.has(small)
        assert cache.has(large)
        assert cache.add(2) is None, "not for one of the same size"
        assert cache.add(3) is not None
        assert not cache.has(small)
        assert cache.has(large)

    def test_a_followers_session_goes_before_any_readers(self) -> None:
        cache = Cache(2)
        follower, reader = cache.must_add(1, privileged=True), cache.must_add(9)
        cache.now_ms += EVICTION_MS + 1
        assert cache.has(follower)
        assert cache.has(reader)
        assert cache.add(1, privileged=True) is not None, "a follower takes a reader's place, however large"
        assert cache.has(follower)
        assert not cache.has(reader)

    def test_no_slots_no_sessions(self) -> None:
        assert Cache(0).add() is None

    def test_partitions_are_counted(self) -> None:
        cache = Cache(5)
        cache.must_add(3)
        cache.must_add(4)
        assert cache.sessions.partition_count == 7


class TestPartitions:
    @staticmethod
    def session(*numbers: int) -> FetchSession:
        session = FetchSession(1, privileged=False, by_topic_id=False, now_ms=0)
        session.update([("t", FetchPartition(partition=number, fetch_offset=0)) for number in numbers], [])
        return session

    @staticmethod
    def order(session: FetchSession) -> list[int]:
        return [number for _, number in session.partitions]

    def test_added_changed_and_forgotten(self) -> None:
        session = self.session(0, 1, 2)
        changed = FetchPartition(partition=1, fetch_offset=7, partition_max_bytes=9)
        session.update([("t", changed), ("u", FetchPartition(partition=0))], [("t", 0), ("t", 99)])
        assert list(session.partitions) == [("t", 1), ("t", 2), ("u", 0)]
        assert (session.partitions["t", 1].fetch_offset, session.partitions["t", 1].max_bytes) == (7, 9)

    def test_partitions_moved_to_the_end_come_last(self) -> None:
        session = self.session(0, 1, 2)
        session.move_to_end(("t", 0))
        assert self.order(session) == [1, 2, 0]
        session.move_to_end(("t", 5))
        assert self.order(session) == [1, 2, 0]

    def test_ids_are_keys_as_names_are(self) -> None:
        session = FetchSession(1, privileged=False, by_topic_id=True, now_ms=0)
        session.update([(UUID(int=5), FetchPartition(partition=0))], [])
        assert list(session.partitions) == [(UUID(int=5), 0)]


class TestNews:
    @staticmethod
    def answer(**fields: Any) -> PartitionData:
        return PartitionData(**{"high_watermark": 5, "log_start_offset": 0, "records": b"", **fields})

    @pytest.fixture
    def asked(self) -> CachedPartition:
        asked = CachedPartition("t", FetchPartition(partition=0))
        assert asked.must_respond(self.answer()), "the first time"
        assert not asked.must_respond(self.answer())
        return asked

    @pytest.mark.parametrize(
        "fields",
        [
            {"records": b"batch"},
            {"high_watermark": 6},
            {"log_start_offset": 1},
            {"diverging_epoch": EpochEndOffset(epoch=1, end_offset=2)},
            {"preferred_read_replica": 3},
        ],
    )
    def test_partitions_that_a_session_must_report(self, asked: CachedPartition, fields: dict[str, Any]) -> None:
        assert asked.must_respond(self.answer(**fields))

    def test_marks_are_reported_once(self, asked: CachedPartition) -> None:
        assert asked.must_respond(self.answer(high_watermark=9))
        assert not asked.must_respond(self.answer(high_watermark=9))

    def test_an_error_is_reported_every_time_and_its_end_once(self, asked: CachedPartition) -> None:
        broken = self.answer(error_code=ErrorCode.OFFSET_OUT_OF_RANGE, high_watermark=-1, log_start_offset=-1)
        assert [asked.must_respond(broken) for _ in range(3)] == [True] * 3
        assert [asked.must_respond(self.answer()) for _ in range(2)] == [True, False]
