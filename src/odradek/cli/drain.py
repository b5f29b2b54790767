"""`odradek drain`: move leadership off a broker before it stops, without errors at clients."""

from __future__ import annotations

import time
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Annotated, Any

import typer

from odradek.cli.connect import DEFAULT_BOOTSTRAP, BootstrapOption, CommandConfigOption, Target, administer, target
from odradek.cli.errors import FAILED, NOT_FOUND, USAGE, CliError
from odradek.cli.output import JsonOption, print_json, ranges_text, say_on_stderr
from odradek.common.numbers import INT32_MAX, parse_natural

if TYPE_CHECKING:
    from odradek.cli.partition_moves import View
    from odradek.client.cluster import Cluster

app = typer.Typer(add_completion=False, no_args_is_help=True)

UNKNOWN_TIME = -1
POLL_S = 0.1
DEFAULT_PROBES = "127.0.0.1:9404"


def parse_until(text: str | None, now_s: float) -> int:
    """Milliseconds since 1970 of `90s`, `15m`, `2h` from now, or of a time as 2026-11-21T15:00; -1 without one.

    Raises:
        CliError: neither, or a time that has passed.
    """
    if text is None:
        return UNKNOWN_TIME
    units = {"s": 1, "m": 60, "h": 3600, "d": 86400}
    count = parse_natural(text[:-1], INT32_MAX)
    if count is not None and text[-1] in units:
        return int((now_s + count * units[text[-1]]) * 1000)
    try:
        when = datetime.fromisoformat(text).timestamp()
    except ValueError:
        raise CliError(f"--until {text}: write 15m, 2h, or a time as 2026-11-21T15:00", code=USAGE) from None
    if when <= now_s:
        raise CliError(f"--until {text}: this time has passed", code=USAGE)
    return int(when * 1000)


@app.command()
def drain(
    broker: Annotated[int | None, typer.Argument(help="The broker's id.", min=0, max=INT32_MAX)] = None,
    until: Annotated[
        str | None, typer.Option("--until", help="When it is expected back: 15m, 2h, or a time. Plans wait for it.")
    ] = None,
    stop: Annotated[bool, typer.Option("--stop", help="Then stop it: its process ends in good order.")] = False,
    end: Annotated[bool, typer.Option("--end", help="It stays after all: it may lead again.")] = False,
    force: Annotated[
        bool,
        typer.Option("--force", help="Also where partitions fall below min.insync.replicas, or lose all replicas."),
    ] = False,
    timeout: Annotated[int, typer.Option("--timeout", help="Seconds to wait for leaders to move.", min=1)] = 60,
    process: Annotated[
        int | None, typer.Option("--process", help="The broker of this process here, in place of an id.", min=1)
    ] = None,
    probes: Annotated[
        str, typer.Option("--probes", help="With --process: HOST:PORT of its odradek.metrics.listener.")
    ] = DEFAULT_PROBES,
    bootstrap_server: BootstrapOption = DEFAULT_BOOTSTRAP,
    command_config: CommandConfigOption = None,
    as_json: JsonOption = False,
) -> None:
    """Move leaders off a broker, assign it nothing new, and print the effects of its absence.

    Nothing is copied: its replicas stay where they are, and catch up when it is back. The drain ends when it has
    stopped and started again.
    """
    if process is not None:
        if broker is not None or until or any((stop, end, force)):
            raise CliError("--process goes with --probes, --timeout and --json alone", code=USAGE)
        _drain_here(process, probes, timeout, as_json=as_json)
    elif broker is None:
        raise CliError("name a broker by its id, or the one of this machine by --process", code=USAGE)
    elif end:
        if stop or until:
            raise CliError("--end goes with neither --stop nor --until", code=USAGE)
        _end(broker, target(bootstrap_server, command_config), as_json=as_json)
    else:
        asked = _DrainOptions(broker, parse_until(until, time.time()), stop, force, timeout)
        _drain_remotely(asked, target(bootstrap_server, command_config), as_json=as_json)


@dataclass(frozen=True, slots=True)
class _DrainOptions:
    """The options of a drain over Kafka's protocol."""

    broker: int
    until_ms: int
    stop: bool
    force: bool
    timeout_s: int


def _drain_remotely(asked: _DrainOptions, where: Target, *, as_json: bool) -> None:
    found = administer(where, lambda cluster: _drain(cluster, asked))
    broker = asked.broker
    if as_json:
        print_json(found)
    elif asked.stop:
        typer.echo(f"Broker {broker} leads nothing and stops.")
    else:
        typer.echo(
            f"Broker {broker} leads {found['leads']} partitions. Stop it, or end this with `drain {broker} --end`."
        )
    for line in found["warnings"]:
        say_on_stderr(line)


