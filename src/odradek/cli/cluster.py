"""`odradek cluster`: id, brokers, features and quorum of a cluster; upgrades; unregistering a broker."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from odradek.cli.confirmation import YesOption, confirm
from odradek.cli.connect import DEFAULT_BOOTSTRAP, BootstrapOption, CommandConfigOption, administer, target
from odradek.cli.errors import NOT_FOUND, USAGE, CliError
from odradek.cli.output import JsonOption, print_json, print_table
from odradek.common.numbers import INT16_MAX, INT32_MAX

if TYPE_CHECKING:
    from odradek.client.cluster import Cluster

app = typer.Typer(
    add_completion=False,
    no_args_is_help=True,
    help="Show id, brokers, features and quorum; raise features; unregister a broker.",
)

LISTED = 5
# How long a broker that stops is waited for.
POLL_S = 0.2
STOP_S = 30.0
_METADATA_VERSION = "metadata.version"


@app.command("id")
def cluster_id(
    bootstrap_server: BootstrapOption = DEFAULT_BOOTSTRAP,
    command_config: CommandConfigOption = None,
    as_json: JsonOption = False,
) -> None:
    """Print the cluster's id."""

    async def work(cluster: Cluster) -> str | None:
        return (await cluster.metadata([])).cluster_id

    found = administer(target(bootstrap_server, command_config), work)
    if as_json:
        print_json({"cluster_id": found})
    else:
        typer.echo(found)


@app.command("brokers")
def brokers(
    bootstrap_server: BootstrapOption = DEFAULT_BOOTSTRAP,
    command_config: CommandConfigOption = None,
    as_json: JsonOption = False,
) -> None:
    """Show the brokers, including fenced ones, and the controller for clients."""

    async def work(cluster: Cluster) -> list[dict[str, Any]]:
        from odradek.client.admin import describe_cluster
        from odradek.protocol.extras import read_broker_host

        found = await describe_cluster(cluster, fenced=True)
        return [
            {
                "broker": broker.broker_id,
                "host": broker.host,
                "port": broker.port,
                "rack": broker.rack,
                "machine": read_broker_host(broker),
                "fenced": broker.is_fenced,
                "controller": broker.broker_id == found.controller_id,
            }
            for broker in sorted(found.brokers, key=lambda broker: broker.broker_id)
        ]

    found = administer(target(bootstrap_server, command_config), work)
    if as_json:
        print_json(found)
        return
    # Where all are on one machine, its id says nothing.
    machines = len({each["machine"] for each in found}) > 1
    print_table(
        ["BROKER", "ADDRESS", "RACK", *(["MACHINE"] if machines else []), "STATE", "CONTROLLER"],
        [
            [
                each["broker"],
                f"{each['host']}:{each['port']}",
                each["rack"],
                *([each["machine"]] if machines else []),
                "fenced" if each["fenced"] else "active",
                "yes" if each["controller"] else "no",
            ]
            for each in found
        ],
    )


async def _is_fenced(cluster: Cluster, broker: int) -> bool | None:
    """Whether the broker is fenced; None if it is not registered.

    Waits for a broker that stops after `drain --stop`.
    """
    import asyncio
    import time

    from odradek.client.admin import describe_cluster

    deadline = time.monotonic() + STOP_S
    while True:
        found = {each.broker_id: each.is_fenced for each in (await describe_cluster(cluster, fenced=True)).brokers}
        if found.get(broker) is not False or time.monotonic() > deadline or not await _stops(cluster, broker):
            return found.get(broker)
        await asyncio.sleep(POLL_S)


async def _stops(cluster: Cluster, broker: int) -> bool:
    from odradek.client.admin import ResourceType, describe_configs
    from odradek.client.reassignment import GONE
    from odradek.settings.broker import DRAIN_STOP_KEY

    try:
        (found,) = await describe_configs(cluster, ResourceType.BROKER, [str(broker)])
    except GONE:
        return True
    return any(entry.name == DRAIN_STOP_KEY for entry in found.configs)


