"""From a properties text to the settings of one node: everything checked, all problems reported at once.

`resolve` is pure: the caller reads files and the environment. `BrokerSettings.build` fills any class of `option()`
fields from the values, with Kafka's synonyms (`log.retention.ms` over `.minutes` over `.hours`).
"""

from __future__ import annotations

import dataclasses
import difflib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar, cast

from odradek.common.errors import ConfigError
from odradek.settings.config_providers import Sources, resolve_variables
from odradek.settings.listener_rules import check_listeners, check_roles_of_listeners, known_listeners, protocols_of
from odradek.settings.listeners import (
    LISTENER_PREFIX,
    ListenerAddress,
    is_listener_key,
    is_mechanism_key,
    listener_values,
    parse_address,
    split_listener_key,
)
from odradek.settings.options import OptionSpec, specs_of
from odradek.settings.rules import (
    READ_BY_THE_NODE,
    check_quorum,
    check_relations,
    quorum_warnings,
    unserved_security,
)
from odradek.settings.table import OWN, Scope, Setting, Value, broker_synonyms, setting, table
from odradek.settings.unused import reason_unused

T = TypeVar("T")

# The one setting that Kafka has no name for: where metrics are served, as host:port.
METRICS_LISTENER = "odradek.metrics.listener"
# Dynamic settings of one broker while it hands over its work: the wall-clock time (ms) at which it is expected back, or
# -1; and "true" where it shall stop then. Both end with its next start. See docs/adr/0006-drain.md.
DRAIN_KEY = "odradek.drain.until.ms"
DRAIN_STOP_KEY = "odradek.drain.stop"
_NO_PART = "no part of this node reads it"
# Families of keys that Kafka takes without listing each: per provider, per plugin.
_PREFIXES = ("config.providers.", "metrics.jmx.", "rlmm.config.", "rsm.config.")
# Keys of old clusters that Kafka 4 ignores quietly, because so many files still have them.
_RETIRED = {"inter.broker.protocol.version", "log.message.format.version"}


@dataclass(frozen=True, slots=True)
class BrokerSettings:
    """The checked settings of one node.

    Attributes:
        explicit: the given settings as text, after variables were replaced.
        values: every broker setting of Kafka and our own by name, typed, with defaults.
        listeners: of all roles; `controller_listener_names` has those of the controller.
        advertised: the advertised listeners; empty if none were given.
        warnings: one line each, to be logged once at start.
    """

    explicit: Mapping[str, str] = field(repr=False)
    values: Mapping[str, Value] = field(repr=False)
    listeners: tuple[ListenerAddress, ...]
    advertised: tuple[ListenerAddress, ...]
    warnings: tuple[str, ...] = field(default=())

    @property
    def node_id(self) -> int:
        return cast(int, self.values["node.id"])

    @property
    def roles(self) -> frozenset[str]:
        return frozenset(cast("list[str]", self.values["process.roles"]))

    @property
    def log_dirs(self) -> list[str]:
        return cast("list[str]", self.values["log.dirs"] or self.values["log.dir"])

    @property
    def metadata_log_dir(self) -> str:
        return cast("str | None", self.values["metadata.log.dir"]) or self.log_dirs[0]

    @property
    def metrics_address(self) -> tuple[str, int] | None:
        """The address for metrics; None if it is not set."""
        return parse_address(self.explicit.get(METRICS_LISTENER, ""))

    @property
    def inter_broker_listener_name(self) -> str:
        """By which listener brokers talk to each other; the first one where nothing was named."""
        named = cast("str | None", self.values["inter.broker.listener.name"])
        protocol = self.values["security.inter.broker.protocol"]
        if named is not None:
            return named.upper()
        brokers = [listener for listener in self.listeners if listener.name not in self.controller_listener_names]
        for listener in brokers:
            if listener.security_protocol == protocol:
                return listener.name
        return brokers[0].name if brokers else ""

    @property
    def controller_listener_names(self) -> frozenset[str]:
        return frozenset(name.upper() for name in cast("list[str]", self.values["controller.listener.names"] or []))

    @property
    def early_start_listeners(self) -> frozenset[str]:
        """Listeners that open before the ACLs are loaded; by default those of controllers."""
        named = cast("list[str] | None", self.values["early.start.listeners"])
        return self.controller_listener_names if named is None else frozenset(name.upper() for name in named)

    @property
    def first_controller_listener(self) -> str:
        """The listener by which nodes talk to controllers: the first of controller.listener.names; "" without any."""
        names = cast("list[str]", self.values["controller.listener.names"] or [])
        return names[0].upper() if names else ""

    @property
    def known_listeners(self) -> frozenset[str]:
        """The names of listeners, of this node and of others, that keys of listeners may have: in lower case."""
        return known_listeners(self.explicit, self.values)

    def security_protocol_of(self, listener_name: str) -> str:
        """The protocol of a listener of this node or, by listener.security.protocol.map, of another one."""
        own = next((each.security_protocol for each in self.listeners if each.name == listener_name), None)
        if own is not None:
            return own
        return protocols_of(self.explicit, self.values)[0].get(listener_name, "PLAINTEXT")

    def __getitem__(self, key: str) -> Value:
        return self.values[key]

    def of_listener(self, name: str) -> BrokerSettings:
        """These settings as one listener has them: `listener.name.<name>.<key>` stands over `<key>` (KIP-103).

        A key of one SASL mechanism, `listener.name.<name>.<mechanism>.<key>`, is `<mechanism>.<key>` in `explicit`.
        """
        return self._with_own(listener_values(name, self.explicit))

    def of_mechanism(self, mechanism: str) -> BrokerSettings:
        """These settings, of a listener, as one SASL mechanism has them: `<mechanism>.<key>` stands over `<key>`."""
        prefix = f"{mechanism.lower()}."
        found = {key.removeprefix(prefix): text for key, text in self.explicit.items() if key.startswith(prefix)}
        return self._with_own(found)

    def _with_own(self, own: Mapping[str, str]) -> BrokerSettings:
        if not own:
            return self
        known = table(Scope.BROKER)
        values = {key: known[key].parse(text) for key, text in own.items() if key in known}
        return replace(self, explicit={**self.explicit, **own}, values={**self.values, **values})

    def build(self, config_class: type[T]) -> T:
        """Fill a class of `option()` fields; a field with only a topic or group key takes that key's default."""
        return build_from(config_class, self.values, self.explicit)


