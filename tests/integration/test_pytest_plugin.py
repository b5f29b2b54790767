"""The package under pytest, and the snippets of the page about testing, where nothing is compiled yet."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

PAGE = Path(__file__).parents[2] / "docs" / "testing.md"
SNIPPET = re.compile(r"^```python\n(.*?)^```$", re.DOTALL | re.MULTILINE)
# The plugin itself, and the packages that it is in.
REWRITTEN = {"odradek", "odradek.testing", "odradek.testing.pytest_plugin"}
LOOK = """
import sys


def test_it(odradek_broker):
    loaders = {name: type(module.__loader__).__name__ for name, module in sys.modules.items() if name[:7] == "odradek"}
    with open("found", "w") as found:
        print(len(loaders), *(name for name, loader in loaders.items() if loader != "SourceFileLoader"), file=found)
"""


@pytest.fixture
def compiled(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of compiled modules, empty at first, so that each is compiled once, with its warnings."""
    return tmp_path_factory.mktemp("compiled")


def run(directory: Path, compiled: Path, *arguments: str) -> None:
    """Python in a directory of its own, with no settings of ours."""
    environment = {key: value for key, value in os.environ.items() if not key.startswith(("PYTEST_", "PYTHON"))}
    environment["PYTHONPYCACHEPREFIX"] = str(compiled)
    command = [sys.executable, *arguments]
    done = subprocess.run(command, cwd=directory, env=environment, capture_output=True, text=True, timeout=240)
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-4000:]


def run_tests(directory: Path, compiled: Path) -> None:
    """Pytest as a user has it, without our other plugins."""
    directory.joinpath("pytest.ini").write_text("[pytest]\n")
    plugins = ("-p", "no:asyncio", "-p", "no:xdist", "-p", "no:timeout")
    run(directory, compiled, "-m", "pytest", *plugins, "-W", "error", "-q")


def test_every_snippet_of_the_page_runs_as_it_is_written(tmp_path: Path, compiled: Path) -> None:
    """pytest rewrites no module of a broker that runs beside the tests."""
    snippets = SNIPPET.findall(PAGE.read_text())
    assert len(snippets) == 7
    for number, snippet in enumerate(snippets):
        if "def test_" in snippet:
            (tmp_path / f"test_snippet_{number}.py").write_text(snippet)
        else:
            script = tmp_path / f"snippet_{number}.py"
            script.write_text(snippet)
            run(tmp_path, compiled, str(script))
    assert len(list(tmp_path.glob("test_*.py"))) == 4
    (tmp_path / "test_look.py").write_text(LOOK)
    run_tests(tmp_path, compiled)
    count, *rewritten = (tmp_path / "found").read_text().split()
    assert int(count) > 100  # a whole broker was loaded
    assert set(rewritten) <= REWRITTEN
