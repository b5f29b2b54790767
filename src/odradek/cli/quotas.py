"""`odradek quotas`: how much clients may do per second, by user, client id, both, or address."""

from __future__ import annotations

import math
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from odradek.cli.connect import DEFAULT_BOOTSTRAP, BootstrapOption, CommandConfigOption, administer, target
from odradek.cli.errors import NOT_FOUND, USAGE, CliError
from odradek.cli.output import JsonOption, print_json, print_table, say

if TYPE_CHECKING:
    from odradek.client.cluster import Cluster

app = typer.Typer(add_completion=False, no_args_is_help=True, help="List, set and remove quotas of clients.")

TYPES = ("user", "client-id", "ip")
KEYS = (
    "producer_byte_rate",
    "consumer_byte_rate",
    "request_percentage",
    "controller_mutation_rate",
    "connection_creation_rate",
)
DEFAULT = "<default>"
Entity = dict[str, str | None]

UserOption = Annotated[str | None, typer.Option("--user", help="A user, without User:.", metavar="NAME")]
ClientIdOption = Annotated[str | None, typer.Option("--client-id", help="A client id.", metavar="NAME")]
IpOption = Annotated[str | None, typer.Option("--ip", help="An address.", metavar="ADDRESS")]
DefaultOption = Annotated[
    list[str] | None,
    typer.Option("--default", help="user, client-id or ip: those without a quota of their own.", metavar="TYPE"),
]


@app.command("list")
def list_quotas(
    user: UserOption = None,
    client_id: ClientIdOption = None,
    ip: IpOption = None,
    default: DefaultOption = None,
    bootstrap_server: BootstrapOption = DEFAULT_BOOTSTRAP,
    command_config: CommandConfigOption = None,
    as_json: JsonOption = False,
) -> None:
    """Show quotas: all, or those of a user, a client id or an address."""
    found = _known(_entity(user, client_id, ip, default), bootstrap_server, command_config)
    if as_json:
        print_json([{"entity": entity, "quotas": quotas} for entity, quotas in found])
        return
    rows = [
        [*(_shown(entity, kind) for kind in TYPES), key, f"{value:.15g}"]
        for entity, quotas in found
        for key, value in sorted(quotas.items())
    ]
    print_table(["USER", "CLIENT-ID", "IP", "QUOTA", "VALUE"], rows)


@app.command("set")
def set_quotas(
    quotas: Annotated[
        list[str], typer.Argument(help="As producer_byte_rate=1048576, per second.", metavar="KEY=VALUE…")
    ],
    user: UserOption = None,
    client_id: ClientIdOption = None,
    ip: IpOption = None,
    default: DefaultOption = None,
    bootstrap_server: BootstrapOption = DEFAULT_BOOTSTRAP,
    command_config: CommandConfigOption = None,
    as_json: JsonOption = False,
) -> None:
    """Set quotas; those that are not named stay as they are."""
    entity = _named(_entity(user, client_id, ip, default))
    values = dict(_assignment(each) for each in quotas)

    async def work(cluster: Cluster) -> None:
        from odradek.client import quotas as of_clients

        await of_clients.set_quotas(cluster, entity, values)

    administer(target(bootstrap_server, command_config), work)
    _report(entity, "set", sorted(values), as_json=as_json)


@app.command("remove")
def remove(
    keys: Annotated[list[str] | None, typer.Argument(help="Quotas; all where none is named.", metavar="KEY…")] = None,
    user: UserOption = None,
    client_id: ClientIdOption = None,
    ip: IpOption = None,
    default: DefaultOption = None,
    bootstrap_server: BootstrapOption = DEFAULT_BOOTSTRAP,
    command_config: CommandConfigOption = None,
    as_json: JsonOption = False,
) -> None:
    """Remove quotas of one entity."""
    entity = _named(_entity(user, client_id, ip, default))
    for key in keys or ():
        _check_key(key)
    has = next((own for found, own in _known(entity, bootstrap_server, command_config) if found == entity), {})
    gone = sorted(set(has) & set(keys) if keys else has)
    if not gone:
        raise CliError(f"{_described(entity)} has no such quota; see `odradek quotas list`", code=NOT_FOUND)

    async def work(cluster: Cluster) -> None:
        from odradek.client import quotas as of_clients

        await of_clients.remove_quotas(cluster, entity, gone)

    administer(target(bootstrap_server, command_config), work)
    _report(entity, "removed", gone, as_json=as_json)


def _entity(user: str | None, client_id: str | None, ip: str | None, default: list[str] | None) -> Entity:
    given = {kind: name for kind, name in zip(TYPES, (user, client_id, ip), strict=True) if name is not None}
    entity: Entity = dict(given)
    for kind in default or ():
        if kind not in TYPES:
            raise CliError(f"--default {kind}: is user, client-id or ip", code=USAGE)
        if kind in given:
            raise CliError(f"--{kind} and --default {kind}: give one of them", code=USAGE)
        entity[kind] = None
    if "ip" in entity and len(entity) > 1:
        raise CliError("a quota of an address has no user and no client id", code=USAGE)
    return entity


def _named(entity: Entity) -> Entity:
    if not entity:
        raise CliError("whose quota? Give --user, --client-id, --ip, or --default TYPE", code=USAGE)
    return entity


def _assignment(text: str) -> tuple[str, float]:
    key, _, value = text.partition("=")
    _check_key(key)
    try:
        number = float(value)
    except ValueError:
        number = math.nan
    if not math.isfinite(number) or number < 0:
        raise CliError(f"{text}: the value is a number of at least 0", code=USAGE)
    return key, number


def _check_key(key: str) -> None:
    if key not in KEYS:
        raise CliError(f"{key} is no quota; there are {', '.join(KEYS)}", code=USAGE)


def _known(entity: Entity, bootstrap_server: str, command_config: Path | None) -> list[tuple[Entity, dict[str, float]]]:
    async def work(cluster: Cluster) -> list[tuple[Entity, dict[str, float]]]:
        from odradek.client import quotas as of_clients

        return await of_clients.list_quotas(cluster, entity)

    return administer(target(bootstrap_server, command_config), work)


def _shown(entity: Entity, kind: str) -> str | None:
    return None if kind not in entity else entity[kind] or DEFAULT


def _described(entity: Entity) -> str:
    return ", ".join(f"{kind} {name or DEFAULT}" for kind, name in entity.items())


def _report(entity: Entity, done: str, keys: list[str], *, as_json: bool) -> None:
    if as_json:
        print_json({"entity": entity, done: keys})
    else:
        say(f"{', '.join(keys)} of {_described(entity)} {done}")
