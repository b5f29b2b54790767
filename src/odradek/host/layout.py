"""The stored plan of a machine's brokers, in a file on each disk: any one of these files is enough."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from odradek.common.errors import ConfigError
from odradek.common.ports import Disk, read_file, write_file_durably

LAYOUT_FILE = "odradek-host.json"


@dataclass(frozen=True, slots=True)
class Layout:
    """The brokers of a machine, and their directories.

    Attributes:
        votes: the number of brokers that are controllers.
        directories: the log directories of each broker.
        controllers: the controllers of other machines when this one joined.
        founded: whether the cluster began here.
        serial: of the files on several disks, the one with the highest serial counts.
    """

    cluster_id: str
    first_id: int
    votes: int
    directories: Mapping[int, Sequence[Path]]
    controllers: Sequence[str] = field(default=())
    founded: bool = True
    serial: int = 0


def read_layout(disk: Disk, disks: Sequence[Path]) -> Layout | None:
    """The plan on these disks; None if none of them has one.

    Raises:
        ConfigError: a file cannot be read, or the disks are of different clusters.
    """
    found = [layout for path in disks if (layout := _read(disk, path / LAYOUT_FILE)) is not None]
    clusters = sorted({layout.cluster_id for layout in found})
    if len(clusters) > 1:
        raise ConfigError([f"--data: disks of different clusters: {', '.join(clusters)}"])
    return max(found, key=lambda layout: layout.serial, default=None)


def is_everywhere(disk: Disk, disks: Sequence[Path], layout: Layout) -> bool:
    """Whether all disks have the same plan; a replaced disk has none. Raises ConfigError."""
    return all(_read(disk, path / LAYOUT_FILE) == layout for path in disks)


def write_layout(disk: Disk, disks: Sequence[Path], layout: Layout) -> None:
    """Write it to all disks. Raises OSError."""
    layout = replace(layout, serial=layout.serial + 1)
    text = {
        "cluster_id": layout.cluster_id,
        "first_id": layout.first_id,
        "votes": layout.votes,
        "brokers": {str(broker): list(map(str, dirs)) for broker, dirs in layout.directories.items()},
        "controllers": list(layout.controllers),
        "founded": layout.founded,
        "serial": layout.serial,
    }
    for path in disks:
        write_file_durably(disk, path / LAYOUT_FILE, json.dumps(text, indent=1).encode() + b"\n")


def _read(disk: Disk, path: Path) -> Layout | None:
    if not disk.exists(path):
        return None
    try:
        found = json.loads(read_file(disk, path))
        return Layout(
            str(found["cluster_id"]),
            int(found["first_id"]),
            int(found["votes"]),
            {int(broker): [Path(each) for each in dirs] for broker, dirs in found["brokers"].items()},
            list(map(str, found["controllers"])),
            bool(found["founded"]),
            int(found["serial"]),
        )
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise ConfigError([f"{path}: cannot be read: {error}; take the one of another disk"]) from None
