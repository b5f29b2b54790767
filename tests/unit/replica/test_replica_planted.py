"""Bugs planted in replication: each is caught by a random walk, or by the scenario that is named beside it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from odradek.common.errors import ApiError
from odradek.protocol.messages.fetch_response import EpochEndOffset
from odradek.replica.in_sync import InSync
from tests.scenarios.script import ScriptError, play
from tests.scenarios.words_isr import IsrWords
from tests.sim.planted import Bug
from tests.unit.replica.test_fetcher import (
    ME,
    answer_that_crosses_is_no_reason_to_stop_asking,
    data,
    following,
    nothing_is_acknowledged_before_it_is_durable,
    old_answers_are_dropped,
)
from tests.unit.replica.test_replica_walks import walk

SCENARIOS = Path(__file__).parents[2] / "scenarios"
WALK = "a random walk"
WALK_SEEDS = 40

Catcher = str | Callable[[Path], None]


def fetches_of_another_epoch_are_refused(directory: Path) -> None:
    """A leader of epoch 3 hears a request that was made under epoch 2."""
    with following(directory) as node:
        partition = node.partitions[0]
        node.change(leader=ME, leader_epoch=3 + 1)
        with pytest.raises(ApiError, match="leader epoch"):
            partition.check_leader(3)


def changes_name_the_lives_of_brokers(directory: Path) -> None:
    """A replica that was at the watermark in its last life, with the disk that it had then."""
    followers = InSync(leader_id=1)
    followers.begin((1, 2), (1,), 0)
    followers.followers[2].fetched(fetch_offset=5, log_start_offset=0, leader_end_offset=5, now_ms=1, broker_epoch=40)
    change = followers.maybe_expand(
        2,
        leader_epoch=1,
        partition_epoch=1,
        leader_epoch_start=0,
        high_watermark=5,
        now_ms=1,
        is_isr_eligible=lambda broker_id, broker_epoch: True,
    )
    assert change is not None
    assert change.broker_epochs == (-1, 40)


def empty_epochs_go(directory: Path) -> None:
    """It led under epoch 5 and wrote nothing; its leader of now has never heard of that epoch."""
    with following(directory) as node:
        node.hold((0, 3))
        node.log.assign_epoch(5, 3)
        node.change(leader_epoch=6)
        node.asked()
        node.answer(data(diverging_epoch=EpochEndOffset(epoch=0, end_offset=3)))
        assert node.asked().topics[0].partitions[0].last_fetched_epoch == 0


BUGS: tuple[tuple[Catcher, Bug], ...] = (
    (
        WALK,
        Bug(
            "a follower cuts one record short of the divergence",
            "replica.following:truncation_offset",
            "return min(own_end, end_offset, log.log_end_offset)",
            "return min(own_end, end_offset + 1, log.log_end_offset)",
            "a record that the leader never had refresh_caught_up_follower, or the follower never gets on",
        ),
    ),
    (
        WALK,
        Bug(
            "a follower keeps all of an epoch that the leader does not know",
            "replica.following:truncation_offset",
            "return min(own_end, log.log_end_offset)",
            "return log.log_end_offset",
            "several changes of leaders in a row are never sorted out (KIP-279)",
        ),
    ),
    (
        WALK,
        Bug(
            "a follower cuts to its high watermark",
            "replica.manager:ReplicaManager._assign",
            "self._fetchers.add_partition(partition)",
            "from odradek.log.truncation import truncate_to\n"
            "truncate_to(partition.log, partition.log.high_watermark)\nself._fetchers.add_partition(partition)",
            "acknowledged records are lost with two changes of leaders (KIP-101)",
        ),
    ),
    (
        fetches_of_another_epoch_are_refused,
        Bug(
            "a leader counts a fetch of another epoch",
            "replica.partition:Partition.check_epoch",
            "current_leader_epoch >= 0 and",
            "current_leader_epoch >= 10**6 and",
            "a follower acknowledges by an offset of another history (KIP-320)",
        ),
    ),
    (
        WALK,
        Bug(
            "a history that parts from the leader's counts",
            "replica.followers:follower_fetched",
            "if partition.diverges(fetch_offset, last_fetched_epoch) is not None:",
            "if False:",
            "records are acknowledged by replicas that do not have them",
        ),
    ),
    (
        "joining",
        Bug(
            "a follower joins before the start of the leader's epoch",
            "replica.isr:is_caught_up_to_leader",
            "max(high_watermark, leader_epoch_start)",
            "high_watermark",
            "a replica that may lack committed records can be elected (KAFKA-7128)",
        ),
    ),
    (
        WALK,
        Bug(
            "the watermark does not wait for the in-sync set",
            "replica.isr:high_watermark",
            "lowest = min(lowest, end)",
            "lowest = min(lowest, max(end, *(each.log_end_offset for each in followers.values())))",
            "a follower outside the in-sync set acknowledges for one inside",
        ),
    ),
    (
        WALK,
        Bug(
            "the watermark does not wait for who is about to join",
            "replica.in_sync:InSync.maximal_isr",
            "if self.pending is None:",
            "if True:",
            "the controller has taken in one that lacks what is acknowledged meanwhile",
        ),
    ),
    (
        WALK,
        Bug(
            "a shrink counts before the controller has decided",
            "replica.in_sync:InSync.maximal_isr",
            "if self.pending is None:",
            "if self.pending and self.pending.leaving:\n    return self.pending.isr\nif self.pending is None:",
            "one who is still in sync for the controller can be elected without the newest records",
        ),
    ),
    (
        "minimum",
        Bug(
            "who is about to join makes up the number",
            "replica.isr:high_watermark",
            "if len(isr) < min_in_sync_replicas:",
            "if len(maximal_isr) < min_in_sync_replicas:",
            "the watermark moves under min.insync.replicas, and an eligible replica leads without it (KIP-966)",
        ),
    ),
    (
        WALK,
        Bug(
            "the watermark moves below min.insync.replicas",
            "replica.isr:high_watermark",
            "if len(isr) < min_in_sync_replicas:",
            "if False:",
            "an eligible leader replica lacks what was acknowledged (KIP-966)",
        ),
    ),
    (
        changes_name_the_lives_of_brokers,
        Bug(
            "a change names no lives of brokers",
            "replica.in_sync:InSync._change",
            "followers[each].broker_epoch if each in followers else -1",
            "-1",
            "a replica that lost its disk is taken in for what it had before (KIP-903)",
        ),
    ),
    (
        old_answers_are_dropped,
        Bug(
            "an answer to an earlier assignment counts",
            "replica.fetcher:Fetcher.received",
            "followed.requested_in > number",
            "False",
            "what an old leader's answer says is taken for the new one's",
        ),
    ),
    (
        nothing_is_acknowledged_before_it_is_durable,
        Bug(
            "a new leader epoch is followed before the log is durable",
            "replica.fetcher:Fetcher.add_partition",
            "State.FLUSHING if partition.flush_is_due else State.FETCHING",
            "State.FETCHING",
            "a replica acknowledges by its first fetch what a loss of power takes",
        ),
    ),
    (
        answer_that_crosses_is_no_reason_to_stop_asking,
        Bug(
            "an answer that crosses the end of what was asked counts",
            "replica.fetcher:Fetcher.next_request",
            "fetch_state.requested_offset = -1",
            "pass",
            "a follower after a backoff never fetches again",
        ),
    ),
    (
        WALK,
        Bug(
            "a follower takes the watermark of an answer that cuts it",
            "replica.fetcher:Fetcher._process_partition_data",
            "truncate_to_divergence(partition, data.diverging_epoch.epoch, data.diverging_epoch.end_offset)",
            "from odradek.replica.following import update_offsets_from_leader\n"
            "update_offsets_from_leader(partition, data.high_watermark, 0, 0)",
            "records that are not committed are shown as if they were (KAFKA-14704)",
        ),
    ),
    (
        empty_epochs_go,
        Bug(
            "an epoch without records refresh_caught_up_follower at the end of a log",
            "log.truncation:truncate_to",
            "if log.epochs.truncate_from_end(log.log_end_offset):",
            "if False:",
            "a former leader that wrote nothing is asked to truncate again and again, and never follows",
        ),
    ),
)


def caught_by(catcher: Catcher, directory: Path) -> bool:
    """Whether the catcher finds anything wrong."""
    if not isinstance(catcher, str):
        try:
            catcher(directory / "checked")
        except (AssertionError, pytest.fail.Exception):
            return True
        return False
    if catcher != WALK:
        text = (SCENARIOS / f"isr_{catcher}.txt").read_text()
        try:
            return bool(play(text, IsrWords)[1])
        except (AssertionError, ScriptError):
            return True
    for seed in range(WALK_SEEDS):
        try:
            walk(directory, seed)
        except AssertionError:
            return True
    return False


@pytest.mark.parametrize(("catcher", "bug"), BUGS, ids=lambda each: each.name if isinstance(each, Bug) else "")
def test_a_planted_bug_is_caught(catcher: Catcher, bug: Bug, tmp_path: Path) -> None:
    with bug.planted():
        assert caught_by(catcher, tmp_path), f"{bug.meaning}; {catcher} did not notice"


def test_without_a_bug_nothing_is_caught(tmp_path: Path) -> None:
    for number, catcher in enumerate({catcher for catcher, _ in BUGS if catcher != WALK}):
        assert not caught_by(catcher, tmp_path / str(number)), catcher
