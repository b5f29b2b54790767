"""Settings of topics, brokers and groups: validation for AlterConfigs, and descriptions for DescribeConfigs.

A value has layers: the resource's own, this broker's dynamic ones, the cluster's dynamic defaults, the file, Kafka's
default (KIP-226). `SettingRules` has the tables and the file; each call gets the dynamic layers of the metadata image.
This module changes no state.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Mapping
from dataclasses import dataclass, field, replace
from enum import IntEnum
from typing import Any, NamedTuple, Protocol

from odradek.common.errors import ConfigError
from odradek.settings.broker import BrokerSettings, topic_default
from odradek.settings.client_metrics import KEYS as CLIENT_METRICS_KEYS
from odradek.settings.client_metrics import client_metrics_problems
from odradek.settings.link_settings import LINK_SECRETS
from odradek.settings.links import link_problems, split_key
from odradek.settings.listener_changes import (
    LISTENERS,
    PROTOCOL_MAP,
    is_fixed_listener_key,
    names_in,
    with_listeners,
)
from odradek.settings.listeners import LISTENER_PREFIX, split_listener_key
from odradek.settings.options import specs_of
from odradek.settings.rules import READ_BY_THE_NODE, check_relations, unserved_guards
from odradek.settings.table import (
    DYNAMIC_ONLY_DOCS,
    GROUP_SYNONYM_PREFIX,
    OWN,
    Scope,
    Setting,
    UpdateMode,
    Value,
    broker_key_family,
    broker_synonyms,
    format_value,
    is_secret,
    setting,
    table,
)
from odradek.settings.unused import reason_unused

TOPIC, BROKER, BROKER_LOGGER, CLIENT_METRICS, GROUP = 2, 4, 8, 16, 32
_SCOPES = {TOPIC: Scope.TOPIC, BROKER: Scope.BROKER, GROUP: Scope.GROUP}
_NO_LAYER: Mapping[str, str] = {}


class ConfigSource(IntEnum):
    """The source of a described value: the numbers of DescribeConfigsResponse."""

    UNKNOWN = 0
    DYNAMIC_TOPIC_CONFIG = 1
    DYNAMIC_BROKER_CONFIG = 2
    DYNAMIC_DEFAULT_BROKER_CONFIG = 3
    STATIC_BROKER_CONFIG = 4
    DEFAULT_CONFIG = 5
    DYNAMIC_BROKER_LOGGER_CONFIG = 6
    DYNAMIC_CLIENT_METRICS_CONFIG = 7
    DYNAMIC_GROUP_CONFIG = 8


class ConfigType(IntEnum):
    """Types of settings: numbers of DescribeConfigsResponse (KIP-569)."""

    UNKNOWN = 0
    BOOLEAN = 1
    STRING = 2
    INT = 3
    SHORT = 4
    LONG = 5
    DOUBLE = 6
    LIST = 7
    CLASS = 8
    PASSWORD = 9


@dataclass(frozen=True, slots=True)
class ConfigSynonym:
    """One layer that could give the value; `value` is None for null and for secrets."""

    name: str
    value: str | None
    source: ConfigSource


@dataclass(frozen=True, slots=True)
class ConfigEntry:
    """One described setting.

    Attributes:
        synonyms: the layers with a value, in order of precedence, as they were written. Values under another name are
            omitted if no layer has the setting's own name (as in Kafka): if only the hours of a retention are given, a
            topic's `retention.ms` has none.
    """

    name: str
    value: str | None
    source: ConfigSource
    read_only: bool
    sensitive: bool
    type: ConfigType
    synonyms: tuple[ConfigSynonym, ...]
    documentation: str


class EffectiveSetting(NamedTuple):
    """The effective value of a topic's setting, in its own unit, with its layer."""

    name: str
    value: str | None
    source: ConfigSource


@dataclass(frozen=True, slots=True)
class BrokerLayers:
    """The dynamic settings of one broker, and those of all brokers together."""

    broker: Mapping[str, str] = field(repr=False)
    cluster: Mapping[str, str] = field(repr=False)


NO_DYNAMIC = BrokerLayers({}, {})


