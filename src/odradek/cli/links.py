"""`odradek links`: topics that mirror those of other clusters, with the same offsets."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from odradek.cli.confirmation import YesOption, confirm
from odradek.cli.connect import DEFAULT_BOOTSTRAP, BootstrapOption, CommandConfigOption, administer, target
from odradek.cli.errors import NOT_FOUND, USAGE, CliError
from odradek.cli.output import JsonOption, print_json, print_table, say

if TYPE_CHECKING:
    from odradek.client.cluster import Cluster
    from odradek.settings.links import Link, Mirror

app = typer.Typer(
    add_completion=False, no_args_is_help=True, help="Mirror topics of other clusters: make, list, describe, delete."
)
LinkArgument = Annotated[str, typer.Argument(metavar="LINK", help="The link's name: letters, digits, - and _.")]
TopicsArgument = Annotated[list[str], typer.Argument(metavar="TOPIC…", help="Topics of the source.")]
Rows = list[dict[str, object]]


@app.command("create")
def create(
    link: LinkArgument,
    source: Annotated[str, typer.Option("--source", help="Brokers of the source, host:port,…")],
    bootstrap_server: BootstrapOption = DEFAULT_BOOTSTRAP,
    command_config: CommandConfigOption = None,
    as_json: JsonOption = False,
) -> None:
    """Make a link to another cluster; it mirrors nothing yet."""

    async def work(cluster: Cluster) -> bool:
        from odradek.settings.links import bootstrap_key

        if link in await _links(cluster):
            return False
        await _set(cluster, {bootstrap_key(link): source})
        return True

    if not administer(target(bootstrap_server, command_config), work):
        raise CliError(f"there is a link {link} already", code=USAGE)
    _report(link, "created", [], as_json=as_json)


@app.command("mirror")
def mirror(
    link: LinkArgument,
    topics: TopicsArgument,
    bootstrap_server: BootstrapOption = DEFAULT_BOOTSTRAP,
    command_config: CommandConfigOption = None,
    as_json: JsonOption = False,
) -> None:
    """Mirror topics of the source: they are made here, and only the link writes to them."""

    async def work(cluster: Cluster) -> None:
        from odradek.settings.links import MirrorState, mirror_key

        _found(link, await _links(cluster))
        await _set(cluster, {mirror_key(link, "mirror", topic): MirrorState.ACTIVE for topic in topics})

    administer(target(bootstrap_server, command_config), work)
    _report(link, "mirrors", topics, as_json=as_json)


@app.command("pause")
def pause(
    link: LinkArgument,
    topics: TopicsArgument,
    bootstrap_server: BootstrapOption = DEFAULT_BOOTSTRAP,
    command_config: CommandConfigOption = None,
    as_json: JsonOption = False,
) -> None:
    """Fetch nothing more of these topics for now; they stay read-only."""
    _change_state(link, topics, "paused", bootstrap_server, command_config, as_json=as_json)


@app.command("resume")
def resume(
    link: LinkArgument,
    topics: TopicsArgument,
    bootstrap_server: BootstrapOption = DEFAULT_BOOTSTRAP,
    command_config: CommandConfigOption = None,
    as_json: JsonOption = False,
) -> None:
    """Go on with topics that were paused."""
    _change_state(link, topics, "active", bootstrap_server, command_config, as_json=as_json)


@app.command("list")
def list_links(
    bootstrap_server: BootstrapOption = DEFAULT_BOOTSTRAP,
    command_config: CommandConfigOption = None,
    as_json: JsonOption = False,
) -> None:
    """Show all links."""
    links = administer(target(bootstrap_server, command_config), _links)
    rows: Rows = [
        {"link": each.name, "source": each.bootstrap_servers, "topics": len(each.mirrors)}
        for each in sorted(links.values(), key=lambda link: link.name)
    ]
    if as_json:
        print_json(rows)
    else:
        print_table(["LINK", "SOURCE", "TOPICS"], [[str(value) for value in row.values()] for row in rows])


@app.command("describe")
def describe(
    link: LinkArgument,
    bootstrap_server: BootstrapOption = DEFAULT_BOOTSTRAP,
    command_config: CommandConfigOption = None,
    as_json: JsonOption = False,
) -> None:
    """Show a link's mirrors: where each partition ends here and at the source, which is asked from this machine."""
    where = target(bootstrap_server, command_config)
    found = administer(where, lambda cluster: _ends_here(cluster, link))
    rows = found[1]
    source = _ends_at(found[0])
    for row in rows:
        end = source.get((str(row["topic"]), int(str(row["partition"]))))
        row["source_end"], own = end, row["end"]
        row["lag"] = max(0, end - own) if end is not None and isinstance(own, int) else None
    if as_json:
        print_json({"link": link, "source": found[0].bootstrap_servers, "partitions": rows})
        return
    say(f"{link} mirrors from {found[0].bootstrap_servers}")
    table = [["-" if value is None else str(value) for value in row.values()] for row in rows]
    print_table(["TOPIC", "STATE", "PARTITION", "END", "SOURCE-END", "LAG"], table)


