"""A follower under failures and shortages: backoffs, quotas, space, disks, and logs that diverge."""

from __future__ import annotations

import errno
import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from odradek.common.errors import ApiError, ErrorCode
from odradek.log.config import LogConfig
from odradek.protocol.messages.fetch_response import EpochEndOffset
from odradek.protocol.messages.list_offsets_response import (
    ListOffsetsPartitionResponse,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)
from odradek.replica.fetcher import EARLIEST_LOCAL, LATEST, State
from odradek.replica.following import append_from_leader
from odradek.replica.throttle import Throttled
from odradek.replica.waiters import DataWait
from tests.support.models.batches import NOW_MS
from tests.unit.replica.test_fetcher import TOPIC_ID, Follower, data, following, offsets, positions, sent

THROTTLED = Throttled(as_follower=True)


def events(caplog: pytest.LogCaptureFixture, event: str) -> list[tuple[int, dict[str, Any]]]:
    """(level, fields) of each such line."""
    return [(each.levelno, each.__dict__["fields"]) for each in caplog.records if each.getMessage() == event]


def lost(node: Follower, number: int = 0) -> None:
    """The leader says that our log end is not in its log."""
    node.asked()
    node.answer(data(number, error_code=ErrorCode.OFFSET_OUT_OF_RANGE))
    assert node.state(number).state is State.OUT_OF_RANGE


def find(node: Follower, earliest: ListOffsetsResponse, latest: ListOffsetsResponse) -> list[Any]:
    asked = node.fetcher.offsets_request(LATEST)
    assert asked is not None
    return node.fetcher.handle_offsets(asked[1], earliest, latest, now_ms=node.now)


def refusing(code: int) -> ListOffsetsResponse:
    answer = ListOffsetsPartitionResponse(partition_index=0, error_code=code, offset=-1)
    return ListOffsetsResponse(topics=[ListOffsetsTopicResponse(name="t", partitions=[answer])])


class TestBackingOff:
    def test_pauses_grow_while_the_leader_does_not_answer(self, tmp_path: Path) -> None:
        with following(tmp_path) as node:
            pauses = []
            for _ in range(5):
                node.fetcher.failed(node.now, "gone")
                pauses.append((node.fetcher.retry_at_ms() or 0) - node.now)
                assert not node.fetcher.has_work(node.now)
                node.now += pauses[-1]
                assert node.fetcher.has_work(node.now), "the pause is over"
            assert pauses == [20, 40, 80, 100, 100]
            node.asked()
            node.answer(data())
            node.fetcher.failed(node.now, "gone")
            assert node.fetcher.retry_at_ms() == node.now + 20, "what went well is forgotten"

    def test_a_pause_has_an_end_whatever_the_setting(self, tmp_path: Path) -> None:
        with following(tmp_path, backoff_ms=10**12) as node:
            for _ in range(50):
                node.fetcher.failed(node.now, "gone")
                pause = (node.fetcher.retry_at_ms() or 0) - node.now
                node.now += pause
                assert node.fetcher.has_work(node.now)
            assert pause == 20 << 20

    def test_an_error_of_the_whole_answer_puts_all_off(self, tmp_path: Path) -> None:
        with following(tmp_path, 2) as node:
            node.asked()
            consumed = node.answer(error_code=ErrorCode.UNKNOWN_SERVER_ERROR)
            assert (consumed.appended_bytes, consumed.failures) == (0, [])
            assert [each.state for each in node.fetcher] == [State.BACKING_OFF] * 2
            assert node.state().reason == "the leader answered with error -1"

    @pytest.mark.parametrize(
        "code",
        [
            ErrorCode.FETCH_SESSION_ID_NOT_FOUND,
            ErrorCode.INVALID_FETCH_SESSION_EPOCH,
            ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR,
        ],
    )
    def test_an_error_of_the_session_is_no_reason_to_wait(self, tmp_path: Path, code: ErrorCode) -> None:
        with following(tmp_path) as node:
            node.asked()
            node.answer(error_code=code)
            assert node.state().state is State.FETCHING

    def test_the_first_of_several_pauses_that_ends_is_waited_for(self, tmp_path: Path) -> None:
        with following(tmp_path, 2) as node:
            node.asked()
            node.answer(data(0, error_code=ErrorCode.UNKNOWN_TOPIC_ID), data(1))
            node.now += 5
            node.asked()
            node.answer(data(1, error_code=ErrorCode.UNKNOWN_TOPIC_ID))
            assert node.fetcher.retry_at_ms() == node.now + 15

    def test_a_removed_partition_ends_its_backoff(self, tmp_path: Path) -> None:
        with following(tmp_path, 2) as node:
            node.asked()
            node.answer(data(0, error_code=ErrorCode.UNKNOWN_TOPIC_ID), data(1))
            node.fetcher.remove_partition((TOPIC_ID, 0))
            assert node.fetcher.retry_at_ms() is None
            assert node.fetcher.fetch_state((TOPIC_ID, 0)) is None
            assert [each.partition for each in node.fetcher] == [node.partitions[1]]

    def test_a_lost_leader_ends_the_wait_for_requests_in_flight(self, tmp_path: Path) -> None:
        with following(tmp_path, 2) as node:
            node.asked()
            node.answer(data(0), data(1))
            node.asked()
            node.fetcher.failed(node.now, "gone")
            node.now += 20
            node.asked()
            node.answer(data(0, records=sent(0, 1, 3)), data(1))
            assert node.log.log_end_offset == 1, "the answer is that to the newest request"
            node.asked()
            node.change(1, leader_epoch=4)
            assert node.fetcher.can_pipeline

    @pytest.mark.parametrize(("code", "reason"), [(6, "NOT_LEADER_OR_FOLLOWER"), (9999, "error 9999")])
    def test_the_reason_is_logged_once(
        self, tmp_path: Path, caplog: pytest.LogCaptureFixture, code: int, reason: str
    ) -> None:
        caplog.set_level(logging.INFO)
        with following(tmp_path) as node:
            for _ in range(3):
                node.asked()
                node.answer(data(error_code=code), session_id=0)
                node.now += 100
            assert node.state().reason == reason
            assert len(events(caplog, "fetch of a partition backs off")) == 1
            node.asked()
            node.answer(data())
            assert (node.state().reason, node.state().failure_count) == ("", 0)


