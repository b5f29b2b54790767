"""Targets under Atheris: they hold, and a planted bug is found with the input that shows it."""

from __future__ import annotations

import contextlib

import pytest

from tests.fuzz.engine import Finding, run_one
from tests.fuzz.targets import TARGETS
from tests.fuzz.under_atheris import is_installed, run_turn

pytestmark = pytest.mark.skipif(not is_installed(), reason="Atheris has wheels for Linux on x86-64 alone")

SEED = 20_261_121
TARGET_S = 20
# More than a process takes that has only imported the targets.
TAKEN_BYTES = 500 << 20
# With it, a message that is cut short raises IndexError.
BUG = "from tests.fuzz import targets_protocol as t, test_fuzzers_bite as b; t.decode = b.decode_and_leak"


@pytest.mark.slow  # an instrumented process; test_fuzzers_bite is the short form, by our own engine
def test_a_planted_bug_is_found() -> None:
    turn = run_turn("requests", 60, SEED, plant=BUG)
    assert turn.failing is not None, turn.output[-2000:]
    assert "IndexError" in turn.output


def test_a_run_that_ends_early_is_reported() -> None:
    with pytest.raises(RuntimeError, match="ended with"):
        run_turn("requests", 5, SEED, first="sys.exit(3)")


def test_memory_of_other_tests_is_not_counted_as_the_targets() -> None:
    taken = len(b"1" * TAKEN_BYTES)
    peak = f"import resource; sys.exit(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 > {taken})"
    with pytest.raises(RuntimeError, match="ended with 0"):
        run_turn("requests", 5, SEED, first=peak)


@pytest.mark.slow
@pytest.mark.parametrize("target", TARGETS, ids=lambda target: target.name)
def test_bytes_chosen_by_coverage_get_a_clear_error(target: object) -> None:
    found = next(each for each in TARGETS if each is target)
    turn = run_turn(found.name, TARGET_S, SEED)
    assert turn.failing is not None or turn.executions > 20, turn.output
    if turn.failing is not None:
        # Memory that this process has had before is not counted: then that process alone has seen the input fail.
        with contextlib.suppress(Finding):
            run_one(found, turn.failing)
        pytest.fail(f"{turn.failing!r}\n{turn.output[-3000:]}")
