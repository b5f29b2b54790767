"""`odradek storage`: format the directories of a node, and show their owner. The flags are those of Kafka's tool."""

from __future__ import annotations

import os
import time
from pathlib import Path
from random import SystemRandom
from typing import TYPE_CHECKING, Annotated

import typer

from odradek.cli.errors import BAD_CONFIG, CliError
from odradek.cli.output import JsonOption, print_json
from odradek.cli.random_uuid import random_uuid
from odradek.common.errors import ConfigError

if TYPE_CHECKING:
    from odradek.common.ports import Disk
    from odradek.server.startup.format import MetaProperties

app = typer.Typer(add_completion=False, no_args_is_help=True, help="Format and inspect the directories of a node.")

ConfigOption = Annotated[Path, typer.Option("--config", "-c", help="The node's properties file.")]


app.command("random-uuid")(random_uuid)


@app.command("format")
def format_command(
    config: ConfigOption,
    cluster_id: Annotated[str, typer.Option("--cluster-id", "-t", help="As `odradek random-uuid` prints it.")],
    add_scram: Annotated[
        list[str] | None, typer.Option("--add-scram", "-S", help="A first user: SCRAM-SHA-256=[name=alice,password=…].")
    ] = None,
    feature: Annotated[list[str] | None, typer.Option("--feature", "-f", help="A feature=level.")] = None,
    release_version: Annotated[
        str, typer.Option("--release-version", "-r", help="The metadata.version to begin with, such as 4.3.")
    ] = "",
    ignore_formatted: Annotated[
        bool, typer.Option("--ignore-formatted", "-g", help="Leave directories that are formatted as they are.")
    ] = False,
    standalone: Annotated[
        bool, typer.Option("--standalone", "-s", help="This node is the only voter of a new dynamic quorum.")
    ] = False,
    initial_controllers: Annotated[
        str, typer.Option("--initial-controllers", "-I", help="The voters: id@host:port:directory-id,…")
    ] = "",
    no_initial_controllers: Annotated[
        bool, typer.Option("--no-initial-controllers", "-N", help="The voters are known elsewhere.")
    ] = False,
    as_json: JsonOption = False,
) -> None:
    """Format the directories that a configuration names, for one cluster."""
    from odradek.common.real_io import RealDisk
    from odradek.server.startup.format import FormatOptions, format_storage
    from odradek.settings.node import load_node_settings

    if cluster_id.split() != [cluster_id]:
        raise CliError(f"--cluster-id {cluster_id!r}: take what `odradek random-uuid` prints", code=BAD_CONFIG)
    disk = RealDisk()
    settings = load_node_settings(disk, config, environment=os.environ)
    options = FormatOptions(
        release_version=release_version,
        features=_features(feature or []),
        ignore_formatted=ignore_formatted,
        standalone=standalone,
        initial_controllers=[item.strip() for item in initial_controllers.split(",") if item.strip()],
        no_initial_controllers=no_initial_controllers,
        scram_users=add_scram or (),
    )
    now_ms = time.time_ns() // 1_000_000
    lines = format_storage(disk, settings, cluster_id, options, random=SystemRandom(), now_ms=now_ms)
    if as_json:
        print_json({"cluster_id": cluster_id, "done": lines})
    for line in [] if as_json else lines:
        typer.echo(line)


@app.command("info")
def info(config: ConfigOption, as_json: JsonOption = False) -> None:
    """Show the node and the cluster of a configuration's directories; the exit code is 1 if one is invalid."""
    from odradek.common.real_io import RealDisk
    from odradek.raft.quorum_state import uuid_text
    from odradek.server.startup.format import storage_directories
    from odradek.settings.node import load_node_settings

    disk = RealDisk()
    settings = load_node_settings(disk, config, environment=os.environ)
    found, problems = {}, []
    for directory in storage_directories(settings):
        try:
            found[directory] = _meta_properties(disk, directory)
        except ConfigError as error:
            problems += error.problems
    if len({meta.cluster_id for meta in found.values()}) > 1:
        problems.append("the directories belong to different clusters")
    if as_json:
        directories = {
            str(path): {
                "cluster_id": meta.cluster_id,
                "node_id": meta.node_id,
                "directory_id": uuid_text(meta.directory_id),
            }
            for path, meta in found.items()
        }
        print_json({"directories": directories, "problems": problems})
    else:
        for path, meta in found.items():
            typer.echo(f"Found log directory:\n  {path}\n\nFound metadata: {{{meta}}}\n")
        for problem in problems:
            typer.echo(f"Found problem:\n  {problem}\n")
    if problems:
        raise typer.Exit(1)


def _meta_properties(disk: Disk, directory: Path) -> MetaProperties:
    """Raises ConfigError for a directory that no node can use."""
    from odradek.server.startup.format import read_meta_properties

    if not disk.is_dir(directory):
        raise ConfigError([f"{directory} is not a directory"])
    meta = read_meta_properties(disk, directory)
    if meta is None:
        raise ConfigError([f"{directory} is not formatted"])
    return meta


def _features(items: list[str]) -> dict[str, int]:
    levels = {}
    for item in items:
        name, _, level = item.partition("=")
        if not name or not (level.isascii() and level.isdigit() and len(level) < 10):
            raise CliError(f"--feature {item}: must be feature=level", code=BAD_CONFIG)
        levels[name] = int(level)
    return levels