def combined_list(old: str, given: str, *, append: bool) -> str:
    """A list with more, or fewer, entries (KIP-339)."""
    parts = [part.strip() for part in old.split(",") if part.strip()]
    named = [part.strip() for part in given.split(",") if part.strip()]
    if append:
        parts.extend(part for part in dict.fromkeys(named) if part not in parts)
    else:
        parts = [part for part in parts if part not in named]
    return ",".join(parts)


def option_docs(config_classes: Iterable[type[Any]]) -> dict[str, str]:
    """Our sentence for each key that classes of `option()` fields declare, or that the node reads itself."""
    docs: dict[str, str] = {**READ_BY_THE_NODE, **DYNAMIC_ONLY_DOCS}
    for spec in specs_of(config_classes):
        docs |= {key: docs.get(key, spec.doc) for key in spec.other_broker_keys}
        docs |= {key: spec.doc for key in (spec.key, spec.topic_key, spec.group_key) if key}
    return docs


def with_dynamic(settings: BrokerSettings, layers: BrokerLayers) -> BrokerSettings:
    """The settings of a running broker: dynamic layers above the file.

    A stored value that this release cannot read is ignored, since a running broker must not stop. Values that
    AlterConfigs accepts are always readable.
    """
    explicit, values = dict(settings.explicit), dict(settings.values)
    of_file = {each.name.lower() for each in settings.listeners}
    for layer in (layers.cluster, layers.broker):
        for key, text in layer.items():
            if key.startswith(LISTENER_PREFIX) and _is_readable(key, text, of_file):
                explicit[key] = text
            row = setting(Scope.BROKER, key)
            if row is None or row.is_fixed:
                continue
            try:
                values[key] = row.parse(text)
            except ValueError:
                continue
            explicit[key] = text
    current = replace(settings, explicit=explicit, values=values)
    if all(values[key] == settings.values[key] for key in (LISTENERS, PROTOCOL_MAP)):
        return current
    return with_listeners(current)


def _is_readable(key: str, text: str, of_file: Container[str]) -> bool:
    """Whether a setting of one listener may change at run time, and its value can be read.

    What is read when a listener is bound may be set for listeners that are not among those of the file, `of_file`.
    """
    name, _, base = split_listener_key(key)
    row = setting(Scope.BROKER, base)
    try:
        return row is not None and not (row.is_fixed and name in of_file) and row.parse(text) is not None
    except ValueError:
        return False


class Sealer(Protocol):
    """Encrypts secrets before they are stored."""

    def stored(self, broker: str, key: str, text: str, old: str | None) -> str:
        """The stored form of a secret; `old` is the present one.

        Raises:
            ConfigError: it must not be stored.
        """
        ...


