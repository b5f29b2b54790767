"""The settings of a node's start: a file, overrides, or nothing at all.

With nothing given, a node is broker and controller in one on 127.0.0.1, with internal topics of one replica.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from odradek.common.errors import ConfigError
from odradek.common.numbers import MAX_PORT, parse_natural
from odradek.common.ports import Disk, read_file
from odradek.settings.broker import BrokerSettings, resolve
from odradek.settings.config_providers import Sources
from odradek.settings.properties import parse_properties

LOCALHOST = "127.0.0.1"
BROKER_PORT, CONTROLLER_PORT = 9092, 9093
ZERO_CONFIG: Mapping[str, str] = {
    "process.roles": "broker,controller",
    "node.id": "1",
    "controller.listener.names": "CONTROLLER",
    "listeners": f"PLAINTEXT://{LOCALHOST}:{BROKER_PORT},CONTROLLER://{LOCALHOST}:{CONTROLLER_PORT}",
    "log.dirs": "./odradek-data",
    "offsets.topic.replication.factor": "1",
    "transaction.state.log.replication.factor": "1",
    "transaction.state.log.min.isr": "1",
    # Groups mostly have one member here, which should not wait for others, as in Kafka's example file.
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
    """The properties of a node without a file: defaults of a single node, and the overrides.

    Missing settings of listeners and quorum are added for the roles.
    """
    properties = {**ZERO_CONFIG, **overrides}
    if "log.dir" in overrides and "log.dirs" not in overrides:
        del properties["log.dirs"]
    if "broker.id" in overrides and "node.id" not in overrides:
        properties["node.id"] = overrides["broker.id"]
    roles = _names(properties["process.roles"])
    if not {"broker", "controller"} & roles:
        roles = {"broker", "controller"}  # what is wrong with them is said once
    properties["listeners"] = _listeners(properties, overrides, roles)
    has_quorum = {"controller.quorum.voters", "controller.quorum.bootstrap.servers"} & properties.keys()
    if "controller" in roles and not has_quorum:
        address = _controller_address(properties)
        if address:
            node_id = properties["node.id"]
            # What is wrong with the id is said once, too.
            properties["controller.quorum.voters"] = f"{node_id if node_id.isdecimal() else 1}@{address}"
    return properties


def _names(text: str) -> set[str]:
    return {name.strip() for name in text.split(",")} - {""}


def _listeners(properties: Mapping[str, str], overrides: Mapping[str, str], roles: set[str]) -> str:
    """The given listeners, and one for the controller if they have none."""
    controller = properties["controller.listener.names"].partition(",")[0].strip()
    if not overrides.get("listeners", "").strip():
        ours = {"broker": f"PLAINTEXT://{LOCALHOST}:{BROKER_PORT}"}
        ours["controller"] = f"{controller}://{LOCALHOST}:{CONTROLLER_PORT}"
        return ",".join(address for role, address in ours.items() if role in roles)
    given = overrides["listeners"]
    if "controller" not in roles or _controller_address(properties):
        return given
    ports = [parse_natural(entry.rpartition(":")[2].strip(), MAX_PORT) or 0 for entry in given.split(",")]
    free = next(
        port for port in (*range(ports[0] + 1, MAX_PORT + 1), *range(CONTROLLER_PORT, 0, -1)) if port not in ports
    )
    return f"{given},{controller}://{LOCALHOST}:{free if ports[0] else CONTROLLER_PORT}"


def _controller_address(properties: Mapping[str, str]) -> str:
    names = {name.upper() for name in _names(properties["controller.listener.names"])}
    for listener in properties["listeners"].split(","):
        name, _, address = listener.strip().partition("://")
        if name.upper() in names:
            return address if not address.startswith(":") else f"{LOCALHOST}{address}"
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
