"""The replicas that follow and are in sync, the requested changes of the set, and the reasons of those outside it."""

from __future__ import annotations

import pytest

from odradek.common.errors import ErrorCode
from odradek.replica.in_sync import InSync, IsrChange, IsrCounts, Outcome, OutOfSync, outcome_of
from odradek.replica.isr import FollowerState

ME, ALL = 1, (1, 2, 3)
LAG_MS = 1000


def leading(isr: tuple[int, ...] = ALL, *, at_ms: int = 0) -> InSync:
    made = InSync(ME)
    made.begin(ALL, isr, at_ms)
    return made


def fetch(in_sync: InSync, replica_id: int, offset: int, at_ms: int, end: int = 10, epoch: int = -1) -> None:
    in_sync.followers[replica_id].fetched(
        fetch_offset=offset, log_start_offset=0, leader_end_offset=end, now_ms=at_ms, broker_epoch=epoch
    )


def expand(in_sync: InSync, replica_id: int, at_ms: int = 0, *, eligible: bool = True) -> IsrChange | None:
    return in_sync.maybe_expand(
        replica_id,
        leader_epoch=4,
        partition_epoch=7,
        leader_epoch_start=2,
        high_watermark=10,
        now_ms=at_ms,
        is_isr_eligible=lambda broker_id, broker_epoch: eligible and (broker_id, broker_epoch) == (replica_id, 70),
    )


def shrink(in_sync: InSync, at_ms: int, end: int = 10) -> IsrChange | None:
    return in_sync.maybe_shrink(
        leader_epoch=4, partition_epoch=7, leader_end_offset=end, now_ms=at_ms, max_lag_ms=LAG_MS
    )


@pytest.mark.parametrize(
    ("code", "outcome"),
    [
        (ErrorCode.NONE, Outcome.DONE),
        (ErrorCode.INELIGIBLE_REPLICA, Outcome.REFUSED),
        (ErrorCode.OPERATION_NOT_ATTEMPTED, Outcome.REFUSED),
        (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, Outcome.OVERTAKEN),
        (ErrorCode.UNKNOWN_TOPIC_ID, Outcome.OVERTAKEN),
        (ErrorCode.FENCED_LEADER_EPOCH, Outcome.OVERTAKEN),
        (ErrorCode.INVALID_UPDATE_VERSION, Outcome.OVERTAKEN),
        (ErrorCode.INVALID_REQUEST, Outcome.OVERTAKEN),
        (ErrorCode.NEW_LEADER_ELECTED, Outcome.OVERTAKEN),
        (ErrorCode.NOT_CONTROLLER, Outcome.RETRY),
        (ErrorCode.UNKNOWN_SERVER_ERROR, Outcome.RETRY),
    ],
)
def test_results_of_alter_partition(code: ErrorCode, outcome: Outcome) -> None:
    assert outcome_of(code) is outcome


class TestBeginning:
    def test_in_sync_followers_begin_with_the_whole_lag_time(self) -> None:
        found = leading((ME, 2), at_ms=50)
        assert found.followers == {2: FollowerState(caught_up_ms=50), 3: FollowerState(caught_up_ms=-1)}
        assert found.out() == {3: OutOfSync("new", 50, 0)}
        assert found.isr == (ME, 2)

    def test_the_state_of_an_earlier_leader_epoch_is_cleared(self) -> None:
        found = leading((ME, 2))
        fetch(found, 2, 10, 5)
        fetch(found, 3, 10, 5, epoch=70)
        assert expand(found, 3, 5) is not None
        found.change_rejected(10)
        assert shrink(found, 2000, end=99) is not None
        counts = (found.counts.shrinks, found.counts.expansions)
        found.begin(ALL, (ME,), 3000)
        assert found.pending is None
        assert found.followers == {2: FollowerState(), 3: FollowerState()}
        assert found.out() == {2: OutOfSync("new", 3000, 0), 3: OutOfSync("new", 3000, 0)}
        assert (found.counts.shrinks, found.counts.expansions) == counts, "none fell out or came in"
        fetch(found, 3, 10, 10, epoch=70)
        assert expand(found, 3, 20) is not None, "what was refused to another leader may be asked for"


