"""What examples with several clusters do: read a command line, give commands about links, wait for what comes over."""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Protocol

from examples.topics import TIMEOUT_S
from odradek.testing.processes import ProcessCluster


class Report(Protocol):
    """What an example has found; its text is for a person."""

    @property
    def holds(self) -> bool: ...


def parser_of(name: str, description: str | None) -> argparse.ArgumentParser:
    """A parser for an example, with --folder."""
    parser = argparse.ArgumentParser(
        prog=f"python -m examples.{name}",
        description=description,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--folder", type=Path, help="keeps the data of all sites; it must be empty")
    return parser


def print_report(folder: Path | None, run: Callable[[Path], Report]) -> int:
    """Run an example in its folder, or in a temporary one, and print its report; returns 1 if that does not hold."""
    with tempfile.TemporaryDirectory(prefix="odradek-sites-") as temporary:
        report = run(folder or Path(temporary))
    print(report)
    return 0 if report.holds else 1


def odradek(site: ProcessCluster, *words: str) -> None:
    """Run a command about links at a site; what it prints is shown."""
    print("odradek links", *words, flush=True)
    subprocess.run(_command(site, *words), check=True)


def described(site: ProcessCluster, link: str) -> dict[str, Any]:
    """All that the brokers of a site say of a link."""
    shown = subprocess.run(_command(site, "describe", link, "--json"), check=True, capture_output=True).stdout
    found: dict[str, Any] = json.loads(shown)
    return found


def _command(site: ProcessCluster, *words: str) -> list[str]:
    return [sys.executable, "-m", "odradek", "links", *words, "--bootstrap-server", site.bootstrap_servers]


def await_true(there: Callable[[], bool], what: str) -> None:
    """Look again and again. Raises TimeoutError after TIMEOUT_S."""
    deadline = time.monotonic() + TIMEOUT_S
    while not there():
        if time.monotonic() > deadline:
            raise TimeoutError(f"{what}: not within {TIMEOUT_S:g} s")
        time.sleep(0.1)
