"""Planted bugs that seeds of the box find too rarely: each is caught by the test that is named beside it."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from odradek.common.errors import OdradekError
from tests.component.raft import test_dynamic_voters as dynamic
from tests.component.raft import test_full_disk as full
from tests.component.raft import test_quorum_hostile as hostile
from tests.component.raft import test_quorum_over_sockets as sockets
from tests.sim.quorum_bugs import BY_TEST
from tests.support import waiting
from tests.unit.raft import test_raft_node as node

CATCHERS: dict[str, Callable[..., Any]] = {
    "a vote that is not durable is given when it is asked for again": full.test_a_vote_that_cannot_be_kept_is_not_given,
    "a vote that is not durable is given": full.test_a_vote_that_cannot_be_kept_is_not_given,
    "who has no space for metadata knows no newer": full.test_a_leader_that_cannot_write_makes_way,
    "vote not persisted": hostile.test_votes_that_must_not_be_given,
    "high watermark counts observers": node.test_the_watermark_is_what_a_majority_has_of_the_leaders_own_epoch,
    "high watermark of an older epoch": node.test_the_watermark_is_what_a_majority_has_of_the_leaders_own_epoch,
    "metadata acknowledged by the leader alone": sockets.test_without_a_majority_nothing_is_acknowledged,
    "divergence not seen": sockets.diverge,
    "truncated records are published": sockets.diverge,
    "an old leader is believed": node.test_messages_of_the_past_change_nothing,
    "two changes of voters at once": dynamic.test_a_second_change_waits_for_the_first,
    "a removed leader goes on": dynamic.test_a_leader_that_is_removed_gives_up_when_that_is_committed,
}


@pytest.mark.parametrize("bug", BY_TEST, ids=lambda bug: bug.name)
async def test_a_planted_bug_is_caught(bug: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(waiting, "PATIENCE_S", 3.0)
    catcher = CATCHERS[bug.name]
    caught = (AssertionError, OdradekError, OSError, pytest.fail.Exception)
    with bug.planted(), pytest.raises(caught):
        outcome = catcher(tmp_path) if "tmp_path" in inspect.signature(catcher).parameters else catcher()
        if inspect.isawaitable(outcome):
            await outcome
