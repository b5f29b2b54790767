"""Kafka's table of settings: name, type, default, valid values and update mode of all that Kafka 4.4 has.

The table is data (`kafka_settings.tsv`), read once and lazily. A value is text in a file and on the wire; `parse`
converts it to a Python value, or reports the valid values. This module does not know which settings are honoured.
"""

from __future__ import annotations

import functools
import re
from dataclasses import dataclass
from enum import Enum
from importlib import resources
from typing import Any

from odradek.common.numbers import INT64_MAX
from odradek.settings.formats import FORMATS

Value = bool | int | float | str | list[str] | None


class Scope(Enum):
    """The scope of a setting."""

    BROKER = "broker"
    TOPIC = "topic"
    GROUP = "group"


class UpdateMode(Enum):
    """Whether a running broker accepts a new value, for itself or the whole cluster (KIP-226)."""

    READ_ONLY = "ro"
    PER_BROKER = "pb"
    CLUSTER_WIDE = "cw"
    ALWAYS = "-"


# Settings that are dynamic in Kafka but not here: the described value must be the effective one.
_FIXED_HERE = frozenset({"config.providers"})
_INTEGER_LIMITS = {"int": 2**31, "long": 2**63, "short": 2**15}
_RANGE = re.compile(r"^\[(-?\d+),\.\.\.(?:,(-?\d+))?\](?: or (-?\d+))?$")
_CHOICE = re.compile(r"^(\(case insensitive\) )?\[([A-Za-z0-9_, ]+)\]$")
_THROTTLED = re.compile(r"^\d+:\d+$", re.ASCII)
_BY_DURATION = re.compile(
    r"^by_duration:P(?=.)(?:\d+D)?(?:T(?=\d)(?:\d+H)?(?:\d+M)?(?:\d+(?:\.\d{1,9})?S)?)?$", re.ASCII | re.IGNORECASE
)


@dataclass(frozen=True, slots=True)
class Setting:
    """One row of the table.

    Attributes:
        default: as text, None where Kafka's default is null.
        required: there is no default.
        valid: Kafka's description of valid values, "" where all values of the type are.
    """

    scope: Scope
    name: str
    type: str
    mode: UpdateMode
    default: str | None
    required: bool
    valid: str

    @property
    def is_fixed(self) -> bool:
        """Whether a running broker refuses another value: Kafka's does, or ours."""
        return self.mode is UpdateMode.READ_ONLY or (self.scope is Scope.BROKER and self.name in _FIXED_HERE)

    @property
    def sensitive(self) -> bool:
        """A secret: never shown, logged or described."""
        return self.type == "password"

    def parse(self, text: str | None) -> Value:
        """The typed value of a text.

        Raises:
            ValueError: with the valid values; the caller adds the key.
        """
        if text is None:
            return None
        value = _parse_type(self.type, text)
        self._check(value)
        return value

    def default_value(self) -> Value:
        return None if self.default is None else _parse_type(self.type, self.default)

    def _check(self, value: Value) -> None:
        if isinstance(value, str) and (read := FORMATS.get(self.name)):
            read(value)
        elif isinstance(value, int | float) and not isinstance(value, bool):
            self._check_range(value)
        elif self.valid.startswith("[partitionId]"):
            _check_throttled(value)
        elif "by_duration" in self.valid:
            _check_reset(value)
        elif self.valid.startswith("non-empty"):
            if not value:
                raise ValueError("must not be empty")
        elif isinstance(value, list | str) and (choice := _CHOICE.match(self.valid)):
            _check_choice(value, choice)

    def _check_range(self, value: float) -> None:
        bounds = _RANGE.match(self.valid)
        if bounds is None:
            return
        low, high, beside = bounds.groups()
        if beside is not None and value == int(beside):
            return
        if value < int(low):
            raise ValueError(f"must be at least {low}")
        if high is not None and value > int(high):
            raise ValueError(f"must be at most {high}")


def _check_reset(value: Value) -> None:
    if value not in ("latest", "earliest") and not (isinstance(value, str) and _BY_DURATION.match(value)):
        raise ValueError("must be latest, earliest or by_duration:PnDTnHnMn.nS")


def _check_choice(value: list[str] | str, choice: re.Match[str]) -> None:
    ignores_case, names = choice.groups()
    allowed = [name.strip() for name in names.split(",")]
    for item in value if isinstance(value, list) else [value]:
        if item not in allowed and not (ignores_case and item.upper() in allowed):
            raise ValueError(f"must be one of {', '.join(allowed)}")


def _check_throttled(value: Value) -> None:
    """`*`, or a list of partition:broker."""
    items = value if isinstance(value, list) else []
    if items != ["*"] and not all(_THROTTLED.match(item) for item in items):
        raise ValueError("must be * or a list of partitionId:brokerId")


