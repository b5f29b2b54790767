"""Runs of a room's tests in processes of their own: clean with marks, and with one mutant."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

from tests.mutants.changes import Mutant
from tests.mutants.marks import with_marks, write_code
from tests.mutants.rooms import ROOT

HOOK = Path(__file__).parent / "hook"
# The product's own plugin, and pytest for the modules of a plugin, import in ways that pass the hook by.
OPTIONS = [
    "-x",
    "-q",
    "-n",
    "0",
    "--tb=no",
    "--assert=plain",
    "-p",
    "no:cacheprovider",
    "-p",
    "no:odradek",
    "-p",
    "tests.mutants.plugin",
]
START_S = 30.0
TIMES = 3
PASSED, FAILED, BROKEN, NO_TESTS = 0, 1, 2, 5


class RunError(Exception):
    """The tests cannot decide about mutants: they fail without one, or pytest does not run."""


@dataclass(frozen=True, slots=True)
class Clean:
    """The run of the tests without a mutant.

    Attributes:
        seconds: the seconds of each test, the quickest first.
        entered: the tests that enter each block, by module and number.
        shared: blocks that run outside of single tests.
    """

    seconds: dict[str, float]
    entered: dict[tuple[str, int], set[str]]
    shared: set[tuple[str, int]]

    def tests_of(self, module: str, block: int) -> list[str]:
        """The tests that can notice a change in this block, the quickest first."""
        place = (module, block)
        if block == 0 or place in self.shared:
            return list(self.seconds)
        entered = self.entered.get(place, set())
        return [test for test in self.seconds if test in entered]


@dataclass(frozen=True, slots=True)
class Verdict:
    """The outcome of a mutant: `killed`, `timeout`, `survived`, or `no test` enters it; and the test that killed it."""

    outcome: str
    by: str = ""

    @property
    def noticed(self) -> bool:
        return self.outcome in ("killed", "timeout")


def clean_run(sources: Sequence[tuple[str, Path]], arguments: Sequence[str], root: Path = ROOT) -> Clean:
    """Run every test once, with marks in the modules."""
    with folder() as where:
        for module, path in sources:
            write_code(where, module, path, with_marks(path.read_text()))
        notes = where / "notes.json"
        code, said = _pytest(arguments, where, {"MUTANT_NOTES": str(notes)}, None, root)
        if code != PASSED:
            raise RunError(f"without a mutant, pytest ends with {code}:\n{said[-3000:]}")
        noted = json.loads(notes.read_text())
    if sources and not any(note["blocks"] for note in noted["tests"].values()):
        raise RunError("no test enters any of the modules: their changed code is not loaded")
    tests = dict(sorted(noted["tests"].items(), key=lambda each: each[1]["seconds"]))
    entered: dict[tuple[str, int], set[str]] = {}
    for test, note in tests.items():
        for module, numbers in note["blocks"].items():
            for number in numbers:
                entered.setdefault((module, number), set()).add(test)
    shared = {(module, number) for module, numbers in noted["shared"].items() for number in numbers}
    return Clean({test: note["seconds"] for test, note in tests.items()}, entered, shared)


def verdict_of(clean: Clean, module: str, path: Path, mutant: Mutant, root: Path = ROOT) -> Verdict:
    """Run the tests that enter the mutant's block until one of them fails."""
    tests = clean.tests_of(module, mutant.block)
    if not tests:
        return Verdict("no test")
    patience = START_S + TIMES * sum(clean.seconds[test] for test in tests)
    with folder() as where:
        try:
            write_code(where, module, path, mutant.tree)
        except SyntaxError as error:
            return Verdict("killed", str(error))
        chosen = where / "tests.txt"
        chosen.write_text("\n".join(tests))
        files = sorted({test.partition("::")[0] for test in tests})
        code, said = _pytest(files, where, {"MUTANT_TESTS": str(chosen)}, patience, root)
    if code is None:
        return Verdict("timeout", f"after {patience:.0f} s")
    if code == PASSED:
        return Verdict("survived")
    if code == NO_TESTS:
        raise RunError(f"pytest finds none of {tests}:\n{said[-3000:]}")
    failed = re.search(r"^(?:FAILED|ERROR) (\S+)", said, re.MULTILINE)
    return Verdict("killed", failed.group(1) if failed else f"exit {code}")


def _pytest(
    arguments: Sequence[str], where: Path, environment: dict[str, str], patience: float | None, root: Path
) -> tuple[int | None, str]:
    settings = {"HYPOTHESIS_STORAGE_DIRECTORY": str(where / "hypothesis"), "MUTANT_CODE": str(where), **environment}
    return run_python(["-m", "pytest", *OPTIONS, *arguments], settings, patience, root)


def run_python(
    arguments: Sequence[str], environment: dict[str, str], patience: float | None, root: Path, given: str = ""
) -> tuple[int | None, str]:
    """Run a process that loads the changed code, with `given` on its input.

    Returns its exit code, or None if it took too long, and its output.
    """
    path = os.pathsep.join(filter(None, [str(HOOK), str(ROOT), os.environ.get("PYTHONPATH", "")]))
    process = subprocess.Popen(
        [sys.executable, *arguments],
        cwd=root,
        env={**os.environ, "PYTHONPATH": path, "PYTHONHASHSEED": "0", **environment},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )
    try:
        said, _ = process.communicate(given, timeout=patience)
        return process.returncode, said
    except subprocess.TimeoutExpired:
        return None, ""
    finally:
        _end(process)


def _end(process: subprocess.Popen[str]) -> None:
    """Kill the process and all that it started."""
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


@contextmanager
def folder() -> Iterator[Path]:
    with TemporaryDirectory(prefix="mutant-") as name:
        yield Path(name)
