"""A follower's requests and its handling of the responses, over a real log."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

from odradek.common.errors import ErrorCode
from odradek.log.config import LogConfig
from odradek.log.files import FileCache
from odradek.log.follower_append import append_as_follower
from odradek.log.log import Log
from odradek.log.opening import close_log, open_log
from odradek.log.truncation import truncate_to
from odradek.metadata.model import PartitionImage
from odradek.protocol.messages.fetch_request import FetchRequest
from odradek.protocol.messages.fetch_response import (
    EpochEndOffset,
    FetchableTopicResponse,
    FetchResponse,
    PartitionData,
)
from odradek.protocol.messages.list_offsets_response import (
    ListOffsetsPartitionResponse,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)
from odradek.record.builder import build_batch
from odradek.record.record import Record
from odradek.replica.config import FetcherConfig
from odradek.replica.fetcher import (
    EARLIEST_LOCAL,
    LATEST,
    TRANSITIONS,
    Fetcher,
    PartitionFetchState,
    ProcessedResponse,
    State,
)
from odradek.replica.leadership import apply_image
from odradek.replica.partition import Partition
from tests.support.disks.failing import FailingDisk
from tests.support.models.batches import NOW_MS
from tests.support.models.transitions import check_every_pair

ME, LEADER = 2, 1
TOPIC_ID = UUID(int=5)
BROKER_EPOCH = 77


def sent(base_offset: int, count: int, epoch: int) -> bytes:
    """A batch as the leader has it."""
    records = [Record(None, b"v", timestamp_ms=NOW_MS) for _ in range(count)]
    return build_batch(records, base_offset=base_offset, leader_epoch=epoch)


class Follower:
    """Broker 2, which follows broker 1 in as many partitions as a test wants."""

    def __init__(
        self, directory: Path, partitions: int = 1, *, log_config: LogConfig | None = None, **config: Any
    ) -> None:
        self.disk = FailingDisk()
        self.full: set[Path] = set()
        files = FileCache(self.disk)
        self.partitions: list[Partition] = []
        self.images: list[PartitionImage] = []
        for number in range(partitions):
            path = directory / f"t-{number}"
            path.mkdir(parents=True)
            log = open_log(files, path, ("t", number), log_config or LogConfig(), now_ms=NOW_MS)
            self.partitions.append(Partition("t", number, TOPIC_ID, log, broker_id=ME))
            self.images.append(PartitionImage((LEADER, ME), (LEADER, ME), LEADER, 3, 0))
            apply_image(self.partitions[-1], self.images[-1])
        self.config = FetcherConfig(**{"backoff_ms": 100, **config})
        self.fetcher = Fetcher(self.config, broker_id=ME, full_dirs=lambda: self.full)
        for partition in self.partitions:
            self.fetcher.add_partition(partition)
        self.now = 1000

    def close(self) -> None:
        for partition in self.partitions:
            close_log(partition.log, clean=False)
        self.disk.close()

    @property
    def log(self) -> Log:
        return self.partitions[0].log

    def hold(self, *epochs_and_counts: tuple[int, int]) -> None:
        """Append records that the follower has already, each in a batch of its own: (epoch, count)."""
        for epoch, count in epochs_and_counts:
            for _ in range(count):
                append_as_follower(self.log, sent(self.log.log_end_offset, 1, epoch), now_ms=NOW_MS)

    def change(self, number: int = 0, **fields: Any) -> None:
        """Metadata has something new."""
        image = self.images[number]
        self.images[number] = replace(image, partition_epoch=image.partition_epoch + 1, **fields)
        apply_image(self.partitions[number], self.images[number])
        self.fetcher.add_partition(self.partitions[number])

    def next_request(self, **fields: Any) -> FetchRequest | None:
        return self.fetcher.next_request(self.now, broker_epoch=BROKER_EPOCH, **fields)

    def asked(self) -> FetchRequest:
        request = self.next_request()
        assert request is not None
        return request

    def answer(self, *partitions: PartitionData, session_id: int = 9, error_code: int = 0) -> ProcessedResponse:
        topic = FetchableTopicResponse(topic_id=TOPIC_ID, partitions=list(partitions))
        response = FetchResponse(session_id=session_id, error_code=error_code, responses=[topic])
        return self.fetcher.received(response, now_ms=self.now, wall_ms=NOW_MS)

    def state(self, number: int = 0) -> PartitionFetchState:
        fetch_state = self.fetcher.fetch_state((TOPIC_ID, number))
        assert fetch_state is not None
        return fetch_state


def data(number: int = 0, **fields: Any) -> PartitionData:
    return PartitionData(
        partition_index=number, **{"high_watermark": 0, "log_start_offset": 0, "records": b"", **fields}
    )


def positions(request: FetchRequest) -> dict[int, int]:
    return {each.partition: each.fetch_offset for topic in request.topics for each in topic.partitions}


def forgotten(request: FetchRequest) -> list[int]:
    return [number for topic in request.forgotten_topics_data for number in topic.partitions]


@contextmanager
def following(directory: Path, partitions: int = 1, **config: Any) -> Iterator[Follower]:
    made = Follower(directory, partitions, **config)
    try:
        yield made
    finally:
        made.close()


def test_a_request_says_where_and_under_which_leader_and_life(tmp_path: Path) -> None:
    with following(tmp_path) as node:
        node.hold((1, 2), (3, 1))
        request = node.asked()
        asked = request.topics[0].partitions[0]
        assert (asked.fetch_offset, asked.last_fetched_epoch, asked.current_leader_epoch) == (3, 3, 3)
        assert (request.replica_state.replica_id, request.replica_state.replica_epoch) == (ME, BROKER_EPOCH)
        assert (request.session_id, request.session_epoch) == (0, 0)


def test_sessions_name_only_what_changed(tmp_path: Path) -> None:
    with following(tmp_path, 3) as node:
        assert positions(node.asked()) == {0: 0, 1: 0, 2: 0}
        node.answer(data(0), data(1, records=sent(0, 2, 3)), data(2))
        request = node.asked()
        assert (request.session_id, request.session_epoch, positions(request)) == (9, 1, {1: 2})
        node.answer()
        node.fetcher.remove_partition((TOPIC_ID, 2))
        request = node.asked()
        assert (request.session_epoch, positions(request), forgotten(request)) == (2, {}, [2])
        node.fetcher.failed(node.now, "gone")
        assert node.next_request() is None
        node.now += 20
        request = node.asked()
        assert (request.session_id, request.session_epoch, positions(request)) == (9, 0, {0: 0, 1: 2})
        node.answer(error_code=ErrorCode.FETCH_SESSION_ID_NOT_FOUND)
        request = node.asked()
        assert (request.session_id, request.session_epoch) == (0, 0)
        node.answer(data(0), data(1), session_id=0)
        assert positions(node.asked()) == {0: 0, 1: 2}, "without a session every request names all"


def old_answers_are_dropped(directory: Path) -> None:
    """An answer to what was asked under another epoch says nothing, be it of the same leader and offset."""
    with following(directory) as node:
        node.asked()
        node.answer(data())
        node.asked()
        node.change(leader_epoch=5)
        assert node.fetcher.can_pipeline
        node.asked()
        node.answer(data(error_code=ErrorCode.FENCED_LEADER_EPOCH))
        assert node.state().state is State.FETCHING
        node.answer(data(records=sent(0, 1, 5)))
        assert node.log.log_end_offset == 1


def test_an_answer_to_an_earlier_assignment_counts_for_nothing(tmp_path: Path) -> None:
    old_answers_are_dropped(tmp_path)


def test_an_answer_from_another_offset_counts_for_nothing(tmp_path: Path) -> None:
    with following(tmp_path) as node:
        node.asked()
        node.hold((3, 4))
        node.answer(data(records=sent(0, 1, 3), high_watermark=1))
        assert (node.log.log_end_offset, node.log.high_watermark) == (4, 0)


def late_answers_are_not_appended_behind_a_cut(directory: Path) -> None:
    """A response to a request from a former log end would leave a gap."""
    with following(directory) as node:
        node.hold((3, 4))
        node.asked()
        truncate_to(node.log, 1)
        node.answer(data(records=sent(4, 1, 3), high_watermark=5))
        assert (node.log.log_end_offset, node.log.high_watermark) == (1, 0)


def test_an_answer_from_before_a_cut_counts_for_nothing(tmp_path: Path) -> None:
    late_answers_are_not_appended_behind_a_cut(tmp_path)


def test_marks_of_the_leader_are_taken_as_far_as_our_log_goes(tmp_path: Path) -> None:
    with following(tmp_path) as node:
        node.asked()
        node.answer(data(records=sent(0, 4, 3), high_watermark=9, log_start_offset=2))
        assert (node.log.high_watermark, node.log.log_start_offset, node.log.log_end_offset) == (4, 2, 4)


def test_a_history_that_parts_is_cut_until_it_is_shared(tmp_path: Path) -> None:
    with following(tmp_path) as node:
        node.hold((0, 3), (1, 3), (2, 3))
        node.change(leader_epoch=7)
        for reported, end, expected in (
            ((1, 4), 4, (4, 1)),  # the leader's epoch 1 ends before ours
            ((0, 9), 3, (3, 0)),  # of epoch 0 it has more than we have: all of ours stays
        ):
            node.asked()
            diverging = EpochEndOffset(epoch=reported[0], end_offset=reported[1])
            node.answer(data(diverging_epoch=diverging, high_watermark=9, records=sent(9, 1, 7)))
            assert (node.log.log_end_offset, node.log.high_watermark) == (end, 0)
            asked = node.asked().topics[0].partitions[0]
            assert (asked.fetch_offset, asked.last_fetched_epoch) == expected
            node.answer()
        assert node.log.epochs.entries() == [(0, 0)]


def test_a_follower_goes_on_where_the_leaders_log_begins_inside_a_batch(tmp_path: Path) -> None:
    """DeleteRecords up to 4: the leader's first epoch begins at 4, and its first batch at 2, under another epoch."""
    with following(tmp_path) as node:
        node.hold((1, 2))
        append_as_follower(node.log, sent(2, 4, 1), now_ms=NOW_MS)
        node.change(leader_epoch=7)
        node.asked()
        node.answer(data(diverging_epoch=EpochEndOffset(epoch=1, end_offset=4)))
        assert node.log.log_end_offset == 2
        assert positions(node.asked()) == {0: 2}
        node.answer(data(error_code=ErrorCode.OFFSET_OUT_OF_RANGE))
        earliest, latest = node.fetcher.offsets_request(EARLIEST_LOCAL), node.fetcher.offsets_request(LATEST)
        assert earliest is not None and latest is not None
        node.fetcher.handle_offsets(earliest[1], offsets(4), offsets(6), now_ms=node.now)
        node.now += 1000
        assert positions(node.asked()) == {0: 4}
        node.answer(data(records=sent(2, 4, 7), high_watermark=6, log_start_offset=4))
        assert (node.log.log_start_offset, node.log.high_watermark, node.log.log_end_offset) == (4, 6, 6)


