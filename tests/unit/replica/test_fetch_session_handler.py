"""The follower's half of a fetch session: the partitions of each request, and the session after each response."""

from __future__ import annotations

from uuid import UUID

import pytest

from odradek.common.errors import ErrorCode
from odradek.protocol.messages.fetch_request import FetchPartition, FetchRequest
from odradek.replica.fetch_session_handler import FetchSessionHandler, PartitionKey

ONE, TWO = UUID(int=5), UUID(int=6)
LARGEST = 2_147_483_647


def filled(
    session: FetchSessionHandler, named: list[PartitionKey], gone: list[PartitionKey] | None = None
) -> FetchRequest:
    request = FetchRequest()
    session.fill(request, [(key, FetchPartition(partition=key[1])) for key in named], gone or [])
    return request


def names(request: FetchRequest) -> dict[UUID, list[int]]:
    return {topic.topic_id: [each.partition for each in topic.partitions] for topic in request.topics}


def forgotten(request: FetchRequest) -> dict[UUID, list[int]]:
    return {topic.topic_id: list(topic.partitions) for topic in request.forgotten_topics_data}


def kept(*named: PartitionKey) -> FetchSessionHandler:
    """A session that the leader keeps, with these partitions."""
    session = FetchSessionHandler()
    filled(session, list(named))
    assert session.handle_response(0, 9)
    return session


def test_a_first_request_begins_a_session_and_the_next_continues_it() -> None:
    session = FetchSessionHandler()
    assert session.is_full_next and not session.is_kept
    request = filled(session, [(ONE, 0), (TWO, 1), (ONE, 2)])
    assert (request.session_id, request.session_epoch) == (0, 0)
    assert names(request) == {ONE: [0, 2], TWO: [1]}
    assert session.is_full_next, "until the leader says that it keeps one"
    assert session.handle_response(0, 9)
    assert session.is_kept and not session.is_full_next
    epochs = [filled(session, []).session_epoch for _ in range(3)]
    assert (epochs, session.session_id) == ([1, 2, 3], 9)


def test_forgotten_partitions_are_named_once_by_topic() -> None:
    session = kept((ONE, 0), (ONE, 1), (TWO, 0), (TWO, 7))
    request = filled(session, [], [(ONE, 0), (TWO, 7), (ONE, 1), (TWO, 8)])
    assert forgotten(request) == {ONE: [0, 1], TWO: [7]}, "and not what the session does not hold"
    assert forgotten(filled(session, [], [(ONE, 0), (TWO, 0)])) == {TWO: [0]}


def test_a_full_request_drops_the_partitions_of_the_last_session() -> None:
    session = kept((ONE, 0))
    session.reset()
    filled(session, [(ONE, 1)])
    session.handle_response(0, 10)
    assert forgotten(filled(session, [], [(ONE, 0), (ONE, 1)])) == {ONE: [1]}


def test_the_fetch_session_epoch_wraps_around() -> None:
    session = kept((ONE, 0))
    session.epoch = LARGEST - 1
    assert [filled(session, []).session_epoch for _ in range(3)] == [LARGEST - 1, LARGEST, 1]


@pytest.mark.parametrize(
    ("code", "session_id", "epoch"),
    [(ErrorCode.FETCH_SESSION_ID_NOT_FOUND, 0, 0), (ErrorCode.INVALID_FETCH_SESSION_EPOCH, 9, 0)],
)
def test_an_error_ends_the_fetch_session(code: ErrorCode, session_id: int, epoch: int) -> None:
    session = kept((ONE, 0))
    assert session.handle_response(code, 9) is False
    assert (session.is_kept, session.is_full_next) == (False, True)
    request = filled(session, [(ONE, 0)])
    assert (request.session_id, request.session_epoch) == (session_id, epoch)


def test_a_leader_that_keeps_no_session_is_asked_for_all_each_time() -> None:
    session = kept((ONE, 0))
    assert session.handle_response(0, 0) is True
    assert (session.session_id, session.is_full_next) == (0, True)


def test_an_answer_within_a_session_changes_nothing_of_it() -> None:
    session = kept((ONE, 0))
    filled(session, [])
    assert session.handle_response(0, 12)
    assert (session.session_id, session.epoch) == (9, 2)
