"""A node as a command: what `odradek broker` does, reachable without the machinery that reads command lines.

A node runs for months. Whatever was imported to read its command line would stay in its memory, so a plain command line
is read here; one that asks for help, or is wrong, is left to `cli.app`, which answers it.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from random import SystemRandom
from typing import NamedTuple

from odradek.cli import errors
from odradek.common.errors import OdradekError

_NAMES = {"--config": "config", "-c": "config", "--override": "override"}


class NodeArguments(NamedTuple):
    """Of `odradek broker`; without a file the node is formatted at its first start, with its data in ./odradek-data."""

    config: Path | None
    override: list[str]


def read_arguments(arguments: Sequence[str]) -> NodeArguments | None:
    """The command line behind `odradek broker`; None where it is not just its two options."""
    config: Path | None = None
    override: list[str] = []
    left = list(arguments)
    while left:
        name, joined, value = left.pop(0).partition("=")
        if name not in _NAMES or (joined and not name.startswith("--")) or not (joined or left):
            return None
        value = value if joined else left.pop(0)
        if _NAMES[name] == "config":
            config = Path(value)
        else:
            override.append(value)
    return NodeArguments(config, override)


def run(arguments: NodeArguments) -> int:
    """Run a node until it is told to stop; returns the exit code. Prints one line for every error of its user."""
    try:
        return run_node(arguments)
    except KeyboardInterrupt:
        return errors.INTERRUPTED
    except (OdradekError, OSError) as error:
        return errors.report(error, sys.stderr)


def run_node(arguments: NodeArguments) -> int:
    """As `run`, but raises what is wrong: OdradekError, OSError."""
    from odradek.common.node_settings import load_node_settings
    from odradek.common.real_io import RealDisk
    from odradek.server.format import ensure_formatted
    from odradek.server.options import honoured_settings
    from odradek.server.process import run as run_process

    config, override = arguments
    disk = RealDisk()
    settings = load_node_settings(disk, config, override, environment=os.environ, honoured=honoured_settings())
    if config is None:
        ensure_formatted(disk, settings, random=SystemRandom(), now_ms=time.time_ns() // 1_000_000)
    disk.close()
    return run_process(settings)
