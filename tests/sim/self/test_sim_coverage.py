"""The marks that tell which branches ran."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from tests.sim import coverage

SOURCE = '''"""A module."""

from __future__ import annotations


def f(numbers: list[int]) -> str:
    """Says what it saw."""
    for each in numbers:
        if each > 2:
            return "large"
        elif each < 0:
            raise ValueError
    while numbers:
        numbers.pop()
    try:
        numbers.pop()
    except IndexError:
        match len(numbers):
            case 0:
                return "empty"
            case _:
                return "odd"
    return "never"


def g() -> None:
    """Is not called."""
'''


def test_branches_that_ran_are_marked_and_the_others_listed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(coverage, "PRODUCT", tmp_path)
    (tmp_path / "sample.py").write_text(SOURCE)
    tree, branches = coverage.marked(tmp_path / "sample.py")
    names: dict[str, object] = {coverage.MARKS: branches.marks}
    exec(compile(ast.fix_missing_locations(tree), "sample", "exec"), names)
    said = names["f"]([1, 2])  # type: ignore[operator]  # the function that was just compiled
    assert said == "empty"
    assert f"{names['f'].__doc__}" == "Says what it saw."
    assert branches.missed == [
        (9, "f: if each > 2: true"),
        (11, "f: if each < 0: true"),
        (21, "f: case _"),
        (26, "g: called"),
    ]


@pytest.mark.slow  # reads the whole product
def test_a_module_that_nothing_imported_counts_as_not_reached() -> None:
    modules = coverage.all_branches({})
    assert not any(any(module.marks) for module in modules)
    assert {"log/log.py", "raft/driver.py", "server/broker.py"} <= {module.room for module in modules}
    assert "| log |" in coverage.summary(modules)
