"""A node as a command: `odradek broker` without the command-line framework, for a fast start.

A node runs for months. Modules that are imported to read its command line would stay in its memory, so a plain command
line is read here; one that asks for help, or is wrong, is left to `cli.app`, which answers it.
"""

from __future__ import annotations

import errno
import os
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from random import SystemRandom
from typing import TYPE_CHECKING, NamedTuple

from odradek.cli import errors
from odradek.common.errors import OdradekError
from odradek.common.numbers import MAX_PORT, parse_natural

if TYPE_CHECKING:
    from odradek.settings.broker import BrokerSettings

_NAMES = {"--config": "config", "-c": "config", "--override": "override", "--port": "port"}


class NodeArguments(NamedTuple):
    """The arguments of `odradek broker`; without a file, the node formats ./odradek-data at its first start.

    Attributes:
        port: for clients, of a node without a file; its controller has the next one.
    """

    config: Path | None
    override: list[str]
    port: int | None = None

    @property
    def has_default_listeners(self) -> bool:
        """Whether the listeners are the default ones, except for the port."""
        from odradek.settings.node import parse_overrides

        return self.config is None and "listeners" not in parse_overrides(self.override)


def read_arguments(arguments: Sequence[str]) -> NodeArguments | None:
    """The arguments after `odradek broker`; None if there are other ones than its options."""
    config: Path | None = None
    override: list[str] = []
    port: int | None = None
    left = list(arguments)
    while left:
        name, value = _next_option(left)
        if name == "config":
            config = Path(value)
        elif name == "override":
            override.append(value)
        elif name is None or not (port := parse_natural(value, MAX_PORT)):
            return None
    return NodeArguments(config, override, port)


def _next_option(left: list[str]) -> tuple[str | None, str]:
    """Split an option and its value off a command line; an empty name if it begins with another word."""
    name, joined, value = left.pop(0).partition("=")
    if name not in _NAMES or (joined and not name.startswith("--")) or not (joined or left):
        return None, ""
    return _NAMES[name], value if joined else left.pop(0)


def run(arguments: NodeArguments) -> int:
    """Run a node until it is stopped; returns the exit code. Prints one line for every error that a user can cause."""
    try:
        return run_node(arguments)
    except KeyboardInterrupt:
        return errors.INTERRUPTED
    except (OdradekError, OSError) as error:
        return errors.report(error, sys.stderr)


def run_node(arguments: NodeArguments) -> int:
    """As `run`, but raises errors of a configuration: OdradekError, OSError."""
    from odradek.common.real_io import RealDisk
    from odradek.server.startup.format import ensure_formatted
    from odradek.server.startup.honoured_settings import honoured_settings
    from odradek.server.startup.process import run as run_process
    from odradek.settings.node import BROKER_PORT, LOCALHOST, load_node_settings

    config, override, port = arguments
    if port is not None:
        if not arguments.has_default_listeners:
            raise errors.CliError("--port is for a node without a file and without `listeners`", code=errors.USAGE)
        override = [*override, f"listeners=PLAINTEXT://{LOCALHOST}:{port}"]
    disk = RealDisk()
    settings = load_node_settings(disk, config, override, environment=os.environ, honoured=honoured_settings())
    if config is None:
        ensure_formatted(disk, settings, random=SystemRandom(), now_ms=time.time_ns() // 1_000_000)
    disk.close()
    try:
        return run_process(settings)
    except (OdradekError, OSError) as error:
        failure: OdradekError | OSError = error
        if isinstance(error, OSError) and arguments.has_default_listeners and _is_taken(error, settings):
            other = (port or BROKER_PORT) % 60_000 + 200
            hint = f"stop who listens there, or take other ports with `odradek broker --port {other}`"
            failure = errors.CliError(f"{error.strerror or error}; {hint}")
    return _report(failure, settings)


def _is_taken(error: OSError, settings: BrokerSettings) -> bool:
    """Whether the port of a listener is taken, not that of the metrics."""
    is_of_metrics = settings.metrics_address is not None and f", {settings.metrics_address[1]})" in str(error)
    return error.errno == errno.EADDRINUSE and not is_of_metrics


def _report(failure: OdradekError | OSError, settings: BrokerSettings) -> int:
    """Write why the node ended as its log is written; returns the exit code."""
    from odradek.common.log_lines import get_logger
    from odradek.server.network.slow_requests import JSON, LogLinesConfig

    if settings.build(LogLinesConfig).line_format != JSON:
        return errors.report(failure, sys.stderr)
    for line in errors.lines(failure):
        get_logger("server.broker").error("the node ended", reason=line)
    return errors.exit_code(failure)
