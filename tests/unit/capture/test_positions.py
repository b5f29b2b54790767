"""The transactions that the topics have: those before the position, and those in the snapshot."""

from __future__ import annotations

import pytest

from odradek.capture.database import Visible
from odradek.capture.pgoutput import Begin
from odradek.capture.positions import Position

WRAP = 2**32


@pytest.mark.parametrize(
    ("snapshot", "xid", "is_there"),
    [
        ("100:110:103,105", 99, True),
        ("100:110:103,105", 102, True),
        ("100:110:103,105", 103, False),
        ("100:110:103,105", 109, True),
        ("100:110:103,105", 110, False),
        (f"{WRAP + 2}:{WRAP + 4}:{WRAP + 3}", 2**32 - 1, True),
        (f"{WRAP + 2}:{WRAP + 4}:{WRAP + 3}", 3, False),
        (f"{WRAP + 2}:{WRAP + 4}:{WRAP + 3}", 5, False),
        (f"{WRAP - 2}:{WRAP - 1}:", 1, False),
        (f"{WRAP - 2}:{WRAP - 1}:", 2**32 - 3, True),
    ],
)
def test_a_snapshot_has_the_transactions_that_had_ended(snapshot: str, xid: int, is_there: bool) -> None:
    assert Visible.parse(snapshot).has(xid) is is_there


def test_the_topics_have_what_committed_before_the_position() -> None:
    position = Position(lsn=1000, visible="100:110:103", snapshot_lsn=500)
    assert position.has(Begin(200, 999, 0))
    assert not position.has(Begin(200, 1000, 0))


def test_the_snapshot_counts_only_near_its_position() -> None:
    position = Position(lsn=0, visible="100:110:103", snapshot_lsn=500)
    assert position.has(Begin(102, 499, 0))
    assert not position.has(Begin(103, 499, 0))
    assert not position.has(Begin(102, 500, 0)), "an id that is used again after four billion transactions"
