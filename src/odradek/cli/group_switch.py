"""`odradek groups switch`: transfer an output from one query to its standby.

The queries get their roles by the options `gate` and `groupId` of the Spark connector; a gate is the name of an output
lease (`odradek.client.output_lease`).
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Annotated, Any

import typer

from odradek.cli.completion import group_names
from odradek.cli.connect import DEFAULT_BOOTSTRAP, BootstrapOption, CommandConfigOption, administer, target
from odradek.cli.errors import NOT_FOUND, USAGE, CliError
from odradek.cli.output import JsonOption, print_json, say_on_stderr

if TYPE_CHECKING:
    from odradek.client.cluster import Cluster
    from odradek.client.output_lease.lease import OutputLease
    from odradek.client.output_lease.transfer import CatchUp

LOOK_EVERY_S = 0.05
REPORT_EVERY_S = 5.0
TAKES_OVER_WITHIN_S = 10.0

FromArgument = Annotated[str, typer.Argument(help="The group that writes.", autocompletion=group_names)]
ToArgument = Annotated[str, typer.Argument(help="The group that stands by.", autocompletion=group_names)]


def switch(
    from_group: FromArgument,
    to_group: ToArgument,
    gate: Annotated[
        str | None,
        typer.Option("--gate", help="The output lease, where the group holds several: the option gate of the queries."),
    ] = None,
    within: Annotated[
        float, typer.Option("--within", help="The largest lag of a standby that has caught up, in seconds.", min=0)
    ] = 1.0,
    timeout: Annotated[float, typer.Option("--timeout", help="Seconds to wait for that.", min=0)] = 60.0,
    force: Annotated[
        bool, typer.Option("--force", help="Do not wait: the output stops until the other has caught up.")
    ] = False,
    bootstrap_server: BootstrapOption = DEFAULT_BOOTSTRAP,
    command_config: CommandConfigOption = None,
    as_json: JsonOption = False,
) -> None:
    """Transfer an output from one query to a standby once that has caught up; nothing is written twice."""
    if from_group == to_group:
        raise CliError("the two groups are the same; name the one that writes, and the one that stands by", code=USAGE)

    async def work(cluster: Cluster) -> dict[str, Any]:
        from odradek.client.output_lease import transfer as leases

        began = time.monotonic()
        name, found = await _find(cluster, gate, from_group, to_group)
        said = {"gate": name, "from": from_group, "to": to_group}
        if found.group == to_group:
            return {**said, "turn": found.epoch, "switched": False}
        await _caught_up(cluster, name, to_group, within, timeout, force=force)
        waited_s = time.monotonic() - began
        try:
            transferred = await leases.transfer(cluster, name, from_group, to_group)
        except leases.LeaseHolderError as error:
            raise CliError(f"{error}; nothing was changed") from None
        transfer_s = time.monotonic() - began - waited_s
        writes = await _writes(cluster, name, to_group, began + waited_s + transfer_s)
        return {
            **said,
            "turn": transferred.epoch,
            "switched": True,
            "waited_s": round(waited_s, 3),
            "turned_s": round(transfer_s, 3),
            "took_over_s": writes,
        }

    done = administer(target(bootstrap_server, command_config), work)
    if as_json:
        print_json(done)
        return
    if not done["switched"]:
        typer.echo(f"Group {to_group} writes through gate {done['gate']} already.")
        return
    typer.echo(f"Gate {done['gate']}: from {from_group} to {to_group}; switched in {done['turned_s']:.3f} s.")
    if done["took_over_s"] is None:
        say_on_stderr(f"group {to_group} has not said yet that it writes; see that it runs: odradek groups describe")
    else:
        typer.echo(f"Group {to_group} writes since {done['took_over_s']:.3f} s after that.")


async def _find(cluster: Cluster, name: str | None, from_group: str, to_group: str) -> tuple[str, OutputLease]:
    """The gate of the option, or the only one that one of the two groups writes through."""
    from odradek.client.output_lease import transfer as leases

    if name is not None:
        return name, await _named(cluster, name, from_group, to_group)
    all_leases = await leases.list_leases(cluster)
    for group in (from_group, to_group):
        held = [(each, lease) for each, lease in sorted(all_leases.items()) if lease.group == group]
        if len(held) > 1:
            names = ", ".join(each for each, _ in held)
            raise CliError(f"group {group} writes through several gates: {names}; choose one with --gate", code=USAGE)
        if held:
            return held[0]
    there = ", ".join(f"{each} (group {lease.group})" for each, lease in sorted(all_leases.items())) or "none"
    raise CliError(f"group {from_group} writes through no gate; there is: {there}", code=NOT_FOUND)


async def _named(cluster: Cluster, name: str, from_group: str, to_group: str) -> OutputLease:
    from odradek.client.output_lease import transfer as leases

    found = await leases.read_lease(cluster, name)
    if found is None:
        raise CliError(f"there is no gate {name}; the query that writes makes it at its start", code=NOT_FOUND)
    if found.group not in (from_group, to_group):
        raise CliError(f"group {found.group} writes through gate {name}, and not {from_group}")
    return found


async def _caught_up(
    cluster: Cluster, name: str, group: str, within_s: float, timeout_s: float, *, force: bool
) -> None:
    """Wait until the group is a live standby that has caught up. Raises CliError; nothing has changed then."""
    import asyncio

    from odradek.client.output_lease.transfer import CatchUp

    catch_up = CatchUp(within_s)
    deadline = time.monotonic() + timeout_s
    reported = time.monotonic()
    while True:
        why = await _why_not(cluster, name, group, catch_up, force=force)
        if why is None:
            return
        if time.monotonic() > deadline:
            raise CliError(f"{why}; nothing was changed after {timeout_s:g} s (--timeout, --force)")
        if time.monotonic() - reported > REPORT_EVERY_S:
            say_on_stderr(why)
            reported = time.monotonic()
        await asyncio.sleep(LOOK_EVERY_S)


async def _why_not(cluster: Cluster, name: str, group: str, catch_up: CatchUp, *, force: bool) -> str | None:
    """The reason not to transfer the output now; None if there is none."""
    from odradek.client.output_lease import transfer as leases
    from odradek.client.output_lease.lease import first_ahead, lag

    progress = await leases.read_progress(cluster, name, group)
    found = await leases.read_lease(cluster, name)
    covered = found.covered if found is not None else {}
    if progress is not None and first_ahead(progress.position, covered):
        return f"group {group} has read further than the output goes, and cannot go on from there yet"
    if force:
        return None
    if catch_up.has_caught_up(time.monotonic(), covered, progress):
        return None if await _is_alive(cluster, group) else f"group {group} has no member: its query does not run"
    if progress is None:
        return f"group {group} has never stood by at gate {name}: its query needs the options gate and groupId"
    if not progress.is_standby:
        return f"group {group} wrote before, and has not stood by since: start its query"
    return f"group {group} is {lag(progress.position, covered):,} records behind"


async def _is_alive(cluster: Cluster, group: str) -> bool:
    from odradek.client.groups import describe_group
    from odradek.common.errors import ApiError, ErrorCode

    try:
        return bool((await describe_group(cluster, group)).members)
    except ApiError as error:
        if error.code is ErrorCode.GROUP_ID_NOT_FOUND:
            return False
        raise


async def _writes(cluster: Cluster, name: str, group: str, since_s: float) -> float | None:
    """Seconds until the group reported that it writes; None if it did not in time."""
    import asyncio

    from odradek.client.output_lease import transfer as leases

    while time.monotonic() < since_s + TAKES_OVER_WITHIN_S:
        progress = await leases.read_progress(cluster, name, group)
        if progress is not None and not progress.is_standby:
            return round(time.monotonic() - since_s, 3)
        await asyncio.sleep(LOOK_EVERY_S)
    return None
