"""`odradek host`: run, watch, restart and stop several brokers on this machine, one for each core."""

from __future__ import annotations

import contextlib
import os
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from odradek.cli.connect import CommandConfigOption, administer, target
from odradek.cli.errors import FAILED, CliError
from odradek.cli.output import JsonOption, print_json, print_table, say_on_stderr
from odradek.common.numbers import INT32_MAX

if TYPE_CHECKING:
    from odradek.client.cluster import Cluster
    from odradek.host.prepare import HostOptions, Joined
    from odradek.host.running import Running

app = typer.Typer(
    add_completion=False,
    invoke_without_command=True,
    help="Run several brokers on this machine, one for each core.",
)

DEFAULT_DATA = Path("odradek-host")
DataOption = Annotated[Path, typer.Option("--data", help="A directory of the host; any of its disks does.")]
POLL_S = 0.2
MISSED_ANSWERS = 5


@app.callback()
def host(
    context: typer.Context,
    cores: Annotated[
        int | None,
        typer.Option("--cores", help="How many brokers; as many as before, or as there are cores.", min=1, max=99),
    ] = None,
    config: Annotated[
        Path | None, typer.Option("--config", "-c", help="Properties that all brokers share; ports are the first's.")
    ] = None,
    data: Annotated[
        list[Path] | None, typer.Option("--data", help="A directory on a disk; once for each disk.")
    ] = None,
    override: Annotated[
        list[str] | None, typer.Option("--override", help="key=value above the file; may be given often.")
    ] = None,
    port: Annotated[int, typer.Option("--port", help="Without a file: of the first broker.", min=1, max=55_000)] = 9092,
    join: Annotated[
        str, typer.Option("--join", help="host:port of brokers elsewhere, whose cluster this machine joins.")
    ] = "",
    first_id: Annotated[
        int | None, typer.Option("--first-id", help="The id of the first broker.", min=0, max=INT32_MAX)
    ] = None,
    voters: Annotated[
        int | None, typer.Option("--voters", help="How many of the brokers are controllers.", min=0, max=9)
    ] = None,
    replace_disk: Annotated[
        bool,
        typer.Option("--replace-disk", help="A disk that brokers were on is new and empty: they start again there."),
    ] = False,
    pin: Annotated[bool, typer.Option("--pin", help="Bind each broker to a core.")] = False,
    rebalance: Annotated[
        bool, typer.Option("--rebalance", help="Move replicas to brokers that were added, at once.")
    ] = False,
    command_config: CommandConfigOption = None,
) -> None:
    """Run the brokers of this machine until Ctrl-C or SIGTERM, which stops all of them in order.

    One that dies is started again. SIGHUP, or `odradek host roll`, restarts one after the other.
    """
    if context.invoked_subcommand is not None:
        return
    from odradek.host.prepare import HostOptions

    disks = [each.absolute() for each in data or [DEFAULT_DATA]]
    given = HostOptions(cores or 0, disks, config, override or [], port, first_id, voters, replace_disk)
    raise typer.Exit(_run(given, join, command_config, pin=pin, rebalance=rebalance))


