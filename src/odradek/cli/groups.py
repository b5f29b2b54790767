"""`odradek groups`: list, describe, delete and reset groups of consumers, and switch between two."""

from __future__ import annotations

import sys
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from odradek.cli.completion import group_names, topic_names
from odradek.cli.connect import DEFAULT_BOOTSTRAP, BootstrapOption, CommandConfigOption, administer, target
from odradek.cli.errors import FAILED, USAGE, CliError, exit_code, report
from odradek.cli.group_explain import explain
from odradek.cli.group_switch import switch
from odradek.cli.offsets import export_plan, parse_topic, refused, requested_position
from odradek.cli.output import JsonOption, print_json, print_table, say, say_on_stderr
from odradek.common.numbers import INT64_MAX

if TYPE_CHECKING:
    from odradek.admin.offset_reset import ResetPlan
    from odradek.client.cluster import Cluster
    from odradek.client.groups import GroupDescription, GroupMember
    from odradek.common.errors import ApiError
    from odradek.common.topic_names import TopicPartition

app = typer.Typer(
    add_completion=False, no_args_is_help=True, help="List, describe, explain, switch, delete and reset groups."
)
offsets_app = typer.Typer(add_completion=False, no_args_is_help=True, help="Committed offsets of groups.")
app.add_typer(offsets_app, name="offsets")
app.command("explain")(explain)
app.command("switch")(switch)

STATES = ("PreparingRebalance", "CompletingRebalance", "Assigning", "Reconciling", "Stable", "Empty", "Dead")
TYPES = ("classic", "consumer", "share", "streams")

GroupOption = Annotated[
    list[str], typer.Option("--group", help="The group's name; may be given often.", autocompletion=group_names)
]
GroupsOption = Annotated[
    list[str] | None, typer.Option("--group", help="The group's name; may be given often.", autocompletion=group_names)
]
AllGroupsOption = Annotated[bool, typer.Option("--all-groups", help="Every group.")]
TopicsOption = Annotated[
    list[str] | None,
    typer.Option(
        "--topic",
        help="A topic, or topic:0,2 for some of its partitions. May be given often.",
        autocompletion=topic_names,
    ),
]


@app.command("list")
def list_groups(
    state: Annotated[list[str] | None, typer.Option("--state", help="Only groups in this state, as Empty.")] = None,
    type_: Annotated[list[str] | None, typer.Option("--type", help="Only groups of this type, as classic.")] = None,
    bootstrap_server: BootstrapOption = DEFAULT_BOOTSTRAP,
    command_config: CommandConfigOption = None,
    as_json: JsonOption = False,
) -> None:
    """Show the groups of all brokers."""

    async def work(cluster: Cluster) -> list[dict[str, Any]]:
        from odradek.client import groups

        return [
            {
                "group": group.group_id,
                "type": group.group_type.lower() or "classic",
                "protocol": group.protocol_type,
                "state": group.group_state,
            }
            for group in await groups.list_groups(cluster)
        ]

    states, types = _named("--state", state, STATES), _named("--type", type_, TYPES)
    found = administer(target(bootstrap_server, command_config), work)
    found = [
        each
        for each in found
        if (not states or each["state"].lower() in states) and (not types or each["type"].lower() in types)
    ]
    if as_json:
        print_json(found)
    else:
        print_table(["GROUP", "TYPE", "PROTOCOL", "STATE"], [list(each.values()) for each in found])


@app.command("describe")
def describe(
    group: GroupsOption = None,
    all_groups: AllGroupsOption = False,
    members: Annotated[bool, typer.Option("--members", help="Show the members instead of the offsets.")] = False,
    state: Annotated[bool, typer.Option("--state", help="Show the state of the group instead of the offsets.")] = False,
    rate_over: Annotated[
        float,
        typer.Option("--rate-over", help="The interval (s) of two samples for the rates; 0: none.", min=0, max=3600),
    ] = 1.0,
    bootstrap_server: BootstrapOption = DEFAULT_BOOTSTRAP,
    command_config: CommandConfigOption = None,
    as_json: JsonOption = False,
) -> None:
    """Show committed offsets, lag, rates, and the members that read each partition."""
    from odradek.common.errors import ApiError

    if members and state:
        raise CliError("--members and --state exclude each other; choose one", code=USAGE)
    refused: list[ApiError] = []

    async def work(cluster: Cluster) -> list[dict[str, Any]]:
        names = await _group_names(cluster, group, all_groups)
        with_offsets = not (members or state) or as_json
        described: list[dict[str, Any]] = []
        for name in names:
            try:
                described.append(await _described(cluster, name, with_offsets=with_offsets))
            except ApiError as error:
                refused.append(error)
        if with_offsets and rate_over and described:
            await _add_rates(cluster, described, rate_over)
        return described

    found = administer(target(bootstrap_server, command_config), work)
    if as_json:
        print_json(found)
    else:
        for index, each in enumerate(found):
            if index:
                typer.echo("")
            _print_group(each, members=members, state=state)
    _end_refused(refused)


