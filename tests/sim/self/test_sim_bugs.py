"""Failures that count as a find of a planted bug, the stored problem, and errors of the commands around simulations."""

from __future__ import annotations

import asyncio
import gc
import json
import sys
from pathlib import Path

import pytest

from bench.checker_bench import is_too_slow
from tests.sim import __main__ as command
from tests.sim import bugs
from tests.sim.bugs import ALL_BUGS, IN_TABLE, BrokenBugError, HangError, Measure, measure, problem_of, world_of
from tests.sim.one_node import OneNode
from tests.sim.planted import ONE_NODE
from tests.sim.runs import run_seed

ROOT = Path(__file__).resolve().parents[3]
BUG = ONE_NODE[0]


class Hanging(OneNode):
    """A task that never lets others run, and keeps every error for itself."""

    async def run(self) -> None:
        while True:
            try:
                while True:
                    pass
            except Exception:
                continue


class Broken(OneNode):
    """A planted text that names something which is not there."""

    async def run(self) -> None:
        self.problems.append("lost-write in kept-0: value 17 was never read")
        self.problems.append("NameError: name 'gone' is not defined")


class DiesInACycle(OneNode):
    """A task that is never awaited, whose error holds the frame that holds the task."""

    async def run(self) -> None:
        async def die() -> None:
            itself = asyncio.current_task()
            raise RuntimeError(f"never awaited: {itself is not None}")

        asyncio.get_running_loop().create_task(die())
        await asyncio.sleep(1)


def test_a_hang_is_no_catch(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bugs, "HANG_S", 1)
    with pytest.raises(HangError, match="within 1 s"):
        problem_of(1, Hanging)
    monkeypatch.setattr(bugs, "world_of", lambda bug: Hanging)
    measured = measure(BUG, 0, 3)
    assert (measured.seeds, measured.tried) == (None, 0)
    assert measured.problem == "not caught: a seed did not end within 1 s of processor time"


def test_a_planted_text_that_is_itself_broken_is_no_catch(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(BrokenBugError, match="seed 1 of the world node: NameError"):
        problem_of(1, Broken)
    monkeypatch.setattr(bugs, "world_of", lambda bug: Broken)
    measured = measure(BUG, 0, 3)
    assert measured.seeds is None
    assert "NameError" in measured.problem


def test_a_task_that_died_in_a_reference_cycle_is_reported() -> None:
    gc.disable()
    try:
        report = run_seed(1, kind=DiesInACycle)
    finally:
        gc.enable()
    assert report.problems == ["RuntimeError: never awaited: True"]


def test_the_problem_is_kept_and_the_table_has_its_own_worlds_alone(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    known, page = tmp_path / "known.json", tmp_path / "page.md"
    page.write_text(f"before\n{bugs.BEGIN}\n{bugs.END}\nbehind\n")
    monkeypatch.setattr(bugs, "KNOWN", known)
    monkeypatch.setattr(bugs, "DOCUMENT", page)
    bugs.write_results({bug.name: Measure(bug, 3, 3, 1.0, f"{bug.name} was seen") for bug in ALL_BUGS})
    assert json.loads(known.read_text())[BUG.name] == {"caught": 3, "tried": 3, "problem": f"{BUG.name} was seen"}
    assert bugs.known_problems() == {bug.name: f"{bug.name} was seen" for bug in ALL_BUGS}
    rows = page.read_text().splitlines()[4:-2]
    assert len(rows) == sum(world_of(bug) in IN_TABLE for bug in ALL_BUGS) < len(ALL_BUGS)
    assert {row.split(" | ")[1] for row in rows} == {kind.world_name for kind in IN_TABLE}


def test_shrinking_without_a_seed_is_refused(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for option in (["--shrink"], ["--without", "clock"]):
        monkeypatch.setattr(sys, "argv", ["sim", *option])
        with pytest.raises(SystemExit) as ended:
            command.main()
        assert ended.value.code == 2
        error = capsys.readouterr().err
        assert error.count("\n") == 1 and "SEED=17" in error
    line = next(line for line in (ROOT / "Makefile").read_text().splitlines() if "-m tests.sim $(if $(WORLD)" in line)
    assert line.endswith("$(if $(SHRINK),--shrink) $(if $(WITHOUT),--without '$(WITHOUT)')")


def test_a_checker_that_is_too_slow_is_reported() -> None:
    assert not is_too_slow(1_000_000, 19.9)
    assert is_too_slow(1_000_000, 20.0)
    assert is_too_slow(1_000, 0.02)


def test_a_fetch_passes_no_point_and_a_produce_one_at_its_flush() -> None:
    package = ROOT / "src" / "odradek"
    sources = {str(path.relative_to(package)): path.read_text() for path in package.rglob("*.py")}
    with_points = {path for path, text in sources.items() if "await buggify(" in text}
    on_the_path = {
        "server/network/connection.py",
        "server/network/requests.py",
        "server/network/dispatch.py",
        "replica/manager.py",
        "replica/partition.py",
        "log/log.py",
    }
    assert on_the_path <= sources.keys()
    assert not [path for path in with_points if path.startswith(("protocol/", "record/", "server/handlers/"))]
    assert not with_points & on_the_path
    assert "replica/flusher.py" in with_points
    text = " ".join((ROOT / "docs" / "simulation-faults.md").read_text().split())
    assert "one point, in `replica/flusher.py`, where a topic has `flush.messages`" in text