@app.command("delete")
def delete(
    link: LinkArgument,
    bootstrap_server: BootstrapOption = DEFAULT_BOOTSTRAP,
    command_config: CommandConfigOption = None,
    yes: YesOption = False,
    as_json: JsonOption = False,
) -> None:
    """Delete a link that has no mirrors any more: a mirror ends with its topic."""
    confirm(f"delete the link {link}?", yes=yes)

    async def work(cluster: Cluster) -> Link:
        from odradek.client.admin import ConfigOperation, ResourceType, alter_configs
        from odradek.settings.links import bootstrap_key

        found = _found(link, await _links(cluster))
        if not found.mirrors:
            await alter_configs(cluster, ResourceType.BROKER, "", [(bootstrap_key(link), ConfigOperation.DELETE, None)])
        return found

    found = administer(target(bootstrap_server, command_config), work)
    if found.mirrors:
        raise CliError(f"{link} mirrors {', '.join(sorted(found.mirrors))}: delete these topics first", code=USAGE)
    _report(link, "deleted", [], as_json=as_json)


def _change_state(
    link: str, topics: list[str], state: str, bootstrap_server: str, command_config: object, *, as_json: bool
) -> None:
    async def work(cluster: Cluster) -> None:
        from odradek.settings.links import mirror_key

        mirrors = _found(link, await _links(cluster)).mirrors
        for topic in topics:
            if topic not in mirrors:
                raise CliError(f"{link} does not mirror {topic}", code=NOT_FOUND)
        await _set(cluster, {mirror_key(link, "mirror", topic): state for topic in topics})

    administer(target(bootstrap_server, command_config), work)  # type: ignore[arg-type]
    _report(link, state, topics, as_json=as_json)


async def _links(cluster: Cluster) -> dict[str, Link]:
    from odradek.client.admin import ResourceType, describe_configs
    from odradek.settings.links import links_of

    (found,) = await describe_configs(cluster, ResourceType.BROKER, [""])
    return links_of({entry.name: entry.value or "" for entry in found.configs})


def _found(link: str, links: dict[str, Link]) -> Link:
    if link not in links:
        raise CliError(f"there is no link {link}; see `odradek links list`", code=NOT_FOUND)
    return links[link]


async def _set(cluster: Cluster, values: dict[str, str]) -> None:
    from odradek.client.admin import ConfigOperation, ResourceType, alter_configs

    changes = [(key, ConfigOperation.SET, str(value)) for key, value in values.items()]
    await alter_configs(cluster, ResourceType.BROKER, "", changes)


async def _ends_here(cluster: Cluster, link: str) -> tuple[Link, Rows]:
    from odradek.client.groups import LATEST, list_offsets

    found = _found(link, await _links(cluster))
    rows: Rows = []
    if not found.mirrors:
        return found, rows
    topics = {each.name or "": each for each in (await cluster.metadata(sorted(found.mirrors))).topics}
    for name, mirror in sorted(found.mirrors.items()):
        topic = topics.get(name)
        if topic is None or topic.error_code:
            rows.append({"topic": name, "state": _state(mirror), "partition": -1, "end": None})
            continue
        keys = [(name, each.partition_index) for each in topic.partitions if each.leader_id >= 0]
        ends = await list_offsets(cluster, dict.fromkeys(keys, LATEST))
        for each in sorted(topic.partitions, key=lambda partition: partition.partition_index):
            number = each.partition_index
            end = ends.get((name, number))
            rows.append({"topic": name, "state": _state(mirror), "partition": number, "end": end})
    return found, rows


def _state(mirror: Mirror) -> str:
    return "waits for the source" if mirror.source_id is None else str(mirror.state)


def _ends_at(link: Link) -> dict[tuple[str, int], int]:
    """Where the source's partitions end; none where it is not reached from here."""
    from odradek.client.groups import LATEST, list_offsets

    async def work(cluster: Cluster) -> dict[tuple[str, int], int]:
        topics = (await cluster.metadata(sorted(link.mirrors))).topics
        keys = [(each.name or "", some.partition_index) for each in topics for some in each.partitions]
        return await list_offsets(cluster, dict.fromkeys(keys, LATEST))

    if not link.mirrors:
        return {}
    try:
        return administer(target(link.bootstrap_servers, None), work)
    except CliError as error:
        say(f"the source does not answer: {error}")
        return {}


def _report(link: str, done: str, topics: list[str], *, as_json: bool) -> None:
    if as_json:
        print_json({"link": link, "done": done, "topics": topics})
    else:
        say(f"{link}: {done} {', '.join(topics)}" if topics else f"{link}: {done}")
