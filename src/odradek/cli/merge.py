"""`odradek merge`: topics of several origins in one topic."""

from __future__ import annotations

import re
import time
from contextlib import closing
from typing import TYPE_CHECKING, Annotated

import typer

from odradek.cli.connect import DEFAULT_BOOTSTRAP, BootstrapOption, CommandConfigOption, Target, target
from odradek.cli.errors import USAGE, CliError
from odradek.cli.kafka_client import client_settings
from odradek.cli.output import say, say_on_stderr
from odradek.cli.retries import Retries, until_stopped

if TYPE_CHECKING:
    from odradek.merge.merge import Merge, Options

app = typer.Typer(add_completion=False)


@app.command()
def merge(
    sources: Annotated[
        list[str], typer.Argument(help="Each source as the name of its origin and a topic.", metavar="ORIGIN=TOPIC...")
    ],
    into: Annotated[str, typer.Option("--into", help="The merge topic; it is created if it does not exist.")],
    name: Annotated[str, typer.Option("--name", help="Of the merge; that of the merge topic if not given.")] = "",
    compact: Annotated[bool, typer.Option("--compact", help="Create the merge topic as a compacted one.")] = False,
    until_idle: Annotated[bool, typer.Option("--until-idle", help="End when all records are merged.")] = False,
    report: Annotated[float, typer.Option("--report", help="Seconds between two lines of progress.", min=1)] = 60,
    bootstrap_server: BootstrapOption = DEFAULT_BOOTSTRAP,
    command_config: CommandConfigOption = None,
) -> None:
    """Copy the records of topics into one, each once, with a header that names their origin, until Ctrl-C."""
    from odradek.merge.merge import Options

    options = Options(name or into, into, _origins(sources, into), compacted=compact)
    running = _Run(target(bootstrap_server, command_config), options, report)
    with until_stopped():
        running.follow(until_idle=until_idle)


class _Run:
    """Connects, and connects again when the cluster goes away."""

    def __init__(self, where: Target, options: Options, report_s: float) -> None:
        self._options = options
        self._report_s = report_s
        self._clients, errors = client_settings(where, {}, {})
        self._retries = Retries(where, f"merge named {options.name}", errors)
        self._records = 0

    def follow(self, *, until_idle: bool) -> None:
        """Raises CliError, MergeError where a person must act."""
        from confluent_kafka import KafkaException

        while True:
            try:
                self._connected_run(until_idle=until_idle)
                return
            except (KafkaException, TimeoutError) as error:
                self._retries.report_failure(error)
            self._retries.wait()

    def _connected_run(self, *, until_idle: bool) -> None:
        from odradek.merge.merge import Merge

        with closing(Merge(self._clients, self._options, lambda gap: say_on_stderr(str(gap)))) as merging:
            if not self._retries.was_connected:
                shown = ", ".join(f"{topic} of {origin}" for topic, origin in self._options.origins.items())
                say_on_stderr(f"merging {shown} into {self._options.into}")
            self._retries.was_connected = True
            self._follow(merging, until_idle=until_idle)

    def _follow(self, merging: Merge, *, until_idle: bool) -> None:
        reported_s, reported = time.monotonic(), self._records
        while True:
            merged = merging.step()
            self._records += merged
            if not merged and until_idle and merging.is_at_end:
                say(f"{self._records:,} records merged")
                return
            if self._records > reported and time.monotonic() - reported_s >= self._report_s:
                say_on_stderr(f"{self._records:,} records merged")
                reported_s, reported = time.monotonic(), self._records


def _origins(sources: list[str], into: str) -> dict[str, str]:
    """The origin of each topic. Raises CliError."""
    origins: dict[str, str] = {}
    for source in sources:
        origin, equals, topic = source.partition("=")
        if not (origin and equals and topic):
            raise CliError(f"{source}: name a source as ORIGIN=TOPIC, as in berlin=berlin.orders", code=USAGE)
        if topic in origins:
            raise CliError(f"{topic} is named twice", code=USAGE)
        if topic == into:
            raise CliError(f"{topic} cannot be merged into itself", code=USAGE)
        origins[topic] = origin
    if not re.fullmatch(r"[A-Za-z0-9._-]{1,249}", into):
        raise CliError(f"--into {into}: topics have letters, digits, '.', '_' and '-', at most 249", code=USAGE)
    return origins
