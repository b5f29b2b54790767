"""`odradek links`: topics that mirror those of other clusters, with the same offsets."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from odradek.cli.administration import Administration
from odradek.cli.confirmation import YesOption, confirm
from odradek.cli.connect import parse_assignments, read_properties, target
from odradek.cli.errors import NOT_FOUND, USAGE, CliError
from odradek.cli.option_groups import with_option_groups
from odradek.cli.output import print_json, print_table, say

if TYPE_CHECKING:
    from odradek.client.cluster import Cluster
    from odradek.settings.links import Link, Mirror

app = typer.Typer(
    add_completion=False, no_args_is_help=True, help="Mirror topics of other clusters: create, list, describe, delete."
)
LinkArgument = Annotated[str, typer.Argument(metavar="LINK", help="The link's name: letters, digits, - and _.")]
SourceTopicsArgument = Annotated[
    list[str], typer.Argument(metavar="TOPIC…", help="Topics of the source, by their names there.")
]
TopicsArgument = Annotated[
    list[str], typer.Argument(metavar="TOPIC…", help="Topics of this cluster, with the link's prefix.")
]
SomeTopicsArgument = Annotated[
    list[str] | None, typer.Argument(metavar="[TOPIC…]", help="Mirrors of the link; all if none is named.")
]
SettingsOption = Annotated[
    list[str] | None,
    typer.Option("--set", help="A setting of the link, NAME=VALUE, as io.max.bytes.per.second=1000000; repeatable."),
]
SettingsFileOption = Annotated[
    Path | None, typer.Option("--settings", help="Properties file with settings of the link.", metavar="FILE")
]
Rows = list[dict[str, object]]


@app.command("create")
@with_option_groups
def create(
    link: LinkArgument,
    source: Annotated[str, typer.Option("--source", help="Brokers of the source, host:port,…")],
    prefix: Annotated[
        str | None,
        typer.Option("--prefix", help="The prefix of mirrors' names, as west.; it cannot be changed."),
    ] = None,
    settings: SettingsOption = None,
    settings_file: SettingsFileOption = None,
    *,
    cluster: Administration,
) -> None:
    """Create a link to another cluster, without mirrors."""

    from odradek.settings.link_names import PREFIX

    given = _given(settings, settings_file) | ({} if prefix is None else {PREFIX: prefix})

    async def work(connected: Cluster) -> bool:
        from odradek.settings.links import bootstrap_key, setting_key

        if link in await links_here(connected):
            return False
        await _set(connected, {bootstrap_key(link): source, **{setting_key(link, key): given[key] for key in given}})
        return True

    if not cluster.run(work):
        raise CliError(f"there is a link {link} already", code=USAGE)
    _report(cluster, link, "created", [])


@app.command("alter")
@with_option_groups
def alter(
    link: LinkArgument,
    settings: SettingsOption = None,
    settings_file: SettingsFileOption = None,
    unset: Annotated[list[str] | None, typer.Option("--unset", help="A setting to take away; may be repeated.")] = None,
    *,
    cluster: Administration,
) -> None:
    """Change settings of a link: its connections, its rate, what it copies besides records."""
    given = _given(settings, settings_file)
    if not given and not unset:
        raise CliError("give --set, --settings or --unset", code=USAGE)

    async def work(connected: Cluster) -> None:
        from odradek.client.admin import ConfigOperation, ResourceType, alter_configs
        from odradek.settings.links import setting_key

        await _known_link(connected, link)
        changes = [(setting_key(link, key), ConfigOperation.SET, value) for key, value in given.items()]
        gone = [(setting_key(link, key), ConfigOperation.DELETE, None) for key in unset or ()]
        await alter_configs(connected, ResourceType.BROKER, "", [*changes, *gone])

    cluster.run(work)
    _report(cluster, link, "altered", [])


@app.command("mirror")
@with_option_groups
def mirror(
    link: LinkArgument,
    topics: SourceTopicsArgument,
    *,
    cluster: Administration,
) -> None:
    """Mirror topics of the source: they are created here with the link's prefix, and only the link writes to them."""

    async def work(connected: Cluster) -> list[str]:
        from odradek.settings.link_names import mirror_name
        from odradek.settings.links import MirrorState, mirror_key

        found = await _known_link(connected, link)
        mirrors, names = found.mirrors, [mirror_name(found.prefix, topic) for topic in topics]
        for topic in names:
            if topic in mirrors and mirrors[topic].state is MirrorState.PAUSED:
                raise CliError(f"{topic} is paused: `odradek links resume` goes on with it", code=USAGE)
            _check_not_failing_back(mirrors.get(topic))
        await _set(connected, {mirror_key(link, "mirror", topic): MirrorState.ACTIVE for topic in names})
        return names

    _report(cluster, link, "mirrors", cluster.run(work))


