"""The counts of `make measures`, on small sources."""

from __future__ import annotations

import ast
from pathlib import Path

from tools.measures import _passed_count, complexity, of_code, of_tests

SOURCE = """
from typing import Any

def plain(value: Any) -> int:  # why
    assert value
    return 1

def branchy(a, b):
    if a and b or not a:
        for each in [x for x in a if x]:
            while each:
                pass
    try:
        return 1 if a else 2
    except ValueError:
        def inner():
            if a:
                return b
        return inner
"""


def test_complexity_counts_each_branch_and_leaves_inner_functions_out() -> None:
    functions = [node for node in ast.walk(ast.parse(SOURCE)) if isinstance(node, ast.FunctionDef)]
    numbers = {each.name: complexity(each) for each in functions}
    # if, and, or, for, the comprehension and its if, while, the conditional expression, except.
    assert numbers == {"plain": 1, "branchy": 10, "inner": 2}


def test_the_measures_of_sources(tmp_path: Path) -> None:
    (tmp_path / "src" / "odradek").mkdir(parents=True)
    (tmp_path / "src" / "odradek" / "one.py").write_text(SOURCE)
    found = of_code(tmp_path)
    assert (found["functions"], found["assertions"], found["lines with Any"]) == ("3", "1", "2")
    assert found["comments"].startswith("1 ")


def test_a_function_inside_another_counts_once() -> None:
    assert _passed_count({"10": 20, "12": 14, "30": 30}) == 12


def test_the_seconds_of_each_tier_are_those_of_the_last_run(tmp_path: Path) -> None:
    assert of_tests(tmp_path) == {}
    (tmp_path / "build").mkdir()
    lines = ["9.0\t1.25\ttests/sim/self/test_a.py::test_one[a/b]", "1.0\t0.50\ttests/sim/self/test_b.py::test_two"]
    (tmp_path / "build" / "costs.tsv").write_text("\n".join([*lines, "2.0\t3.00\ttests/unit/test_c.py::test_three"]))
    assert of_tests(tmp_path) == {
        "tests/sim, processor seconds": "1.8 (2 tests)",
        "tests/unit, processor seconds": "3.0 (1 tests)",
    }
