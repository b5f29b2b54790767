"""Objects that live long are frozen for the collector, and thawed when many of them have gone."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Iterator

import pytest

from odradek.server.background.garbage_collection import MANY, GarbageCollection


class Kept:
    """Refers to itself, so that the collector alone can find that it is garbage."""

    def __init__(self) -> None:
        self.itself = self


@pytest.fixture(autouse=True)
def collector() -> Iterator[None]:
    before = gc.get_threshold()
    yield
    gc.unfreeze()
    gc.set_threshold(*before)


def test_imported_modules_are_collected_before_the_start() -> None:
    lives = GarbageCollection(lambda: 0)
    lives.begin()
    imported = gc.get_freeze_count()
    assert imported > 1_000
    made = [Kept() for _ in range(50)]
    looked_through = gc.get_objects()
    assert len(looked_through) < imported, "what is left to look through"
    mine = {id(each) for each in made}
    assert mine <= {id(each) for each in looked_through}
    del looked_through
    lives.freeze()
    assert not mine & {id(each) for each in gc.get_objects()}


def test_created_objects_are_frozen_and_collected_when_gone() -> None:
    kept: list[Kept] = []
    lives = GarbageCollection(lambda: len(kept))
    lives.begin()
    lives.freeze()
    at_start = gc.get_freeze_count()
    kept += [Kept() for _ in range(MANY - 1)]
    lives.freeze_or_unfreeze()
    # Frozen objects that have gone since without the collector count no more.
    assert gc.get_freeze_count() <= at_start, "so few are not worth it"
    kept.append(Kept())
    lives.freeze_or_unfreeze()
    assert gc.get_freeze_count() > at_start
    gone = weakref.ref(kept[0])
    kept.clear()
    gc.collect()
    assert gone() is not None, "the collector does not look there"
    lives.freeze_or_unfreeze()
    gc.collect()
    assert gone() is None


def test_the_collector_keeps_away_from_those_that_are_left_of_many() -> None:
    kept: list[Kept] = []
    lives = GarbageCollection(lambda: len(kept))
    lives.begin()
    lives.freeze()
    kept += [Kept() for _ in range(3 * MANY)]
    lives.freeze_or_unfreeze()
    del kept[MANY:]
    lives.freeze_or_unfreeze()
    assert len(gc.get_objects()) < MANY, "what is left would be looked through in one turn of the loop"
    kept += [Kept() for _ in range(MANY)]
    lives.freeze_or_unfreeze()
    assert len(gc.get_objects()) < MANY, "and what comes again is set aside again"
    del kept[MANY - 1 :]
    lives.freeze_or_unfreeze()
    assert len(gc.get_objects()) > MANY, "few are looked through: what has gone and refers to itself is found"
