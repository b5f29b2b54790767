"""Targets that parse text which people write: properties files, settings of nodes and topics, addresses."""

from __future__ import annotations

import functools
from pathlib import Path
from random import Random

from odradek.client.cluster import parse_bootstrap
from odradek.common.errors import ConfigError
from odradek.raft.voters import parse_static_voters
from odradek.security.sealing import SecretKeys
from odradek.server.startup.honoured_settings import CONFIG_CLASSES, honoured_settings
from odradek.settings.broker import BrokerSettings, resolve
from odradek.settings.config_providers import Sources
from odradek.settings.listeners import parse_address
from odradek.settings.node import ZERO_CONFIG, load_properties, parse_overrides, zero_config
from odradek.settings.properties import format_properties, parse_properties
from odradek.settings.resources import SettingRules, option_docs
from odradek.settings.table import Scope, table
from tests.fuzz.engine import Target
from tests.fuzz.targets_logs import ROOT, a_disk

VALUES = (
    "", "0", "-1", "1", "true", "false", "2147483648", "9223372036854775808", "1e400", "nan", "PLAINTEXT://:9092",
    "CONTROLLER://h:9093", "a,b", ",,,", "1@h:9093", "²@h:9093", "h:²", "[::1]:9092", "${env:HOME}", "${p:/x:y}", "*",
    "${env:a:b}", "lz4", "compact,delete", "broker", "controller", "1:2", "by_duration:PT1S", "\\u00b2", "\\", "\0",
)  # fmt: skip
PROVIDERS = (
    "config.providers=env,file,dir",
    "config.providers.env.class=org.apache.kafka.common.config.provider.EnvVarConfigProvider",
    "config.providers.env.param.allowlist.pattern=(",
    "config.providers.file.class=org.apache.kafka.common.config.provider.FileConfigProvider",
    "config.providers.dir.class=org.apache.kafka.common.config.provider.DirectoryConfigProvider",
    "config.providers.dir.param.allowed.paths=/etc",
    "rack=${env:RACK}",
    "broker.rack=${file:/a/b:key}",
    "log.dir=${dir:/etc:x}",
)
_SPECIAL = ("listeners", "advertised.listeners", "controller.quorum.voters", "log.dirs", "odradek.metrics.listener")
TOPIC, GROUP, BROKER, CLIENT_METRICS = 2, 32, 4, 16


@functools.cache
def _keys(scope: Scope) -> list[str]:
    return sorted(table(scope))


def generate_properties(rng: Random) -> bytes:
    """A node's properties file: mostly with all settings that a node needs, and some settings with any value."""
    lines = [f"{key}={value}" for key, value in zero_config({}).items() if rng.random() < 0.97]
    for _ in range(rng.randrange(6)):
        key = rng.choice(_SPECIAL) if rng.random() < 0.3 else rng.choice(_keys(Scope.BROKER))
        lines.append(f"{key}{rng.choice('=: ')}{rng.choice(VALUES)}")
    if rng.random() < 0.3:
        lines += rng.sample(PROVIDERS, rng.randrange(len(PROVIDERS)))
    rng.shuffle(lines)
    return rng.choice(("\n", "\n", "\r\n", "\r")).join(lines).encode("latin-1", "replace")


def _read_text(path: Path) -> str:
    if path.name == "b":
        return "key=value\n"
    raise FileNotFoundError(2, "No such file", str(path))


SOURCES = Sources({"HOME": "/home/me", "RACK": "r1"}, _read_text)


def run_properties(data: bytes) -> None:
    path = ROOT / "server.properties"
    try:
        properties = load_properties(a_disk({path: data}), path)
    except ConfigError:
        return
    assert parse_properties(format_properties(properties)) == properties, "what is written is read as it was"
    for given in (properties, zero_config(properties)):
        try:
            settings = resolve(given, SOURCES, honoured=honoured_settings())
        except ConfigError as error:
            assert error.args
            continue
        _use(settings)


def _use(settings: BrokerSettings) -> None:
    """Read from the settings whatever a node reads when it starts."""
    assert settings.node_id >= 0 and settings.roles and settings.log_dirs and settings.metadata_log_dir is not None
    assert isinstance(settings.inter_broker_listener_name, str)
    assert settings.metrics_address is None or settings.metrics_address[1] < 65536
    for config_class in CONFIG_CLASSES:
        settings.build(config_class)
    voters = ",".join(settings.values["controller.quorum.voters"] or ())  # type: ignore[arg-type]  # a list of texts, by its setting
    parse_static_voters(voters, "CONTROLLER")


@functools.cache
def _rules() -> SettingRules:
    settings = resolve(zero_config(dict(ZERO_CONFIG)), SOURCES)
    return SettingRules(settings, option_docs(CONFIG_CLASSES), sealer=SecretKeys())


def generate_small_text(rng: Random) -> bytes:
    """A byte that says what it is, then the text: settings of a resource, overrides, addresses, voters."""
    kind = rng.randrange(7)
    if kind < 4:
        scope = (Scope.TOPIC, Scope.GROUP, Scope.BROKER, Scope.TOPIC)[kind]
        pairs = [f"{rng.choice(_keys(scope))}={rng.choice(VALUES)}" for _ in range(rng.randrange(1, 4))]
        return bytes((kind,)) + "\n".join(pairs).encode()
    text = ",".join(
        rng.choice(("h:9092", "1@h:9092", "[::1]:1", "2@[::1]:9", "h", ":9", "²", *VALUES)) for _ in range(2)
    )
    return bytes((kind,)) + text.encode()


def run_small_text(data: bytes) -> None:
    if not data:
        return
    kind, text = data[0] % 7, data[1:].decode("utf-8", "replace")
    try:
        if kind < 4:
            pairs = dict(line.partition("=")[::2] for line in text.split("\n"))
            _rules().validate((TOPIC, GROUP, BROKER, CLIENT_METRICS)[kind], "name" if kind != 2 else "", pairs)
        elif kind == 4:
            parse_overrides(text.split(","))
        elif kind == 5:
            for host, port in parse_bootstrap(text):
                assert host and 0 < port < 65536
        else:
            parse_address(text)
            parse_static_voters(text, "CONTROLLER")
    except ConfigError:
        return
    except ValueError as error:
        # The command line and the node turn it into one line, so it must be meant for people.
        assert kind >= 5 and "invalid literal" not in str(error), error


WORDS = (*(value.encode() for value in VALUES), b"\\\n", b"\\u00", b"#", b"!", b"${", b"}")
TARGETS = (
    Target("properties", generate_properties, run_properties, WORDS),
    Target("small_texts", generate_small_text, run_small_text, WORDS),
)