def test_an_epoch_that_we_do_not_know_takes_another_round(tmp_path: Path) -> None:
    with following(tmp_path) as node:
        node.hold((0, 3), (5, 3))
        node.asked()
        node.answer(data(diverging_epoch=EpochEndOffset(epoch=2, end_offset=5)))
        assert (node.log.log_end_offset, node.log.epochs.entries()) == (3, [(0, 0)])


def test_a_leader_that_does_not_know_where_histories_part_cuts_nothing(tmp_path: Path) -> None:
    with following(tmp_path) as node:
        node.hold((0, 3))
        node.asked()
        node.answer(data(diverging_epoch=EpochEndOffset(epoch=0, end_offset=-1)))
        assert (node.log.log_end_offset, node.state().state) == (3, State.BACKING_OFF)


def test_a_fenced_follower_waits_for_metadata(tmp_path: Path) -> None:
    with following(tmp_path) as node:
        node.asked()
        node.answer(data(error_code=ErrorCode.FENCED_LEADER_EPOCH))
        assert node.state().state is State.WAITING
        node.now += 1_000_000
        assert positions(node.next_request() or FetchRequest()) == {}
        assert not node.fetcher.has_work(node.now)
        node.change(leader_epoch=4)
        assert node.fetcher.has_work(node.now)
        assert positions(node.asked()) == {0: 0}


