"""Runs of simulated worlds in a process of their own, of which `simulated` makes sense.

It reads lines "world seed" and runs them until one finds something wrong. With MUTANT_NOTES it notes the blocks that
each enters.
"""

from __future__ import annotations

import builtins
import importlib
import json
import logging
import os
import resource
import sys
import time
from pathlib import Path
from typing import Any

from tests.mutants.marks import MARKS
from tests.mutants.plugin import MOST_BYTES

# A process that found something ends with it.
FOUND = 3


def main() -> int:
    resource.setrlimit(resource.RLIMIT_DATA, (MOST_BYTES, MOST_BYTES))
    logging.disable(logging.CRITICAL)
    _import_changed()
    from tests.sim.bugs import HangError, at_most
    from tests.sim.runs import run_seed
    from tests.sim.worlds import WORLDS

    notes: list[dict[str, Any]] = []
    for line in sys.stdin.read().splitlines():
        world, seed = line.split()
        began, _ = time.process_time(), _taken()
        try:
            with at_most(int(os.environ["MUTANT_SECONDS"])):
                problems = run_seed(int(seed), kind=WORLDS[world]).problems
        except HangError as error:
            problems = [str(error)]
        if problems:
            print(f"{world} {seed}: {problems[0].splitlines()[0][:150]}", flush=True)
            return FOUND
        notes.append({"run": line, "seconds": time.process_time() - began, "blocks": _taken()})
    if "MUTANT_NOTES" in os.environ:
        Path(os.environ["MUTANT_NOTES"]).write_text(json.dumps(notes))
    return 0


def _import_changed() -> None:
    """Import all changed modules before the sandbox begins, as code inside may not look for files."""
    for path in sorted(Path(os.environ["MUTANT_CODE"]).iterdir()):
        if path.name.startswith("odradek"):
            importlib.import_module(path.name)


def _taken() -> dict[str, list[int]]:
    """The blocks that were entered since the last call."""
    taken = {}
    for module, marks in getattr(builtins, MARKS, {}).items():
        taken[module] = [number for number, mark in enumerate(marks) if mark]
        marks[:] = bytes(len(marks))
    return taken


if __name__ == "__main__":
    sys.exit(main())
