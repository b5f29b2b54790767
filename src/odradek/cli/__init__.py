"""The command line: one command per file, imported when it is called, so that `odradek --help` starts fast.

`main` is what the installed `odradek` runs: it turns every error that a user can cause into one line on standard error
and a stable exit code (`docs/cli.md`), never into a traceback.
"""

from __future__ import annotations

import os
import sys


def main() -> None:
    """Run a command line and exit with its exit code."""
    code = _run(sys.argv[1:])
    try:
        sys.stdout.flush()
    except BrokenPipeError:
        # The reader of our output has gone; the interpreter must not complain when it flushes at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    sys.exit(code)


def _run(arguments: list[str]) -> int:
    if arguments[:1] == ["broker"]:
        from odradek.cli import node

        plain = node.read_arguments(arguments[1:])
        if plain is not None:
            return node.run(plain)
    from odradek.cli.app import run

    return run(arguments)
