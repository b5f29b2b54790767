"""Settings of a link beside its addresses: `odradek.link.NAME.` and one of these names.

Those of connections are named as Kafka's clients name them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final, NamedTuple

from odradek.common.numbers import INT32_MAX, INT64_MAX, parse_natural
from odradek.settings.jaas import parse_jaas
from odradek.settings.link_filters import parse_acl_filters, parse_group_filters
from odradek.settings.link_names import PREFIX, prefix_problem
from odradek.settings.table import SEALED_PREFIX, Scope, setting

MAX_BYTES: Final = "io.max.bytes.per.second"
GROUP_FILTERS: Final = "consumer.offset.group.filters"
ACL_FILTERS: Final = "acl.filters"
_INCLUDED, _EXCLUDED = "topic.config.sync.include", "topic.config.sync.exclude"
_ALL_NAMES = "*"
# They name brokers of a cluster, or resources of only one of the two clusters.
_OF_ONE_CLUSTER = ("leader.replication.throttled.", "follower.replication.throttled.", "remote.", "local.retention.")
MIN_INTERVAL_MS: Final = 1000
# A name and a password, both kept: tokens and tickets end, and are fetched elsewhere.
_MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")
_STORES = ("", "PEM", "PKCS12", "JKS")


def _bytes(text: str) -> str:
    return "" if parse_natural(text, INT64_MAX) is not None else "must be a number of bytes; 0 is no limit"


def _interval(text: str) -> str:
    value = parse_natural(text, INT32_MAX)
    return "" if value is not None and value >= MIN_INTERVAL_MS else f"must be at least {MIN_INTERVAL_MS} ms"


def _filters(parse: Callable[[str], object]) -> Callable[[str], str]:
    def problem(text: str) -> str:
        try:
            parse(text)
        except ValueError as error:
            return str(error)
        return ""

    return problem


def _names(text: str) -> str:
    unknown = [name for name in _listed(text) if name != _ALL_NAMES and setting(Scope.TOPIC, name) is None]
    return f"{unknown[0]} is not a setting of topics" if unknown else ""


def _listed(text: str) -> list[str]:
    return [part.strip() for part in text.split(",") if part.strip()]


def _any(_: str) -> str:
    return ""


def _one_of(*words: str) -> Callable[[str], str]:
    def problem(text: str) -> str:
        return "" if text.upper() in words else f"must be one of {', '.join(filter(None, words))}"

    return problem


def _algorithm(text: str) -> str:
    return "" if text.lower() in ("https", "") else "must be https, or empty"


def _entry(text: str) -> str:
    if text.startswith(SEALED_PREFIX):
        return ""
    try:
        entry = parse_jaas(text)
    except ValueError as error:
        return str(error)
    return "" if {"username", "password"} <= entry.options.keys() else "must hold username and password"


_OF_CONNECTIONS: Mapping[str, Callable[[str], str]] = {
    "security.protocol": _one_of("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL"),
    "sasl.mechanism": _one_of(*_MECHANISMS),
    "sasl.jaas.config": _entry,
    "ssl.keystore.type": _one_of(*_STORES),
    "ssl.keystore.location": _any,
    "ssl.keystore.password": _any,
    "ssl.keystore.certificate.chain": _any,
    "ssl.keystore.key": _any,
    "ssl.key.password": _any,
    "ssl.truststore.type": _one_of(*_STORES),
    "ssl.truststore.location": _any,
    "ssl.truststore.password": _any,
    "ssl.truststore.certificates": _any,
    "ssl.enabled.protocols": _any,
    "ssl.cipher.suites": _any,
    "ssl.endpoint.identification.algorithm": _algorithm,
}
_boolean = _one_of("TRUE", "FALSE")
_PROBLEMS: Mapping[str, Callable[[str], str]] = {
    PREFIX: prefix_problem,
    MAX_BYTES: _bytes,
    "consumer.offset.sync.enable": _boolean,
    "consumer.offset.sync.ms": _interval,
    GROUP_FILTERS: _filters(parse_group_filters),
    "acl.sync.enable": _boolean,
    "acl.sync.ms": _interval,
    ACL_FILTERS: _filters(parse_acl_filters),
    "topic.config.sync.enable": _boolean,
    "topic.config.sync.ms": _interval,
    _INCLUDED: _names,
    _EXCLUDED: _names,
    **_OF_CONNECTIONS,
}
LINK_SETTINGS = frozenset(_PROBLEMS)
LINK_SECRETS = frozenset(
    {"sasl.jaas.config", "ssl.keystore.password", "ssl.keystore.key", "ssl.key.password", "ssl.truststore.password"}
)


def setting_problem(name: str, text: str) -> str:
    """Why the value of a setting of LINK_SETTINGS is invalid, without the value; empty if it is valid."""
    return _PROBLEMS[name](text)


def login_problem(settings: Mapping[str, str]) -> str:
    """The missing settings of one link; empty if there are none."""
    if not settings.get("security.protocol", "").upper().startswith("SASL"):
        return ""
    missing = [name for name in ("sasl.mechanism", "sasl.jaas.config") if name not in settings]
    return f"{settings['security.protocol']} needs {' and '.join(missing)}" if missing else ""


def connection_settings(settings: Mapping[str, str]) -> dict[str, str]:
    """The settings by which a link connects, of all that it has."""
    return {name: text for name, text in settings.items() if name in _OF_CONNECTIONS}


def max_bytes_per_s(settings: Mapping[str, str]) -> int:
    """The limit of bytes per second of each broker over a link; 0 for no limit."""
    return int(settings.get(MAX_BYTES, "0"))


class Following(NamedTuple):
    """Data that is copied from the source besides records.

    Attributes:
        what: its name in errors.
        enable, interval: the settings that enable it, and its interval.
    """

    what: str
    enable: str
    interval: str
    default_ms: int

    def interval_ms(self, settings: Mapping[str, str]) -> int | None:
        """The interval; None if it is disabled."""
        if settings.get(self.enable, "false").lower() != "true":
            return None
        return int(settings.get(self.interval, self.default_ms))


OFFSETS: Final = Following("groups' offsets", "consumer.offset.sync.enable", "consumer.offset.sync.ms", 30_000)
ACLS: Final = Following("ACLs", "acl.sync.enable", "acl.sync.ms", 5000)
TOPIC_SETTINGS: Final = Following("settings of topics", "topic.config.sync.enable", "topic.config.sync.ms", 5000)


class TopicList(NamedTuple):
    """The settings of topics that follow those of the source."""

    included: frozenset[str]
    excluded: frozenset[str]

    def names(self, name: str) -> bool:
        """Whether a setting is on the list by its own name: then the value that counts at the source follows."""
        return name in self.included and name not in self.excluded

    def includes(self, name: str) -> bool:
        """Whether a setting is copied if it is set on the topic."""
        if self.names(name):
            return True
        is_known = setting(Scope.TOPIC, name) is not None and not name.startswith(_OF_ONE_CLUSTER)
        return is_known and _ALL_NAMES in self.included and name not in self.excluded


def topic_list(settings: Mapping[str, str]) -> TopicList:
    """Without a list it is all that was set on topics."""
    included = _listed(settings.get(_INCLUDED, _ALL_NAMES))
    return TopicList(frozenset(included), frozenset(_listed(settings.get(_EXCLUDED, ""))))