@app.command("unregister")
def unregister(
    broker: Annotated[int, typer.Argument(help="The broker's id.", min=0, max=INT32_MAX)],
    yes: YesOption = False,
    bootstrap_server: BootstrapOption = DEFAULT_BOOTSTRAP,
    command_config: CommandConfigOption = None,
    as_json: JsonOption = False,
) -> None:
    """Unregister a broker that is stopped and will not return. It must have no replica."""

    async def check(cluster: Cluster) -> tuple[bool | None, list[str]]:
        fenced = await _is_fenced(cluster, broker)
        held = [
            f"{topic.name}-{partition.partition_index}"
            for topic in (await cluster.metadata()).topics
            for partition in topic.partitions
            if broker in partition.replica_nodes
        ]
        return fenced, held

    async def work(cluster: Cluster) -> None:
        from odradek.client.admin import unregister_broker

        await unregister_broker(cluster, broker)

    where = target(bootstrap_server, command_config)
    fenced, held = administer(where, check)
    if fenced is None:
        raise CliError(f"the cluster has no broker {broker}; `odradek cluster brokers` shows them", code=NOT_FOUND)
    if not fenced:
        raise CliError(f"broker {broker} runs; stop it first: `odradek drain {broker} --stop`")
    if held:
        listed = ", ".join(held[:LISTED]) + (" and more" if len(held) > LISTED else "")
        raise CliError(
            f"broker {broker} has replicas of {len(held)} partitions ({listed}); "
            f"move them first: `odradek partitions plan --without {broker}`"
        )
    confirm(f"Forget broker {broker}?", yes)
    administer(where, work)
    if as_json:
        print_json({"broker": broker, "registered": False})
    else:
        typer.echo(f"Broker {broker} is forgotten.")


@app.command("features")
def features(
    bootstrap_server: BootstrapOption = DEFAULT_BOOTSTRAP,
    command_config: CommandConfigOption = None,
    as_json: JsonOption = False,
) -> None:
    """Show the features that the broker supports, and their finalized levels."""

    async def work(cluster: Cluster) -> tuple[list[dict[str, Any]], int]:
        response = (await cluster.any_connection()).features
        levels = {feature.name: feature.max_version_level for feature in response.finalized_features}
        known = {feature.name: (feature.min_version, feature.max_version) for feature in response.supported_features}
        found = [
            {
                "feature": name,
                "supported_min": known.get(name, (None, None))[0],
                "supported_max": known.get(name, (None, None))[1],
                "level": levels.get(name, 0),
                "release": _release(levels[name]) if name == _METADATA_VERSION and name in levels else None,
            }
            for name in sorted(known.keys() | levels.keys())
        ]
        return found, response.finalized_features_epoch

    found, offset = administer(target(bootstrap_server, command_config), work)
    if as_json:
        print_json({"features": found, "metadata_offset": offset})
        return
    print_table(
        ["FEATURE", "SUPPORTED-MIN", "SUPPORTED-MAX", "LEVEL", "RELEASE"],
        [
            [each["feature"], each["supported_min"], each["supported_max"], each["level"], each["release"]]
            for each in found
        ],
    )


@app.command("upgrade")
def upgrade(
    release: Annotated[
        str, typer.Option("--release", help="A release of Kafka, such as 4.3: the levels of a new cluster of it.")
    ] = "",
    feature: Annotated[
        list[str] | None, typer.Option("--feature", help="A feature and its level.", metavar="NAME=LEVEL")
    ] = None,
    yes: YesOption = False,
    bootstrap_server: BootstrapOption = DEFAULT_BOOTSTRAP,
    command_config: CommandConfigOption = None,
    as_json: JsonOption = False,
) -> None:
    """Raise the levels of features when all nodes run the new version. Older versions cannot read the metadata then."""
    if bool(release) == bool(feature):
        raise CliError("name a --release, or a --feature or more", code=USAGE)
    wanted = _levels_of(release) if release else dict(map(_parse_level, feature or ()))

    async def present(cluster: Cluster) -> dict[str, int]:
        response = (await cluster.any_connection()).features
        return {feature.name: feature.max_version_level for feature in response.finalized_features}

    async def work(cluster: Cluster) -> None:
        from odradek.client.admin import raise_features

        await raise_features(cluster, changes)

    where = target(bootstrap_server, command_config)
    before = administer(where, present)
    # A release never lowers a level; a level that is named is sent, and the controller refuses a lower one.
    changes = {name: level for name, level in wanted.items() if not release or level > before.get(name, 0)}
    if changes:
        raised = ", ".join(f"{name} from {before.get(name, 0)} to {level}" for name, level in changes.items())
        confirm(f"Raise {raised}?", yes)
        administer(where, work)
    if as_json:
        print_json([{"feature": name, "before": before.get(name, 0), "level": changes[name]} for name in changes])
    elif changes:
        typer.echo(f"Raised {raised}.")
    else:
        typer.echo(f"All features are at the levels of {release} already.")


