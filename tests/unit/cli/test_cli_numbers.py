"""Options that take numbers refuse those that are none, in one line."""

from __future__ import annotations

import pytest

from odradek.cli import app, errors

PLAN = ["plan", "--size", "1KB", "--rate", "1"]


@pytest.mark.parametrize("value", ["inf", "nan", "1e300"])
@pytest.mark.parametrize(
    "words",
    [
        [*PLAN[:-2], "--rate"],
        [*PLAN, "--growth"],
        ["perf", "produce", "absent", "--seconds"],
        ["perf", "consume", "absent", "--seconds"],
        ["perf", "soak", "absent", "--minutes"],
        ["perf", "latency", "absent", "--rate"],
        ["rebalance", "--watch"],
    ],
)
def test_invalid_numbers_are_refused(words: list[str], value: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert app.run([*words, value]) == errors.USAGE
    said = capsys.readouterr().err
    assert f"Invalid value for '{words[-1]}'" in said and said.count("\n") == 1
