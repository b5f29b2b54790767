"""The pace of a worker: it reads at most so many bytes a second."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from odradek.common import real_worker
from odradek.common.real_worker import Pace
from odradek.log.compaction.config import CleanerConfig


@pytest.fixture
def slept(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The durations of all sleeps, in seconds, on a clock that only sleeping advances."""
    naps: list[float] = []
    clock = SimpleNamespace(monotonic=lambda: sum(naps), sleep=naps.append)
    monkeypatch.setattr(real_worker, "time", clock)
    return naps


@pytest.mark.parametrize("piece_bytes", [100, 1000, 7000])
def test_no_more_than_so_many_bytes_a_second(slept: list[float], piece_bytes: int) -> None:
    pace = Pace(1000.0)
    for _ in range(70_000 // piece_bytes):
        pace.pause(piece_bytes)
    assert sum(slept) == pytest.approx(70.0, abs=0.2)


def test_without_a_limit_no_one_waits(slept: list[float]) -> None:
    pace = Pace(CleanerConfig().pace_bytes_per_second)
    for _ in range(1000):
        pace.pause(1 << 30)
    assert not slept


def test_all_cleanings_share_what_a_second_has() -> None:
    assert CleanerConfig(max_bytes_per_second=1000.0, threads=4).pace_bytes_per_second == 250.0
