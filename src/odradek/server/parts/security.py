"""Builds the security parts of a node: TLS and SASL of its listeners and its connections, and the authorizer."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, TypeVar

from odradek.client.security import PLAINTEXT, OutgoingSecurity
from odradek.common.errors import ConfigError
from odradek.common.log_lines import get_logger
from odradek.common.ports import read_file
from odradek.metadata.image import MetadataImage
from odradek.security.acl.authorizer import StandardAuthorizer
from odradek.security.acl.config import AuthorizerConfig
from odradek.security.sealing import SecretKeys, SecretsConfig, read_secret_keys
from odradek.security.tls.config import TlsConfig, TlsSettingError
from odradek.server.dynamic_settings import DynamicSettings
from odradek.server.network.listeners import ListenerSpec
from odradek.server.parts.logins import Logins
from odradek.server.parts.ports import Ports
from odradek.settings.broker import BrokerSettings
from odradek.settings.formats import super_users
from odradek.settings.listeners import LISTENER_PREFIX

if TYPE_CHECKING:
    from odradek.security.tls.listener import ListenerTls, RenewableContext

T = TypeVar("T")
_log = get_logger("server.parts.security")
_WITH_TLS = ("SSL", "SASL_SSL")


@dataclass(frozen=True, slots=True, kw_only=True)
class SecurityParts:
    """
    Attributes:
        listeners: the TLS of the node's own listeners that have it, by name.
        logins: the SASL of those that have it, and of connections to other nodes.
        make_tls: makes the TLS of a listener, by its name and settings; raises TlsSettingError.
        dynamic: the present settings, decrypted.
        authorizer: decides about permissions; None: every client may do everything.
        between_brokers, to_controllers: how this node connects to the inter-broker and the controllers' listener.
    """

    dynamic: DynamicSettings
    logins: Logins
    make_tls: Callable[[str, TlsConfig], ListenerTls]
    listeners: dict[str, ListenerTls] = field(default_factory=dict)
    outgoing: Mapping[str, RenewableContext] = field(default_factory=dict)
    authorizer: StandardAuthorizer | None = None
    between_brokers: OutgoingSecurity = PLAINTEXT
    to_controllers: OutgoingSecurity = PLAINTEXT

    def contexts(self) -> Iterator[RenewableContext]:
        """All contexts, of listeners and of connections to other nodes."""
        yield from (each.renewable for each in self.listeners.values())
        yield from self.outgoing.values()

    def check(self, settings: BrokerSettings) -> None:
        """Check security settings that this node would get.

        Raises:
            ConfigError: keys or certificates that cannot be used, logins that could not be served.
        """
        problems: list[str] = []
        for each in self._remaining(settings):
            try:
                each.check(tls_config(settings, each.name))
            except TlsSettingError as error:
                problems.append(f"listener {each.name}: {error}")
        _build_tls(settings, self._added(settings), self.make_tls, problems)
        if problems:
            raise ConfigError(list(dict.fromkeys(problems)))
        self.logins.check(settings)

    def change_settings(self, settings: BrokerSettings) -> None:
        """Apply settings that were changed at run time to new connections; invalid settings change nothing.

        For the TLS of a new listener see `secure`.
        """
        for each in self._remaining(settings):
            try:
                each.change_config(tls_config(settings, each.name))
            except TlsSettingError as error:
                _log.error(
                    "changed TLS settings are invalid: the previous ones remain in use",
                    listener=each.name,
                    reason=str(error),
                )
        try:
            self.logins.change(settings)
        except ConfigError as error:
            _log.error(
                "changed SASL settings are invalid: the previous ones remain in use", reason="; ".join(error.problems)
            )

    def secure(self, spec: ListenerSpec, settings: BrokerSettings) -> ListenerTls | None:
        """The TLS of a listener that is about to be bound, None where it has none; its SASL is added to it.

        Logins that could not be built when the settings changed are tried again: a file may be there by now.

        Raises:
            ConfigError: its settings are invalid.
        """
        problems: list[str] = []
        if spec.has_tls and spec.name not in self.listeners:
            self.listeners.update(_build_tls(settings, [spec.name], self.make_tls, problems))
        if problems:
            raise ConfigError(problems)
        if spec.has_sasl and spec.name not in self.logins.listeners:
            self.logins.change(settings)
        # The name may be that of a removed listener which had SASL.
        spec.sasl = self.logins.listeners.get(spec.name) if spec.has_sasl else None
        tls = self.listeners.get(spec.name)
        if (spec.has_sasl and spec.sasl is None) or (spec.has_tls and tls is None):
            raise ConfigError([f"listener {spec.name}: its security settings are invalid"])
        return tls if spec.has_tls else None

    def discard(self, spec: ListenerSpec) -> None:
        """A listener was removed."""
        self.listeners.pop(spec.name, None)
        self.logins.listeners.pop(spec.name, None)

    def _remaining(self, settings: BrokerSettings) -> Iterator[RenewableContext]:
        """The contexts of connections to other nodes, and of listeners that are in the settings."""
        names = {each.name for each in settings.listeners}
        yield from (each.renewable for name, each in self.listeners.items() if name in names)
        yield from self.outgoing.values()

    def _added(self, settings: BrokerSettings) -> list[str]:
        """The listeners in the settings that have no context yet."""
        return [each.name for each in settings.listeners if each.name not in self.listeners]


def tls_config(settings: BrokerSettings, name: str) -> TlsConfig:
    """The TLS of a listener. With SASL, only a setting of the listener itself requires client certificates
    (KIP-684)."""
    config = settings.of_listener(name).build(TlsConfig)
    own_key = f"{LISTENER_PREFIX}{name.lower()}.ssl.client.auth"
    if settings.security_protocol_of(name) == "SASL_SSL" and own_key not in settings.explicit:
        return replace(config, client_auth="none")
    return config


def build_security(
    settings: BrokerSettings, names: Iterable[str], ports: Ports, image: Callable[[], MetadataImage]
) -> SecurityParts:
    """
    Args:
        names: of the listeners that this node binds.
        image: returns the present metadata.
    Raises:
        ConfigError: keys or certificates that cannot be used, or no name by which to log in to other nodes.
    """
    problems: list[str] = []
    peers = (settings.inter_broker_listener_name, settings.first_controller_listener)
    now_ms = ports.clock.now_ms
    make_tls = partial(_listener_tls, now_ms, peers)
    listeners = _build_tls(settings, names, make_tls, problems)
    outgoing = _build_tls(settings, dict.fromkeys(peers), partial(_outgoing_tls, now_ms), problems)
    if problems:
        raise ConfigError(problems)

    logins = Logins(settings, image, ports, dict.fromkeys(peers))

    def security_of(name: str) -> OutgoingSecurity:
        found = outgoing.get(name)
        if found is None:
            return PLAINTEXT if logins.credentials(name) is None else OutgoingSecurity(sasl=partial(own, name))
        return OutgoingSecurity(lambda: found.context, partial(own, name))

    own = logins.credentials
    between, controllers = (security_of(name) for name in peers)
    return SecurityParts(
        dynamic=DynamicSettings(settings, _secret_keys(settings, ports)),
        make_tls=make_tls,
        listeners=listeners,
        outgoing=outgoing,
        logins=logins,
        authorizer=_build_authorizer(settings.build(AuthorizerConfig)),
        between_brokers=between,
        to_controllers=controllers,
    )


def _secret_keys(settings: BrokerSettings, ports: Ports) -> SecretKeys:
    return read_secret_keys(
        settings.build(SecretsConfig), lambda path: read_file(ports.disk, path), ports.random.randbytes
    )


def _build_authorizer(config: AuthorizerConfig) -> StandardAuthorizer | None:
    if config.class_name:
        return StandardAuthorizer(super_users(config.super_users), allow_if_no_acl=config.allow_if_no_acl)
    if config.super_users:
        _log.warning("super.users has no effect without authorizer.class.name: every client may do everything")
    return None


def _build_tls(
    settings: BrokerSettings, names: Iterable[str], build: Callable[[str, TlsConfig], T], problems: list[str]
) -> dict[str, T]:
    """The TLS of the listeners that have it, by name."""
    found = {}
    for name in names:
        if settings.security_protocol_of(name) in _WITH_TLS:
            try:
                found[name] = build(name, tls_config(settings, name))
            except TlsSettingError as error:
                problems.append(f"listener {name}: {error}")
    return found


# Imported only with TLS: its libraries take a third of a node's start.
def _listener_tls(now_ms: Callable[[], int], peers: Iterable[str], name: str, config: TlsConfig) -> ListenerTls:
    from odradek.security.tls.listener import ListenerTls

    return ListenerTls(name, config, now_ms, between_nodes=name in peers)


def _outgoing_tls(now_ms: Callable[[], int], name: str, config: TlsConfig) -> RenewableContext:
    from odradek.security.tls.listener import outgoing_context

    return outgoing_context(name, config, now_ms)
