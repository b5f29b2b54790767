"""`odradek quotas`: limits of clients, by user, client id, both, or address."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Annotated

import typer

from odradek.cli.administration import Administration
from odradek.cli.errors import NOT_FOUND, USAGE, CliError
from odradek.cli.option_groups import with_option_groups
from odradek.cli.output import print_json, print_table

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
@with_option_groups
def list_quotas(
    user: UserOption = None,
    client_id: ClientIdOption = None,
    ip: IpOption = None,
    default: DefaultOption = None,
    *,
    cluster: Administration,
) -> None:
    """Show quotas: all, or those of a user, a client id or an address."""
    found = _known(cluster, _entity(user, client_id, ip, default))
    if cluster.as_json:
        print_json([{"entity": entity, "quotas": quotas} for entity, quotas in found])
        return
    rows = [
        [*(_shown(entity, kind) for kind in TYPES), key, f"{value:.15g}"]
        for entity, quotas in found
        for key, value in sorted(quotas.items())
    ]
    print_table(["USER", "CLIENT-ID", "IP", "QUOTA", "VALUE"], rows)


@app.command("set")
@with_option_groups
def set_quotas(
    quotas: Annotated[
        list[str], typer.Argument(help="As producer_byte_rate=1048576, per second.", metavar="KEY=VALUE…")
    ],
    user: UserOption = None,
    client_id: ClientIdOption = None,
    ip: IpOption = None,
    default: DefaultOption = None,
    *,
    cluster: Administration,
) -> None:
    """Set quotas; others stay."""
    if user is not None and user.startswith("User:"):
        raise CliError(f"--user {user}: a quota names the user alone, as {user.removeprefix('User:')}", code=USAGE)
    entity = _named(_entity(user, client_id, ip, default))
    values = dict(_assignment(each) for each in quotas)

    async def work(connected: Cluster) -> None:
        from odradek.client import quotas as of_clients

        await of_clients.set_quotas(connected, entity, values)

    cluster.run(work)
    _report(cluster, entity, "set", sorted(values))


@app.command("remove")
@with_option_groups
def remove(
    keys: Annotated[list[str] | None, typer.Argument(help="Quotas; all where none is named.", metavar="KEY…")] = None,
    user: UserOption = None,
    client_id: ClientIdOption = None,
    ip: IpOption = None,
    default: DefaultOption = None,
    *,
    cluster: Administration,
) -> None:
    """Remove quotas of one entity."""
    entity = _named(_entity(user, client_id, ip, default))
    for key in keys or ():
        _check_key(key)
    has = next((own for found, own in _known(cluster, entity) if found == entity), {})
    gone = sorted(set(has) & set(keys) if keys else has)
    if not gone:
        raise CliError(f"{_described(entity)} has no such quota; see `odradek quotas list`", code=NOT_FOUND)

    async def work(connected: Cluster) -> None:
        from odradek.client import quotas as of_clients

        await of_clients.remove_quotas(connected, entity, gone)

    cluster.run(work)
    _report(cluster, entity, "removed", gone)


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
        raise CliError(f"{key} is not a quota; there are {', '.join(KEYS)}", code=USAGE)


def _known(cluster: Administration, entity: Entity) -> list[tuple[Entity, dict[str, float]]]:
    async def work(connected: Cluster) -> list[tuple[Entity, dict[str, float]]]:
        from odradek.client import quotas as of_clients

        return await of_clients.list_quotas(connected, entity)

    return cluster.run(work)


def _shown(entity: Entity, kind: str) -> str | None:
    return None if kind not in entity else entity[kind] or DEFAULT


def _described(entity: Entity) -> str:
    return ", ".join(f"{kind} {name or DEFAULT}" for kind, name in entity.items())


def _report(cluster: Administration, entity: Entity, done: str, keys: list[str]) -> None:
    cluster.report({"entity": entity, done: keys}, f"{', '.join(keys)} of {_described(entity)} {done}")
