"""A copy that takes the place of a log goes on with what that log knew."""

from __future__ import annotations

from pathlib import Path

import pytest

from odradek.log.future import inherit_state_from
from odradek.log.log import Log
from odradek.log.truncation import truncate_fully_and_start_at
from tests.support.models.batches import NOW_MS, batch
from tests.unit.log.test_log import Home, append


def filled(directory: Path, *, start: int, epochs: tuple[int, ...] = (0, 0, 0, 0), producer_id: int = -1) -> Log:
    """Four records, the first of them deleted up to `start`."""
    log = Home(directory).open()
    for number, epoch in enumerate(epochs):
        sequence = number if producer_id >= 0 else -1
        append(log, batch(b"%d" % number, producer_id=producer_id, sequence=sequence), epoch=epoch)
    log.log_start_offset = start
    return log


@pytest.mark.parametrize(("of_log", "of_copy"), [(0, 2), (2, 0), (1, 1)])
def test_the_later_log_start_holds(tmp_path: Path, of_log: int, of_copy: int) -> None:
    log, copy = filled(tmp_path / "log", start=of_log), filled(tmp_path / "copy", start=of_copy)
    inherit_state_from(copy, log)
    assert copy.log_start_offset == max(of_log, of_copy)


def test_marks_producers_and_settings_come_along(tmp_path: Path) -> None:
    log = filled(tmp_path / "log", start=0, epochs=(0, 2, 2, 5), producer_id=7)
    copy = Home(tmp_path / "copy").open(retention_ms=1)
    truncate_fully_and_start_at(copy, 4)
    log.flush_state.last_flush_ms = NOW_MS + 5
    log.damage.on_damage = lambda segment, position: True
    assert copy.high_watermark == copy.log_end_offset == log.log_end_offset == 4
    inherit_state_from(copy, log)
    assert copy.high_watermark == 4
    assert copy.epochs.latest_epoch == 5
    assert list(copy.producers.producers) == [7]
    assert copy.config is log.config
    assert copy.damage.on_damage is log.damage.on_damage
    assert copy.flush_state.last_flush_ms == NOW_MS + 5