@pytest.mark.parametrize(
    "code",
    [
        ErrorCode.UNKNOWN_LEADER_EPOCH,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.KAFKA_STORAGE_ERROR,
        ErrorCode.UNKNOWN_SERVER_ERROR,
    ],
)
def test_pauses_after_errors_grow_to_the_setting(tmp_path: Path, code: ErrorCode) -> None:
    with following(tmp_path, 2) as node:
        pauses = []
        for _ in range(5):
            node.asked()
            node.answer(data(0, error_code=code), data(1, records=sent(node.partitions[1].log.log_end_offset, 1, 3)))
            retry_at = node.fetcher.retry_at_ms()
            assert retry_at is not None
            pauses.append(retry_at - node.now)
            request = node.asked()
            assert (list(positions(request)), forgotten(request)) == ([1], [0]), "the other one goes on"
            node.answer()
            node.now = retry_at
        assert pauses == [20, 40, 80, 100, 100]
        node.asked()
        node.answer(data(0))
        node.asked()
        node.answer(data(0, error_code=code))
        assert node.fetcher.retry_at_ms() == node.now + 20, "what went well is forgotten"


def test_damaged_records_are_not_taken(tmp_path: Path) -> None:
    with following(tmp_path) as node:
        node.asked()
        good, bad = sent(0, 1, 3), bytearray(sent(1, 1, 3))
        bad[-1] ^= 1
        node.answer(data(records=good + bytes(bad), high_watermark=2))
        assert (node.log.log_end_offset, node.log.high_watermark) == (0, 0)
        assert node.state().state is State.BACKING_OFF
        assert "CORRUPT_MESSAGE" in node.state().reason


