"""When a leader counts as cut off, partition by partition."""

from __future__ import annotations

from pathlib import Path

import pytest

from odradek.common.errors import ApiError, ErrorCode
from odradek.replica.isolation import Isolation
from tests.unit.replica.test_partition import Home

SESSION_MS = 1000


class Cut:
    """A broker that leads two partitions, one of them alone, and its clock."""

    def __init__(self, directory: Path) -> None:
        self.now_ms = 0
        for name in ("shared", "alone"):
            (directory / name).mkdir()
        self.shared, self.alone = Home(directory / "shared", (1, 2)), Home(directory / "alone", (1,))
        self.isolation = Isolation([self.shared.partition, self.alone.partition], lambda: self.now_ms)
        self.isolation.session_ms = SESSION_MS
        self.isolation.answered()

    def look(self, at_ms: int) -> bool:
        """Whether the shared partition is cut off at that time; the lonely one never is."""
        self.now_ms = at_ms
        self.isolation.look()
        assert not self.alone.partition.cut_off
        return self.shared.partition.cut_off


@pytest.fixture
def cut(tmp_path: Path) -> Cut:
    return Cut(tmp_path)


async def test_a_leader_without_quorum_and_followers_takes_nothing_after_a_session(cut: Cut) -> None:
    info = cut.shared.append(b"before", acks=-1)
    waiting = cut.shared.partition.wait_replicated(info.last_offset + 1)
    assert waiting is not None
    assert not cut.look(SESSION_MS)
    assert cut.look(SESSION_MS + 1)
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
    assert cut.look(SESSION_MS + 1)
    if heard == "quorum":
        cut.isolation.answered()
    else:
        cut.shared.fetched(2, 0, now_ms=cut.now_ms)
    assert not cut.look(SESSION_MS + 2)
    assert not cut.isolation.topics
    cut.shared.append(b"x")


def test_a_broker_that_was_never_in_the_cluster_and_topics_of_coordinators_are_left_alone(cut: Cut) -> None:
    cut.isolation.exempt = frozenset({"t"})
    assert not cut.look(9 * SESSION_MS)
    assert not Isolation([cut.shared.partition], lambda: 9 * SESSION_MS).topics
