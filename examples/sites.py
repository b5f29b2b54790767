"""What examples with several clusters do: give commands about links, and wait for what comes over."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Callable
from typing import Any

from examples.topics import TIMEOUT_S
from odradek.testing.processes import ProcessCluster


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