def _run(options: HostOptions, join: str, command_config: Path | None, *, pin: bool, rebalance: bool) -> int:
    from dataclasses import replace
    from functools import partial
    from random import SystemRandom

    from odradek.common.real_io import RealDisk
    from odradek.host.layout import read_layout
    from odradek.host.prepare import check_disks, make_disks, planned_again, prepare, shared_properties
    from odradek.host.process import run
    from odradek.host.running import claimed

    usable = sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else list(range(os.cpu_count() or 1))
    with contextlib.ExitStack() as stack:
        disk = RealDisk()
        stack.callback(disk.close)
        known = read_layout(disk, options.disks)
        if not options.cores:
            options = replace(options, cores=len(usable if known is None else known.directories))
        if known is not None:
            check_disks(disk, options, known)
        make_disks(disk, options.disks)
        # Before anything of the brokers is written: a host that runs has them.
        claim = stack.enter_context(claimed(options.disks))
        joined = None
        if join and known is None:
            shared = shared_properties(disk, options)
            joined = administer(target(join, command_config), lambda cluster: _read_facts(cluster, shared))
        prepared = prepare(disk, options, joined, random=SystemRandom(), now_ms=time.time_ns() // 1_000_000)
        reload = partial(planned_again, disk, options, prepared)
        when_ready = []
        if prepared.added:
            say_on_stderr(f"new brokers: {', '.join(map(str, prepared.added))}")
            when_ready = _rebalance(prepared.plan.bootstrap, options, command_config, at_once=rebalance)
        return run(prepared.plan, claim=claim, cores=usable if pin else [], reload=reload, when_ready=when_ready)


def _rebalance(bootstrap: str, options: HostOptions, command_config: Path | None, *, at_once: bool) -> list[str]:
    """The command that moves replicas to new brokers, or prints the moves."""
    command = [sys.executable, "-m", "odradek", "rebalance", "--bootstrap-server", bootstrap]
    if command_config is not None:
        command += ["--command-config", str(command_config)]
    if at_once:
        command += ["--execute", "--yes", "--file", str(options.disks[0] / "odradek-rebalance.json")]
    return command


async def _read_facts(cluster: Cluster, shared: dict[str, str]) -> Joined:
    """The facts of the cluster that a machine needs to join it."""
    from odradek.client.admin import describe_cluster, describe_quorum
    from odradek.common.real_io import machine_id
    from odradek.host.plan import next_first_id, votes_here
    from odradek.host.prepare import Joined
    from odradek.protocol.extras import read_broker_host

    described, quorum = await describe_cluster(cluster, fenced=True), await describe_quorum(cluster)
    voter_ids = [voter.replica_id for voter in quorum.topics[0].partitions[0].current_voters]
    places = {broker.broker_id: (broker.rack, read_broker_host(broker)) for broker in described.brokers}
    mine = (shared.get("broker.rack"), shared.get("broker.host") or machine_id())
    voters = [places.get(voter, (None, None)) for voter in voter_ids]
    controllers = [
        f"{listener.host}:{listener.port}"
        for node in quorum.nodes
        if node.node_id in voter_ids
        for listener in node.listeners[:1]
    ]
    if not controllers:
        raise CliError("the cluster does not say where its controllers are; set controller.quorum.bootstrap.servers")
    votes = int(votes_here(mine, voters, list(places.values())))
    say_on_stderr(f"joining cluster {described.cluster_id}; this machine has {'a' if votes else 'no'} voter")
    return Joined(described.cluster_id, next_first_id([*places, *voter_ids]), controllers, votes)


HEADINGS = ("NODE", "STATE", "PID", "LISTENERS", "CONTROLLER", "CORE", "CPU-S", "MEMORY", "SINCE", "RESTARTS")


@app.command("status")
def status(data: DataOption = DEFAULT_DATA, as_json: JsonOption = False) -> None:
    """Show the brokers of this machine."""
    from odradek.host.running import find_running

    found = _request_status(find_running(data))
    if as_json:
        print_json(found)
        return
    print_table(HEADINGS, [_row(broker) for broker in found["brokers"]])
    for broker in found["brokers"]:
        if broker["why"]:
            say_on_stderr(f"broker {broker['node']} is {broker['state']}: {broker['why']}")
    if found["roll_failure"]:
        say_on_stderr(f"the last roll ended early: {found['roll_failure']}")


@app.command("roll")
def roll(data: DataOption = DEFAULT_DATA, as_json: JsonOption = False) -> None:
    """Restart the brokers one after the other, each once all replicas of this machine are in sync.

    They take the configuration as it is now.
    """
    import signal

    from odradek.host.running import find_running

    running = find_running(data)
    before = _request_status(running)
    if before["state"] != "running":
        raise CliError(f"the host is {before['state']}: wait for that", code=FAILED)
    running.signal(signal.SIGUSR1, before)
    now = _after_the_roll(running, data, before["rolls"])
    if now["roll_failure"]:
        raise CliError(f"the roll ended early: {now['roll_failure']}", code=FAILED)
    if as_json:
        print_json(now)
    else:
        typer.echo(f"{len(now['brokers'])} brokers were restarted and are ready.")


@app.command("stop")
def stop(data: DataOption = DEFAULT_DATA, as_json: JsonOption = False) -> None:
    """Stop the brokers of this machine in order, and wait for that."""
    import signal

    from odradek.host.running import NoHostError, find_running

    running = find_running(data)
    running.signal(signal.SIGTERM, _request_status(running))
    with contextlib.suppress(NoHostError):
        while find_running(data).pid == running.pid:
            time.sleep(POLL_S)
    if as_json:
        print_json({"pid": running.pid, "stopped": True})
    else:
        typer.echo("stopped")


def _after_the_roll(running: Running, data: Path, rolls_before: int) -> dict[str, Any]:
    """The host's report after a roll; a busy host may not respond at once."""
    from odradek.host.running import find_running

    missed = 0
    while True:
        find_running(data)
        now = _status(running)
        if now is not None and now["rolls"] != rolls_before:
            return now
        missed = 0 if now is not None else missed + 1
        if missed > MISSED_ANSWERS:
            return _request_status(running)
        time.sleep(POLL_S)


def _status(running: Running) -> dict[str, Any] | None:
    import asyncio

    from odradek.host.http_get import HOST_PATIENCE_S, get_json

    return asyncio.run(get_json(running.pages, "/status", patience_s=HOST_PATIENCE_S))


def _request_status(running: Running) -> dict[str, Any]:
    found = _status(running)
    if found is None:
        raise CliError(f"the host of process {running.pid} does not answer at port {running.pages[1]}", code=FAILED)
    return found


def _row(broker: dict[str, Any]) -> list[object]:
    memory, cpu_s = broker["memory_bytes"], broker["cpu_seconds"]
    since = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(broker["since_ms"] / 1000))
    return [
        broker["node"],
        broker["state"],
        broker["pid"],
        ",".join(f"{name}://{address}" for name, address in broker["listeners"].items()),
        "yes" if broker["controller"] else "no",
        "any" if broker["core"] is None else broker["core"],
        None if cpu_s is None else f"{cpu_s:.1f}",
        None if memory is None else f"{memory / 1_000_000:.0f} MB",
        since,
        broker["restarts"],
    ]