class SettingRules:
    """The tables of settings with one node's file. Implements the controller's interface of a schema."""

    def __init__(self, settings: BrokerSettings, docs: Mapping[str, str] = _NO_LAYER, *, sealer: Sealer) -> None:
        """`docs` holds our sentence for a key (`option_docs`)."""
        self._settings = settings
        self._docs = docs
        self._sealer = sealer
        self._plain_topic: list[EffectiveSetting] = []
        self._plain_layers: BrokerLayers | None = None

    def validate(self, resource_type: int, resource_name: str, settings: Mapping[str, str]) -> None:
        """Check all settings of a resource together.

        Raises:
            ConfigError: an unknown key of a topic or group, a value out of bounds, a read-only broker setting.
        """
        check: dict[int, Callable[[str, Mapping[str, str]], list[str]]] = {
            TOPIC: self._topic_problems,
            BROKER: self._broker_problems,
            GROUP: self._group_problems,
            CLIENT_METRICS: client_metrics_problems,
        }
        if resource_type in check and (problems := check[resource_type](resource_name, settings)):
            raise ConfigError(problems)

    def stored(self, resource_type: int, resource_name: str, key: str, text: str, old: str | None) -> str:
        """The stored form of a value; `old` is the present one. A secret is encrypted.

        Raises:
            ConfigError: there is no key.
        """
        if resource_type != BROKER or not _is_secret(key):
            return text
        return self._sealer.stored(resource_name, key, text, old)

    def is_list(self, resource_type: int, key: str) -> bool:
        """Whether APPEND and SUBTRACT are valid."""
        if resource_type == CLIENT_METRICS:
            return key in ("match", "metrics")
        row = setting(_SCOPES[resource_type], key) if resource_type in _SCOPES else None
        return row is not None and row.type == "list"

    def default(self, resource_type: int, key: str) -> str | None:
        """The value where nothing is set, from the file or Kafka's default."""
        settings = self._settings
        if resource_type == TOPIC and setting(Scope.TOPIC, key):
            return format_value(topic_default(key, settings.values, settings.explicit))
        if resource_type == BROKER:
            return format_value(settings.values.get(key))
        if resource_type == GROUP and (row := setting(Scope.GROUP, key)):
            behind = GROUP_SYNONYM_PREFIX + key
            return format_value(settings.values.get(behind, row.default_value()))
        return CLIENT_METRICS_KEYS.get(key) if resource_type == CLIENT_METRICS else None

    def effective_topic(self, overrides: Mapping[str, str], layers: BrokerLayers) -> list[EffectiveSetting]:
        """The effective value of each setting of a topic with these overrides, with its layer.

        All topics without overrides share one list, until the layers change.
        """
        if self._plain_layers != layers:
            self._plain_topic, self._plain_layers = self._effective_without_overrides(layers), layers
        if not overrides:
            return self._plain_topic
        source = ConfigSource.DYNAMIC_TOPIC_CONFIG
        return [
            EffectiveSetting(each.name, overrides[each.name], source) if each.name in overrides else each
            for each in self._plain_topic
        ]

    def _effective_without_overrides(self, layers: BrokerLayers) -> list[EffectiveSetting]:
        sources = (
            (layers.broker, ConfigSource.DYNAMIC_BROKER_CONFIG),
            (layers.cluster, ConfigSource.DYNAMIC_DEFAULT_BROKER_CONFIG),
            (self._settings.explicit, ConfigSource.STATIC_BROKER_CONFIG),
        )
        current = with_dynamic(self._settings, layers)
        found = []
        for name in table(Scope.TOPIC):
            given = next((key for key, _ in broker_synonyms(name) if key in current.explicit), None)
            source = next((source for layer, source in sources if given in layer), ConfigSource.DEFAULT_CONFIG)
            value = format_value(topic_default(name, current.values, current.explicit))
            found.append(EffectiveSetting(name, value, source))
        return found

    def describe_topic(self, overrides: Mapping[str, str], layers: BrokerLayers = NO_DYNAMIC) -> list[ConfigEntry]:
        """All settings of a topic with these overrides."""
        current = with_dynamic(self._settings, layers)
        entries = []
        for name, row in table(Scope.TOPIC).items():
            synonyms = _own_layer(row, overrides, ConfigSource.DYNAMIC_TOPIC_CONFIG)
            value = overrides.get(name)
            if value is None:
                value = format_value(topic_default(name, current.values, current.explicit))
            if behind := broker_synonyms(name):
                synonyms += self._broker_layers(behind[0][0], layers)
            entries.append(self._entry(row, synonyms, value, read_only=False))
        return entries

    def describe_broker(self, layers: BrokerLayers = NO_DYNAMIC) -> list[ConfigEntry]:
        """All settings of this broker, and given settings that are unknown to Kafka (hidden: they may be secrets)."""
        entries = []
        known = table(Scope.BROKER) | OWN
        for name, row in known.items():
            synonyms = self._broker_layers(name, layers)
            entries.append(self._entry(row, synonyms, read_only=row.is_fixed))
        for key in sorted({*self._settings.explicit, *layers.broker} - known.keys()):
            dynamic = key in layers.broker
            only_dynamic = setting(Scope.BROKER, key)
            if only_dynamic is not None and dynamic:
                own = _own_layer(only_dynamic, layers.broker, ConfigSource.DYNAMIC_BROKER_CONFIG)
                entries.append(self._entry(only_dynamic, own, read_only=False))
                continue
            source = ConfigSource.DYNAMIC_BROKER_CONFIG if dynamic else ConfigSource.STATIC_BROKER_CONFIG
            synonym = (ConfigSynonym(key, None, source),)
            entries.append(ConfigEntry(key, None, source, not dynamic, True, ConfigType.UNKNOWN, synonym, ""))
        return entries

    def describe_cluster(self, cluster: Mapping[str, str]) -> list[ConfigEntry]:
        """The dynamic settings of all brokers together: only those that are set."""
        entries = []
        for name, text in sorted(cluster.items()):
            kind = "string" if split_key(name) is not None and not _is_secret(name) else "password"
            row = setting(Scope.BROKER, name) or Setting(
                Scope.BROKER, name, kind, UpdateMode.CLUSTER_WIDE, None, False, ""
            )
            synonyms = _own_layer(row, {name: text}, ConfigSource.DYNAMIC_DEFAULT_BROKER_CONFIG)
            entries.append(self._entry(row, synonyms, read_only=False))
        return entries

    def describe_group(self, overrides: Mapping[str, str], layers: BrokerLayers = NO_DYNAMIC) -> list[ConfigEntry]:
        """All settings of a group with these overrides."""
        entries = []
        for name, row in table(Scope.GROUP).items():
            synonyms = _own_layer(row, overrides, ConfigSource.DYNAMIC_GROUP_CONFIG)
            if (behind := GROUP_SYNONYM_PREFIX + name) in table(Scope.BROKER):
                synonyms += self._broker_layers(behind, layers)
            elif row.default is not None:
                synonyms.append(ConfigSynonym(name, row.default, ConfigSource.DEFAULT_CONFIG))
            entries.append(self._entry(row, synonyms, read_only=False))
        return entries

    def describe_client_metrics(self, overrides: Mapping[str, str]) -> list[ConfigEntry]:
        """The settings of one client metrics subscription."""
        entries = []
        for name, default in CLIENT_METRICS_KEYS.items():
            kind = "int" if name == "interval.ms" else "list"
            row = Setting(Scope.GROUP, name, kind, UpdateMode.ALWAYS, default, False, "")
            synonyms = _own_layer(row, overrides, ConfigSource.DYNAMIC_CLIENT_METRICS_CONFIG)
            entries.append(self._entry(row, synonyms, read_only=False))
        return entries

    def _broker_layers(self, key: str, layers: BrokerLayers) -> list[ConfigSynonym]:
        """The layers in which a broker key, or one with another unit, has a value; empty before the key's own."""
        rows = [OWN[key]] if key in OWN else [table(Scope.BROKER)[member] for member in broker_key_family(key)]
        given = (
            (layers.broker, ConfigSource.DYNAMIC_BROKER_CONFIG),
            (layers.cluster, ConfigSource.DYNAMIC_DEFAULT_BROKER_CONFIG),
            (self._settings.explicit, ConfigSource.STATIC_BROKER_CONFIG),
        )
        found = [
            ConfigSynonym(row.name, _shown(row, layer[row.name]), source)
            for layer, source in given
            for row in rows
            if row.name in layer
        ]
        found += [
            ConfigSynonym(row.name, _shown(row, row.default), ConfigSource.DEFAULT_CONFIG)
            for row in rows
            if row.default is not None
        ]
        own = next((place for place, synonym in enumerate(found) if synonym.name == key), len(found))
        return found[own:]

    def _entry(
        self, row: Setting, synonyms: list[ConfigSynonym], value: str | None = None, *, read_only: bool
    ) -> ConfigEntry:
        """`value` is given if no synonym has it, or has it in another unit."""
        if value is None:
            value = synonyms[0].value if synonyms else row.default
        source = synonyms[0].source if synonyms else ConfigSource.DEFAULT_CONFIG
        return ConfigEntry(
            name=row.name,
            value=_shown(row, value),
            source=source,
            read_only=read_only,
            sensitive=row.sensitive,
            type=ConfigType[row.type.upper()],
            synonyms=tuple(synonyms),
            documentation=self._docs.get(row.name) or _without_effect(row.name),
        )

    def _topic_problems(self, _name: str, settings: Mapping[str, str]) -> list[str]:
        values, problems = _parsed(Scope.TOPIC, "topic", settings)
        if problems:
            return problems

        def value_of(key: str) -> Value:
            broker = self._settings
            return values[key] if key in values else topic_default(key, broker.values, broker.explicit)

        low, high = value_of("min.compaction.lag.ms"), value_of("max.compaction.lag.ms")
        if isinstance(low, int) and isinstance(high, int) and low > high:
            problems.append(
                f"conflict topic config setting min.compaction.lag.ms ({low}) > max.compaction.lag.ms ({high})"
            )
        if values.get("remote.storage.enable") and not self._settings.values["remote.log.storage.system.enable"]:
            problems.append(
                "Tiered Storage functionality is disabled in the broker. Topic cannot be configured with remote log "
                "storage."
            )
        return problems

    def _broker_problems(self, name: str, settings: Mapping[str, str]) -> list[str]:
        """The problems of single values and of combinations, together with the file of the deciding node."""
        problems = _broker_value_problems(name, settings)
        if not problems:
            above = with_dynamic(self._settings, BrokerLayers(settings, {}))
            problems = unserved_guards(settings, self._docs) + check_relations(settings, above.values)
        return problems

    def _group_problems(self, _name: str, settings: Mapping[str, str]) -> list[str]:
        values, problems = _parsed(Scope.GROUP, "group", settings)
        if problems:
            return problems
        broker = self._settings.values
        for key, value in values.items():
            kind, _, rest = key.partition(".")
            low, high = broker.get(f"group.{kind}.min.{rest}"), broker.get(f"group.{kind}.max.{rest}")
            if isinstance(low, int) and isinstance(value, int) and value < low:
                problems.append(f"{key} must be greater than or equal to group.{kind}.min.{rest} ({low})")
            if isinstance(high, int) and isinstance(value, int) and value > high:
                problems.append(f"{key} must be less than or equal to group.{kind}.max.{rest} ({high})")
        for kind in ("consumer", "share", "streams"):
            beat, session = f"{kind}.heartbeat.interval.ms", f"{kind}.session.timeout.ms"
            interval = values.get(beat, broker.get(GROUP_SYNONYM_PREFIX + beat))
            timeout = values.get(session, broker.get(GROUP_SYNONYM_PREFIX + session))
            if isinstance(interval, int) and isinstance(timeout, int) and timeout <= interval:
                problems.append(f"{session} must be greater than {beat}")
        return problems


