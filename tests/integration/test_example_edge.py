"""The example of three edges and a centre: one edge is cut off for longer than it keeps records."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from examples.edge import __main__ as example
from examples.edge.__main__ import BEFORE, EDGES, KEPT_BYTES, NOTE_BYTES, OFF, Report, run
from odradek.testing.processes import ProcessCluster
from tests.support.clients.cli import odradek
from tests.support.clients.links import describe


def test_a_report_with_a_loss_that_no_link_names_does_not_hold() -> None:
    def report(arrived: list[int], skipped: int = 0, kept_bytes: int = 0) -> Report:
        found = Report()
        site = found.sites[OFF]
        site.made = {("s", number) for number in range(4)}
        site.arrived = Counter(("s", number) for number in arrived)
        site.skipped, site.kept_bytes = skipped, kept_bytes
        return found

    assert report([0, 1, 2, 3]).holds
    assert report([2, 3], skipped=2).holds
    for wrong in (
        report([1, 2, 3]),
        report([0, 1, 2, 3], skipped=1),
        report([0, 1, 2, 3, 3]),
        report([0, 1, 2, 3, 4]),
        report([0, 1, 2, 3], kept_bytes=KEPT_BYTES + 1),
    ):
        assert not wrong.holds, wrong
    for what in ("out_of_order", "errors"):
        wrong = report([0, 1, 2, 3])
        getattr(wrong, what).append("x")
        assert not wrong.holds


def check(folder: Path, readings: int, note_bytes: int) -> None:
    report = run(folder, readings, note_bytes)
    assert report.holds, report
    made = {name: len(site.made) for name, site in report.sites.items()}
    assert made == dict.fromkeys(EDGES, 2 * BEFORE) | {OFF: 2 * BEFORE + readings}
    assert report.sites[OFF].skipped > 0, "its retention was at work"


def test_all_but_what_the_edge_deleted_is_at_the_centre(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Fewer and larger readings, and commands in this process."""

    def here(site: ProcessCluster, *words: str) -> None:
        odradek(site.bootstrap_servers, "links", *words)

    monkeypatch.setattr(example, "odradek", here)
    monkeypatch.setattr(example, "described", lambda site, link: describe(site.bootstrap_servers, link))
    check(tmp_path, 8_000, 600)


@pytest.mark.slow
def test_the_example_as_it_is_run(tmp_path: Path) -> None:
    check(tmp_path, 50_000, NOTE_BYTES)
