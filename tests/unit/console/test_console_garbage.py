"""Many new objects do not make Python look through all of them."""

from __future__ import annotations

import gc

from odradek.console.garbage import without_full_collections


def full_collections() -> int:
    return int(gc.get_stats()[2]["collections"])


def test_a_look_at_a_large_cluster_begins_no_full_collection() -> None:
    usual = gc.get_threshold()
    with without_full_collections():
        before = full_collections()
        kept = [[at] for at in range(600_000)]
        assert full_collections() == before
    assert gc.get_threshold() == usual
    kept += [[at] for at in range(600_000)]
    assert full_collections() > before, "so many objects would begin one"