class TestQuotas:
    def test_paused_partitions_take_no_place_of_throttled_ones(self, tmp_path: Path) -> None:
        with following(tmp_path, 2) as node:
            node.asked()
            node.answer(data(0, error_code=ErrorCode.UNKNOWN_TOPIC_ID), data(1), session_id=0)
            request = node.next_request(held_back=[(TOPIC_ID, 0), (TOPIC_ID, 9)])
            assert request is not None and positions(request) == {1: 0}

    @pytest.mark.parametrize(
        ("throttled", "watermark", "held_back"),
        [(Throttled(as_leader=True), 9, False), (THROTTLED, 9, True), (THROTTLED, 3, True), (THROTTLED, 2, False)],
    )
    def test_a_quota_may_hold_back_throttled_replicas_that_lag(
        self, tmp_path: Path, throttled: Throttled, watermark: int, held_back: bool
    ) -> None:
        with following(tmp_path) as node:
            node.partitions[0].throttled = throttled
            assert bool(node.fetcher.throttled()) == throttled.as_follower, "nothing is known of its lag"
            node.asked()
            records = sent(0, 2, 3)
            consumed = node.answer(data(records=records, high_watermark=watermark))
            assert node.state().lag == watermark - 2
            assert node.fetcher.throttled() == ([(TOPIC_ID, 0)] if held_back else [])
            assert consumed.appended_bytes == len(records)
            assert consumed.throttled_bytes == (len(records) if throttled.as_follower else 0)

    def test_a_watermark_below_our_end_is_no_lag(self, tmp_path: Path) -> None:
        with following(tmp_path) as node:
            node.asked()
            node.answer(data(records=sent(0, 2, 3), high_watermark=1))
            assert node.state().lag == 0

    def test_answers_without_records_count_no_bytes(self, tmp_path: Path) -> None:
        with following(tmp_path, 3) as node:
            node.hold((3, 3))
            node.asked()
            diverging = data(0, diverging_epoch=EpochEndOffset(epoch=3, end_offset=2), records=sent(3, 1, 3))
            refused = data(1, error_code=ErrorCode.UNKNOWN_TOPIC_ID, records=sent(0, 1, 3))
            assert node.answer(diverging, refused, data(2, records=None)).appended_bytes == 0