@app.command("pause")
@with_option_groups
def pause(
    link: LinkArgument,
    topics: TopicsArgument,
    *,
    cluster: Administration,
) -> None:
    """Pause mirrors; they stay read-only."""
    _change_state(cluster, link, topics, "paused")


@app.command("resume")
@with_option_groups
def resume(
    link: LinkArgument,
    topics: TopicsArgument,
    *,
    cluster: Administration,
) -> None:
    """Resume paused mirrors."""
    _change_state(cluster, link, topics, "active")


@app.command("promote")
@with_option_groups
def promote(
    link: LinkArgument,
    topics: SomeTopicsArgument = None,
    yes: YesOption = False,
    *,
    cluster: Administration,
) -> None:
    """Promote mirrors to topics of this cluster; this cannot be undone. Stop the producers of the source first."""
    _end_mirrors(cluster, link, topics or [], yes=yes, is_reached=True)


@app.command("failover")
@with_option_groups
def failover(
    link: LinkArgument,
    topics: SomeTopicsArgument = None,
    yes: YesOption = False,
    *,
    cluster: Administration,
) -> None:
    """Promote mirrors without the source, and list the records that may be missing."""
    _end_mirrors(cluster, link, topics or [], yes=yes, is_reached=False)


@app.command("failback")
@with_option_groups
def failback(
    link: LinkArgument,
    topics: TopicsArgument,
    source_config: Annotated[
        Path | None,
        typer.Option("--source-config", help="Properties file to reach the link's source with.", metavar="FILE"),
    ] = None,
    yes: YesOption = False,
    *,
    cluster: Administration,
) -> None:
    """Make topics mirrors of those promoted from them; records that only this cluster has are written to files."""
    from odradek.cli.link_failback import fail_back

    fail_back(
        link,
        topics,
        target(cluster.bootstrap_server, cluster.command_config),
        {} if source_config is None else read_properties(source_config),
        yes=yes,
        as_json=cluster.as_json,
    )


@app.command("list")
@with_option_groups
def list_links(
    *,
    cluster: Administration,
) -> None:
    """Show all links."""
    links = cluster.run(links_here)
    rows: Rows = [
        {"link": each.name, "source": each.bootstrap_servers, "prefix": each.prefix, "topics": len(each.mirrors)}
        for each in sorted(links.values(), key=lambda link: link.name)
    ]
    if cluster.as_json:
        print_json(rows)
    else:
        headings = ["LINK", "SOURCE", "PREFIX", "TOPICS"]
        print_table(headings, [["-" if value == "" else str(value) for value in row.values()] for row in rows])


@app.command("describe")
@with_option_groups
def describe(
    link: LinkArgument,
    *,
    cluster: Administration,
) -> None:
    """Show a link's mirrors: the position of each partition, its lag, and the reason if it is not mirrored."""
    from odradek.admin.link_facts import described
    from odradek.cli.link_state import show

    async def work(connected: Cluster) -> dict[str, object]:
        return await described(connected, await _known_link(connected, link))

    found = cluster.run(work)
    if cluster.as_json:
        print_json(found)
    else:
        show(found)


@app.command("delete")
@with_option_groups
def delete(
    link: LinkArgument,
    yes: YesOption = False,
    *,
    cluster: Administration,
) -> None:
    """Delete a link without mirrors: a mirror ends with its topic."""
    confirm(f"delete the link {link}?", yes=yes)

    async def work(connected: Cluster) -> Link:
        from odradek.admin.link_facts import found_link, link_settings
        from odradek.client.admin import ConfigOperation, ResourceType, alter_configs
        from odradek.settings.links import links_of, split_key

        await _known_link(connected, link)
        settings = await link_settings(connected)
        found = found_link(link, links_of(settings))
        if not found.mirrors:
            # Those of promoted topics stay as long as the topics.
            parts = [(key, split_key(key)) for key in settings]
            of_link = [key for key, each in parts if each is not None and each[0] == link and not each[2]]
            changes = [(key, ConfigOperation.DELETE, None) for key in of_link]
            await alter_configs(connected, ResourceType.BROKER, "", changes)
        return found

    found = cluster.run(work)
    if found.mirrors:
        raise CliError(f"{link} mirrors {', '.join(sorted(found.mirrors))}: delete these topics first", code=USAGE)
    _report(cluster, link, "deleted", [])


