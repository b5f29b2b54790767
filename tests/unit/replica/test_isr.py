"""In-sync replicas and the high watermark, computed from numbers alone."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from odradek.replica.isr import (
    UNKNOWN_OFFSET,
    FollowerState,
    effective_min_in_sync,
    high_watermark,
    is_caught_up_to_leader,
    out_of_sync,
)

LEADER = 1


def at(offset: int, **fields: int) -> FollowerState:
    return FollowerState(log_end_offset=offset, **fields)


def watermark(current: int, end: int, followers: dict[int, FollowerState], isr: set[int], minimum: int = 1) -> int:
    return high_watermark(
        current=current,
        leader_id=LEADER,
        leader_end_offset=end,
        followers=followers,
        isr=isr,
        maximal_isr=isr,
        min_in_sync_replicas=minimum,
    )


class TestHighWatermark:
    def test_the_leader_alone_is_enough_for_itself(self) -> None:
        assert watermark(3, 10, {}, {LEADER}) == 10

    def test_the_slowest_in_sync_decides(self) -> None:
        followers = {2: at(7), 3: at(5), 4: at(1)}
        assert watermark(3, 10, followers, {LEADER, 2, 3}) == 5
        assert watermark(3, 10, followers, {LEADER, 2}) == 7

    def test_one_that_has_not_fetched_yet_holds_it(self) -> None:
        assert watermark(3, 10, {2: at(UNKNOWN_OFFSET)}, {LEADER, 2}) == 3
        assert watermark(3, 10, {}, {LEADER, 2}) == 3

    def test_the_high_watermark_never_goes_back(self) -> None:
        assert watermark(8, 10, {2: at(5)}, {LEADER, 2}) == 8

    def test_too_few_in_sync_hold_it(self) -> None:
        assert watermark(3, 10, {2: at(9)}, {LEADER, 2}, minimum=3) == 3
        assert watermark(3, 10, {2: at(9)}, {LEADER, 2}, minimum=2) == 9

    @given(
        st.integers(0, 20),
        st.integers(0, 20),
        st.dictionaries(st.integers(2, 5), st.integers(-1, 20), max_size=4),
        st.sets(st.integers(2, 5), max_size=4),
        st.integers(1, 5),
    )
    def test_the_high_watermark_is_on_all_in_sync_replicas(
        self, current: int, end: int, ends: dict[int, int], others: set[int], minimum: int
    ) -> None:
        found = watermark(current, end, {r: at(e) for r, e in ends.items()}, {LEADER} | others, minimum)
        assert found >= current
        if found > current:
            assert found <= end
            assert all(ends.get(replica, -1) >= found for replica in others)
            assert len(others) + 1 >= minimum


def test_no_more_are_asked_for_than_there_are() -> None:
    assert [effective_min_in_sync(minimum, 3) for minimum in (1, 2, 3, 4)] == [1, 2, 3, 3]


class TestJoining:
    def test_at_the_watermark_and_past_the_start_of_the_epoch(self) -> None:
        assert is_caught_up_to_leader(at(10), leader_epoch_start=5, high_watermark=10)
        assert not is_caught_up_to_leader(at(9), leader_epoch_start=5, high_watermark=10)
        assert not is_caught_up_to_leader(at(10), leader_epoch_start=11, high_watermark=10), (
            "it may hold another history (KAFKA-7128)"
        )
        assert is_caught_up_to_leader(at(11), leader_epoch_start=11, high_watermark=10)


class TestCatchingUp:
    @staticmethod
    def fetch(follower: FollowerState, offset: int, leader_end: int, now_ms: int) -> None:
        follower.fetched(
            fetch_offset=offset, log_start_offset=0, leader_end_offset=leader_end, now_ms=now_ms, broker_epoch=7
        )

    def test_a_follower_that_fetches_from_the_end_is_caught_up(self) -> None:
        follower = FollowerState()
        self.fetch(follower, 10, 10, 500)
        assert (follower.log_end_offset, follower.caught_up_ms, follower.broker_epoch) == (10, 500, 7)

    def test_reaching_the_previous_end_counts_from_the_previous_fetch(self) -> None:
        follower = FollowerState()
        self.fetch(follower, 0, 10, 100)
        assert follower.caught_up_ms == -1
        self.fetch(follower, 10, 25, 200)
        assert follower.caught_up_ms == 100, "under constant load no follower is ever at the end"
        self.fetch(follower, 20, 40, 300)
        assert follower.caught_up_ms == 100

    @pytest.mark.parametrize(("now_ms", "late"), [(1100, set()), (1101, {2})])
    def test_a_follower_behind_for_too_long_is_out_of_sync(self, now_ms: int, late: set[int]) -> None:
        followers = {2: at(5, caught_up_ms=100), 3: at(10, caught_up_ms=-1)}
        found = out_of_sync(
            isr={LEADER, 2, 3},
            leader_id=LEADER,
            leader_end_offset=10,
            followers=followers,
            now_ms=now_ms,
            max_lag_ms=1000,
        )
        assert found == late, "one at the end is in sync whenever it came there"

    def test_one_that_is_not_known_is_out_and_the_leader_never(self) -> None:
        found = out_of_sync(
            isr={LEADER, 9}, leader_id=LEADER, leader_end_offset=10, followers={}, now_ms=10**6, max_lag_ms=1
        )
        assert found == {9}