def _broker_value_problems(name: str, settings: Mapping[str, str]) -> list[str]:
    """Kafka takes keys it does not know, for plugins; of known ones it refuses the read-only (KIP-226).

    Read-only ones of a listener may be set with it: the broker of the listener checks that it is a new one.
    """
    problems = link_problems(name, settings)
    added = names_in(settings.get(LISTENERS, ""))
    for key, text in settings.items():
        base = key
        if key.startswith(LISTENER_PREFIX):
            base = split_listener_key(key)[2]
        row = setting(Scope.BROKER, base) or OWN.get(base)
        if row is None:
            continue
        if row.is_fixed and not (is_fixed_listener_key(key) and split_listener_key(key)[0] in added):
            hint = f": {LISTENERS} must name its listener" if is_fixed_listener_key(key) else ""
            problems.append(f"Cannot update these configs dynamically: {key}{hint}")
        elif row.mode is UpdateMode.PER_BROKER and not name:
            problems.append(f"Cannot update these configs at default cluster level, broker configs must be used: {key}")
        else:
            problems += _value_problems(row, key, text)
    return problems


def _parsed(scope: Scope, what: str, settings: Mapping[str, str]) -> tuple[dict[str, Value], list[str]]:
    values: dict[str, Value] = {}
    problems = []
    for key, text in settings.items():
        row = setting(scope, key)
        if row is None:
            problems.append(f"Unknown {what} config name: {key}")
        elif not (wrong := _value_problems(row, key, text)):
            values[key] = row.parse(text)
        else:
            problems += wrong
    return values, problems


def _value_problems(row: Setting, key: str, text: str) -> list[str]:
    try:
        row.parse(text)
    except ValueError as error:
        shown = "[hidden]" if row.sensitive else text
        return [f"Invalid value {shown} for configuration {key}: Value {error}"]
    return []


def _is_secret(key: str) -> bool:
    """Whether a setting is a secret.

    Settings of mirrors are not: they end with a topic name, which may look like one.
    """
    of_link = split_key(key)
    return is_secret(key) if of_link is None else of_link[1] in LINK_SECRETS


def _without_effect(key: str) -> str:
    reason = reason_unused(key)
    return f"Has no effect: {reason}." if reason else ""


def _own_layer(row: Setting, overrides: Mapping[str, str], source: ConfigSource) -> list[ConfigSynonym]:
    if row.name not in overrides:
        return []
    own = ConfigSynonym(row.name, _shown(row, overrides[row.name]), source)
    return [own]


def _shown(row: Setting, text: str | None) -> str | None:
    return None if row.sensitive else text
