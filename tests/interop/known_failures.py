"""The list of tests of others that do not pass yet, and its strictness: an entry that passes must be struck out."""

from __future__ import annotations

import functools
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.interop.brokers import AGAINST_KAFKA

LIST = Path(__file__).with_name("known_failures.toml")


@dataclass(frozen=True, slots=True)
class KnownFailure:
    """One entry: why the test does not pass, and the area of work that will bring it."""

    reason: str
    area: str
    run: bool = True


@functools.cache
def known_failures() -> dict[str, dict[str, KnownFailure]]:
    """Suite → test → entry, of the broker under test."""
    data = tomllib.loads(LIST.read_text())
    ours = data.get("apache_kafka" if AGAINST_KAFKA else "odradek", {})
    return {suite: {test: KnownFailure(**entry) for test, entry in entries.items()} for suite, entries in ours.items()}


def find(suite: str, test: str) -> KnownFailure | None:
    """The entry of a test; `*` stands for every test of its suite."""
    entries = known_failures().get(suite, {})
    return entries.get(test) or entries.get("*")


def not_run(suite: str) -> list[str]:
    """The tests of a suite whose entries keep them from running."""
    return [test for test, known in known_failures().get(suite, {}).items() if not known.run]


def skip_what_is_not_run(suite: str, test: str) -> None:
    """Skip a test whose entry says that running it teaches nothing: it would wait for an API that we lack."""
    known = find(suite, test)
    if known is not None and not known.run:
        pytest.skip(f"known failure ({known.area}): {known.reason}")


def check_outcome(suite: str, test: str, failure: str | None) -> None:
    """Compare one outcome with the list.

    Args:
        suite: a table of the list.
        test: the key in that table.
        failure: the error; None if the test passed.
    """
    known = find(suite, test)
    if failure is None and known is not None:
        pytest.fail(f"{suite} {test} passes now: strike it out of {LIST.name}")
    if failure is not None and known is not None:
        pytest.xfail(f"{known.area}: {known.reason}")
    if failure is not None:
        pytest.fail(f"{suite} {test}: {failure}", pytrace=False)


def check_outcomes(suite: str, outcomes: Mapping[str, str | None]) -> None:
    """Compare a whole suite with the list; `outcomes` has test → what failed, None where it passed."""
    wrong = []
    for test, failure in outcomes.items():
        known = find(suite, test)
        if failure is not None and known is None:
            wrong.append(f"{test}: {failure}")
        if failure is None and known is not None:
            wrong.append(f"{test} passes now: strike it out of {LIST.name}")
    assert not wrong, "\n".join(wrong)