@app.command("delete")
def delete(
    group: GroupsOption = None,
    all_groups: AllGroupsOption = False,
    bootstrap_server: BootstrapOption = DEFAULT_BOOTSTRAP,
    command_config: CommandConfigOption = None,
    as_json: JsonOption = False,
) -> None:
    """Delete groups without members, including their committed offsets."""

    from odradek.common.errors import ApiError

    refused: list[ApiError] = []

    async def work(cluster: Cluster) -> list[str]:
        from odradek.client.groups import delete_group

        deleted = []
        for name in await _group_names(cluster, group, all_groups):
            try:
                await delete_group(cluster, name)
            except ApiError as error:
                refused.append(error)
            else:
                deleted.append(name)
        return deleted

    names = administer(target(bootstrap_server, command_config), work)
    if as_json:
        print_json({"deleted": names})
    else:
        for name in names:
            say(f"Deleted group {name}.")
    _end_refused(refused)


@app.command("reset")
def reset_offsets(
    group: GroupOption,
    topic: TopicsOption = None,
    all_topics: Annotated[bool, typer.Option("--all-topics", help="Every topic the group has committed for.")] = False,
    to_earliest: Annotated[bool, typer.Option("--to-earliest", help="To the first record there is.")] = False,
    to_latest: Annotated[bool, typer.Option("--to-latest", help="Behind the last record.")] = False,
    to_current: Annotated[bool, typer.Option("--to-current", help="To the present committed offsets.")] = False,
    to_offset: Annotated[int | None, typer.Option("--to-offset", help="To this offset.", min=0, max=INT64_MAX)] = None,
    to_datetime: Annotated[
        str | None,
        typer.Option("--to-datetime", help="To the first record at or after 2026-01-31T12:00:00.000 (UTC or +hh:mm)."),
    ] = None,
    by_duration: Annotated[
        str | None, typer.Option("--by-duration", help="To the first record of the last P1DT2H30M, or so.")
    ] = None,
    shift_by: Annotated[
        int | None,
        typer.Option("--shift-by", help="By this number of records, back if negative.", min=-INT64_MAX, max=INT64_MAX),
    ] = None,
    from_file: Annotated[
        Path | None, typer.Option("--from-file", help="As --export wrote: topic,partition,offset.")
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only show the plan; this is the default.")] = False,
    execute: Annotated[bool, typer.Option("--execute", help="Do it.")] = False,
    export: Annotated[bool, typer.Option("--export", help="Print CSV for --from-file, and do nothing.")] = False,
    bootstrap_server: BootstrapOption = DEFAULT_BOOTSTRAP,
    command_config: CommandConfigOption = None,
    as_json: JsonOption = False,
) -> None:
    """Reset the committed offsets of groups without members; without --execute only show the plan."""
    if execute + dry_run + export > 1:
        raise CliError("--dry-run, --execute and --export exclude each other; choose one", code=USAGE)
    position = requested_position(
        earliest=to_earliest,
        latest=to_latest,
        current=to_current,
        offset=to_offset,
        datetime_text=to_datetime,
        duration=by_duration,
        shift=shift_by,
        file=from_file,
    )
    if from_file is not None and (topic or all_topics):
        raise CliError("--from-file names the topics; leave --topic and --all-topics out", code=USAGE)
    if from_file is None and bool(topic) == all_topics:
        raise CliError("say which topics: --topic NAME, or --all-topics", code=USAGE)
    chosen = [parse_topic(item) for item in topic or []]

    async def work(cluster: Cluster) -> list[ResetPlan]:
        from odradek.admin.offset_reset import ResetError, apply_reset, check_idle, plan_reset

        try:
            plans = [await plan_reset(cluster, name, chosen, position) for name in group]
            for plan in plans:
                await check_idle(cluster, plan.group)
        except ResetError as error:
            raise refused(error) from None
        for plan in plans if execute else ():
            await apply_reset(cluster, plan)
        return plans

    plans = administer(target(bootstrap_server, command_config), work)
    _show_plans(plans, execute=execute, export=export, as_json=as_json)


@offsets_app.command("delete")
def delete_offsets(
    group: Annotated[str, typer.Option("--group", help="The group's name.", autocompletion=group_names)],
    topic: Annotated[
        list[str],
        typer.Option(
            "--topic", help="A topic, or topic:0,2 for some partitions. May be given often.", autocompletion=topic_names
        ),
    ],
    bootstrap_server: BootstrapOption = DEFAULT_BOOTSTRAP,
    command_config: CommandConfigOption = None,
    as_json: JsonOption = False,
) -> None:
    """Delete a group's committed offsets of topics that no member reads."""
    chosen = [parse_topic(item) for item in topic]
    nothing: list[str] = []

    async def work(cluster: Cluster) -> dict[TopicPartition, int]:
        from odradek.client import groups

        await groups.describe_group(cluster, group)
        committed = await groups.committed_offsets(cluster, group)
        partitions = [
            key for key in sorted(committed) for name, some in chosen if key[0] == name and (not some or key[1] in some)
        ]
        if not partitions:
            raise CliError(f"group {group} has committed nothing there; `odradek groups describe` shows what it has")
        nothing.extend(_not_committed(chosen, committed))
        return await groups.delete_offsets(cluster, group, dict.fromkeys(partitions))

    from odradek.common.errors import ErrorCode

    results = administer(target(bootstrap_server, command_config), work)
    rows = [
        [name, index, "deleted" if code == 0 else ErrorCode(code).name]
        for (name, index), code in sorted(results.items())
    ]
    if as_json:
        print_json([dict(zip(("topic", "partition", "result"), row, strict=True)) for row in rows])
    else:
        print_table(["TOPIC", "PARTITION", "RESULT"], rows)
    for what in nothing:
        say_on_stderr(f"odradek: {group}: nothing was committed for {what}")
    if nothing or any(code for code in results.values()):
        raise typer.Exit(FAILED)


def _not_committed(chosen: Sequence[tuple[str, Sequence[int]]], committed: Collection[TopicPartition]) -> list[str]:
    """The requested topics and partitions without a committed offset: whole topics first."""
    topics = {name for name, _ in committed}
    return [
        *(name for name, some in chosen if not some and name not in topics),
        *(f"{name}-{one}" for name, some in chosen for one in some if (name, one) not in committed),
    ]


def _end_refused(refused: list[ApiError]) -> None:
    """Raise an error with a line for each group that failed, after the others were done."""
    for error in refused:
        report(error, sys.stderr)
    if refused:
        raise typer.Exit(exit_code(refused[0]))


def _show_plans(plans: list[ResetPlan], *, execute: bool, export: bool, as_json: bool) -> None:
    for plan in plans:
        for warning in plan.warnings:
            say_on_stderr(f"odradek: {plan.group}: {warning}")
    if export:
        typer.echo(export_plan(plans), nl=False)
        return
    rows = [
        [plan.group, name, index, before, new]
        for plan in plans
        for (name, index), (before, new) in sorted(plan.offsets.items())
    ]
    if as_json:
        keys = ("group", "topic", "partition", "current_offset", "new_offset")
        print_json({"executed": execute, "offsets": [dict(zip(keys, row, strict=True)) for row in rows]})
        return
    print_table(["GROUP", "TOPIC", "PARTITION", "CURRENT-OFFSET", "NEW-OFFSET"], rows)
    if not execute:
        say_on_stderr("nothing was changed; pass --execute to do it")


def _named(option: str, items: list[str] | None, known: Sequence[str]) -> set[str]:
    """The values of a repeatable option in lower case, also separated by commas. Raises CliError for an unknown one."""
    names = {part.strip() for item in items or [] for part in item.split(",") if part.strip()}
    lowered = {name.lower() for name in known}
    for name in sorted(names):
        if name.lower() not in lowered:
            raise CliError(f"{option} {name}: must be one of {', '.join(known)}", code=USAGE)
    return {name.lower() for name in names}


async def _group_names(cluster: Cluster, group: list[str] | None, all_groups: bool) -> list[str]:
    from odradek.client.groups import list_groups

    if bool(group) == all_groups:
        raise CliError("say which groups: --group NAME, or --all-groups", code=USAGE)
    return group or [each.group_id for each in await list_groups(cluster)]


async def _described(cluster: Cluster, name: str, *, with_offsets: bool) -> dict[str, Any]:
    from odradek.client import groups

    group = await groups.describe_group(cluster, name)
    found: dict[str, Any] = {
        "group": name,
        "type": group.kind,
        "protocol": group.protocol_type,
        "state": group.state,
        "assignor": group.assignor,
        "coordinator": group.coordinator_id,
        "members": [
            {
                "member_id": member.member_id,
                "instance_id": member.instance_id,
                "client_id": member.client_id,
                "host": member.client_host,
                "assignment": [{"topic": topic, "partition": index} for topic, index in sorted(member.assignment)],
            }
            for member in group.members
        ],
    }
    if with_offsets:
        found["offsets"] = await _offsets(cluster, group)
    return found


async def _offsets(cluster: Cluster, group: GroupDescription) -> list[dict[str, Any]]:
    import asyncio

    from odradek.client import groups
    from odradek.common.errors import ApiError

    committed = await groups.committed_offsets(cluster, group.group_id)
    readers = {key: member for member in group.members for key in member.assignment}

    async def end_of(key: TopicPartition) -> int | None:
        try:
            return (await groups.list_offsets(cluster, {key: groups.LATEST}))[key]
        except ApiError:
            return None  # deleted, or without a leader: what is committed is still worth showing

    keys = sorted(committed.keys() | readers.keys())
    try:
        ends: dict[TopicPartition, int | None] = dict(
            await groups.list_offsets(cluster, dict.fromkeys(keys, groups.LATEST))
        )
    except ApiError:
        ends = dict(zip(keys, await asyncio.gather(*map(end_of, keys)), strict=True))
    offsets = {key: each.offset for key, each in committed.items()}
    return [_offset_row(key, offsets.get(key), ends.get(key), readers.get(key)) for key in keys]


def _offset_row(key: TopicPartition, offset: int | None, end: int | None, reader: GroupMember | None) -> dict[str, Any]:
    return {
        "topic": key[0],
        "partition": key[1],
        "current_offset": offset,
        "log_end_offset": end,
        "lag": None if offset is None or end is None else max(0, end - offset),
        "member_id": reader.member_id if reader else None,
        "host": reader.client_host if reader else None,
        "client_id": reader.client_id if reader else None,
    }


async def _add_rates(cluster: Cluster, described: list[dict[str, Any]], interval_s: float) -> None:
    """Sample again, and add the rates of commits and writes, in records per second; None if unknown."""
    import asyncio
    import time

    from odradek.client import groups

    began = time.monotonic()
    await asyncio.sleep(interval_s)
    for group in described:
        again = {
            (row["topic"], row["partition"]): row
            for row in await _offsets(cluster, await groups.describe_group(cluster, group["group"]))
        }
        passed_s = time.monotonic() - began
        for row in group["offsets"]:
            later = again.get((row["topic"], row["partition"]), {})
            for rate, key in (("read_per_s", "current_offset"), ("written_per_s", "log_end_offset")):
                before, after = row[key], later.get(key)
                row[rate] = None if before is None or after is None else round((after - before) / passed_s, 1)


def _print_group(group: dict[str, Any], *, members: bool, state: bool) -> None:
    if state:
        print_table(
            ["GROUP", "COORDINATOR", "TYPE", "ASSIGNOR", "STATE", "MEMBERS"],
            [
                [
                    group["group"],
                    group["coordinator"],
                    group["type"],
                    group["assignor"] or None,
                    group["state"],
                    len(group["members"]),
                ]
            ],
        )
        return
    if not group["members"]:
        say_on_stderr(f"group {group['group']} has no active members ({group['state']})")
    if members:
        print_table(
            ["GROUP", "CONSUMER-ID", "HOST", "CLIENT-ID", "PARTITIONS", "ASSIGNMENT"],
            [
                [
                    group["group"],
                    each["member_id"],
                    each["host"],
                    each["client_id"],
                    len(each["assignment"]),
                    ",".join(f"{one['topic']}-{one['partition']}" for one in each["assignment"]) or None,
                ]
                for each in group["members"]
            ],
        )
        return
    headings = ["GROUP", "TOPIC", "PARTITION", "CURRENT-OFFSET", "LOG-END-OFFSET", "LAG", "READ/S", "WRITTEN/S"]
    print_table(
        [*headings, "CONSUMER-ID", "HOST", "CLIENT-ID"],
        [[group["group"], *(each.get(key) for key in _COLUMNS)] for each in group["offsets"]],
    )


_COLUMNS = (
    "topic",
    "partition",
    "current_offset",
    "log_end_offset",
    "lag",
    "read_per_s",
    "written_per_s",
    "member_id",
    "host",
    "client_id",
)
