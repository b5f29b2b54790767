"""`odradek partitions`: plan, start, follow and cancel reassignments; elect leaders."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from odradek.cli.confirmation import YesOption, confirm
from odradek.cli.connect import DEFAULT_BOOTSTRAP, BootstrapOption, CommandConfigOption, Target, administer, target
from odradek.cli.errors import NOT_FOUND, USAGE, CliError
from odradek.cli.output import JsonOption, print_json, print_table, ranges_text, say_on_stderr
from odradek.cli.partition_plan import Assignment, PlanError, Replicas, from_json, plan, to_json
from odradek.common.topic_names import TopicPartition

if TYPE_CHECKING:
    from odradek.cli.partition_moves import View
    from odradek.client.cluster import Cluster
    from odradek.common.errors import ApiError

app = typer.Typer(add_completion=False, no_args_is_help=True, help="Move replicas and leaders between brokers.")

PlanOption = Annotated[
    Path | None, typer.Option("--plan", help="A reassignment in Kafka's JSON format; - is standard input.")
]
PartitionOption = Annotated[
    list[str] | None, typer.Option("--partition", help="A partition, as orders-0; may be given often.")
]
TopicOption = Annotated[
    str | None, typer.Option("--topic", help="A name, or a regular expression that must match the whole name.")
]


def parse_brokers(text: str, option: str) -> list[int]:
    """`1,2,3`. Raises CliError."""
    try:
        found = [int(part) for part in text.split(",") if part.strip()]
    except ValueError:
        raise CliError(f"{option} {text}: give ids of brokers, as 1,2,3", code=USAGE) from None
    if len(set(found)) < len(found):
        raise CliError(f"{option} {text}: a broker is named twice", code=USAGE)
    return found


def parse_partitions(texts: Sequence[str] | None) -> list[TopicPartition]:
    """`topic-0` each. Raises CliError."""
    found = []
    for text in texts or ():
        topic, dash, number = text.rpartition("-")
        if not dash or not topic or not number.isascii() or not number.isdigit():
            raise CliError(f"--partition {text}: write topic and number, as orders-0", code=USAGE)
        found.append((topic, int(number)))
    return found


def read_plan(path: Path) -> dict[TopicPartition, Replicas]:
    """A plan from a file or standard input. Raises CliError."""
    try:
        text = sys.stdin.read() if str(path) == "-" else path.read_text(encoding="utf-8")
        return from_json(text)
    except OSError as error:
        raise CliError(f"{path}: {error.strerror or error}; name a file that can be read", code=USAGE) from None
    except (PlanError, UnicodeDecodeError) as error:
        raise CliError(f"{path}: {error}", code=USAGE) from None


@app.command("plan")
def make_plan(
    topic: TopicOption = None,
    brokers: Annotated[str, typer.Option("--brokers", help="Brokers for replicas; default: all.")] = "",
    without: Annotated[str, typer.Option("--without", help="Brokers without replicas, as before a removal.")] = "",
    by_bytes: Annotated[bool, typer.Option("--by-bytes", help="Spread bytes instead of numbers of replicas.")] = False,
    out: Annotated[Path | None, typer.Option("--out", help="Write the plan to this file, for `move --plan`.")] = None,
    rollback: Annotated[
        Path | None, typer.Option("--rollback", help="Write the present assignment to this file, to undo the moves.")
    ] = None,
    bootstrap_server: BootstrapOption = DEFAULT_BOOTSTRAP,
    command_config: CommandConfigOption = None,
    as_json: JsonOption = False,
) -> None:
    """Show how replicas and leaders could be spread evenly over brokers and racks. Changes nothing."""
    only, leave = parse_brokers(brokers, "--brokers"), parse_brokers(without, "--without")

    async def work(cluster: Cluster) -> tuple[View, dict[TopicPartition, Replicas]]:
        from odradek.cli.partition_moves import load_view

        view = await load_view(cluster, topic=topic, sizes=by_bytes)
        for broker in [*only, *leave]:
            if broker not in view.racks and not any(broker in held for held in view.assignment.values()):
                raise CliError(
                    f"the cluster has no broker {broker}; `odradek cluster brokers` shows them", code=NOT_FOUND
                )
        racks = {id_: rack for id_, rack in view.racks.items() if (not only or id_ in only) and id_ not in leave}
        try:
            return view, plan(racks, view.assignment, view.weights, view.resting, view.hosts)
        except PlanError as error:
            raise CliError(str(error)) from None

    view, changes = administer(target(bootstrap_server, command_config), work)
    if out is not None:
        out.write_text(json.dumps(to_json(changes), indent=1) + "\n", encoding="utf-8")
    if rollback is not None:
        there = {key: view.assignment[key] for key in changes}
        rollback.write_text(json.dumps(to_json(there), indent=1) + "\n", encoding="utf-8")
    if as_json:
        print_json(to_json(changes))
        return
    if not changes:
        typer.echo("Replicas and leaders are spread as evenly as they can be.")
        return
    print_changes(view.assignment, changes)
    typer.echo("")
    print_spread(view, {**view.assignment, **changes})
    if out is not None:
        say_on_stderr(f"Run it: odradek partitions move --plan {out}")


def print_changes(present: Assignment, changes: Assignment) -> None:
    """Print a line for each partition: old and new replicas, and the number of copies."""
    print_table(
        ("TOPIC", "PARTITION", "REPLICAS", "PLANNED", "COPIES"),
        [
            (topic, number, _ids(present[topic, number]), _ids(replicas), len({*replicas} - {*present[topic, number]}))
            for (topic, number), replicas in sorted(changes.items())
        ],
    )


def print_spread(view: View, planned: Assignment) -> None:
    """Print a line for each broker: its replicas and leaders, before and after."""
    rows = []
    for broker in sorted({*view.racks, *(each for held in view.assignment.values() for each in held)}):
        row: list[object] = [broker, view.racks.get(broker) or "-"]
        for assignment in (view.assignment, planned):
            row.append(sum(broker in replicas for replicas in assignment.values()))
            row.append(sum(broker == replicas[0] for replicas in assignment.values()))
        rows.append(row)
    print_table(("BROKER", "RACK", "REPLICAS", "LEADERS", "REPLICAS-PLANNED", "LEADERS-PLANNED"), rows)


def _ids(replicas: Sequence[int]) -> str:
    return ",".join(map(str, replicas)) or "-"


def _parse_move(text: str) -> tuple[TopicPartition, tuple[int, ...]]:
    """The value of `--to`: a partition and its brokers. Raises CliError."""
    where, equals, listed = text.partition("=")
    (key,) = parse_partitions([where])
    brokers = tuple(parse_brokers(listed, "--to")) if equals else ()
    if not brokers:
        raise CliError(f"--to {text}: write partition=brokers, as orders-0=1,2", code=USAGE)
    return key, brokers


async def _checked_view(cluster: Cluster, wanted: Assignment) -> View:
    """The present assignment, after a check of the plan. Raises CliError, ApiError."""
    from odradek.cli.partition_moves import check_plan, load_view

    view = await load_view(cluster)
    problems = await check_plan(cluster, view, wanted)
    if problems:
        listed = "".join(f"\n  {problem}" for problem in problems)
        raise CliError(f"nothing was moved, because the plan cannot be:{listed}")
    return view


@app.command("move")
def move(
    plan_file: PlanOption = None,
    to: Annotated[
        list[str] | None, typer.Option("--to", help="One partition's replicas, as orders-0=1,2; may be given often.")
    ] = None,
    throttle: Annotated[
        int | None, typer.Option("--throttle", help="The limit of copied bytes per second at each broker.", min=1)
    ] = None,
    wait: Annotated[bool, typer.Option("--wait", help="Show progress until all have moved.")] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only check, and show the moves.")] = False,
    yes: YesOption = False,
    bootstrap_server: BootstrapOption = DEFAULT_BOOTSTRAP,
    command_config: CommandConfigOption = None,
    as_json: JsonOption = False,
) -> None:
    """Change the replicas of partitions. The whole plan is checked before the first move."""
    wanted = _wanted(plan_file, to)
    if not wanted:
        _nothing_to_do(plan_file, to_json({}), as_json=as_json)
        return
    where_to = target(bootstrap_server, command_config)

    view = administer(where_to, lambda cluster: _checked_view(cluster, wanted))
    changes = {key: replicas for key, replicas in wanted.items() if replicas != view.assignment[key]}
    _show_moves(view, changes, as_json=as_json)
    if dry_run or not changes:
        return
    confirm(f"Move {len(changes)} partitions?", yes)
    _begin_moves(where_to, view, changes, throttle)
    count = f"{len(changes)} partition moves" if len(changes) == 1 else f"{len(changes)} partitions move"
    if wait:
        say_on_stderr(f"{count}.")
        _follow(where_to, changes)
    else:
        say_on_stderr(
            f"{count}; `odradek partitions status` shows how far it is. A leader that stays a replica leads on: "
            "once all have moved, `odradek partitions elect --all` lets the first replicas lead."
        )


def _wanted(plan_file: Path | None, to: list[str] | None) -> dict[TopicPartition, Replicas]:
    """The requested assignment, which may be empty. Raises CliError."""
    if plan_file is None and not to:
        raise CliError("name a --plan or partitions with --to", code=USAGE)
    planned = read_plan(plan_file) if plan_file is not None else {}
    return {**planned, **dict(map(_parse_move, to or ()))}


def _show_moves(view: View, changes: Assignment, *, as_json: bool) -> None:
    if as_json:
        print_json(to_json(changes))
    elif changes:
        print_changes(view.assignment, changes)
    else:
        typer.echo("Nothing to do: all of it is so already.")


def _begin_moves(where: Target, view: View, changes: Assignment, throttle: int | None) -> None:
    """Raises CliError with the partitions that the controller refuses to move."""

    async def begin(cluster: Cluster) -> dict[TopicPartition, ApiError | None]:
        from odradek.cli.partition_moves import throttle_moves
        from odradek.client.reassignment import move_replicas

        if throttle is not None:
            await throttle_moves(cluster, view, changes, throttle)
        return await move_replicas(cluster, changes)

    refused(administer(where, begin))


def _nothing_to_do(plan_file: Path | None, answer: Any, *, as_json: bool) -> None:
    """Report an empty plan as done."""
    if as_json:
        print_json(answer)
    else:
        typer.echo(f"Nothing to do: {plan_file} names no partition.")


def print_results(results: Mapping[TopicPartition, ApiError | None]) -> None:
    """Print an entry for each partition, with its error."""
    print_json(
        [
            {"topic": key[0], "partition": key[1], "error": error.code.name if error else None}
            for key, error in sorted(results.items(), key=lambda each: each[0])
        ]
    )


def refused(results: Mapping[TopicPartition, ApiError | None]) -> None:
    """Raises CliError with a line for each partition that was refused."""
    found = [f"\n  {key[0]}-{key[1]}: {error.code.name}: {error.message}" for key, error in results.items() if error]
    if found:
        raise CliError(f"{len(found)} of {len(results)} partitions were refused:{''.join(found)}")


def _follow(where: Target, wanted: Assignment) -> None:
    """Wait until all moves are done, and first replicas lead where they can."""
    from odradek.client.reassignment import PREFERRED, elect_leaders, is_needless

    async def work(cluster: Cluster) -> dict[TopicPartition, ApiError | None]:
        import asyncio

        from odradek.cli.partition_moves import end_throttle, progress

        while True:
            rows = await progress(cluster, wanted)
            left = [row for row in rows if row["state"] == "moving"]
            if not left:
                break
            copied, total = (sum(row[key] for row in left) for key in ("copied_bytes", "total_bytes"))
            say_on_stderr(
                f"{len(wanted) - len(left)} of {len(wanted)} moved; {copied:,} of {total:,} bytes of the others copied"
            )
            await asyncio.sleep(1)
        await end_throttle(cluster, wanted)
        return await elect_leaders(cluster, PREFERRED, wanted.keys())

    results = administer(where, work)
    say_on_stderr("All have moved.")
    led = [key for key, error in results.items() if not error]
    late = [key for key, error in results.items() if error and not is_needless(error)]
    if led:
        say_on_stderr(f"The first replica leads now: {_names(led)}.")
    if late:
        say_on_stderr(
            f"Not led by the first replica: {_names(late)}. "
            "`odradek partitions elect --all` changes that once it is in sync."
        )


def _names(keys: Sequence[TopicPartition]) -> str:
    """`orders 0-3, 5; payments 2`."""
    numbers: dict[str, list[int]] = {}
    for topic, number in sorted(keys):
        numbers.setdefault(topic, []).append(number)
    return "; ".join(f"{topic} {ranges_text(found)}" for topic, found in numbers.items())


@app.command("status")
def status(
    plan_file: PlanOption = None,
    partition: PartitionOption = None,
    bootstrap_server: BootstrapOption = DEFAULT_BOOTSTRAP,
    command_config: CommandConfigOption = None,
    as_json: JsonOption = False,
) -> None:
    """Show ongoing moves, or those of a plan, and their progress; removes the throttle once a plan is done."""
    named = parse_partitions(partition)
    wanted = read_plan(plan_file) if plan_file is not None else None
    if wanted == {} and not named:
        _nothing_to_do(plan_file, [], as_json=as_json)
        return

    async def work(cluster: Cluster) -> list[dict[str, Any]]:
        from odradek.cli.partition_moves import end_throttle, progress
        from odradek.client.reassignment import ongoing_reassignments

        asked: dict[TopicPartition, Replicas | None] = {**(wanted or {}), **dict.fromkeys(named)}
        if wanted is None and not named:
            asked = dict.fromkeys(await ongoing_reassignments(cluster))
        rows = await progress(cluster, asked)
        if wanted is not None and all(row["state"] == "done" for row in rows):
            await end_throttle(cluster, wanted)
        return rows

    rows = administer(target(bootstrap_server, command_config), work)
    if as_json:
        print_json(rows)
    elif not rows:
        typer.echo("Nothing moves.")
    else:
        headings = ("topic", "partition", "state", "leader", "replicas", "adding", "removing", "isr")
        print_table(
            [*(heading.upper() for heading in headings), "COPIED"],
            [[*(_cell(row[heading]) for heading in headings), _share(row)] for row in rows],
        )
        _print_leaders(rows)


@app.command("lagging")
def lagging(
    bootstrap_server: BootstrapOption = DEFAULT_BOOTSTRAP,
    command_config: CommandConfigOption = None,
    as_json: JsonOption = False,
) -> None:
    """Show which replicas are not in sync, and why: fenced, silent, slow or stuck. Takes a second or two."""

    async def work(cluster: Cluster) -> list[dict[str, Any]]:
        from odradek.admin.lagging import lagging_replicas

        return await lagging_replicas(cluster)

    rows = administer(target(bootstrap_server, command_config), work)
    if as_json:
        print_json(rows)
    elif not rows:
        typer.echo("All replicas are in sync.")
    else:
        headings = ("topic", "partition", "leader", "broker", "why", "missing_bytes", "bytes_per_second")
        print_table(
            [heading.upper().replace("_", " ") for heading in headings],
            [["-" if row[heading] is None else row[heading] for heading in headings] for row in rows],
        )
        say_on_stderr(
            "Since when, and how often before: the leader's log, and its metric odradek_follower_out_of_sync_seconds."
        )


def _print_leaders(rows: Sequence[Mapping[str, Any]]) -> None:
    from odradek.cli.partition_moves import not_led_by_first

    others = not_led_by_first(rows)
    if others:
        say_on_stderr(
            f"Moved, and not led by the first replica: {_names(others)}. "
            "`odradek partitions elect --all` lets the first replicas lead."
        )


def _cell(value: Any) -> Any:
    return _ids(value) if isinstance(value, list) else value


def _share(row: Mapping[str, Any]) -> str:
    return f"{100 * row['copied_bytes'] // row['total_bytes']}%" if row["total_bytes"] else "-"


@app.command("cancel")
def cancel(
    plan_file: PlanOption = None,
    partition: PartitionOption = None,
    everything: Annotated[bool, typer.Option("--all", help="All that moves.")] = False,
    bootstrap_server: BootstrapOption = DEFAULT_BOOTSTRAP,
    command_config: CommandConfigOption = None,
    as_json: JsonOption = False,
) -> None:
    """Cancel moves: partitions keep their old replicas."""
    named = [*parse_partitions(partition), *(read_plan(plan_file) if plan_file is not None else ())]
    if (bool(named) or plan_file is not None) == everything:
        raise CliError("name a --plan, a --partition, or --all", code=USAGE)

    async def work(cluster: Cluster) -> dict[TopicPartition, ApiError | None]:
        from odradek.cli.partition_moves import end_throttle
        from odradek.client.reassignment import move_replicas, ongoing_reassignments

        asked = dict.fromkeys(await ongoing_reassignments(cluster) if everything else named)
        results = await move_replicas(cluster, asked) if asked else {}
        await end_throttle(cluster, asked)
        return results

    results = administer(target(bootstrap_server, command_config), work)
    if as_json:
        print_results(results)
    refused(results)
    if not as_json:
        typer.echo(f"{len(results)} moves were called off." if results else "Nothing moves.")


@app.command("elect")
def elect(
    partition: PartitionOption = None,
    everything: Annotated[bool, typer.Option("--all", help="All partitions.")] = False,
    unclean: Annotated[
        bool, typer.Option("--unclean", help="Elect a live replica where none is in sync: records may be lost.")
    ] = False,
    yes: YesOption = False,
    bootstrap_server: BootstrapOption = DEFAULT_BOOTSTRAP,
    command_config: CommandConfigOption = None,
    as_json: JsonOption = False,
) -> None:
    """Elect preferred leaders, or leaders of partitions without one."""
    from odradek.client.reassignment import PREFERRED, UNCLEAN, elect_leaders, is_needless

    named = parse_partitions(partition)
    if bool(named) == everything:
        raise CliError("name a --partition, or --all", code=USAGE)
    if unclean:
        confirm("Records may be lost. Elect all the same?", yes)

    async def work(cluster: Cluster) -> dict[TopicPartition, ApiError | None]:
        return await elect_leaders(cluster, UNCLEAN if unclean else PREFERRED, None if everything else named)

    results = administer(target(bootstrap_server, command_config), work)
    if as_json:
        print_results(results)
    else:
        _print_elected(sorted(key for key, error in results.items() if not error))
    refused({key: error for key, error in results.items() if not (error and is_needless(error))})


def _print_elected(keys: Sequence[TopicPartition]) -> None:
    for topic, number in keys:
        typer.echo(f"{topic}-{number} has a new leader.")
    if not keys:
        typer.echo("No leader has changed.")
