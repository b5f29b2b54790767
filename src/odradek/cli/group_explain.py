"""`odradek groups explain`: the recent events of a group, their reasons, and advice.

The coordinator sends its timeline in a field of DescribeGroups that only we ask for (docs/adr/0007-group-timelines.md).
The advice follows from the events alone, so it can be no better than they are: each piece names the events it uses.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated, Any

import typer

from odradek.admin.group_advice import advice, details, seconds_text
from odradek.cli.completion import group_names
from odradek.cli.connect import DEFAULT_BOOTSTRAP, BootstrapOption, CommandConfigOption, administer, target
from odradek.cli.errors import CliError
from odradek.cli.output import JsonOption, print_json, print_table, say_on_stderr

if TYPE_CHECKING:
    from odradek.client.cluster import Cluster

GroupArgument = Annotated[str, typer.Argument(help="The group's name.", autocompletion=group_names)]


def explain(
    group: GroupArgument,
    bootstrap_server: BootstrapOption = DEFAULT_BOOTSTRAP,
    command_config: CommandConfigOption = None,
    as_json: JsonOption = False,
) -> None:
    """Show a group's recent events (joins, leaves, timeouts, fencing, partitions without owner) and advice."""

    async def work(cluster: Cluster) -> tuple[dict[str, Any] | None, str]:
        from odradek.client import groups
        from odradek.common.errors import ApiError, ErrorCode

        timeline = await groups.group_timeline(cluster, group)
        try:
            described = await groups.describe_group(cluster, group)
        except ApiError as error:
            if error.code is not ErrorCode.GROUP_ID_NOT_FOUND or not (timeline and timeline["events"]):
                raise
            return timeline, "it does not exist any more"
        count = len(described.members)
        return timeline, f"{described.kind}, {described.state}, {count} member{'' if count == 1 else 's'}"

    timeline, state = administer(target(bootstrap_server, command_config), work)
    if timeline is None:
        raise CliError("the group's coordinator keeps no timeline: it is not a broker of Odradek")
    found = {"state": state, **timeline, "advice": advice(timeline["events"])}
    if as_json:
        print_json(found)
    else:
        _print(found)


def _print(found: dict[str, Any]) -> None:
    say_on_stderr(f"group {found['group']}: {found['state']}")
    if found.get("since_ms"):
        say_on_stderr(f"its coordinator knows what happened since {_time(found['since_ms'])}")
    if found.get("dropped_events"):
        say_on_stderr(f"{found['dropped_events']} older events are forgotten")
    headings = ["TIME", "EVENT", "GENERATION", "MEMBER", "CLIENT-ID", "HOST", "WHY"]
    print_table(headings, [_row(event) for event in found["events"]])
    if found.get("unowned_partitions"):
        longest = seconds_text(found["unowned_longest_ms"])
        say_on_stderr(f"{found['unowned_partitions']} partitions have no owner now, the longest for {longest}")
    for line in found["advice"]:
        say_on_stderr(f"- {line}")
    if not found["advice"]:
        say_on_stderr("nothing here asks for a change")


def _row(event: dict[str, Any]) -> list[Any]:
    return [
        _time(event["at_ms"]),
        event["kind"],
        None if event["generation"] < 0 else event["generation"],
        event["instance_id"] or event["member_id"] or None,
        event["client_id"] or None,
        event["client_host"] or None,
        details(event) or None,
    ]


def _time(at_ms: int) -> str:
    return datetime.fromtimestamp(at_ms / 1000, UTC).strftime("%Y-%m-%dT%H:%M:%S.%f")[:-3] + "Z"
