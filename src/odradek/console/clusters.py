"""The clusters of the console, and the permissions of users: a TOML file, or the options of the command.

    [clusters.orders]
    bootstrap = "broker1:9092,broker2:9092"
    properties = "orders.properties"      # as --command-config of the other commands
    see = ["*"]                           # names of users; "*" is every user who is logged in
    read = ["alice", "bob"]               # records too
    change = ["alice"]

Without `change` a cluster is read-only. Passwords and keys in the properties stay in this process.
"""

from __future__ import annotations

import tomllib
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path
from typing import Any

from odradek.client.cluster import parse_bootstrap
from odradek.common.errors import ConfigError
from odradek.settings.properties import parse_properties

EVERYONE = "*"
# The prefix of groups of an issuer in the file.
GROUP = "group:"
NAME_LIMIT = 60


class Right(Enum):
    """The permissions of a user for a cluster, with the names of the file."""

    SEE = "see"
    READ = "read"
    CHANGE = "change"


# The users with a permission by default.
_DEFAULTS: Mapping[Right, Sequence[str]] = {Right.SEE: (EVERYONE,), Right.READ: (EVERYONE,), Right.CHANGE: ()}


@dataclass(frozen=True, slots=True)
class ClusterConfig:
    """One cluster.

    Attributes:
        properties: of the client; they may hold secrets, and never leave this process.
        schemas: the Avro schema of values, by topic.
    """

    name: str
    bootstrap: str
    properties: Mapping[str, str] = field(default_factory=dict, repr=False)
    rights: Mapping[Right, frozenset[str]] = field(
        default_factory=lambda: {right: frozenset(who) for right, who in _DEFAULTS.items()}
    )
    schemas: Mapping[str, str] = field(default_factory=dict)

    def allows(self, user: str, right: Right, groups: Collection[str] = ()) -> bool:
        """Whether a user has a permission; all need the permission to see the cluster."""
        asked = {Right.SEE, right}
        names = {user, EVERYONE, *(GROUP + group for group in groups)}
        return all(not names.isdisjoint(self.rights[each]) for each in asked)

    @property
    def is_read_only(self) -> bool:
        """Whether no user may change the cluster."""
        return not self.rights[Right.CHANGE]


def single_cluster(bootstrap: str, properties: Mapping[str, str], *, may_change: bool) -> dict[str, ClusterConfig]:
    """The one cluster that the command names. Raises ConfigError."""
    _check_bootstrap("--bootstrap-server", bootstrap)
    rights = {right: frozenset(who) for right, who in _DEFAULTS.items()}
    if may_change:
        rights[Right.CHANGE] = frozenset({EVERYONE})
    return {"cluster": ClusterConfig("cluster", bootstrap, properties, rights)}


def read_clusters(path: Path) -> dict[str, ClusterConfig]:
    """The clusters of a file, in its order.

    Raises:
        ConfigError: all that is wrong in it, one line each.
    """
    try:
        found = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise ConfigError([f"{path}: {error.strerror or error}; name a file that can be read"]) from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ConfigError([f"{path}: this is no TOML: {error}"]) from None
    problems = [f"{path}: unknown: {key}; there are [clusters.NAME]" for key in found if key != "clusters"]
    clusters: dict[str, ClusterConfig] = {}
    listed = found.get("clusters")
    if not isinstance(listed, dict) or not listed:
        raise ConfigError([*problems, f'{path}: no cluster; write [clusters.NAME] with bootstrap = "host:port"'])
    for name, given in listed.items():
        try:
            clusters[name] = _cluster(name, given, path.parent)
        except ConfigError as error:
            problems += [f"{path}: [clusters.{name}] {problem}" for problem in error.problems]
    if problems:
        raise ConfigError(problems)
    return clusters


def _cluster(name: str, given: Any, directory: Path) -> ClusterConfig:
    if not isinstance(given, dict):
        raise ConfigError(["is not a table"])
    if not name or len(name) > NAME_LIMIT or not name.replace("-", "").replace("_", "").replace(".", "").isalnum():
        raise ConfigError(["a name has letters, digits, '.', '_' and '-'"])
    known = {"bootstrap", "properties", "avro", *(right.value for right in Right)}
    unknown = sorted(given.keys() - known)
    if unknown:
        raise ConfigError([f"unknown: {', '.join(unknown)}; there are {', '.join(sorted(known))}"])
    properties = _properties(given.get("properties"), directory)
    bootstrap = given.get("bootstrap", properties.get("bootstrap.servers", ""))
    if not isinstance(bootstrap, str):
        raise ConfigError(["bootstrap is not a text"])
    _check_bootstrap("bootstrap", bootstrap)
    rights = {right: _names(right, given.get(right.value, list(_DEFAULTS[right]))) for right in Right}
    return ClusterConfig(name, bootstrap, properties, rights, _schemas(given.get("avro", {}), directory))


def _check_bootstrap(what: str, bootstrap: str) -> None:
    try:
        parse_bootstrap(bootstrap)
    except ValueError as error:
        raise ConfigError([f"{what}: {error}; give host:port[,host:port]…"]) from None


def _properties(named: Any, directory: Path) -> dict[str, str]:
    if named is None:
        return {}
    if isinstance(named, dict) and all(isinstance(value, str) for value in named.values()):
        return dict(named)
    if not isinstance(named, str):
        raise ConfigError(["properties is the name of a file, or a table of texts"])
    try:
        return parse_properties((directory / named).read_text(encoding="utf-8"))
    except OSError as error:
        raise ConfigError([f"properties {named}: {error.strerror or error}"]) from None
    except ValueError:
        # The invalid line may have a password.
        raise ConfigError([f"properties {named}: write it as key=value lines"]) from None


def _names(right: Right, given: Any) -> frozenset[str]:
    if not isinstance(given, list) or not all(isinstance(each, str) and each for each in given):
        raise ConfigError([f'{right.value} is a list of names, as ["alice"], or ["*"] for everyone'])
    return frozenset(given)


def _schemas(given: Any, directory: Path) -> dict[str, str]:
    if not isinstance(given, dict) or not all(isinstance(each, str) for each in given.values()):
        raise ConfigError(['avro is a table: topic = "file.avsc"'])
    schemas = {}
    for topic, name in given.items():
        try:
            schemas[topic] = (directory / name).read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise ConfigError([f"avro {topic}: {name}: {error}"]) from None
    return schemas
