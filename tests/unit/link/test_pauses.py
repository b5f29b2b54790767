"""The pauses of a link: short after a change, and a second for a partition that waits for good."""

from __future__ import annotations

from odradek.link.measures import Why
from odradek.link.mirroring import MirroredPartition
from odradek.link.pauses import REFRESH_MS, Pauses
from tests.support.models.batches import NOW_MS


def test_the_pause_grows_while_the_source_refuses(mirrored: MirroredPartition) -> None:
    pauses = Pauses()
    assert pauses.next_ms([]) < REFRESH_MS
    assert pauses.next_ms([mirrored]) == REFRESH_MS
    seen = []
    for _ in range(10):
        # The source's log is wiped: a round finds a leader, and the fetch that it begins is out of range.
        mirrored.source_leader = 4
        seen.append(pauses.next_ms([mirrored]))
        mirrored.wait(Why.DIVERGED, "the source has lost records", NOW_MS)
        seen.append(pauses.next_ms([mirrored]))
    assert seen[0] == REFRESH_MS
    assert seen[1:] == sorted(seen[1:])
    assert seen[-10:] == [REFRESH_MS] * 10


def test_the_pause_of_a_stopped_partition_is_not_increased(mirrored: MirroredPartition) -> None:
    pauses = Pauses()
    mirrored.wait(Why.MOVING, "the source's leader moves", NOW_MS)
    first = pauses.next_ms([mirrored])
    assert first < pauses.next_ms([mirrored]) < REFRESH_MS
    assert pauses.next_ms([mirrored.recreated("another topic", NOW_MS, is_paused=False)]) == REFRESH_MS
    assert pauses.next_ms([mirrored]) == first
