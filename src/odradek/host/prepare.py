"""Prepares the start of brokers: computes the plan, formats new brokers, writes their properties."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING

from odradek.common.errors import ConfigError
from odradek.common.ports import Disk, make_dirs_durably, write_file_durably
from odradek.host.layout import LAYOUT_FILE, Layout, is_everywhere, read_layout, write_layout
from odradek.host.plan import (
    METRICS_LISTENER,
    STATIC_VOTERS,
    BrokerPlan,
    HostPlan,
    plan_host,
    share_out,
    without_a_file,
)
from odradek.settings.node import load_properties, parse_overrides
from odradek.settings.properties import format_properties

if TYPE_CHECKING:
    from random import Random

META_FILE = "meta.properties"


@dataclass(frozen=True, slots=True)
class HostOptions:
    """The options of the command line.

    Attributes:
        cores: the number of brokers.
        config: the properties that all brokers share; without a file they are for this machine alone.
        disks: directories on different disks.
        port: of the first broker, without a file.
        first_id: None: the layout's, that of the cluster that is joined, or 1.
        votes: the number of controllers; None: the best number.
        replaced: whether a disk that should have brokers may be empty.
    """

    cores: int
    disks: Sequence[Path]
    config: Path | None = None
    override: Sequence[str] = ()
    port: int = 0
    first_id: int | None = None
    votes: int | None = None
    replaced: bool = False


@dataclass(frozen=True, slots=True)
class Joined:
    """The cluster that a machine joins, as its brokers describe it."""

    cluster_id: str
    first_id: int
    controllers: Sequence[str]
    votes: int


@dataclass(frozen=True, slots=True)
class Prepared:
    """Brokers that may start.

    Attributes:
        added: brokers that are new, in a cluster that is not.
    """

    plan: HostPlan
    layout: Layout
    added: Sequence[int] = field(default=())


def make_disks(disk: Disk, disks: Sequence[Path]) -> None:
    """Make the directories that are named. Raises ConfigError."""
    for path in disks:
        try:
            make_dirs_durably(disk, path)
        except OSError as error:
            raise ConfigError([f"--data {path}: {error.strerror or error}"]) from None


def check_disks(disk: Disk, options: HostOptions, known: Layout) -> None:
    """Refuse a disk that lost its content: an unmounted disk must not be used as an empty one. Writes nothing.

    Raises:
        ConfigError: a disk with brokers is empty, and `replaced` is not set.
    """
    if options.replaced:
        return
    ids = range(known.first_id, known.first_id + options.cores)
    lost = {
        directory.parent: broker
        for broker in ids
        for directory in known.directories.get(broker, ())
        if not disk.exists(directory.parent / LAYOUT_FILE) and not disk.exists(directory / META_FILE)
    }
    if lost:
        raise ConfigError(
            [
                f"{path}: broker {broker} was there, and nothing is: mount the disk; --replace-disk takes a new one"
                for path, broker in lost.items()
            ]
        )


def prepare(disk: Disk, options: HostOptions, joined: Joined | None, *, random: Random, now_ms: int) -> Prepared:
    """Compute the plan, format, and write the files of all brokers, on created and locked disks. Blocks.

    Raises:
        ConfigError: invalid settings, disks that cannot be written, fewer cores than there are brokers.
    """
    known = read_layout(disk, options.disks)
    layout = _grown(known, options) if known is not None else _new(options, joined, random)
    plan = plan_with(disk, options, layout)
    if layout != known or not is_everywhere(disk, options.disks, layout):
        write_layout(disk, options.disks, layout)
    write_properties(disk, plan)
    fresh = [each for each in plan.brokers if not _is_formatted(disk, each)]
    # A quorum is formatted once: if any broker is formatted, one with a replaced disk must join the others.
    founds = layout.founded and len(fresh) == len(plan.brokers)
    for broker in fresh:
        _format(disk, broker, layout.cluster_id, founds and broker is fresh[0], random=random, now_ms=now_ms)
    return Prepared(plan, layout, [] if founds else [each.broker_id for each in fresh])


def planned_again(disk: Disk, options: HostOptions, prepared: Prepared) -> HostPlan:
    """The plan by the configuration as it is now, with the properties of all brokers written. Blocks.

    Raises:
        ConfigError: the configuration cannot be, or moves the pages, where the host is found while it runs.
    """
    plan = plan_with(disk, options, prepared.layout)
    if plan.pages != prepared.plan.pages:
        raise ConfigError([f"{METRICS_LISTENER}: cannot change while the host runs; stop it and start it"])
    write_properties(disk, plan)
    return plan


def plan_with(disk: Disk, options: HostOptions, layout: Layout) -> HostPlan:
    """The plan by the configuration as it is now. Raises ConfigError."""
    return plan_host(
        shared_properties(disk, options),
        layout.directories,
        first_id=layout.first_id,
        votes=layout.votes,
        controllers=layout.controllers,
    )


def shared_properties(disk: Disk, options: HostOptions) -> dict[str, str]:
    """The common settings of all brokers. Raises ConfigError."""
    if options.config is None:
        shared = without_a_file(options.cores, options.port)
    else:
        shared = load_properties(disk, options.config)
    return {**shared, **parse_overrides(options.override)}


def write_properties(disk: Disk, plan: HostPlan) -> None:
    """Write the properties of each broker, readable only by its user, since they may have passwords.

    Raises ConfigError.
    """
    comment = " Written by `odradek host` at each start and roll, from the configuration of all brokers here."
    before = os.umask(0o077)
    try:
        for broker in plan.brokers:
            text = format_properties(dict(broker.properties), comment=comment)
            write_file_durably(disk, broker.config, text.encode("latin-1"))
    except OSError as error:
        raise ConfigError([f"{error.filename}: cannot be written: {error.strerror or error}"]) from None
    finally:
        os.umask(before)


def _new(options: HostOptions, joined: Joined | None, random: Random) -> Layout:
    """The layout of a machine that has none."""
    from odradek.raft.quorum_state import uuid_text
    from odradek.server.startup.format import random_id

    for path in options.disks:
        if used := sorted(path.glob(f"broker-*/{META_FILE}")):
            held = ", ".join(each.parent.name for each in used)
            raise ConfigError(
                [f"--data {path}: holds {held}, and no disk has {LAYOUT_FILE}: copy that of another disk there"]
            )
    votes = options.votes
    if joined is None:
        first = 1 if options.first_id is None else options.first_id
        layout = Layout(uuid_text(random_id(random)), first, 1 if votes is None else votes, {})
    else:
        first = joined.first_id if options.first_id is None else options.first_id
        votes = joined.votes if votes is None else votes
        layout = Layout(joined.cluster_id, first, votes, {}, joined.controllers, founded=False)
    if layout.founded and not layout.votes:
        raise ConfigError(["--voters 0: a new cluster needs a controller; --join names one that exists"])
    return _grown(layout, options)


def _grown(layout: Layout, options: HostOptions) -> Layout:
    """With as many brokers as there are cores now. Raises ConfigError."""
    if options.first_id not in (None, layout.first_id):
        raise ConfigError([f"--first-id {options.first_id}: the first broker here is {layout.first_id}, and stays it"])
    ids = range(layout.first_id, layout.first_id + options.cores)
    beyond = [broker for broker in layout.directories if broker not in ids and _holds_data(layout, broker)]
    if beyond:
        without = ",".join(map(str, beyond))
        raise ConfigError(
            [
                f"--cores {options.cores}: brokers {without} exist. Move what they hold with `odradek partitions plan "
                f"--without {without}` and `move`, stop the host, and remove {_paths(layout, beyond)}"
            ]
        )
    votes = layout.votes if options.votes is None else options.votes
    return replace(layout, votes=votes, directories=share_out(options.disks, layout.directories, ids))


def _holds_data(layout: Layout, broker: int) -> bool:
    return any(each.exists() for each in layout.directories[broker])


def _paths(layout: Layout, brokers: Sequence[int]) -> str:
    return " ".join(str(path) for broker in brokers for path in layout.directories[broker])


def _is_formatted(disk: Disk, broker: BrokerPlan) -> bool:
    return any(disk.exists(each / META_FILE) for each in broker.directories)


def _format(disk: Disk, broker: BrokerPlan, cluster_id: str, founds: bool, *, random: Random, now_ms: int) -> None:
    """Raises ConfigError."""
    from odradek.server.startup.format import FormatOptions, format_storage
    from odradek.settings.node import load_node_settings

    settings = load_node_settings(disk, broker.config, environment=os.environ)
    is_dynamic = not settings.values[STATIC_VOTERS] and broker.votes
    options = FormatOptions(standalone=is_dynamic and founds, no_initial_controllers=is_dynamic and not founds)
    format_storage(disk, settings, cluster_id, options, random=random, now_ms=now_ms)
