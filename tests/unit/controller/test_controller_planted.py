"""Bugs planted in the controller: each is caught by the scenario that is named beside it, or by a random walk."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.scenarios.script import ScriptError, play
from tests.scenarios.words_controller import ControllerWords
from tests.sim.planted import Bug
from tests.unit.controller.test_controller_walks import Walk

SCENARIOS = Path(__file__).parents[2] / "scenarios"
WALK = "a random walk"
WALK_SEEDS = 10

BUGS: tuple[tuple[str, Bug], ...] = (
    (
        "eligible",
        Bug(
            "a leader from outside the in-sync set",
            "controller.election:_elect",
            "for group in (plan.isr, plan.elr):",
            "for group in (plan.isr, plan.elr, plan.replicas):",
            "a replica that lacks acknowledged records leads as if it had them",
        ),
    ),
    (
        WALK,
        Bug(
            "elected from outside the in-sync set, in a walk",
            "controller.election:_elect",
            "for group in (plan.isr, plan.elr):",
            "for group in (plan.isr, plan.elr, plan.replicas):",
            "as above",
        ),
    ),
    (
        "eligible",
        Bug(
            "an unclean election where it is forbidden",
            "controller.partitions:Partitions.online",
            "Election.UNCLEAN if self.unclean_allowed(topic_name) else Election.ONLINE",
            "Election.UNCLEAN",
            "records are lost although the topic says that they must not be",
        ),
    ),
    (
        "unclean",
        Bug(
            "an unclean election does not say so",
            "controller.election:change_partition",
            "recovery = RECOVERING",
            "pass",
            "a leader that lost records serves as if it had recovered",
        ),
    ),
    (
        "election",
        Bug(
            "the leader epoch is not bumped",
            "metadata.model:changed_partition",
            "leader, leader_epoch = record.leader, leader_epoch + 1",
            "leader = record.leader",
            "a deposed leader's requests are taken for the new one's",
        ),
    ),
    (
        "election",
        Bug(
            "a stale partition epoch is accepted",
            "controller.partitions:Partitions._check_alter",
            "if data.partition_epoch < partition.partition_epoch:",
            "if False:",
            "a report about an older in-sync set overwrites a newer one",
        ),
    ),
    (
        WALK,
        Bug(
            "partition epochs are used twice",
            "metadata.model:changed_partition",
            "partition_epoch=partition.partition_epoch + 1,",
            "partition_epoch=partition.partition_epoch,",
            "two states of a partition have the same epoch",
        ),
    ),
    (
        "eligible_levels",
        Bug(
            "the last replica leaves the in-sync set",
            "controller.election:change_partition",
            "if not plan.isr and not rules.elr_enabled:",
            "if False:",
            "no replica is left that may lead, ever",
        ),
    ),
    (
        "election",
        Bug(
            "a leader leaves its own in-sync set",
            "controller.partitions:Partitions._check_alter",
            "if partition.leader not in isr:",
            "if False:",
            "what it acknowledges alone no other replica has",
        ),
    ),
    (
        "eligible",
        Bug(
            "a fenced broker is elected",
            "metadata.model:BrokerImage.active",
            "not self.fenced and not self.in_controlled_shutdown",
            "not self.in_controlled_shutdown",
            "clients are sent to a broker without a session",
        ),
    ),
    (
        WALK,
        Bug(
            "a stopping broker is elected",
            "metadata.model:BrokerImage.active",
            "not self.fenced and not self.in_controlled_shutdown",
            "not self.fenced",
            "leadership moves to a broker that is about to go",
        ),
    ),
    (
        "shutdown",
        Bug(
            "a broker stops before the others know",
            "controller.brokers:Brokers.heartbeat",
            "not self._partitions.leads_any(broker.broker_id) and self._all_have_applied(sessions.shutdown_offset)",
            "not self._partitions.leads_any(broker.broker_id)",
            "clients are sent to a broker that is gone",
        ),
    ),
    (
        "epochs",
        Bug(
            "a stale broker epoch is accepted",
            "controller.partitions:Partitions._check_eligible",
            "if broker_epoch not in (-1, broker.broker_epoch):",
            "if False:",
            "a broker that started again without its disk is in sync by a late report (KAFKA-14139)",
        ),
    ),
    (
        "epochs",
        Bug(
            "a fenced replica joins",
            "controller.partitions:Partitions._check_eligible",
            "if broker is None or not broker.active:",
            "if broker is None:",
            "a broker without a session counts as in sync (KIP-841)",
        ),
    ),
    (
        "moves",
        Bug(
            "a move ends before its replicas are in sync",
            "controller.election:_complete_reassignment",
            "if staying and set(plan.adding) <= set(staying):",
            "if staying and set(plan.adding) & set(staying):",
            "the old replicas go while a new one has nothing",
        ),
    ),
    (
        "moves_failing",
        Bug(
            "a reassignment ends with no replica in sync",
            "controller.election:_complete_reassignment",
            "if staying and set(plan.adding) <= set(staying):",
            "if set(plan.adding) <= set(staying):",
            "the only replica that has all is dropped",
        ),
    ),
    (
        "moves_changed",
        Bug(
            "a replica that was taken away is sessions again",
            "controller.election:_difference",
            "record.leader == NO_LEADER_CHANGE and (gone or shrunk)",
            "record.leader == NO_LEADER_CHANGE and shrunk",
            "its fetches carry the leader epoch of those who belong",
        ),
    ),
    (
        "moves_changed",
        Bug(
            "a move is called off with a loss",
            "controller.reassignments:Reassignments._cancel",
            "if not replicas or (unclean and not self._partitions.unclean_allowed(topic.name)):",
            "if not replicas:",
            "the replica that has all is dropped for one that has not",
        ),
    ),
    (
        "registration",
        Bug(
            "one id is registered twice",
            "controller.brokers:Brokers._has_session",
            "now_ms - sessions.at_ms < self.config.broker_session_timeout_ms",
            "False",
            "two brokers of one id fence each other for ever",
        ),
    ),
    (
        "eligible",
        Bug(
            "eligible replicas outlive an unclean stop",
            "controller.election:_populate_candidate_elr",
            "if replica not in plan.isr and replica not in unclean_shutdown and replica in plan.replicas",
            "if replica not in plan.isr and replica in plan.replicas",
            "a broker that lost records in a power cut leads as if it had them",
        ),
    ),
    (
        WALK,
        Bug(
            "eligible replicas outlive the watermark",
            "controller.election:_populate_target_elr",
            "if not rules.elr_enabled or plan.unclean or _enough(plan, rules):",
            "if not rules.elr_enabled or plan.unclean:",
            "who left while records were acknowledged without it leads again",
        ),
    ),
    (
        "eligible_levels",
        Bug(
            "eligible replicas outlive their feature",
            "controller.features:Features._change",
            "elif name == ELR_VERSION and level == 0:",
            "elif False:",
            "a stale set of eligible replicas is used after the next upgrade",
        ),
    ),
    (
        "disks",
        Bug(
            "a new disk is taken for the old one",
            "controller.directories:Directories._assign_one",
            "lost = (broker.broker_id,) if is_new and (others or self._state.elr_enabled) else ()",
            "lost = ()",
            "an empty replica leads and says that nothing is missing",
        ),
    ),
    (
        "drain",
        Bug(
            "a draining broker takes leadership back",
            "controller.election:_elect",
            "return [replica for replica in inside if not rules.draining(replica)] or inside",
            "return inside",
            "the two minutes before a machine goes are spent moving leaders to it",
        ),
    ),
)


def caught_by(catcher: str) -> bool:
    """Whether the catcher finds anything wrong."""
    if catcher != WALK:
        text = (SCENARIOS / f"controller_{catcher}.txt").read_text()
        try:
            return bool(play(text, ControllerWords)[1])
        except (AssertionError, ScriptError):
            # The rest of the file does not even make sense any more.
            return True
    for seed in range(WALK_SEEDS):
        walk = Walk(seed)
        try:
            for _ in range(200):
                walk.step()
        except AssertionError:
            return True
    return False


@pytest.mark.parametrize(("catcher", "bug"), BUGS, ids=lambda each: each.name if isinstance(each, Bug) else "")
def test_a_planted_bug_is_caught(catcher: str, bug: Bug) -> None:
    with bug.planted():
        assert caught_by(catcher), f"{bug.meaning}; {catcher} did not notice"


def test_without_a_bug_nothing_is_caught() -> None:
    for catcher in {catcher for catcher, _ in BUGS}:
        assert not caught_by(catcher), catcher
