"""A link's fetch session with one broker of its source names only changes, and everything after the session is lost."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from uuid import UUID

import pytest

from odradek.common.errors import ErrorCode
from odradek.common.real_io import RealDisk
from odradek.link.measures import Why
from odradek.link.mirroring import MirroredPartition
from odradek.link.source_session import SourceSession
from odradek.log.config import LogConfig
from odradek.log.files import FileCache
from odradek.log.opening import close_log, open_log
from odradek.protocol.messages.fetch_request import FetchRequest
from odradek.protocol.messages.fetch_response import FetchableTopicResponse, FetchResponse, PartitionData
from odradek.replica.partition import Partition
from tests.support.models.batches import NOW_MS

ID = UUID(int=9)


@pytest.fixture
def mirrored(tmp_path: Path) -> Iterator[list[MirroredPartition]]:
    found = []
    files = FileCache(RealDisk(workers=1))
    for number in range(3):
        path = tmp_path / f"t-{number}"
        path.mkdir()
        log = open_log(files, path, ("t", number), LogConfig(), now_ms=NOW_MS)
        found.append(
            MirroredPartition(Partition("t", number, UUID(int=5), log, broker_id=1), ID, "there", source_epoch=4)
        )
    yield found
    for each in found:
        close_log(each.partition.log)


def asked(session: SourceSession, some: list[MirroredPartition]) -> tuple[list[int], list[int], int]:
    """The partitions that a request names, those that it forgets, and its epoch."""
    request = FetchRequest()
    session.fill(request, some)
    assert {each.topic for each in request.topics} | {each.topic for each in request.forgotten_topics_data} <= {"there"}
    return (
        [each.partition for topic in request.topics for each in topic.partitions],
        [number for topic in request.forgotten_topics_data for number in topic.partitions],
        request.session_epoch,
    )


def answer(session_id: int = 7, error: ErrorCode = ErrorCode.NONE, *partitions: int) -> FetchResponse:
    data = [PartitionData(partition_index=number, high_watermark=8) for number in partitions]
    topics = [FetchableTopicResponse(topic_id=ID, partitions=data)] if data else []
    return FetchResponse(error_code=error, session_id=session_id, responses=topics)


def test_a_request_names_what_has_changed(mirrored: list[MirroredPartition]) -> None:
    session = SourceSession()
    assert asked(session, mirrored) == ([0, 1, 2], [], 0)
    first = answer(7, ErrorCode.NONE, 0, 1, 2)
    assert not session.is_over(first)
    assert [data is not None for _, _, data in session.answers(first)] == [True] * 3
    assert asked(session, mirrored) == ([], [], 1)
    second = answer(7, ErrorCode.NONE, 2)
    assert not session.is_over(second)
    assert [data is not None for _, _, data in session.answers(second)] == [False, False, True]
    mirrored[1].source_epoch = 5
    assert asked(session, mirrored[1:]) == ([1], [0], 2)
    assert not session.is_over(answer())
    # A partition that was refused is fetched again, from the same offset.
    mirrored[2].wait(Why.MOVING, "it moves", NOW_MS)
    assert asked(session, mirrored) == ([0, 2], [], 3)


@pytest.mark.parametrize("error", [ErrorCode.FETCH_SESSION_ID_NOT_FOUND, ErrorCode.INVALID_FETCH_SESSION_EPOCH])
def test_all_is_asked_for_after_a_session_is_lost(mirrored: list[MirroredPartition], error: ErrorCode) -> None:
    session = SourceSession()
    asked(session, mirrored)
    session.is_over(answer())
    asked(session, mirrored)
    assert session.is_over(answer(0, error))
    assert asked(session, mirrored) == ([0, 1, 2], [], 0)
    # A full request that is refused so is no matter of a session that is over.
    assert not session.is_over(answer(0, error))


def test_a_source_without_sessions_is_asked_for_all(mirrored: list[MirroredPartition]) -> None:
    session = SourceSession()
    for _ in range(2):
        assert asked(session, mirrored) == ([0, 1, 2], [], 0)
        assert not session.is_over(answer(0))
