"""`odradek rebalance`: evens out the load of brokers; shows the plan first, then executes it in steps."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from odradek.cli.confirmation import YesOption, confirm
from odradek.cli.connect import DEFAULT_BOOTSTRAP, BootstrapOption, CommandConfigOption, Target, administer, target
from odradek.cli.errors import FAILED, USAGE, CliError
from odradek.cli.numbers import finite
from odradek.cli.output import JsonOption, print_json, print_table, say_on_stderr
from odradek.cli.partition_plan import Replicas, to_json
from odradek.cli.partitions import TopicOption, print_changes, read_plan
from odradek.cli.rebalance.balance import Load, Weights, rebalance
from odradek.common.topic_names import TopicPartition

if TYPE_CHECKING:
    from odradek.cli.partition_moves import View
    from odradek.cli.rebalance.balance import Balance
    from odradek.client.cluster import Cluster

app = typer.Typer(add_completion=False)

DEFAULT_FILE = Path("odradek-rebalance.json")
Changes = dict[TopicPartition, Replicas]


@app.command("rebalance")
def command(
    topic: TopicOption = None,
    watch: Annotated[
        float,
        typer.Option(
            "--watch", help="Seconds between two looks at how fast partitions grow.", min=0.1, max=3600, callback=finite
        ),
    ] = 5,
    tolerance: Annotated[
        float,
        typer.Option(
            "--tolerance", help="How far from the mean a broker may be, as a share.", min=0.01, max=1, callback=finite
        ),
    ] = 0.1,
    limit_bytes: Annotated[
        int, typer.Option("--limit-bytes", help="Copy no more than so much; 0: whatever it takes.", min=0)
    ] = 0,
    execute: Annotated[bool, typer.Option("--execute", help="Do it, and wait until it is done.")] = False,
    resume: Annotated[bool, typer.Option("--resume", help="Go on with the plan in --file, and make none.")] = False,
    file: Annotated[Path, typer.Option("--file", help="Keeps the plan until it is carried out.")] = DEFAULT_FILE,
    throttle: Annotated[
        int, typer.Option("--throttle", help="The limit of copied bytes per second at each broker.", min=1)
    ] = 50_000_000,
    at_once: Annotated[int, typer.Option("--at-once", help="Partitions that are copied at the same time.", min=1)] = 20,
    yes: YesOption = False,
    bootstrap_server: BootstrapOption = DEFAULT_BOOTSTRAP,
    command_config: CommandConfigOption = None,
    as_json: JsonOption = False,
) -> None:
    """Balance leaders, replicas, disks and traffic over brokers and racks, with as few copied bytes as possible.

    Shows the plan; with --execute it is carried out, some partitions at a time. What was broken off goes on with
    --resume.
    """
    where = target(bootstrap_server, command_config)
    if resume:
        changes = dict(read_plan(file))
        if as_json:
            print_json({"changes": to_json(changes)})
        _carry_out(where, changes, file, throttle, at_once)
        return
    if execute and file.exists():
        raise CliError(f"{file} is a plan that was broken off: go on with --resume, or delete it", code=USAGE)
    view, weights = administer(where, lambda cluster: _load(cluster, topic, watch))
    changes, before, after = rebalance(
        view.racks,
        view.assignment,
        weights,
        view.resting,
        tolerance=tolerance,
        limit_bytes=limit_bytes or float("inf"),
        hosts=view.hosts,
    )
    _show(view, changes, before, after, weights, as_json=as_json)
    if not changes or not execute:
        if changes and not as_json:
            say_on_stderr("nothing was changed; pass --execute to do it")
        return
    confirm(f"Change {len(changes)} partitions?", yes)
    file.write_text(json.dumps(to_json(changes), indent=1) + "\n", encoding="utf-8")
    _carry_out(where, changes, file, throttle, at_once)


async def _load(cluster: Cluster, topic: str | None, watch_s: float) -> tuple[View, dict[TopicPartition, Weights]]:
    from odradek.cli.partition_moves import load_view
    from odradek.cli.rebalance.carry_out import weigh
    from odradek.client.reassignment import ongoing_reassignments

    ongoing = await ongoing_reassignments(cluster)
    if ongoing:
        raise CliError(f"{len(ongoing)} partitions move: wait for them; `odradek partitions status` shows them")
    view = await load_view(cluster, topic=topic)
    return view, await weigh(cluster, view, watch_s)


def _carry_out(where: Target, changes: Changes, file: Path, throttle: int, at_once: int) -> None:
    """Execute the plan, and remove its file after the last move; Ctrl-C or an error leaves the file for --resume."""

    async def work(cluster: Cluster) -> dict[TopicPartition, Any]:
        from odradek.cli.rebalance.carry_out import carry_out

        return await carry_out(cluster, changes, throttle=throttle, at_once=at_once, note=say_on_stderr)

    try:
        not_elected = administer(where, work)
    except (KeyboardInterrupt, Exception):
        again = f"`odradek rebalance --resume --file {file}`"
        say_on_stderr(f"What was begun goes on by itself, limited; {again} does the rest, and takes the limits away.")
        raise
    file.unlink(missing_ok=True)
    for (topic, number), error in sorted(not_elected.items()):
        say_on_stderr(f"{topic}-{number} is not led by its first replica: {error.message}")
    say_on_stderr("All is in place.")
    if not_elected:
        raise typer.Exit(FAILED)


def _show(
    view: View,
    changes: Changes,
    before: Balance,
    after: Balance,
    weights: dict[TopicPartition, Weights],
    *,
    as_json: bool,
) -> None:
    copied = sum(weights[key].disk * len({*new} - {*view.assignment[key]}) for key, new in changes.items())
    if as_json:
        print_json(
            {
                "changes": to_json(changes),
                "copied_bytes": round(copied),
                "unevenness": {"before": round(before.unevenness, 6), "after": round(after.unevenness, 6)},
                "brokers": [
                    {"broker": broker, "rack": view.racks[broker]} | _loads_as_json(broker, before, after)
                    for broker in before.loads
                ],
            }
        )
        return
    if not changes:
        typer.echo("Brokers are as even as they can be, or as --tolerance asks.")
    else:
        print_changes(view.assignment, changes)
        typer.echo("")
    _print_loads(view, before, after)
    if changes:
        typer.echo(f"\n{len(changes)} partitions change, {copied:,.0f} bytes are copied.")


def _loads_as_json(broker: int, before: Balance, after: Balance) -> dict[str, int]:
    return {
        f"{load.name.lower()}_{when}": round(found.loads[broker][load])
        for when, found in (("before", before), ("after", after))
        for load in Load
    }


def _print_loads(view: View, before: Balance, after: Balance) -> None:
    headings = [f"{load.name}{'' if found is before else '-PLANNED'}" for load in Load for found in (before, after)]
    print_table(
        ["BROKER", "RACK", *(heading.replace("TRAFFIC", "BYTES/S") for heading in headings)],
        [
            [broker, view.racks[broker] or "-"]
            + [f"{found.loads[broker][load]:.0f}" for load in Load for found in (before, after)]
            for broker in before.loads
        ],
    )