def _parse_type(kind: str, text: str) -> Value:
    text = text.strip()
    if kind == "boolean":
        lowered = text.lower()
        if lowered not in ("true", "false"):
            raise ValueError("must be true or false")
        return lowered == "true"
    if kind in _INTEGER_LIMITS:
        return _parse_integer(kind, text)
    if kind == "double":
        try:
            return float(text)
        except ValueError:
            raise ValueError("must be a number") from None
    if kind == "list":
        return [item.strip() for item in text.split(",")] if text else []
    return text


def _parse_integer(kind: str, text: str) -> int:
    limit = _INTEGER_LIMITS[kind]
    try:
        number = int(text) if re.fullmatch(r"[+-]?\d+", text, re.ASCII) else None
    except ValueError:
        number = None
    if number is None or not -limit <= number < limit:
        raise ValueError(f"must be a number of type {kind}")
    return number


@functools.cache
def table(scope: Scope) -> dict[str, Setting]:
    """All settings of one scope by name, in the table's order."""
    text = resources.files("odradek.settings").joinpath("kafka_settings.tsv").read_text()
    settings = {}
    for line in text.splitlines()[1:]:
        where, name, kind, mode, default, valid = line.split("\t")
        if where == scope.value:
            known = None if default in ("~", "!") else default
            settings[name] = Setting(scope, name, kind, UpdateMode(mode), known, default == "!", valid)
    return settings


# Broker settings that Kafka accepts only at run time: no file may have them, and Kafka's tables lack them.
DYNAMIC_ONLY = {
    name: Setting(Scope.BROKER, name, "long", UpdateMode.CLUSTER_WIDE, str(INT64_MAX), False, "[0,...]")
    for name in (
        "leader.replication.throttled.rate",
        "follower.replication.throttled.rate",
        "replica.alter.log.dirs.io.max.bytes.per.second",
    )
}

DYNAMIC_ONLY_DOCS = {
    "leader.replication.throttled.rate": "Bytes per second that the broker sends to throttled followers (KIP-73).",
    "follower.replication.throttled.rate": "Bytes per second that the broker fetches as a throttled follower (KIP-73).",
    "replica.alter.log.dirs.io.max.bytes.per.second": "Bytes per second of moves between log directories (KIP-113).",
}


# Settings in files that Kafka's tables lack: those of its authorizer, and our own.
OWN = {
    row.name: row
    for row in (
        Setting(Scope.BROKER, "super.users", "string", UpdateMode.READ_ONLY, "", False, ""),
        Setting(Scope.BROKER, "allow.everyone.if.no.acl.found", "boolean", UpdateMode.READ_ONLY, "false", False, ""),
        Setting(Scope.BROKER, "broker.host", "string", UpdateMode.READ_ONLY, None, False, ""),
        Setting(
            Scope.BROKER,
            "odradek.max.decompressed.batch.bytes",
            "int",
            UpdateMode.READ_ONLY,
            str(64 * 1024 * 1024),
            False,
            "[1,...,2147483639]",
        ),
        Setting(Scope.BROKER, "odradek.secret.key.file", "string", UpdateMode.READ_ONLY, None, False, ""),
        Setting(Scope.BROKER, "odradek.trust.producers", "boolean", UpdateMode.READ_ONLY, "false", False, ""),
        Setting(Scope.BROKER, "odradek.log.scrub.enable", "boolean", UpdateMode.READ_ONLY, "true", False, ""),
        Setting(
            Scope.BROKER, "odradek.log.scrub.interval.ms", "long", UpdateMode.READ_ONLY, "86400000", False, "[1,...]"
        ),
        Setting(
            Scope.BROKER, "odradek.log.scrub.bytes.per.second", "int", UpdateMode.READ_ONLY, "4194304", False, "[1,...]"
        ),
        Setting(
            Scope.BROKER, "odradek.client.metrics.max.series", "int", UpdateMode.READ_ONLY, "2000", False, "[0,...]"
        ),
        Setting(Scope.BROKER, "odradek.log.format", "string", UpdateMode.READ_ONLY, "text", False, "[text, json]"),
        Setting(
            Scope.BROKER,
            "odradek.metrics.names",
            "string",
            UpdateMode.READ_ONLY,
            "odradek",
            False,
            "[odradek, kafka, both]",
        ),
        Setting(Scope.BROKER, "odradek.request.slow.ms", "long", UpdateMode.READ_ONLY, "0", False, "[0,...]"),
        Setting(Scope.BROKER, "odradek.group.lag.interval.ms", "long", UpdateMode.READ_ONLY, "30000", False, "[0,...]"),
        Setting(
            Scope.BROKER, "odradek.group.lag.max.partitions", "int", UpdateMode.READ_ONLY, "2000", False, "[0,...]"
        ),
    )
}


