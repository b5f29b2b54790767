"""One partition over a real log: its in-sync set, its readers in other racks, its leaderships, and its following."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from odradek.common.errors import ErrorCode
from odradek.log.config import LogConfig
from odradek.log.files import FileCache
from odradek.log.follower_append import append_as_follower
from odradek.log.opening import close_log, open_log
from odradek.log.retention import delete_records
from odradek.replica.followers import (
    handle_alter_partition,
    is_at_min_isr,
    is_under_replicated,
    maybe_shrink,
    preferred_read_replica,
)
from odradek.replica.following import update_offsets_from_leader
from odradek.replica.in_sync import IsrChange, Outcome
from odradek.replica.partition import Partition
from odradek.replica.selector import Candidate, rack_aware
from odradek.replica.unreplicated import MAX_ENTRIES
from odradek.replica.waiters import DataWait
from tests.support.models.batches import NOW_MS, batch
from tests.unit.replica.test_partition import ME, Home, MakeHome, home, refused

__all__ = ["home"]

LATE_MS = 60_000


class TestSettings:
    async def test_other_settings_of_the_topic_hold_at_once(self, home: MakeHome) -> None:
        node = home()
        assert node.partition.codec == node.log.config.codec
        node.append(b"a")
        assert not node.partition.flush_is_due
        node.log.config = replace(node.log.config, flush_messages=1, compression_type="gzip")
        node.partition.config_changed()
        assert node.partition.flush_is_due
        assert node.partition.codec == node.log.config.codec is not None

    async def test_a_follower_commits_nothing_by_a_setting(self, home: MakeHome) -> None:
        node = home(ME, 2)
        node.append(b"a")
        node.change(leader=2, leader_epoch=1, isr=(ME,))
        node.partition.config_changed()
        assert node.watermark == 0


class TestLeaderships:
    async def test_metadata_at_the_epoch_of_the_response_is_applied(self, home: MakeHome) -> None:
        node = home(ME, 2)
        assert not node.change(leader=2, leader_epoch=1, partition_epoch=node.image.partition_epoch)
        assert not node.partition.is_leader

    async def test_bytes_of_an_earlier_leadership_are_not_counted_again(self, home: MakeHome) -> None:
        node = home(ME, 2)
        node.append(b"a")
        node.change(leader_epoch=1)
        poll = DataWait([node.partition], missing_bytes=2, timeout_ms=LATE_MS)
        node.fetched(2, 1)
        assert node.watermark == 1 and not poll.future.done(), "its readers looked when the leadership began"
        poll.future.cancel()

    @pytest.mark.parametrize(("replicas", "entries"), [((ME,), []), ((ME, 2), [(0, 0)]), ((ME, 2, 3), [(0, 0)])])
    async def test_an_epoch_begins_at_once_where_there_are_followers_to_ask_for_it(
        self, home: MakeHome, replicas: tuple[int, ...], entries: list[tuple[int, int]]
    ) -> None:
        node = home(*replicas)
        assert node.log.epochs.entries() == entries
        node.append(b"a")
        assert node.log.epochs.entries() == [(0, 0)]

    async def test_a_change_of_the_set_within_a_leadership_fails_no_wait(self, home: MakeHome) -> None:
        node = home(ME, 2, 3)
        node.append(b"a", acks=-1)
        wait = node.partition.wait_replicated(1)
        poll = DataWait([node.partition], missing_bytes=1, timeout_ms=LATE_MS)
        assert not node.change(isr=(ME, 2))
        assert wait is not None and not wait.done() and not poll.future.done()
        poll.future.cancel()

    async def test_the_end_of_a_leader_epoch_fails_waits_for_a_flush(self, home: MakeHome) -> None:
        node = home(ME, 2, flush_messages=1)
        node.append(b"a", acks=1)
        wait = node.partition.wait_durable(1)
        node.change(leader=2, leader_epoch=1)
        assert wait is not None
        assert refused(wait.result) is ErrorCode.NOT_LEADER_OR_FOLLOWER

    async def test_readers_of_a_follower_look_again_when_another_leads(self, home: MakeHome) -> None:
        node = home(ME, 2, 3)
        node.change(leader=2, leader_epoch=1)
        poll = DataWait([node.partition], missing_bytes=1, timeout_ms=LATE_MS)
        node.change(leader=2, leader_epoch=1, isr=(2, 3))
        assert not poll.future.done()
        node.change(leader=3, leader_epoch=2)
        assert poll.future.done()

    async def test_a_log_in_another_directory_releases_waits_for_durability(
        self, home: MakeHome, tmp_path: Path
    ) -> None:
        node = home(ME, flush_messages=1)
        node.append(b"a", acks=1)
        wait = node.partition.wait_durable(1)
        path = tmp_path / "other" / "t-0"
        path.mkdir(parents=True)
        other = open_log(FileCache(node.disk), path, ("t", 0), LogConfig(flush_messages=1), now_ms=NOW_MS)
        append_as_follower(
            other, b"".join(chunk.read() for chunk in node.log.read(0, max_bytes=999).chunks), now_ms=NOW_MS
        )
        other.flush()
        node.partition.switch_log(other)
        assert node.partition.log is other
        assert wait is not None and wait.done() and wait.exception() is None
        close_log(other, clean=False)


class TestInSyncSets:
    def test_a_leader_knows_whether_a_replica_is_out(self, home: MakeHome) -> None:
        node = home(ME, 2)
        seen = [(is_under_replicated(node.partition), is_at_min_isr(node.partition))]
        for fields in ({"isr": (ME,)}, {"leader": 2, "leader_epoch": 1}):
            node.change(**fields)
            seen.append((is_under_replicated(node.partition), is_at_min_isr(node.partition)))
        assert seen == [(False, False), (True, True), (False, False)], "min.insync.replicas is 1"

    def test_a_caught_up_replica_is_requested_for_the_isr_once(self, home: MakeHome) -> None:
        node = home(ME, 2, 3)
        node.change(isr=(ME, 2))
        node.append(b"a")
        node.fetched(2, 1)
        node.fetched(3, 0)
        assert node.isr_asked == []
        node.fetched(3, 1, broker_epoch=70)
        node.fetched(3, 1, broker_epoch=70)
        assert node.isr_asked == [node.partition]
        change = node.partition.in_sync.pending
        assert change is not None
        assert (change.isr, change.broker_epochs, change.joining) == ((ME, 2, 3), (-1, -1, 70), (3,))
        assert (change.leader_epoch, change.partition_epoch) == (0, 1)

    def test_only_the_leader_requests_the_removal_of_a_laggard(self, home: MakeHome) -> None:
        node = home(ME, 2)
        node.append(b"a")
        shrink = partial(maybe_shrink, node.partition)
        assert shrink(now_ms=1000, max_lag_ms=1000) is None and node.isr_asked == []
        change = shrink(now_ms=1001, max_lag_ms=1000)
        assert change is not None and change.leaving == (2,)
        assert (change.leader_epoch, change.partition_epoch) == (0, 0)
        assert node.isr_asked == [node.partition]
        node.change(leader=2, leader_epoch=1)
        assert shrink(now_ms=9999, max_lag_ms=1000) is None

    @pytest.mark.parametrize(
        ("offset", "epoch", "counts"),
        [(2, -1, False), (5, -1, False), (3, -1, True), (4, 4, True), (4, 0, False)],
        ids=["before our start", "beyond our end", "in our log", "of our history", "of another history"],
    )
    def test_only_an_offset_in_our_log_and_of_our_history_counts(
        self, home: MakeHome, offset: int, epoch: int, counts: bool
    ) -> None:
        node = home(ME, 2)
        for _ in range(2):
            node.append(b"a")
        node.change(leader_epoch=4)
        for _ in range(2):
            node.append(b"b")
        node.fetched(2, 4)
        delete_records(node.partition.log, 3)
        follower = node.partition.in_sync.followers[2]
        follower.log_end_offset = -1
        node.fetched(2, offset, last_fetched_epoch=epoch)
        assert follower.log_end_offset == (offset if counts else -1)

    @staticmethod
    def asking(node: Home) -> IsrChange:
        """The leader has asked that 2 leaves the set, without whom a record would be committed."""
        node.append(b"a", acks=1)
        change = maybe_shrink(node.partition, now_ms=5000, max_lag_ms=1000)
        assert change is not None and node.watermark == 0
        return change

    @pytest.mark.parametrize(
        ("outcome", "partition_epoch", "isr", "watermark", "is_over"),
        [
            (Outcome.DONE, 1, (ME,), 1, True),
            (Outcome.DONE, 0, (ME,), 1, True),
            (Outcome.DONE, -1, (ME, 2), 0, False),
            (Outcome.REFUSED, 1, (ME, 2), 0, True),
            (Outcome.OVERTAKEN, 1, (ME, 2), 0, False),
        ],
    )
    def test_responses_of_alter_partition_change_the_isr(
        self,
        home: MakeHome,
        outcome: Outcome,
        partition_epoch: int,
        isr: tuple[int, ...],
        watermark: int,
        is_over: bool,
    ) -> None:
        node = home(ME, 2)
        change = self.asking(node)
        handle_alter_partition(node.partition, change, outcome, isr=(ME,), partition_epoch=partition_epoch, now_ms=5100)
        assert (node.partition.isr, node.watermark) == (isr, watermark)
        assert (node.partition.in_sync.pending is None) == is_over
        assert node.partition.in_sync.isr == isr

    def test_a_refused_change_is_not_asked_for_again_at_once(self, home: MakeHome) -> None:
        node = home(ME, 2)
        node.change(isr=(ME,))
        node.fetched(2, 0, now_ms=100)
        change = node.partition.in_sync.pending
        assert change is not None
        handle_alter_partition(node.partition, change, Outcome.REFUSED, isr=(), partition_epoch=-1, now_ms=100)
        node.fetched(2, 0, now_ms=599)
        assert node.partition.in_sync.pending is None
        node.fetched(2, 0, now_ms=600)
        assert node.partition.in_sync.pending is not None

    @pytest.mark.parametrize("fields", [{"leader": 2, "leader_epoch": 1}, {"partition_epoch": 1}])
    def test_an_answer_that_metadata_has_overtaken_is_void(self, home: MakeHome, fields: dict[str, int]) -> None:
        node = home(ME, 2, 3)
        change = self.asking(node)
        node.change(**fields)
        handle_alter_partition(node.partition, change, Outcome.DONE, isr=(ME,), partition_epoch=9, now_ms=5100)
        assert (node.partition.isr, node.watermark) == ((ME, 2, 3), 0)
        assert node.partition.partition_epoch == 1

    def test_too_few_in_sync_is_logged_once_for_each_state_of_the_set(
        self, home: MakeHome, caplog: pytest.LogCaptureFixture
    ) -> None:
        node = home(ME, 2, 3, min_insync_replicas=2)
        node.change(isr=(ME,))
        for _ in range(2):
            assert refused(lambda: node.append(b"a", acks=-1)) is ErrorCode.NOT_ENOUGH_REPLICAS
        (line,) = caplog.records
        fields = line.__dict__["fields"]
        assert (line.levelno, line.getMessage()) == (logging.WARNING, "NOT_ENOUGH_REPLICAS")
        assert (fields["min_insync_replicas"], fields["isr"]) == (2, [ME])
        assert fields["out"].startswith("2: fenced for 0 ms")
        node.change(isr=(ME, 3))
        node.change(isr=(ME,))
        assert refused(lambda: node.append(b"a", acks=-1)) is ErrorCode.NOT_ENOUGH_REPLICAS
        assert len(caplog.records) == 2

    def test_acknowledgements_that_ask_for_none_or_one_need_no_others(self, home: MakeHome) -> None:
        node = home(ME, 2, 3, min_insync_replicas=2)
        node.change(isr=(ME,))
        for acks in (0, 1):
            node.append(b"a", acks=acks)
        assert (node.log.log_end_offset, node.watermark) == (2, 0)
        assert node.partition.too_few_in_sync()

    async def test_a_batch_that_waits_goes_before_one_that_need_not(self, home: MakeHome) -> None:
        """Alone in the set, a leader commits each append at once, unless one before it is not committed."""
        node = home(ME, 2, min_insync_replicas=2)
        node.change(isr=(ME,))
        size = len(batch(b"a"))
        node.append(b"a")
        poll = DataWait([node.partition], missing_bytes=2 * size, timeout_ms=LATE_MS)
        node.change(isr=(ME,), replicas=(ME,))
        node.append(b"a")
        assert node.watermark == 2 and poll.future.done(), "both count"

    async def test_alone_in_the_set_a_leader_waits_for_one_that_joins(self, home: MakeHome) -> None:
        node = home(ME, 2)
        node.change(isr=(ME,))
        node.fetched(2, 0)
        assert node.partition.in_sync.pending is not None
        node.append(b"a")
        assert node.watermark == 0, "the controller may have added it already"
        node.fetched(2, 1)
        assert node.watermark == 1

    async def test_many_batches_that_wait_are_counted_as_few(self, home: MakeHome) -> None:
        assert MAX_ENTRIES == 10_000


class TestReadersElsewhere:
    """KIP-392: consumers may read from a replica that is in sync and has the offset."""

    @staticmethod
    def candidates(node: Home, fetch_offset: int) -> Sequence[Candidate]:
        seen: list[Candidate] = []

        def select(rack: str, candidates: Sequence[Candidate]) -> int:
            assert rack == "b"
            seen.extend(candidates)
            return ME

        racks = {ME: "a", 2: "b", 3: None}
        assert preferred_read_replica(node.partition, select, "b", fetch_offset, racks.__getitem__) is None
        return seen

    @pytest.mark.parametrize(
        ("fetch_offset", "others"), [(0, []), (1, [2]), (2, [2, 3]), (3, [2, 3]), (4, [2])], ids=lambda each: str(each)
    )
    def test_the_readable_replicas_have_the_offset(self, home: MakeHome, fetch_offset: int, others: list[int]) -> None:
        node = home(ME, 2, 3)
        for _ in range(4):
            node.append(b"a")
        node.fetched(2, 4, log_start_offset=1)
        node.fetched(3, 3, log_start_offset=2)
        found = self.candidates(node, fetch_offset)
        assert found[0] == Candidate(ME, "a", 4, True)
        known = {2: Candidate(2, "b", 4, False), 3: Candidate(3, None, 3, False)}
        assert found[1:] == [known[each] for each in others]

    def test_a_replica_out_of_sync_is_not_readable(self, home: MakeHome) -> None:
        node = home(ME, 2, 3)
        node.append(b"a")
        node.fetched(2, 1)
        node.fetched(3, 1)
        racks = {ME: "a", 2: "b", 3: "c"}
        for isr, expected in (((ME, 2, 3), 2), ((ME, 3), None)):
            node.change(isr=isr)
            assert preferred_read_replica(node.partition, rack_aware, "b", 1, racks.__getitem__) == expected


class TestWaitingForMarks:
    async def test_a_follower_that_serves_consumers_is_woken_by_the_watermark(self, home: MakeHome) -> None:
        node = home(ME, 2)
        node.append(b"a")
        polls = {
            marks: DataWait(
                [node.partition], missing_bytes=9999, timeout_ms=LATE_MS, replica=True, wakes_on_high_watermark=marks
            )
            for marks in (True, False)
        }
        node.fetched(2, 1)
        assert {marks: poll.future.done() for marks, poll in polls.items()} == {True: True, False: False}
        polls[False].future.cancel()
        await asyncio.sleep(0)

    async def test_a_reader_waits_for_a_repair_and_cannot_end_it(self, home: MakeHome) -> None:
        node = home()
        assert node.partition.wait_repaired() is None and not node.partition.is_being_repaired
        node.partition.repair = asyncio.get_running_loop().create_future()
        assert node.partition.is_being_repaired
        one, other = node.partition.wait_repaired(), node.partition.wait_repaired()
        assert one is not None and other is not None
        one.cancel()
        await asyncio.sleep(0)
        assert not node.partition.repair.done()
        node.partition.repair.set_result(None)
        await other


class TestFollowing:
    def test_only_the_leader_of_the_epoch_is_followed(self, home: MakeHome) -> None:
        node = home(ME, 2)
        assert not node.partition.follows(0), "it leads"
        node.change(leader=2, leader_epoch=1)
        assert node.partition.follows(1) and not node.partition.follows(0)
        node.change(leader=-1, leader_epoch=2)
        assert not node.partition.follows(2)
        node.change(leader=2, leader_epoch=3)
        node.partition.close()
        assert not node.partition.follows(3)

    @pytest.mark.parametrize(
        ("offset", "code"), [(3, ErrorCode.OFFSET_NOT_AVAILABLE), (-1, ErrorCode.OFFSET_OUT_OF_RANGE)]
    )
    def test_a_consumer_may_be_ahead_of_a_follower(self, home: MakeHome, offset: int, code: ErrorCode) -> None:
        node = home(ME, 2)
        node.append(b"a", b"b")
        node.change(leader=2, leader_epoch=1)
        assert refused(lambda: node.read(offset)) is code
        assert node.read(2).size_bytes == 0
        for replica_id in (5, 0):
            assert refused(lambda: node.read(3, replica_id=replica_id)) is ErrorCode.OFFSET_OUT_OF_RANGE  # noqa: B023 - called within the round

    async def test_marks_of_the_leader_go_as_far_as_our_log_does(self, home: MakeHome) -> None:
        node = home(ME, 2)
        node.append(b"a", b"b", b"c")
        node.change(leader=2, leader_epoch=1)
        marks = []
        for watermark, start in ((2, 0), (1, 1), (2, 9), (9, 9)):
            poll = DataWait([node.partition], missing_bytes=1, timeout_ms=LATE_MS)
            update_offsets_from_leader(node.partition, watermark, start, 0)
            marks.append((node.watermark, node.log.log_start_offset, poll.future.done()))
            poll.future.cancel()
        assert marks == [(2, 0, True), (2, 1, False), (2, 2, False), (3, 3, True)]

    async def test_a_mark_that_moves_without_records_counts_as_one_byte(self, home: MakeHome) -> None:
        node = home(ME, 2)
        node.append(b"a", b"b", b"c")
        node.change(leader=2, leader_epoch=1)
        polls = [DataWait([node.partition], missing_bytes=count, timeout_ms=LATE_MS) for count in (1, 2)]
        update_offsets_from_leader(node.partition, 2, 0, 0)
        assert [poll.future.done() for poll in polls] == [True, False]
        polls[1].future.cancel()

    def test_a_follower_requests_the_flush_that_it_needs(self, home: MakeHome) -> None:
        node = home(ME, 2, flush_messages=2)
        node.append(b"a")
        node.change(leader=2, leader_epoch=1)
        update_offsets_from_leader(node.partition, 0, 0, 0)
        assert node.flush_asked == []
        node.log.config = replace(node.log.config, flush_messages=1)
        node.partition.config_changed()
        update_offsets_from_leader(node.partition, 0, 0, 0)
        assert node.flush_asked == [node.partition]


def test_the_name_of_a_partition(home: MakeHome) -> None:
    node: Any = home()
    assert isinstance(node.partition, Partition)
    assert node.partition.name == "t-0"
