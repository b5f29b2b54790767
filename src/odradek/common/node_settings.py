"""The settings a node starts with: a file, overrides, or nothing at all.

With nothing given, a node is broker and controller in one on 127.0.0.1, with internal topics of one replica.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from odradek.common.broker_settings import BrokerSettings, resolve
from odradek.common.config_providers import Sources
from odradek.common.errors import ConfigError
from odradek.common.ports import Disk, read_file
from odradek.common.properties import parse_properties

ZERO_CONFIG: Mapping[str, str] = {
    "process.roles": "broker,controller",
    "node.id": "1",
    "controller.listener.names": "CONTROLLER",
    "listeners": "PLAINTEXT://127.0.0.1:9092,CONTROLLER://127.0.0.1:9093",
    "log.dirs": "./odradek-data",
    "offsets.topic.replication.factor": "1",
    "transaction.state.log.replication.factor": "1",
    "transaction.state.log.min.isr": "1",
    # A group of one reader is the rule here, and has no others to wait for, as in the file that Kafka comes with.
    "group.initial.rebalance.delay.ms": "0",
}
MAX_FILE_BYTES = 16 * 1024 * 1024


def load_properties(disk: Disk, path: Path) -> dict[str, str]:
    """Read a properties file. Like Kafka, it is taken as ISO 8859-1; other characters are written as escapes.

    Raises:
        ConfigError: missing, unreadable or malformed; one line with the path.
    """
    try:
        if disk.size(path) > MAX_FILE_BYTES:
            raise ConfigError([f"{path}: larger than {MAX_FILE_BYTES} bytes; is it a properties file?"])
        return parse_properties(read_file(disk, path).decode("latin-1"))
    except OSError as error:
        raise ConfigError(
            [f"{path}: cannot be read: {error.strerror or error}; name a properties file, or leave --config out"]
        ) from None
    except ValueError as error:
        raise ConfigError([f"{path}: {error}"]) from None


def parse_overrides(overrides: Sequence[str]) -> dict[str, str]:
    """`key=value` from the command line; the last of two equal keys wins.

    Raises:
        ConfigError: one without `=` or without a key.
    """
    found, problems = {}, []
    for override in overrides:
        key, equals, value = override.partition("=")
        if not equals or not key.strip():
            problems.append(f"--override {override!r}: must be key=value")
        else:
            found[key.strip()] = value
    if problems:
        raise ConfigError(problems)
    return found


def zero_config(overrides: Mapping[str, str]) -> dict[str, str]:
    """The properties of a node that was given no file: defaults of a single node, below the overrides."""
    properties = {**ZERO_CONFIG, **overrides}
    if "log.dir" in overrides and "log.dirs" not in overrides:
        del properties["log.dirs"]
    if "broker.id" in overrides and "node.id" not in overrides:
        properties["node.id"] = overrides["broker.id"]
    if "controller.quorum.voters" not in properties and "controller.quorum.bootstrap.servers" not in properties:
        address = _controller_address(properties)
        if address:
            properties["controller.quorum.voters"] = f"{properties['node.id']}@{address}"
    return properties


def _controller_address(properties: Mapping[str, str]) -> str:
    names = {name.strip().upper() for name in properties["controller.listener.names"].split(",")}
    for listener in properties["listeners"].split(","):
        name, _, address = listener.strip().partition("://")
        if name.upper() in names:
            return address if not address.startswith(":") else f"127.0.0.1{address}"
    return ""


def load_node_settings(
    disk: Disk,
    config: Path | None,
    overrides: Sequence[str] = (),
    *,
    environment: Mapping[str, str],
    honoured: frozenset[str] | None = None,
) -> BrokerSettings:
    """All that a node needs to know before it starts.

    Args:
        config: a properties file; None is the single node of `ZERO_CONFIG`.
        overrides: `key=value`, above the file.
        honoured: see `broker_settings.resolve`.
    Raises:
        ConfigError: every problem of file, overrides and values, one line each.
    """
    changed = parse_overrides(overrides)
    properties = zero_config(changed) if config is None else {**load_properties(disk, config), **changed}
    sources = Sources(environment, lambda path: read_file(disk, path).decode())
    return resolve(properties, sources, honoured=honoured)
