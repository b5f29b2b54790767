"""Runs targets under Atheris, each turn in a process of its own (see `guided.py`), and brings back what fails."""

from __future__ import annotations

import importlib.util
import re
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
# Instrumenting the product takes some seconds; on a machine with other work it takes longer.
START_S = 300
_EXECUTED = re.compile(r"stat::number_of_executed_units:\s*(\d+)")
_ARTIFACTS = ("crash-*", "oom-*", "timeout-*", "slow-unit-*")


@dataclass(frozen=True)
class Turn:
    """The result of fuzzing one target once.

    Attributes:
        executions: the number of inputs that ran.
        failing: the input that failed; None if none did.
        output: the output of libFuzzer.
    """

    executions: int
    failing: bytes | None
    output: str


def is_installed() -> bool:
    """Whether Atheris is installed; it has wheels for Linux on x86-64 alone, and elsewhere our own engine runs."""
    return importlib.util.find_spec("atheris") is not None


def run_turn(target: str, seconds: int, seed: int, *, first: str = "", plant: str = "") -> Turn:
    """Fuzz one target for so long; in that process `first` is run before the product is imported, `plant` after it.

    Raises:
        RuntimeError: the process ended otherwise than by its time or a failing input.
    """
    with tempfile.TemporaryDirectory(prefix="odradek-fuzz-") as folder:
        arguments = ["--target", target, "--seconds", str(seconds), "--seed", str(seed), "--folder", folder]
        program = f"import sys\n{first}\nfrom tests.fuzz import guided\n{plant}\nguided.main()"
        # Linux counts the peak of a process's parent as its own, and libFuzzer ends a process whose peak is
        # too high: so `timeout`, which is small, starts it, and not a process that has run other tests.
        done = subprocess.run(
            ["timeout", "--kill-after=5", str(seconds + START_S), sys.executable, "-c", program, *arguments],
            cwd=ROOT,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
        )
        output = done.stdout.decode(errors="replace")
        failing = [path.read_bytes() for kind in _ARTIFACTS for path in sorted(Path(folder).glob(kind))]
        counted = _EXECUTED.search(output)
        if not failing and (done.returncode != 0 or counted is None):
            raise RuntimeError(f"{target} under Atheris ended with {done.returncode}:\n{output[-2000:]}")
        return Turn(int(counted[1]) if counted else 0, failing[0] if failing else None, output)