class TestWithoutSpace:
    def test_only_partitions_out_of_sync_wait_for_space(self, tmp_path: Path) -> None:
        with following(tmp_path, 2) as node:
            node.change(0, isr=(1,))
            node.full = {tmp_path}
            assert positions(node.asked()) == {1: 0}
            assert node.state(0).state is State.BACKING_OFF
            assert node.state(0).retry_at_ms == node.now + 100
            node.answer(data(1))
            node.now += 100
            assert positions(node.next_request() or node.asked()) == {}
            assert node.state(0).retry_at_ms == node.now + 100, "there is none yet"
            node.answer()
            node.full = set()
            node.now += 99
            assert node.state(0).state is State.BACKING_OFF
            node.now += 1
            assert positions(node.asked()) == {0: 0}

    def test_space_in_another_directory_says_nothing(self, tmp_path: Path) -> None:
        with following(tmp_path) as node:
            node.change(isr=(1,))
            node.full = {tmp_path / "other"}
            assert positions(node.asked()) == {0: 0}

    def test_a_partition_that_waits_for_metadata_is_not_woken_by_it(self, tmp_path: Path) -> None:
        with following(tmp_path) as node:
            node.change(isr=(1,))
            node.asked()
            node.answer(data(error_code=ErrorCode.FENCED_LEADER_EPOCH))
            node.full = {tmp_path}
            assert not node.fetcher.has_work(node.now)
            assert node.state().state is State.WAITING


class TestFailingDisks:
    def test_a_failed_append_leaves_the_partition_and_no_other(self, tmp_path: Path) -> None:
        with following(tmp_path, 2) as node:
            node.asked()
            node.disk.dead = {tmp_path / "t-0"}
            consumed = node.answer(data(0, records=sent(0, 1, 3)), data(1, records=sent(0, 1, 3)))
            assert node.partitions[1].log.log_end_offset == 1
            assert [failure.log_dir for failure in consumed.failures] == [tmp_path]
            assert [each.partition for each in node.fetcher] == [node.partitions[1]]

    @pytest.mark.parametrize("number", [errno.EIO, errno.EMFILE])
    def test_a_log_that_cannot_be_reset_fails_but_for_descriptors(self, tmp_path: Path, number: int) -> None:
        with following(tmp_path) as node:
            lost(node)
            node.disk.code, node.disk.dead = number, {tmp_path / "t-0"}
            failures = find(node, offsets(10), offsets(20))
            if number == errno.EMFILE:
                assert failures == []
                assert (node.state().state, node.state().reason) == (State.BACKING_OFF, "too many open files")
                assert node.state().retry_at_ms == node.now + 20
            else:
                assert [failure.log_dir for failure in failures] == [tmp_path]
                assert len(node.fetcher) == 0


class TestDurability:
    def test_appended_records_are_flushed_before_the_next_fetch(self, tmp_path: Path) -> None:
        with following(tmp_path, log_config=LogConfig(flush_messages=2)) as node:
            node.asked()
            node.answer(data(records=sent(0, 1, 3)))
            assert node.state().state is State.FETCHING, "one may be left"
            node.asked()
            node.answer(data(records=sent(1, 1, 3)))
            assert node.state().state is State.FLUSHING
            assert node.fetcher.flushing() == node.partitions
            node.log.flush()
            assert positions(node.asked()) == {0: 2}


class TestFindingTheWayBack:
    def test_one_that_is_lost_is_seen_among_others_that_wait(self, tmp_path: Path) -> None:
        with following(tmp_path, 2) as node:
            node.asked()
            node.answer(
                data(0, error_code=ErrorCode.FENCED_LEADER_EPOCH), data(1, error_code=ErrorCode.OFFSET_OUT_OF_RANGE)
            )
            assert node.fetcher.has_out_of_range and node.fetcher.has_work(node.now)

    def test_tiered_storage_has_what_is_before_the_local_start(self, tmp_path: Path) -> None:
        with following(tmp_path) as node:
            node.asked()
            node.answer(data(error_code=ErrorCode.OFFSET_MOVED_TO_TIERED_STORAGE))
            assert node.state().state is State.OUT_OF_RANGE

    def test_both_offsets_are_asked_for_by_their_numbers(self, tmp_path: Path) -> None:
        with following(tmp_path) as node:
            assert node.fetcher.offsets_request(LATEST) is None
            lost(node)
            asked = [node.fetcher.offsets_request(each) for each in (EARLIEST_LOCAL, LATEST)]
            assert [each[0].topics[0].partitions[0].timestamp for each in asked if each] == [-4, -1]

    @pytest.mark.parametrize(
        ("earliest", "latest", "reason"),
        [
            (offsets(0), refusing(6), "NOT_LEADER_OR_FOLLOWER"),
            (refusing(6), offsets(2), "NOT_LEADER_OR_FOLLOWER"),
            (ListOffsetsResponse(), offsets(2), "UNKNOWN_SERVER_ERROR"),
            (offsets(0), ListOffsetsResponse(), "UNKNOWN_SERVER_ERROR"),
        ],
        ids=["no end", "no start", "nothing said of the start", "nothing said of the end"],
    )
    def test_half_a_response_truncates_nothing(
        self, tmp_path: Path, earliest: ListOffsetsResponse, latest: ListOffsetsResponse, reason: str
    ) -> None:
        with following(tmp_path) as node:
            node.hold((0, 5))
            lost(node)
            assert find(node, earliest, latest) == []
            assert (node.state().state, node.state().reason) == (State.BACKING_OFF, reason)
            assert node.log.log_end_offset == 5

    def test_responses_to_an_earlier_assignment_are_void(self, tmp_path: Path) -> None:
        with following(tmp_path) as node:
            node.hold((0, 5))
            lost(node)
            asked = node.fetcher.offsets_request(LATEST)
            assert asked is not None
            node.change(leader_epoch=4)
            assert node.fetcher.handle_offsets(asked[1], offsets(0), offsets(2), now_ms=node.now) == []
            assert (node.fetcher.retry_at_ms(), node.state().state) == (None, State.FETCHING)
            lost(node)
            asked = node.fetcher.offsets_request(LATEST)
            assert asked is not None
            for end in (4, 2):
                node.fetcher.handle_offsets(asked[1], offsets(0), offsets(end), now_ms=node.now)
                assert node.log.log_end_offset == 4