def build_from(config_class: type[T], values: Mapping[str, Value], explicit: Mapping[str, Any]) -> T:
    """Fill a class of `option()` fields from typed broker values; `explicit` decides between synonyms."""
    arguments = {}
    for item in dataclasses.fields(config_class):  # type: ignore[arg-type]  # T is a dataclass
        spec: OptionSpec | None = item.metadata.get("option")
        if spec is None:
            continue
        value = _option_value(spec, values, explicit)
        if value is not None:
            arguments[item.name] = tuple(value) if isinstance(value, list) else value
    return config_class(**arguments)


def _option_value(spec: OptionSpec, values: Mapping[str, Value], explicit: Mapping[str, Any]) -> Value:
    if spec.topic_key:
        return topic_default(spec.topic_key, values, explicit)
    for key in (spec.key, *spec.synonyms):
        if key in explicit:
            return values.get(key)
    return values.get(spec.key) if spec.key else None


def topic_default(topic_key: str, values: Mapping[str, Value], explicit: Mapping[str, Any]) -> Value:
    """The default of a topic setting: the first given broker synonym, else Kafka's default."""
    for key, factor in broker_synonyms(topic_key):
        value = values.get(key)
        if key in explicit and value is not None:
            return value * factor if isinstance(value, int) and not isinstance(value, bool) else value
    row = setting(Scope.TOPIC, topic_key)
    assert row is not None, topic_key
    return row.default_value()


def honoured_keys(config_classes: Iterable[type]) -> frozenset[str]:
    """The broker keys that classes of `option()` fields read, with their synonyms."""
    return frozenset(key for spec in specs_of(config_classes) for key in (spec.key, *spec.other_broker_keys)) - {""}


def resolve(
    properties: Mapping[str, str], sources: Sources, *, honoured: frozenset[str] | None = None
) -> BrokerSettings:
    """Check a node's properties.

    Args:
        properties: keys and values as text; overrides are already merged in.
        sources: the sources of config providers.
        honoured: the keys with an effect in this build; any other known key is a warning, or a problem if it would
            protect the cluster. None: no node is started with these settings, and neither is reported.
    Raises:
        ConfigError: one line for each problem, all of them.
    """
    given, problems = resolve_variables(properties, sources)
    warnings: list[str] = []
    values = _parse_values(given, honoured, problems, warnings)
    for key in ("node.id", "process.roles", "controller.listener.names"):
        if key not in given and not (key == "node.id" and "broker.id" in given):
            problems.append(f"{key} is missing: a node needs one")
    if "node.id" not in given and "broker.id" in given:
        values["node.id"] = values["broker.id"]
    warnings += quorum_warnings(values)
    warnings += _about_unknown_listeners(given, values)
    listeners, advertised, more = check_listeners(given, values)
    problems += more + _check_together(given, values)
    warnings += _about_client_auth(given, listeners)
    warnings += _about_super_users(given)
    if honoured is not None:
        problems += unserved_security(given, {each.security_protocol for each in listeners}, honoured)
    if problems:
        raise ConfigError(problems)
    return BrokerSettings(given, values, tuple(listeners), tuple(advertised), tuple(warnings))


def _parse_values(
    given: Mapping[str, str], honoured: frozenset[str] | None, problems: list[str], warnings: list[str]
) -> dict[str, Value]:
    """Every known setting with its value, default or given; a line for each invalid one, or one without effect."""
    known = table(Scope.BROKER) | OWN
    values: dict[str, Value] = {name: row.default_value() for name, row in known.items()}
    for key, text in given.items():
        row = known.get(key)
        if row is None and key.startswith(LISTENER_PREFIX):
            _check_listener_key(key, text, honoured, problems, warnings)
            continue
        if row is None:
            # The metrics listener is ours: Kafka's table, by which the others are read, has no row for it.
            if key == METRICS_LISTENER:
                problems += [] if parse_address(text) else [f"{key}={text}: must be host:port"]
            elif warning := _about_unknown(key, known):
                warnings.append(warning)
            continue
        try:
            values[key] = row.parse(text)
        except ValueError as error:
            problems.append(f"{key}={_shown(row, text)}: {error}")
        # Files list many defaults: a value that changes nothing is worth no line.
        if not _is_honoured(key, honoured) and values[key] != row.default_value():
            warnings.append(f"{key} is ignored: {reason_unused(key) or _NO_PART}")
    return values


