"""The example of profiles that are edited at two sites, whose merges are killed."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from examples.profiles import __main__ as example
from examples.profiles.__main__ import PROFILES, SITES, Report, run
from odradek.testing.processes import ProcessCluster
from tests.support.clients.cli import odradek

EAST, WEST = SITES


def test_a_report_with_a_difference_does_not_hold() -> None:
    def report() -> Report:
        found = Report()
        for name, site in found.sites.items():
            site.made = {(name, 0)}
            site.read = Counter({(EAST, 0): 1, (WEST, 0): 1})
            site.profiles = {"p": (5, (WEST, 0))}
        return found

    assert report().holds
    wrong = [report() for _ in range(6)]
    for found, edit in zip(wrong, [(EAST, 0), (EAST, 1)], strict=False):
        found.sites[WEST].read[edit] += 1
    del wrong[2].sites[EAST].read[WEST, 0]
    wrong[3].sites[EAST].profiles["p"] = (5, (EAST, 0))
    wrong[4].sites[EAST].wrong_origins = 1
    wrong[5].sites[WEST].still_flows = 1
    for found in wrong:
        assert not found.holds, found


def check(folder: Path, edits: int) -> None:
    report = run(folder, edits)
    assert report.holds, report
    assert len(report.made) == 2 * edits
    assert len(report.sites[EAST].profiles) == PROFILES


def test_both_sites_have_all_edits_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Few edits, and commands about links in this process."""

    def here(site: ProcessCluster, *words: str) -> None:
        odradek(site.bootstrap_servers, "links", *words)

    monkeypatch.setattr(example, "odradek", here)
    check(tmp_path, 300)


@pytest.mark.slow
def test_the_example_as_it_is_run(tmp_path: Path) -> None:
    check(tmp_path, 5000)
