"""TLS settings of each listener, and warnings about super users."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from odradek.common.errors import ConfigError
from odradek.security.tls.config import TlsConfig, TlsSettingError
from odradek.server.network.listeners import ListenerSpec
from odradek.server.parts.security import SecurityParts, tls_config
from odradek.settings.broker import BrokerSettings, resolve
from odradek.settings.config_providers import Sources

NO_SOURCES = Sources({}, Path.read_text)
NODE = {
    "node.id": "1",
    "process.roles": "broker,controller",
    "controller.listener.names": "CONTROLLER",
    "controller.quorum.voters": "1@localhost:3",
    "listeners": "IN://:1,OUT://:2,CONTROLLER://:3",
    "inter.broker.listener.name": "IN",
    "ssl.client.auth": "required",
}


def settings(**protocols: str) -> BrokerSettings:
    mapped = {"IN": "SSL", "OUT": "SASL_SSL", "CONTROLLER": "PLAINTEXT"} | protocols
    given = {"listener.security.protocol.map": ",".join(f"{name}:{each}" for name, each in mapped.items())}
    return resolve(NODE | given, NO_SOURCES)


def test_ssl_client_auth_with_sasl_is_set_per_listener_only() -> None:
    """KIP-684."""
    node = settings()
    assert tls_config(node, "IN").client_auth == "required"
    assert tls_config(node, "OUT").client_auth == "none"
    assert node.warnings == (
        "ssl.client.auth does not hold for listeners with SASL_SSL: set listener.name.out.ssl.client.auth",
    )
    assert settings(OUT="SSL").warnings == ()


@pytest.mark.parametrize("wanted", ["requested", "required"])
def test_a_listener_with_logins_may_ask_for_certificates_as_well(wanted: str) -> None:
    node = resolve(
        dict(settings().explicit) | {"listener.name.out.ssl.client.auth": wanted},
        NO_SOURCES,
    )
    assert tls_config(node, "OUT").client_auth == wanted
    assert node.warnings == ()


def test_a_listener_without_logins_has_none_of_a_removed_one_with_its_name() -> None:
    nothing: Any = None
    logins: Any = SimpleNamespace(listeners={"OUT": object()})
    parts = SecurityParts(dynamic=nothing, logins=logins, make_tls=nothing)
    spec = ListenerSpec("OUT", "", 1)
    assert parts.secure(spec, settings(OUT="PLAINTEXT")) is None and spec.sasl is None


def test_keys_that_could_not_be_read_are_tried_again() -> None:
    """They are read each time that the listener is about to be bound, as a file may appear only after the start."""
    nothing: Any = None
    tls: Any = object()
    logins: Any = SimpleNamespace(listeners={})
    reasons = ["no such file"]

    def make_tls(name: str, config: TlsConfig) -> Any:
        if reasons:
            raise TlsSettingError(reasons.pop())
        return tls

    parts = SecurityParts(dynamic=nothing, logins=logins, make_tls=make_tls)
    spec = ListenerSpec("OUT", "", 1, security_protocol=1)
    with pytest.raises(ConfigError, match="listener OUT: no such file"):
        parts.secure(spec, settings(OUT="SSL"))
    assert parts.secure(spec, settings(OUT="SSL")) is tls


def test_logins_that_could_not_be_built_are_tried_again() -> None:
    nothing: Any = None
    sasl: Any = object()
    logins: Any = SimpleNamespace(listeners={}, change=lambda _: logins.listeners.update(OUT=sasl))
    parts = SecurityParts(dynamic=nothing, logins=logins, make_tls=nothing)
    spec = ListenerSpec("OUT", "", 1, security_protocol=2)
    parts.secure(spec, settings(OUT="SASL_PLAINTEXT"))
    assert spec.sasl is sasl


def test_super_users_that_a_comma_joins_are_said() -> None:
    given = {"super.users": "User:CN=a,OU=b;User:node, User:alice"}
    given["listener.security.protocol.map"] = "IN:SSL,OUT:SSL,CONTROLLER:PLAINTEXT"
    assert resolve(NODE | given, NO_SOURCES).warnings == (
        "super.users: 'User:node, User:alice' is one principal; several are separated by semicolons",
    )
