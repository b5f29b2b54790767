"""The example of personal data: over kills, shared data reach another region once, and no personal data do."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from examples.personal import __main__ as example
from examples.personal.__main__ import ANSWERS, ARTICLE_COUNT, CUSTOMER_COUNT, CUSTOMERS, Report, run
from examples.personal.share import shared
from odradek.testing.processes import ProcessCluster
from tests.support.clients.cli import odradek
from tests.support.clients.links import describe


def test_a_report_with_a_difference_does_not_hold() -> None:
    personal = {f"person-{number}" for number in range(2 * CUSTOMER_COUNT)}

    def report() -> Report:
        return Report({"a"}, {"b"}, Counter("a"), ARTICLE_COUNT, {"a"}, [CUSTOMERS], set(), {"a", "b", *personal})

    assert report().holds
    changes: list[Callable[[Report], object]] = [
        lambda found: found.read.update("a"),
        lambda found: found.read.update("b"),
        lambda found: found.read.clear(),
        lambda found: setattr(found, "articles", ARTICLE_COUNT - 1),
        lambda found: found.abroad.add("b"),
        lambda found: found.abroad.clear(),
        lambda found: found.refused.clear(),
        lambda found: found.left.add("a"),
        lambda found: found.at_home.remove("b"),
        lambda found: found.at_home.remove("person-0"),
    ]
    for change in changes:
        wrong = report()
        change(wrong)
        assert not wrong.holds, wrong


def test_only_listed_fields_of_those_who_agreed_are_shared() -> None:
    answers: list[Mapping[str, object]] = [*ANSWERS, {"agreed": "yes"}]
    order: dict[str, object] = {
        "id": "order-1",
        "article": "article-1",
        "cents": 5,
        "name": "somebody",
        "street": "added later",
    }
    found = [shared(json.dumps({**order, **answer}).encode()) for answer in answers]
    assert found == [json.dumps({"id": "order-1", "article": "article-1", "cents": 5}).encode(), None, None, None]


def check(folder: Path, orders: int) -> None:
    report = run(folder, orders)
    assert report.holds, report
    assert len(report.agreed | report.kept) == orders


def test_no_byte_outside_the_list_crosses(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Few orders, and commands in this process."""

    def here(site: ProcessCluster, *words: str) -> None:
        odradek(site.bootstrap_servers, *words)

    monkeypatch.setattr(example, "command", here)
    monkeypatch.setattr(example, "described", lambda site, link: describe(site.bootstrap_servers, link))
    check(tmp_path, 1200)


@pytest.mark.slow
def test_the_example_as_it_is_run(tmp_path: Path) -> None:
    check(tmp_path, 10_000)