def _change_state(cluster: Administration, link: str, topics: list[str], state: str) -> None:
    async def work(connected: Cluster) -> None:
        from odradek.settings.links import mirror_key

        mirrors = (await _known_link(connected, link)).mirrors
        for topic in topics:
            if topic not in mirrors:
                raise CliError(f"{link} does not mirror {topic}", code=NOT_FOUND)
            _check_not_failing_back(mirrors[topic])
        await _set(connected, {mirror_key(link, "mirror", topic): state for topic in topics})

    cluster.run(work)
    _report(cluster, link, state, topics)


def _check_not_failing_back(mirror: Mirror | None) -> None:
    if mirror is not None and mirror.state == "failback":
        raise CliError(f"{mirror.topic} is not a mirror yet: `odradek links failback` goes on with it", code=USAGE)


def _end_mirrors(cluster: Administration, name: str, topics: list[str], *, yes: bool, is_reached: bool) -> None:
    """
    Args:
        is_reached: the source must respond. Otherwise mirrors without a topic are left out, unless they are named.
    """
    from odradek.admin import link_ends
    from odradek.admin.link_facts import UnknownLinkError
    from odradek.admin.plan import PlanError
    from odradek.cli.link_state import show_missing

    async def read(connected: Cluster) -> tuple[Link, list[str], link_ends.Rows]:
        link = await _known_link(connected, name)
        names = link_ends.chosen(link, topics, is_reached=is_reached)
        leaves_out = not is_reached and not topics
        return link, names, await link_ends.missing(connected, link, names, leaves_out=leaves_out)

    try:
        link, wanted, rows = cluster.run(read)
        if is_reached:
            link_ends.check_reached(rows)
    except UnknownLinkError as error:
        raise CliError(str(error), code=NOT_FOUND) from None
    except PlanError as error:
        raise CliError(str(error), code=USAGE) from None
    names = [topic for topic in wanted if any(row["topic"] == topic for row in rows)]
    left_out = [topic for topic in wanted if topic not in names]
    for topic in left_out if not cluster.as_json else ():
        say(f"{topic} is not here yet, as the source was never reached: it is left out")
    if names:
        if not cluster.as_json:
            show_missing(rows)
        what = link_ends.missing_text(rows)
        confirm(f"promote {', '.join(names)} ({what})? This cannot be undone.", yes=yes)
        cluster.run(lambda connected: link_ends.promote(connected, link, names))
    if cluster.as_json:
        print_json({"link": name, "done": "promoted", "topics": names, "left_out": left_out, "partitions": rows})
    else:
        say(f"{name}: promoted {', '.join(names) or 'nothing: there is no mirror left'}")


async def links_here(cluster: Cluster) -> dict[str, Link]:
    from odradek.admin.link_facts import links_of_cluster

    return await links_of_cluster(cluster)


def _given(settings: list[str] | None, file: Path | None) -> dict[str, str]:
    """The settings of a link in the options. Raises CliError."""
    of_file = {} if file is None else read_properties(file)
    return of_file | parse_assignments(settings, "--set")


async def _known_link(cluster: Cluster, name: str) -> Link:
    """The link of this name. Raises CliError if there is none."""
    from odradek.admin.link_facts import UnknownLinkError, link_of_cluster

    try:
        return await link_of_cluster(cluster, name)
    except UnknownLinkError as error:
        raise CliError(f"{error}; see `odradek links list`", code=NOT_FOUND) from None


async def _set(cluster: Cluster, values: dict[str, str]) -> None:
    from odradek.client.admin import ConfigOperation, ResourceType, alter_configs

    changes = [(key, ConfigOperation.SET, str(value)) for key, value in values.items()]
    await alter_configs(cluster, ResourceType.BROKER, "", changes)


def _report(cluster: Administration, link: str, done: str, topics: list[str]) -> None:
    text = f"{link}: {done} {', '.join(topics)}" if topics else f"{link}: {done}"
    cluster.report({"link": link, "done": done, "topics": topics}, text)