class TestWhatTheControllerSays:
    def test_members_that_leave_and_join_are_counted_once_for_each_change(self) -> None:
        counts = IsrCounts()
        assert (counts.shrinks, counts.expansions) == (0, 0)
        found = InSync(ME, counts)
        found.begin(ALL, ALL, 0)
        seen = []
        for isr in ((ME,), (ME, 2), ALL, ALL, (ME, 3)):
            found.commit(ALL, isr, 100)
            seen.append((counts.shrinks, counts.expansions))
        assert seen == [(1, 0), (1, 1), (1, 2), (1, 2), (2, 2)]

    def test_one_that_comes_in_for_another_counts_on_both_sides(self) -> None:
        found = leading((ME, 2))
        found.commit(ALL, (ME, 3), 100)
        assert (found.counts.shrinks, found.counts.expansions) == (1, 1)

    def test_this_broker_itself_is_no_follower_that_joins(self) -> None:
        found = leading((2,))
        found.commit(ALL, (2, ME), 100)
        assert found.counts.expansions == 0

    def test_whom_the_controller_takes_out_is_fenced_since_then(self) -> None:
        found = leading()
        found.commit(ALL, (ME, 3), 100)
        assert found.out() == {2: OutOfSync("fenced", 100, 1)}
        found.commit(ALL, ALL, 200)
        assert found.out() == {}
        found.commit(ALL, (ME, 3), 300)
        assert found.out() == {2: OutOfSync("fenced", 300, 2)}

    def test_whom_this_leader_took_out_keeps_the_reason(self) -> None:
        found = leading()
        fetch(found, 3, 10, 1500)
        assert shrink(found, 1500) is not None
        found.commit(ALL, (ME, 3), 1600)
        assert found.out() == {2: OutOfSync("stuck", 0, 1)}
        assert found.pending is None

    def test_a_removed_replica_is_dropped_and_a_new_one_added(self) -> None:
        found = leading((ME, 2))
        found.commit((ME, 2, 4), (ME, 2), 100)
        assert set(found.followers) == {2, 4}
        assert (found.out(), set(found.removed)) == ({4: OutOfSync("new", 100, 0)}, {4})
        found.commit((ME, 4), (ME,), 200)
        assert (found.counts.shrinks, set(found.followers)) == (0, {4}), "it did not fall out: it is no replica"

    def test_the_state_of_a_follower_is_kept(self) -> None:
        found = leading()
        fetch(found, 2, 10, 5)
        before = found.followers[2]
        found.commit(ALL, ALL, 100)
        assert found.followers[2] is before


class TestJoining:
    def test_the_change_names_epochs_of_registrations(self) -> None:
        found = leading((ME, 2))
        fetch(found, 2, 10, 0, epoch=60)
        fetch(found, 3, 10, 0, epoch=70)
        change = expand(found, 3)
        assert change == IsrChange((ME, 2, 3), (-1, 60, 70), leader_epoch=4, partition_epoch=7, joining=(3,))
        assert found.pending is change
        assert tuple(found.maximal_isr) == (ME, 2, 3)
        assert expand(found, 3) is None, "one change at a time"

    @pytest.mark.parametrize(
        ("replica_id", "offset", "eligible"),
        [(2, 10, True), (3, 9, True), (3, 10, False)],
        ids=["in the set", "behind the watermark", "fenced, or another registration"],
    )
    def test_replicas_that_may_not_join_the_isr(self, replica_id: int, offset: int, eligible: bool) -> None:
        found = leading((ME, 2))
        fetch(found, replica_id, offset, 0, epoch=70)
        assert expand(found, replica_id, eligible=eligible) is None
        assert found.pending is None

    def test_a_refused_isr_change_is_retried_after_a_pause(self) -> None:
        found = leading((ME, 2))
        fetch(found, 3, 10, 0, epoch=70)
        assert expand(found, 3, 100) is not None
        found.change_rejected(1000)
        assert found.pending is None
        assert expand(found, 3, 1499) is None
        assert expand(found, 3, 1500) is not None


class TestFallingOut:
    def test_the_isr_change_omits_laggards_with_the_reason(self) -> None:
        found = leading()
        fetch(found, 2, 5, 600, epoch=60)
        change = shrink(found, 1001)
        assert change == IsrChange((ME,), (-1,), leader_epoch=4, partition_epoch=7, leaving=(2, 3))
        assert found.removed == {2: OutOfSync("slow", 0, 1), 3: OutOfSync("stuck", 0, 1)}
        assert tuple(found.maximal_isr) == ALL, "they count until it is decided"
        assert shrink(found, 5000) is None, "one change at a time"

    @pytest.mark.parametrize(("now_ms", "reason"), [(1600, "slow"), (1601, "stuck")])
    def test_a_follower_without_fetches_for_the_lag_time_is_stuck(self, now_ms: int, reason: str) -> None:
        found = leading((ME, 2))
        fetch(found, 2, 5, 600)
        assert shrink(found, now_ms) is not None
        assert found.removed[2].reason == reason

    def test_a_follower_caught_up_without_a_fetch_is_not_stuck_early(self) -> None:
        found = leading((ME, 2), at_ms=5000)
        assert shrink(found, 6000) is None
        assert shrink(found, 6001) is not None
        assert found.removed[2] == OutOfSync("stuck", 5000, 1)

    def test_all_in_sync_is_no_change(self) -> None:
        found = leading()
        assert shrink(found, LAG_MS) is None
        assert found.pending is None

    def test_the_log_line_names_the_replica_the_reason_and_the_time(self) -> None:
        found = leading()
        assert found.describe_out_of_sync(5) == "none"
        fetch(found, 2, 5, 600)
        shrink(found, 1001)
        found.commit(ALL, (ME,), 1001)
        found.commit((*ALL, 4), (ME,), 1500)
        assert found.describe_out_of_sync(1200) == (
            "2: slow for 1200 ms, fell 1 times; 3: stuck for 1200 ms, fell 1 times; 4: new for 0 ms, fell 0 times"
        )