def _check_listener_key(
    key: str, text: str, honoured: frozenset[str] | None, problems: list[str], warnings: list[str]
) -> None:
    """A setting of one listener is read as the setting is without its listener; one without effect gets a line."""
    _, mechanism, plain = split_listener_key(key)
    row = table(Scope.BROKER).get(plain)
    if row is None or not is_listener_key(plain) or (mechanism and not is_mechanism_key(plain)):
        of = f"the mechanism {mechanism.upper()} of a listener" if mechanism else "one listener"
        warnings.append(f"{key} is ignored: {plain or key} is not a setting that {of} can have")
        return
    try:
        row.parse(text)
    except ValueError as error:
        problems.append(f"{key}={_shown(row, text)}: {error}")
    if not _is_honoured(plain, honoured):
        warnings.append(f"{key} is ignored: {reason_unused(plain) or _NO_PART}")


def _is_honoured(key: str, honoured: frozenset[str] | None) -> bool:
    return honoured is None or key in honoured or key in READ_BY_THE_NODE


def _shown(row: Setting, text: str) -> str:
    return "[hidden]" if row.sensitive else text


def _about_unknown(key: str, known: Mapping[str, Setting]) -> str:
    if key.startswith(_PREFIXES) or key in _RETIRED:
        return ""
    if key.startswith("zookeeper."):
        return f"unknown setting {key} is ignored: controllers keep the metadata, there is no ZooKeeper"
    nearest = difflib.get_close_matches(key, known, n=1, cutoff=0.75)
    hint = f"; did you mean {nearest[0]}?" if nearest else ""
    return f"unknown setting {key} is ignored{hint}"


def _about_unknown_listeners(given: Mapping[str, str], values: Mapping[str, Value]) -> list[str]:
    """A line for each name in keys of listeners that no listener has, be it one of another node."""
    known = known_listeners(given, values)
    keys: dict[str, list[str]] = {}
    for key in given:
        name = key.removeprefix(LISTENER_PREFIX).partition(".")[0]
        if key.startswith(LISTENER_PREFIX) and name not in known:
            keys.setdefault(name, []).append(key)
    lines = []
    for name, of_name in keys.items():
        nearest = difflib.get_close_matches(name.lower(), known, n=1)
        hint = f"; did you mean {nearest[0]}, in small letters?" if nearest else ""
        lines.append(f"{', '.join(of_name)} is ignored: no listener has the name {name}{hint}")
    return lines


def _about_client_auth(given: Mapping[str, str], listeners: Iterable[ListenerAddress]) -> list[str]:
    """A warning if ssl.client.auth requires certificates, but clients with SASL need none (KIP-684)."""
    key, named = "ssl.client.auth", [each.name.lower() for each in listeners if each.security_protocol == "SASL_SSL"]
    own = [f"{LISTENER_PREFIX}{name}.{key}" for name in named if f"{LISTENER_PREFIX}{name}.{key}" not in given]
    if not own or given.get(key, "none").strip() == "none":
        return []
    return [f"{key} does not hold for listeners with SASL_SSL: set {', '.join(own)}"]


def _about_super_users(given: Mapping[str, str]) -> list[str]:
    """A warning for principals with a comma between them, which make one principal: names may have commas."""
    joined = [each.strip() for each in given.get("super.users", "").split(";") if ",User:" in each.replace(" ", "")]
    return [f"super.users: {each!r} is one principal; several are separated by semicolons" for each in joined]


def _check_together(given: Mapping[str, str], values: Mapping[str, Value]) -> list[str]:
    """Kafka's rules for a cluster without ZooKeeper, as far as one value cannot tell."""
    problems = check_roles_of_listeners(given, values)
    for key in ("log.dirs", "log.dir"):
        if key in given and not all(cast("list[str]", values[key]) or [""]):
            problems.append(f"{key}={given[key]}: must be a list of directories, and none of them empty")
    if not values["controller.quorum.voters"] and not values["controller.quorum.bootstrap.servers"]:
        problems.append("controller.quorum.voters or controller.quorum.bootstrap.servers is missing: name the quorum")
    problems += check_quorum(values) + check_relations(given, values)
    node_id = values["node.id"]
    if isinstance(node_id, int) and node_id < 0 and "node.id" in given:
        problems.append(f"node.id={node_id}: must be at least 0")
    if "broker.id" in given and "node.id" in given and values["broker.id"] != node_id:
        problems.append(f"broker.id={values['broker.id']} and node.id={node_id} differ: give one of them")
    return problems