def _end(broker: int, where: Target, *, as_json: bool) -> None:
    administer(where, lambda cluster: _set(cluster, broker, None, stop=False))
    if as_json:
        print_json({"broker": broker, "draining": False})
    else:
        typer.echo(f"Broker {broker} may lead again: `odradek partitions elect --all` gives it its leaders back.")


def _drain_here(process: int, probes: str, timeout_s: int, *, as_json: bool) -> None:
    from odradek.cli.local_drain import drain_process

    said = drain_process(process, probes, timeout_s)
    if as_json:
        print_json(said)
    else:
        typer.echo(f"The broker of process {process} is drained.")


async def _drain(cluster: Cluster, asked: _DrainOptions) -> dict[str, Any]:
    from odradek.cli.partition_moves import load_view

    broker = asked.broker
    view = await load_view(cluster)
    if broker not in view.racks:
        raise CliError(f"the cluster has no broker {broker}; `odradek cluster brokers` shows them", code=NOT_FOUND)
    warnings = await _absence(cluster, view, broker)
    if warnings and not asked.force:
        listed = "".join(f"\n  {line}" for line in warnings)
        raise CliError(
            f"nothing was done; without broker {broker} (--force drains it all the same):{listed}", code=FAILED
        )
    await _set(cluster, broker, asked.until_ms, stop=asked.stop)
    leads = await _wait_until_it_leads_nothing_else(cluster, view, broker, asked.timeout_s)
    return {"broker": broker, "draining": True, "until_ms": asked.until_ms, "leads": leads, "warnings": warnings}


async def _absence(cluster: Cluster, view: View, broker: int) -> list[str]:
    """The effects of a broker's absence, at most two lines for each affected topic."""
    from odradek.cli.partition_moves import min_isr_of

    held = {key: partition for key, partition in view.partitions.items() if broker in partition.isr_nodes}
    needed = await min_isr_of(cluster, (topic for topic, _ in held))
    alone: dict[str, list[int]] = {}
    few: dict[str, list[int]] = {}
    for (topic, number), partition in sorted(held.items()):
        left = len(partition.isr_nodes) - 1
        if not left:
            alone.setdefault(topic, []).append(number)
        elif left < min(needed[topic], len(partition.replica_nodes)):
            few.setdefault(topic, []).append(number)
    return [
        *(
            f"{_named(topic, numbers)} no other replica in sync: clients cannot read or write {_them(numbers)}"
            for topic, numbers in alone.items()
        ),
        *(
            f"{_named(topic, numbers)} fewer in sync than min.insync.replicas={needed[topic]}: acks=all is refused"
            for topic, numbers in few.items()
        ),
    ]


def _named(topic: str, numbers: list[int]) -> str:
    """`orders-3 has`, or `orders: 12 partitions (0-10, 12) have`; a topic may have thousands."""
    if len(numbers) == 1:
        return f"{topic}-{numbers[0]} has"
    return f"{topic}: {len(numbers)} partitions ({ranges_text(numbers)}) have"


def _them(numbers: list[int]) -> str:
    return "it" if len(numbers) == 1 else "them"


async def _set(cluster: Cluster, broker: int, until_ms: int | None, *, stop: bool) -> None:
    from odradek.client.admin import ConfigOperation, ResourceType, alter_configs
    from odradek.settings.broker import DRAIN_KEY, DRAIN_STOP_KEY

    if until_ms is None:
        changes: list[tuple[str, ConfigOperation, str | None]] = [
            (DRAIN_KEY, ConfigOperation.DELETE, None),
            (DRAIN_STOP_KEY, ConfigOperation.DELETE, None),
        ]
    else:
        changes = [(DRAIN_KEY, ConfigOperation.SET, str(until_ms))]
        if stop:
            changes.append((DRAIN_STOP_KEY, ConfigOperation.SET, "true"))
    await alter_configs(cluster, ResourceType.BROKER, str(broker), changes)


async def _wait_until_it_leads_nothing_else(cluster: Cluster, view: View, broker: int, timeout_s: int) -> int:
    """Wait until the broker leads only partitions that no other broker can lead; returns their number."""
    import asyncio

    deadline = time.monotonic() + timeout_s
    while True:
        led = [
            partition
            for topic in (await cluster.metadata()).topics
            for partition in topic.partitions
            if partition.leader_id == broker
        ]
        movable = [each for each in led if set(each.isr_nodes) - {broker} - view.resting]
        if not movable:
            return len(led)
        if time.monotonic() > deadline:
            raise CliError(f"broker {broker} still leads {len(movable)} partitions that others could lead", code=FAILED)
        await asyncio.sleep(POLL_S)
