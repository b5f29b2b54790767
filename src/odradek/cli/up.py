"""`odradek up`: runs a cluster of processes on this machine, with a screen and commands to cause failures."""

from __future__ import annotations

import signal
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from odradek.cli.errors import CliError
from odradek.cli.output import JsonOption, print_json, print_table, rich_table, say_on_stderr

if TYPE_CHECKING:
    from odradek.testing.supervisor import Supervisor

app = typer.Typer(
    add_completion=False,
    invoke_without_command=True,
    help="Start a cluster of processes on this machine; cause failures from another terminal.",
)

DEFAULT_DATA = Path("odradek-cluster")
DataOption = Annotated[Path, typer.Option("--data", help="The directory of the cluster.")]
NodeArgument = Annotated[int, typer.Argument(help="The node's id.")]
# How often the screen is redrawn and nodes are looked at.
REFRESH_S = 0.25
COLOURS = {"up": "green", "paused": "yellow", "down": "red"}


@app.callback()
def up(
    context: typer.Context,
    brokers: Annotated[int, typer.Option("--brokers", "-n", help="How many brokers.", min=1)] = 3,
    controllers: Annotated[
        int, typer.Option("--controllers", help="Nodes that are only controllers; 0 lets brokers be both.", min=0)
    ] = 0,
    racks: Annotated[str, typer.Option("--racks", help="Racks, dealt out to the brokers in turn: a,b,c.")] = "",
    port: Annotated[
        int, typer.Option("--port", help="Of the first broker; 0 takes free ports.", min=0, max=55_000)
    ] = 9092,
    data: DataOption = DEFAULT_DATA,
    override: Annotated[
        list[str] | None, typer.Option("--override", help="key=value for all nodes; may be given often.")
    ] = None,
) -> None:
    """Start a cluster and look after it until Ctrl-C, which stops all nodes; the data stays in --data."""
    if context.invoked_subcommand is not None:
        return
    from odradek.settings.node import parse_overrides
    from odradek.testing.processes import ProcessCluster
    from odradek.testing.supervisor import Supervisor

    cluster = ProcessCluster(
        data,
        brokers=brokers,
        controllers=controllers,
        racks=[rack.strip() for rack in racks.split(",") if rack.strip()],
        settings=parse_overrides(override or []),
        first_port=port,
    )
    on_screen = sys.stdout.isatty()
    supervisor = Supervisor(cluster, data, (lambda event: None) if on_screen else typer.echo)
    signal.signal(signal.SIGTERM, _interrupt)
    try:
        say_on_stderr(f"starting {len(cluster.nodes)} nodes in {data}")
        _start(supervisor, data)
        typer.echo(f"The cluster is ready at {cluster.bootstrap_servers}")
        typer.echo("Play with it from another terminal: odradek up kill 2 | pause 2 | resume 2 | restart 2 | status")
        typer.echo("Ctrl-C stops all nodes.")
        sys.stdout.flush()
        _watch(supervisor, on_screen=on_screen)
    except KeyboardInterrupt:
        say_on_stderr("stopping all nodes")
    finally:
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        supervisor.stop()
    typer.echo("stopped")


@app.command("kill")
def kill(node: NodeArgument, data: DataOption = DEFAULT_DATA, as_json: JsonOption = False) -> None:
    """Kill a node with -9."""
    _act("kill", node, data, as_json=as_json)


@app.command("pause")
def pause(node: NodeArgument, data: DataOption = DEFAULT_DATA, as_json: JsonOption = False) -> None:
    """Let a node stand still; its connections stay open."""
    _act("pause", node, data, as_json=as_json)


@app.command("resume")
def resume(node: NodeArgument, data: DataOption = DEFAULT_DATA, as_json: JsonOption = False) -> None:
    """Let a paused node go on."""
    _act("resume", node, data, as_json=as_json)


@app.command("restart")
def restart(node: NodeArgument, data: DataOption = DEFAULT_DATA, as_json: JsonOption = False) -> None:
    """Stop a node in good order and start it again; one that was killed is only started."""
    _act("restart", node, data, as_json=as_json)


@app.command("status")
def status(data: DataOption = DEFAULT_DATA, as_json: JsonOption = False) -> None:
    """Show the nodes."""
    from odradek.testing.control_socket import request

    nodes = request(data, "status")["nodes"]
    if as_json:
        print_json(nodes)
    else:
        print_table(HEADINGS, [_row(node) for node in nodes])


HEADINGS = ("NODE", "ROLES", "RACK", "ADDRESS", "STATE", "PID", "MEMORY")


def _row(node: dict[str, Any]) -> list[object]:
    memory = node["memory_bytes"]
    text = None if memory is None else f"{memory / 1_000_000:.0f} MB"
    return [node["node"], node["roles"], node["rack"], node["address"], node["state"], node["pid"], text]


def _act(action: str, node: int, data: Path, *, as_json: bool) -> None:
    from odradek.testing.control_socket import request

    done = request(data, action, node)["done"]
    if as_json:
        print_json({"node": node, "done": done})
    else:
        typer.echo(done)


def _start(supervisor: Supervisor, data: Path) -> None:
    """Start the nodes. Raises CliError if one does not start; then all are stopped."""
    from odradek.testing.processes import NodeFailedError, PortInUseError

    try:
        supervisor.start()
    except NodeFailedError as error:
        raise CliError(f"{error.summary}; all nodes are stopped, {data}/node-*/node.log has all they said") from None
    except PortInUseError as error:
        raise CliError(f"{error}: stop who listens there, or choose others with --port (0 takes free ones)") from None


def _interrupt(number: int, frame: object) -> None:
    raise KeyboardInterrupt


def _watch(supervisor: Supervisor, *, on_screen: bool) -> None:
    """Watch the nodes until Ctrl-C."""
    if not on_screen:
        while True:
            supervisor.wait(REFRESH_S)
            sys.stdout.flush()
    from rich.live import Live

    with Live(_screen(supervisor), auto_refresh=False) as live:
        while True:
            supervisor.wait(REFRESH_S)
            live.update(_screen(supervisor), refresh=True)


def _screen(supervisor: Supervisor) -> Any:
    from rich.console import Group
    from rich.text import Text

    table = rich_table(HEADINGS)
    for node in supervisor.describe():
        cells = ["-" if cell is None else str(cell) for cell in _row(node)]
        cells[4] = f"[{COLOURS[node['state']]}]{cells[4]}[/]"
        table.add_row(*cells)
    return Group(table, *(Text(event, style="dim") for event in supervisor.events))