def _levels_of(release: str) -> dict[str, int]:
    """The levels that a new cluster of a release begins with. Raises CliError."""
    from odradek.metadata.features import default_levels, metadata_level

    try:
        return default_levels(metadata_level(release).level)
    except ValueError as error:
        raise CliError(f"--release: {error}", code=USAGE) from None


def _parse_level(text: str) -> tuple[str, int]:
    """`NAME=LEVEL`. Raises CliError."""
    name, separator, level = text.partition("=")
    if not (name and separator and level.isascii() and level.isdigit()) or int(level) > INT16_MAX:
        raise CliError(f"--feature {text}: give NAME=LEVEL, such as metadata.version=30", code=USAGE)
    return name, int(level)


@app.command("quorum")
def quorum(
    bootstrap_server: BootstrapOption = DEFAULT_BOOTSTRAP,
    command_config: CommandConfigOption = None,
    as_json: JsonOption = False,
) -> None:
    """Show the metadata quorum: leader, voters, observers, and how far each has read."""

    async def work(cluster: Cluster) -> dict[str, Any]:
        from odradek.client.admin import describe_cluster, describe_quorum
        from odradek.protocol.extras import read_broker_host
        from odradek.raft.quorum_state import uuid_text

        response = await describe_quorum(cluster)
        described = await describe_cluster(cluster, fenced=True)
        machines = {broker.broker_id: read_broker_host(broker) for broker in described.brokers}
        state = response.topics[0].partitions[0]
        addresses = {
            node.node_id: [f"{listener.name}://{listener.host}:{listener.port}" for listener in node.listeners]
            for node in response.nodes
        }
        end = max([replica.log_end_offset for replica in state.current_voters], default=0)

        def replica_of(replica: Any, role: str) -> dict[str, Any]:
            return {
                "node": replica.replica_id,
                "role": "leader" if replica.replica_id == state.leader_id else role,
                "directory_id": uuid_text(replica.replica_directory_id),
                "log_end_offset": replica.log_end_offset,
                "lag": max(0, end - replica.log_end_offset),
                "last_fetch_ms": replica.last_fetch_timestamp,
                "last_caught_up_ms": replica.last_caught_up_timestamp,
                "endpoints": addresses.get(replica.replica_id, []),
                "machine": machines.get(replica.replica_id),
            }

        return {
            "leader": state.leader_id,
            "leader_epoch": state.leader_epoch,
            "high_watermark": state.high_watermark,
            "replicas": [replica_of(replica, "voter") for replica in state.current_voters]
            + [replica_of(replica, "observer") for replica in state.observers],
        }

    found = administer(target(bootstrap_server, command_config), work)
    if as_json:
        print_json(found)
        return
    typer.echo(f"Leader {found['leader']}, epoch {found['leader_epoch']}, high watermark {found['high_watermark']}\n")
    # As in `brokers`: one machine for all is nothing to look at.
    with_machines = len({each["machine"] for each in found["replicas"] if each["machine"]}) > 1
    print_table(
        ["NODE", "ROLE", "LOG-END-OFFSET", "LAG", "DIRECTORY-ID", "ENDPOINTS", *["MACHINE"] * with_machines],
        [
            [
                each["node"],
                each["role"],
                each["log_end_offset"],
                each["lag"],
                each["directory_id"],
                ",".join(each["endpoints"]) or None,
                *[each["machine"]] * with_machines,
            ]
            for each in found["replicas"]
        ],
    )


def _release(level: int) -> str | None:
    from odradek.metadata.features import metadata_name

    return metadata_name(level)
