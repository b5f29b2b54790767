"""Bugs planted in what copies, each of which a test catches; one of them is caught by seeds too.

Seeds take seconds, and find some of these late or never (tests/sim/self/test_sim_copying.py, docs/simulation-bugs.md).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path

import pytest

from odradek.common.errors import ApiError
from odradek.common.real_io import RealDisk
from odradek.log import follower_append
from odradek.log.config import LogConfig
from odradek.log.files import FileCache
from odradek.log.opening import close_log, open_log
from tests.component.coordinator.test_group_service import Node
from tests.component.coordinator.test_group_service import (
    test_a_shard_that_loses_its_partition_sends_everyone_away as loses,
)
from tests.component.coordinator.test_transaction_service import Node as TransactionNode
from tests.component.coordinator.test_transaction_service import (
    test_the_next_leader_epoch_goes_on_with_what_was_decided as next_leader_epoch,
)
from tests.sim.planted import Bug
from tests.sim.planted_copying import COPYING
from tests.unit.coordinator.test_consumer_heartbeats import TestAssignment as Assignment
from tests.unit.coordinator.test_consumer_heartbeats import TestLeaving as Leaving
from tests.unit.coordinator.test_group_conversion import (
    test_a_conversion_that_is_not_written_has_not_happened as unwritten,
)
from tests.unit.coordinator.test_group_conversion import test_an_upgrade_revokes_nothing_that_a_member_keeps as upgrade
from tests.unit.coordinator.test_group_transactions import Offsets
from tests.unit.coordinator.test_group_transactions import (
    test_members_of_a_consumer_group_commit_in_their_epoch as epochs,
)
from tests.unit.coordinator.test_lost_answers import (
    test_partitions_to_revoke_are_sent_until_the_member_has_revoked_them as sent_again,
)
from tests.unit.log import test_replicated

BY_TEST: dict[str, Callable[[], None]] = {
    "partitions are given before they are free": lambda: (
        Assignment().test_a_partition_changes_hands_only_after_it_was_given_up()
    ),
    "member epochs of a transaction's offsets are not checked": lambda: epochs(Offsets()),
    "what a dead consumer had stays its own": lambda: Leaving().test_a_silent_member_is_removed(),
    "a removal that could not be stored is not tried again": lambda: unwritten(),
    "an upgrade forgets what members have": lambda: upgrade(),
    "an assignment is sent once": lambda: sent_again(),
}


def bug_named(name: str) -> Bug:
    (bug,) = [each for each in COPYING if each.name == name]
    return bug


@pytest.mark.parametrize("name", BY_TEST, ids=lambda name: name.replace(" ", "-"))
def test_a_test_catches_a_planted_bug(name: str) -> None:
    BY_TEST[name]()
    with bug_named(name).planted(), pytest.raises((AssertionError, ApiError, KeyError)):
        BY_TEST[name]()


def test_a_follower_that_knows_no_producers_is_caught(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    disk = RealDisk(workers=1)
    log = open_log(FileCache(disk), tmp_path, ("t", 0), LogConfig(), now_ms=0)
    try:
        with bug_named("followers know no producers").planted(), pytest.raises(AssertionError):
            # The test has imported the function; a planted one takes its place in modules of the product alone.
            monkeypatch.setattr(test_replicated, "append_as_follower", follower_append.append_as_follower)
            test_replicated.test_markers_end_transactions_on_a_follower(lambda: log)
    finally:
        close_log(log, clean=False)
        disk.close()


async def test_a_coordinator_that_was_replaced_and_goes_on_is_caught() -> None:
    node = Node()
    node.service.on_elected(0, 0)
    await node.loaded()
    try:
        with (
            bug_named("a coordinator that was replaced goes on").planted(),
            pytest.raises((AssertionError, TimeoutError)),
        ):
            async with asyncio.timeout(1):
                await loses(node)
    finally:
        await node.service.close()


async def test_a_coordinator_that_loses_the_ends_that_it_owes_is_caught() -> None:
    node = TransactionNode()
    await node.wait_until(lambda: node.service.shards[0].runtime.active)
    try:
        with bug_named("a new coordinator forgets the ends that it owes").planted(), pytest.raises(TimeoutError):
            async with asyncio.timeout(1):
                await next_leader_epoch(node)
    finally:
        await node.service.close()


def test_every_bug_of_the_world_is_planted_here() -> None:
    others = {
        "followers know no producers",
        "a coordinator that was replaced goes on",
        "a new coordinator forgets the ends that it owes",
    }
    assert {*BY_TEST} | others == {bug.name for bug in COPYING}
