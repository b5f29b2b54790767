"""The example of two sites: one is killed whole, and a group goes on at the other and misses nothing."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

from examples.two_sites.__main__ import CHUNK, Report, run


def test_a_report_with_a_missed_or_a_doubled_order_does_not_hold() -> None:
    good = Report({0, 1, 2, 3}, Counter([0, 1, 2]), {0, 1}, {"offset": Counter([1, 2])})
    assert good.holds
    assert (good.lost, good.again("offset"), good.missed("offset")) == ({3}, {1}, set())
    assert not Report({0, 1}, Counter([0, 1]), {0}, {"offset": Counter()}).holds
    assert not Report({0, 1}, Counter([0, 1, 1]), {0, 1}, {"offset": Counter()}).holds


def test_a_group_goes_on_at_the_next_record_of_the_other_site(tmp_path: Path) -> None:
    report = run(tmp_path, 3 * CHUNK, brokers=1, settled=True)
    assert report.holds, report
    assert (len(report.acknowledged), report.lost) == (5 * CHUNK, set())
    assert report.read["offset"] == Counter(report.acknowledged - report.done), report
    assert report.again("timestamp"), "who goes by time begins with what was done last"