class TestHistoriesThatPart:
    def test_one_that_shares_nothing_with_the_leader_keeps_nothing(self, tmp_path: Path) -> None:
        with following(tmp_path) as node:
            node.hold((3, 5))
            node.asked()
            node.answer(data(diverging_epoch=EpochEndOffset(epoch=-1, end_offset=0)))
            assert node.log.log_end_offset == 0
            assert positions(node.asked()) == {0: 0}

    @pytest.mark.parametrize("end", [2, 9])
    def test_records_of_epochs_unknown_to_the_leader_are_truncated(self, tmp_path: Path, end: int) -> None:
        with following(tmp_path) as node:
            node.hold((5, 3))
            node.asked()
            node.answer(data(diverging_epoch=EpochEndOffset(epoch=2, end_offset=end)))
            assert node.log.log_end_offset == 0

    def test_a_leader_that_is_no_longer_followed_gives_nothing(self, tmp_path: Path) -> None:
        with following(tmp_path) as node:
            node.change(leader_epoch=4)
            with pytest.raises(ApiError) as caught:
                append_from_leader(
                    node.partitions[0],
                    sent(0, 1, 3),
                    leader_epoch=3,
                    high_watermark=1,
                    log_start_offset=0,
                    now_ms=NOW_MS,
                )
            assert caught.value.code is ErrorCode.FENCED_LEADER_EPOCH
            assert node.log.log_end_offset == 0

    @pytest.mark.parametrize(
        ("cut", "offset"),
        [
            (lambda node: node.answer(data(diverging_epoch=EpochEndOffset(epoch=3, end_offset=2))), 2),
            (lambda node: node.answer(data(diverging_epoch=EpochEndOffset(epoch=3, end_offset=3))), 3),
            (lambda node: find(node, offsets(0), offsets(4)), 4),
            (lambda node: find(node, offsets(9), offsets(9)), 9),
        ],
        ids=["of committed records", "down to what is committed", "at the leader's end", "at its start"],
    )
    async def test_a_truncation_is_logged_and_wakes_consumers(
        self, tmp_path: Path, caplog: pytest.LogCaptureFixture, cut: Callable[[Follower], object], offset: int
    ) -> None:
        """It loses committed records only after an unclean election or a loss of power: that is worth a warning."""
        caplog.set_level(logging.INFO)
        with following(tmp_path) as node:
            node.hold((3, 6))
            node.log.update_high_watermark(3)
            poll = DataWait([node.partitions[0]], missing_bytes=1, timeout_ms=60_000)
            if offset > 3:
                lost(node)
            else:
                node.asked()
            cut(node)
            assert node.log.log_end_offset == offset
            assert poll.future.done()
            ((level, fields),) = events(caplog, "follower's log is cut")
            assert level == (logging.WARNING if offset < 3 else logging.INFO)
            assert (fields["offset"], fields["log_end_offset"], fields["high_watermark"]) == (offset, 6, 3)

    def test_a_log_that_ends_where_the_leaders_does_is_not_cut(self, tmp_path: Path) -> None:
        with following(tmp_path) as node:
            node.hold((3, 4))
            lost(node)
            before = node.log.truncation_count
            assert find(node, offsets(4), offsets(4)) == []
            assert (node.log.truncation_count, node.log.log_start_offset, node.log.log_end_offset) == (before, 0, 4)
            assert node.state().state is State.BACKING_OFF
