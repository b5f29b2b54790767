"""Many new objects do not make Python look through all of them; cycles are collected while no page is open."""

from __future__ import annotations

import gc
import sys
from types import SimpleNamespace

import pytest

from odradek.console.garbage import EVERY_S, Collector, without_full_collections
from odradek.console.serve import _has_open_pages


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


class Stage:
    """A clock, pages, and collections that take a second each."""

    def __init__(self) -> None:
        self.now_s = 0.0
        self.is_watched = True
        self.collector = Collector(lambda: self.is_watched, lambda: self.now_s, self._collect)

    def _collect(self) -> None:
        self.now_s += 1.0

    def collects_after(self, seconds: float) -> bool:
        self.now_s += seconds
        return self.collector.maybe_collect()


def test_cycles_are_collected_while_no_page_is_open() -> None:
    stage = Stage()
    for _ in range(5):
        assert not stage.collects_after(EVERY_S), "a page that is open would wait"
    stage.is_watched = False
    assert stage.collects_after(0)
    assert not stage.collects_after(EVERY_S - 1)
    assert stage.collects_after(1)


def test_pages_that_are_always_open_put_it_off_for_hours_not_for_ever() -> None:
    stage = Stage()
    assert stage.collects_after(2 * 3600)
    # It took a second: the next one comes later.
    assert not stage.collects_after(5 * 3600)
    assert stage.collects_after(3600)


def test_a_page_is_open_while_its_browser_is_connected(monkeypatch: pytest.MonkeyPatch) -> None:
    page = SimpleNamespace(has_socket_connection=False)
    nicegui = SimpleNamespace(Client=SimpleNamespace(instances={"page": page}))
    monkeypatch.setitem(sys.modules, "nicegui", nicegui)
    assert not _has_open_pages()
    page.has_socket_connection = True
    assert _has_open_pages()
