"""The error of an example where something that it needs is missing."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from examples.troubles import advice

ROOT = Path(__file__).resolve().parents[3]
NOWHERE = "postgresql://no-user@127.0.0.1:1/nothing"


def fails(*words: str, hide: str = "") -> list[str]:
    """The stderr of an example that cannot begin; `hide` is a package that is not installed, then."""
    code = f"import sys, runpy; sys.modules.update({{{hide!r}: None}} if {hide!r} else {{}}); " + (
        "sys.argv[0] = '-m'; runpy.run_module(sys.argv[1], run_name='__main__', alter_sys=True)"
    )
    command = [sys.executable, "-c", code.replace("sys.argv[1]", repr(words[0])), *words[1:]]
    paths = [str(ROOT), str(ROOT / "src"), *filter(None, [os.environ.get("PYTHONPATH")])]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(paths)}
    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, env=environment, timeout=60)
    assert done.returncode == 1
    return [line for line in done.stderr.splitlines() if not line.startswith("%")]


def test_a_package_that_is_missing_is_named_with_its_extra() -> None:
    assert fails("examples.accounts", "audit", "--account", "x", hide="psycopg") == [
        'psycopg is missing: pip install "odradek[postgres]"'
    ]


def test_a_broker_that_is_not_there_is_one_line() -> None:
    (line,) = fails("examples.orders", "--bootstrap", "127.0.0.1:1", "send")
    assert line.startswith("no broker answers (") and "start one with `odradek broker`" in line


def test_a_database_that_is_not_there_is_one_line() -> None:
    (line,) = fails("examples.cdc", "shop", "--database", NOWHERE)
    assert line.startswith("PostgreSQL: connection failed") and "--database takes postgresql://" in line


def test_only_what_python_runs_as_an_example_says_errors_so() -> None:
    code = "import sys; before = sys.excepthook; import examples.topics; assert sys.excepthook is before"
    paths = [str(ROOT), str(ROOT / "src"), *filter(None, [os.environ.get("PYTHONPATH")])]
    subprocess.run([sys.executable, "-c", code], env={**os.environ, "PYTHONPATH": os.pathsep.join(paths)}, check=True)


def test_a_database_that_goes_away_keeps_its_stack() -> None:
    psycopg: Any = pytest.importorskip("psycopg", reason='needs psycopg: pip install "odradek[postgres]"')
    for said in ("consuming input failed: server closed the connection unexpectedly", "the connection is closed"):
        assert advice(psycopg.OperationalError(said)) is None
    assert "--database takes" in str(advice(psycopg.errors.ConnectionTimeout("connection timeout expired")))
    assert advice(psycopg.errors.DiskFull("could not extend file")) is None


def test_an_unexpected_error_keeps_its_stack() -> None:
    reported = fails("examples.activity.lines_that_are_not")
    assert any("No module named" in line for line in reported)


def test_a_database_error_is_its_first_line() -> None:
    psycopg: Any = pytest.importorskip("psycopg", reason='needs psycopg: pip install "odradek[postgres]"')
    error = psycopg.errors.UndefinedTable('relation "v9.accounts" does not exist\nLINE 1: SELECT')
    assert (
        advice(error)
        == 'PostgreSQL: relation "v9.accounts" does not exist; the example\'s page says what must be there'
    )
    assert advice(psycopg.errors.UniqueViolation("a mistake of the example")) is None