@pytest.mark.parametrize(
    ("held", "start", "end", "expected"),
    [
        (3, 10, 20, (10, 10)),
        (9, 2, 5, (0, 5)),
        (3, 0, 20, (0, 3)),
        (0, 4, 4, (4, 4)),
        (3, 3, 20, (0, 3)),
        (3, 1, 3, (0, 3)),
    ],
    ids=["before its start", "beyond its end", "inside after all", "empty on both sides", "at its start", "at its end"],
)
def test_out_of_range(tmp_path: Path, held: int, start: int, end: int, expected: tuple[int, int]) -> None:
    with following(tmp_path) as node:
        if held:
            node.hold((0, held))
        node.asked()
        node.answer(data(error_code=ErrorCode.OFFSET_OUT_OF_RANGE))
        assert node.state().state is State.OUT_OF_RANGE and node.fetcher.has_out_of_range
        earliest, latest = node.fetcher.offsets_request(EARLIEST_LOCAL), node.fetcher.offsets_request(LATEST)
        assert earliest is not None and latest is not None
        assert (earliest[0].replica_id, earliest[0].topics[0].partitions[0].current_leader_epoch) == (ME, 3)
        assert not node.fetcher.handle_offsets(earliest[1], offsets(start), offsets(end), now_ms=node.now)
        assert (node.log.log_start_offset, node.log.log_end_offset) == expected
        # A leader that would refuse the same offset again is not asked at once.
        assert (node.state().state is State.BACKING_OFF) == (expected[1] == held)
        node.now += 1000
        assert positions(node.asked()) == {0: expected[1]}


def test_out_of_range_and_then_another_leader(tmp_path: Path) -> None:
    with following(tmp_path) as node:
        node.hold((0, 9))
        node.asked()
        node.answer(data(error_code=ErrorCode.OFFSET_OUT_OF_RANGE))
        asked = node.fetcher.offsets_request(LATEST)
        assert asked is not None
        node.change(leader_epoch=4)
        node.fetcher.handle_offsets(asked[1], offsets(0), offsets(2), now_ms=node.now)
        assert node.log.log_end_offset == 9