def setting(scope: Scope, name: str) -> Setting | None:
    """One row, or None where neither Kafka nor this house has such a setting."""
    found = table(scope).get(name)
    return DYNAMIC_ONLY.get(name, OWN.get(name)) if found is None and scope is Scope.BROKER else found


# Kafka hides certificates as it hides keys; they are shown to every peer.
_CERTIFICATES = frozenset({"ssl.keystore.certificate.chain", "ssl.truststore.certificates"})
# The prefix of a stored secret.
SEALED_PREFIX = "odradek.sealed.1:"
# How the names of secrets end that no table has: those of plugins, and misspelled ones.
_ENDS_OF_SECRETS = (".password", ".passphrase", ".secret", ".secret.key", "jaas.config")


def is_secret(name: str) -> bool:
    """Whether a broker's setting is a secret, of all or of one listener (`listener.name.x.ssl.key.password`)."""
    known = table(Scope.BROKER)
    behind = name
    while behind not in known and "." in behind:
        behind = behind.partition(".")[2]
    if behind in known:
        return known[behind].sensitive and behind not in _CERTIFICATES
    return name.endswith(_ENDS_OF_SECRETS)


def format_value(value: Any) -> str | None:
    """A value as Kafka writes it in answers and files."""
    if value is None:
        return None
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, list | tuple):
        return ",".join(str(item) for item in value)
    return str(value)


# The broker settings for the default of a topic setting, in order of precedence, with the factor to the topic's unit.
# A topic setting that is not here has a broker setting of the same name (min.insync.replicas), or none.
TOPIC_SYNONYMS: dict[str, tuple[tuple[str, int], ...]] = {
    "cleanup.policy": (("log.cleanup.policy", 1),),
    "delete.retention.ms": (("log.cleaner.delete.retention.ms", 1),),
    "file.delete.delay.ms": (("log.segment.delete.delay.ms", 1),),
    "flush.messages": (("log.flush.interval.messages", 1),),
    "flush.ms": (("log.flush.interval.ms", 1), ("log.flush.scheduler.interval.ms", 1)),
    "index.interval.bytes": (("log.index.interval.bytes", 1),),
    "local.retention.bytes": (("log.local.retention.bytes", 1),),
    "local.retention.ms": (("log.local.retention.ms", 1),),
    "max.compaction.lag.ms": (("log.cleaner.max.compaction.lag.ms", 1),),
    "max.message.bytes": (("message.max.bytes", 1),),
    "message.timestamp.after.max.ms": (("log.message.timestamp.after.max.ms", 1),),
    "message.timestamp.before.max.ms": (("log.message.timestamp.before.max.ms", 1),),
    "message.timestamp.type": (("log.message.timestamp.type", 1),),
    "min.cleanable.dirty.ratio": (("log.cleaner.min.cleanable.ratio", 1),),
    "min.compaction.lag.ms": (("log.cleaner.min.compaction.lag.ms", 1),),
    "preallocate": (("log.preallocate", 1),),
    "remote.copy.lag.bytes": (("log.remote.copy.lag.bytes", 1),),
    "remote.copy.lag.ms": (("log.remote.copy.lag.ms", 1),),
    "retention.bytes": (("log.retention.bytes", 1),),
    "retention.ms": (("log.retention.ms", 1), ("log.retention.minutes", 60_000), ("log.retention.hours", 3_600_000)),
    "segment.bytes": (("log.segment.bytes", 1),),
    "segment.index.bytes": (("log.index.size.max.bytes", 1),),
    "segment.jitter.ms": (("log.roll.jitter.ms", 1), ("log.roll.jitter.hours", 3_600_000)),
    "segment.ms": (("log.roll.ms", 1), ("log.roll.hours", 3_600_000)),
}

# Group settings take their default from the broker setting with "group." before their name.
GROUP_SYNONYM_PREFIX = "group."


def broker_synonyms(topic_key: str) -> tuple[tuple[str, int], ...]:
    """The broker settings behind a topic setting: (key, factor to the topic's unit), by falling precedence."""
    listed = TOPIC_SYNONYMS.get(topic_key)
    if listed is not None:
        return listed
    return ((topic_key, 1),) if topic_key in table(Scope.BROKER) else ()


@functools.cache
def broker_key_family(key: str) -> tuple[str, ...]:
    """The broker settings that set one thing in several units (ms, minutes, hours), or only the one."""
    for behind in TOPIC_SYNONYMS.values():
        names = tuple(name for name, _ in behind)
        if key in names:
            return names
    return (key,)
