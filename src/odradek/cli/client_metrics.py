"""`odradek client-metrics`: subscriptions for metrics that clients push (KIP-714)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from odradek.cli.connect import (
    DEFAULT_BOOTSTRAP,
    BootstrapOption,
    CommandConfigOption,
    administer,
    parse_assignments,
    target,
)
from odradek.cli.errors import NOT_FOUND, USAGE, CliError
from odradek.cli.output import JsonOption, print_json, print_table, say

if TYPE_CHECKING:
    from odradek.client.cluster import Cluster

app = typer.Typer(add_completion=False, no_args_is_help=True, help="Manage the metrics that clients push.")

KEYS = ("metrics", "interval.ms", "match")
NameArgument = Annotated[str, typer.Argument(help="Of the subscription.")]


@app.command("list")
def list_subscriptions(
    bootstrap_server: BootstrapOption = DEFAULT_BOOTSTRAP,
    command_config: CommandConfigOption = None,
    as_json: JsonOption = False,
) -> None:
    """Show all subscriptions."""

    async def work(cluster: Cluster) -> dict[str, dict[str, str]]:
        from odradek.client.admin import ResourceType, describe_configs, list_config_resources

        names = await list_config_resources(cluster, ResourceType.CLIENT_METRICS)
        found = await describe_configs(cluster, ResourceType.CLIENT_METRICS, sorted(names))
        return {each.resource_name: {entry.name: entry.value or "" for entry in each.configs} for each in found}

    found = administer(target(bootstrap_server, command_config), work)
    if as_json:
        print_json([{"name": name, **settings} for name, settings in found.items()])
        return
    rows = [[name, *(settings.get(key, "") or "-" for key in KEYS)] for name, settings in found.items()]
    print_table(["NAME", "METRICS", "INTERVAL-MS", "MATCH"], rows)


@app.command("set")
def set_subscription(
    name: NameArgument,
    settings: Annotated[
        list[str],
        typer.Argument(
            help="metrics=PREFIX,… (* is all), interval.ms=60000, match=client_id=app.*,…", metavar="KEY=VALUE…"
        ),
    ],
    bootstrap_server: BootstrapOption = DEFAULT_BOOTSTRAP,
    command_config: CommandConfigOption = None,
    as_json: JsonOption = False,
) -> None:
    """Create or change a subscription; settings that are not named stay."""
    values = parse_assignments(settings, "set")
    unknown = sorted(set(values) - set(KEYS))
    if unknown:
        raise CliError(f"{unknown[0]} is none of {', '.join(KEYS)}", code=USAGE)

    async def work(cluster: Cluster) -> None:
        from odradek.client.admin import ConfigOperation, ResourceType, alter_configs

        changes = [(key, ConfigOperation.SET, value) for key, value in values.items()]
        await alter_configs(cluster, ResourceType.CLIENT_METRICS, name, changes)

    administer(target(bootstrap_server, command_config), work)
    _report(name, "set", sorted(values), as_json=as_json)


@app.command("remove")
def remove(
    name: NameArgument,
    bootstrap_server: BootstrapOption = DEFAULT_BOOTSTRAP,
    command_config: CommandConfigOption = None,
    as_json: JsonOption = False,
) -> None:
    """Remove a subscription; clients notice with their next push."""

    async def work(cluster: Cluster) -> bool:
        from odradek.client.admin import ConfigOperation, ResourceType, alter_configs, list_config_resources

        if name not in await list_config_resources(cluster, ResourceType.CLIENT_METRICS):
            return False
        changes = [(key, ConfigOperation.DELETE, None) for key in KEYS]
        await alter_configs(cluster, ResourceType.CLIENT_METRICS, name, changes)
        return True

    if not administer(target(bootstrap_server, command_config), work):
        raise CliError(f"there is no subscription {name}; see `odradek client-metrics list`", code=NOT_FOUND)
    _report(name, "removed", [], as_json=as_json)


def _report(name: str, done: str, keys: list[str], *, as_json: bool) -> None:
    if as_json:
        print_json({"name": name, done: keys or True})
    else:
        say(f"{name}: {', '.join(keys)} {done}" if keys else f"{name} {done}")