def offsets(offset: int) -> ListOffsetsResponse:
    answer = ListOffsetsPartitionResponse(partition_index=0, offset=offset)
    return ListOffsetsResponse(topics=[ListOffsetsTopicResponse(name="t", partitions=[answer])])


def test_throttled_partitions_leave_the_fetch_and_come_back(tmp_path: Path) -> None:
    with following(tmp_path, 2) as node:
        node.asked()
        node.answer(data(0), data(1))
        request = node.next_request(held_back=[(TOPIC_ID, 1)])
        assert request is not None and forgotten(request) == [1]
        node.answer()
        assert positions(node.asked()) == {1: 0}
        node.answer()
        everything = [(TOPIC_ID, 0), (TOPIC_ID, 1)]
        request = node.next_request(held_back=everything)
        assert request is not None and sorted(forgotten(request)) == [0, 1]
        node.answer(session_id=0)
        assert node.next_request(held_back=everything) is None
        assert positions(node.asked()) == {0: 0, 1: 0}


def test_only_one_request_may_overtake(tmp_path: Path) -> None:
    with following(tmp_path, 2) as node:
        node.asked()
        node.change(1, leader_epoch=4)
        assert not node.fetcher.can_pipeline, "there is no session yet"
        node.answer(data(0), data(1))
        node.asked()
        assert not node.fetcher.can_pipeline, "nothing new"
        node.change(1, leader_epoch=5)
        assert node.fetcher.can_pipeline
        assert positions(node.asked()) == {1: 0}
        node.change(1, leader_epoch=6)
        assert not node.fetcher.can_pipeline


def nothing_is_acknowledged_before_it_is_durable(directory: Path) -> None:
    """A follower with flush.messages=1 has records of an earlier leader epoch that are not synced yet."""
    with following(directory, log_config=LogConfig(flush_messages=1)) as node:
        node.hold((3, 2))
        node.change(leader_epoch=4)
        assert node.next_request() is None, "its fetch offset would say that they are safe"
        assert node.fetcher.flushing() == node.partitions
        node.log.flush()
        assert positions(node.asked()) == {0: 2}


def test_older_records_are_flushed_before_a_new_epoch_is_fetched(tmp_path: Path) -> None:
    nothing_is_acknowledged_before_it_is_durable(tmp_path)


def answer_that_crosses_is_no_reason_to_stop_asking(directory: Path) -> None:
    """An answer that was under way when its partition was dropped from the session says nothing of what follows."""
    with following(directory, 2) as node:
        node.asked()
        node.answer(data(0), data(1))
        node.asked()
        node.change(1, leader_epoch=4)
        node.asked()  # a second one: now two are under way
        node.answer(data(0, error_code=ErrorCode.UNKNOWN_LEADER_EPOCH))
        assert forgotten(node.asked()) == [0], "the partition is removed from the session"
        node.now += 1000
        assert node.fetcher.has_work(node.now), "the pause is over"
        node.answer(data(0, high_watermark=0))
        assert positions(node.asked()) == {0: 0}, "the leader no longer holds it in the session"


def test_dropped_partitions_are_named_again_in_the_session(tmp_path: Path) -> None:
    answer_that_crosses_is_no_reason_to_stop_asking(tmp_path)


def test_a_partition_that_leads_takes_nothing(tmp_path: Path) -> None:
    with following(tmp_path) as node:
        node.asked()
        image = replace(node.images[0], leader=ME, leader_epoch=4, partition_epoch=9)
        apply_image(node.partitions[0], image)
        node.answer(data(records=sent(0, 1, 3), high_watermark=1))
        assert node.log.log_end_offset == 0


def test_fetcher_states_change_only_as_the_table_says(tmp_path: Path) -> None:
    with following(tmp_path) as node:

        def move(before: State, after: State) -> None:
            key = (TOPIC_ID, 0)
            node.fetcher.add_partition(node.partitions[0])
            node.state().state = before
            node.fetcher._transition(key, node.state(), after)
            assert node.state().state is after
            assert (key in node.fetcher._paused) == (after is not State.FETCHING)

        check_every_pair(TRANSITIONS, move)
