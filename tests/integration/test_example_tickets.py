"""The example of a producer with two sites: one site is killed and comes back, and the producer is killed twice."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from examples.tickets import __main__ as example
from examples.tickets.__main__ import HOME, OTHER, Report, run
from odradek.testing.processes import ProcessCluster
from tests.support.clients.cli import odradek


def test_a_report_with_a_difference_does_not_hold() -> None:
    def report() -> Report:
        found = Report(sold=["a", "b"])
        for site in found.sites.values():
            site.tickets, site.let_in, site.repeats = {"a", "b"}, 2, 1
        return found

    assert report().holds
    changes: list[Callable[[Report], object]] = [
        lambda found: found.sold.append("c"),
        lambda found: found.sites[HOME].tickets.add("c"),
        lambda found: found.sites[OTHER].tickets.remove("a"),
        lambda found: setattr(found.sites[OTHER], "let_in", 3),
    ]
    for change in changes:
        wrong = report()
        change(wrong)
        assert not wrong.holds, wrong


def check(folder: Path, dark_s: float) -> None:
    report = run(folder, dark_s)
    assert report.holds, report
    assert report.sold_in_the_dark > 0
    assert all(site.repeats for site in report.sites.values()), "the kills made it send some again"


def test_both_sites_let_in_each_ticket_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Dark for a moment, and commands about links in this process."""

    def here(site: ProcessCluster, *words: str) -> None:
        odradek(site.bootstrap_servers, "links", *words)

    monkeypatch.setattr(example, "odradek", here)
    check(tmp_path, 0)


@pytest.mark.slow
def test_the_example_as_it_is_run(tmp_path: Path) -> None:
    check(tmp_path, 60)
