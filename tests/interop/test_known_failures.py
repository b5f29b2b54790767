"""The list is strict: entries that pass fail the run, and no entry names a test that does not exist."""

from __future__ import annotations

import pytest

from tests.interop import known_failures
from tests.interop.known_failures import KnownFailure
from tests.interop.test_librdkafka import SUITES

pytestmark = pytest.mark.interop

# Suites that would start brokers of their own, with what we do not serve.
WITHOUT_A_RUNNER = ("kafka-python-ssl",)
ENTRIES = {"suite": {"0001": KnownFailure("no such API", "transactions"), "0002": KnownFailure("slow", "x", run=False)}}


@pytest.fixture
def short_list(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(known_failures, "known_failures", lambda: ENTRIES)


@pytest.mark.usefixtures("short_list")
def test_an_entry_that_passes_fails_the_run() -> None:
    with pytest.raises(pytest.fail.Exception, match="strike it out"):
        known_failures.check_outcome("suite", "0001", None)


@pytest.mark.usefixtures("short_list")
def test_an_entry_that_fails_is_expected_and_nothing_else_is() -> None:
    with pytest.raises(pytest.xfail.Exception, match="transactions: no such API"):
        known_failures.check_outcome("suite", "0001", "timed out")
    with pytest.raises(pytest.fail.Exception, match="suite 0003: timed out"):
        known_failures.check_outcome("suite", "0003", "timed out")
    known_failures.check_outcome("suite", "0003", None)


@pytest.mark.usefixtures("short_list")
def test_excluded_tests_are_skipped_with_their_reason() -> None:
    with pytest.raises(pytest.skip.Exception, match="slow"):
        known_failures.skip_what_is_not_run("suite", "0002")
    known_failures.skip_what_is_not_run("suite", "0001")


def test_every_entry_names_a_test_that_exists() -> None:
    numbers = {suite.name: set(suite.numbers) for suite in SUITES}
    for suite, entries in known_failures.known_failures().items():
        if suite in numbers:
            assert set(entries) <= numbers[suite] | {"*"}, f"{suite} has no such test"
        else:
            assert suite in ("franz-go", "kafka-python", *WITHOUT_A_RUNNER), f"no such suite: {suite}"
            if suite in WITHOUT_A_RUNNER:
                assert [(test, known.run) for test, known in entries.items()] == [("*", False)]
