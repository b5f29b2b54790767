"""The conditions under which a leader counts as isolated, partition by partition."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest

from odradek.common.errors import ApiError, ErrorCode
from odradek.replica.isolation import Isolation
from odradek.replica.waiters import DataWait
from tests.unit.replica.test_partition import Home

SESSION_MS = 1000


class Cut:
    """A broker that leads two partitions, one of them alone, and its clock."""

    def __init__(self, directory: Path) -> None:
        self.now_ms = 0
        for name in ("shared", "alone"):
            (directory / name).mkdir()
        self.shared, self.alone = Home(directory / "shared", (1, 2, 3)), Home(directory / "alone", (1,))
        self.isolation = self.watched()
        self.isolation.answered()

    def watched(self, *, exempt: frozenset[str] = frozenset()) -> Isolation:
        partitions = [self.shared.partition, self.alone.partition]
        return Isolation(partitions, lambda: self.now_ms, session_ms=SESSION_MS, exempt=exempt)

    def is_isolated_at(self, at_ms: int) -> bool:
        """Whether the shared partition is cut off at that time; the lonely one never is."""
        self.now_ms = at_ms
        self.isolation.update()
        assert not self.alone.partition.is_isolated
        return self.shared.partition.is_isolated


@pytest.fixture
def cut(tmp_path: Path) -> Cut:
    return Cut(tmp_path)


async def test_an_isolated_leader_refuses_writes_after_a_session(cut: Cut) -> None:
    info = cut.shared.append(b"before", acks=-1)
    waiting = cut.shared.partition.wait_replicated(info.last_offset + 1)
    assert waiting is not None
    assert not cut.is_isolated_at(SESSION_MS)
    assert cut.is_isolated_at(SESSION_MS + 1)
    assert cut.isolation.topics == {"t"}
    failure = waiting.exception()
    assert isinstance(failure, ApiError)
    assert failure.code is ErrorCode.NOT_LEADER_OR_FOLLOWER
    with pytest.raises(ApiError) as refused:
        cut.shared.append(b"x")
    assert refused.value.code is ErrorCode.NOT_LEADER_OR_FOLLOWER
    cut.alone.append(b"x")


@pytest.mark.parametrize("heard", ["quorum", "follower"])
def test_either_of_them_is_enough_and_ends_it(cut: Cut, heard: str) -> None:
    assert cut.is_isolated_at(SESSION_MS + 1)
    if heard == "quorum":
        cut.isolation.answered()
    else:
        cut.shared.fetched(2, 0, now_ms=cut.now_ms)
    assert not cut.is_isolated_at(SESSION_MS + 2)
    assert not cut.isolation.topics
    cut.shared.append(b"x")


def test_isolation_spares_new_brokers_and_coordinator_topics(cut: Cut) -> None:
    cut.isolation = cut.watched(exempt=frozenset({"t"}))
    cut.isolation.answered()
    assert not cut.is_isolated_at(9 * SESSION_MS)
    assert not Isolation([cut.shared.partition], lambda: 9 * SESSION_MS).topics


def test_both_must_be_silent_for_the_whole_session(cut: Cut) -> None:
    cut.now_ms = 500
    cut.isolation.answered()
    assert not cut.is_isolated_at(500 + SESSION_MS), "the quorum is not"
    cut.shared.fetched(3, 0, now_ms=700)
    assert not cut.is_isolated_at(700 + SESSION_MS), "a follower is not"
    assert cut.is_isolated_at(701 + SESSION_MS)


def test_one_follower_that_fetches_is_enough_however_far_behind_it_is(cut: Cut) -> None:
    cut.shared.append(b"x")
    cut.shared.fetched(2, 0, now_ms=SESSION_MS)
    assert cut.shared.partition.in_sync.followers[2].caught_up_ms == 0
    assert not cut.is_isolated_at(SESSION_MS + 1)


async def test_isolation_wakes_each_waiting_produce_once(cut: Cut) -> None:
    elsewhere = DataWait([cut.alone.partition], missing_bytes=1, timeout_ms=60_000)
    here = DataWait([cut.shared.partition], missing_bytes=1, timeout_ms=60_000)
    assert cut.is_isolated_at(SESSION_MS + 1)
    assert here.future.done()
    later = DataWait([cut.shared.partition], missing_bytes=1, timeout_ms=60_000)
    assert cut.is_isolated_at(SESSION_MS + 2)
    assert not later.future.done() and not elsewhere.future.done()
    for wait in (later, elsewhere):
        wait.future.cancel()


def test_the_log_says_once_that_a_cut_begins_and_once_that_it_is_over(
    cut: Cut, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    for at_ms in (SESSION_MS, SESSION_MS + 1, SESSION_MS + 2):
        cut.is_isolated_at(at_ms)
    assert [each.levelno for each in caplog.records] == [logging.WARNING]
    cut.isolation.answered()
    for at_ms in (SESSION_MS + 3, SESSION_MS + 4):
        assert not cut.is_isolated_at(at_ms)
    assert [each.levelno for each in caplog.records] == [logging.WARNING, logging.INFO]


def test_the_session_is_kafkas_where_nothing_else_is_set(cut: Cut) -> None:
    assert Isolation([], lambda: 0).session_ms == 9000
