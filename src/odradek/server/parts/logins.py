"""Builds the SASL logins of a node: for clients of its listeners, and for its connections to other nodes."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from random import Random

from odradek.client.sasl import Credentials
from odradek.client.sasl import SaslSettingError as ClientSaslSettingError
from odradek.common.errors import ConfigError
from odradek.common.scram import SCRAM_MECHANISMS
from odradek.metadata.image import MetadataImage
from odradek.security.sasl.config import SaslConfig
from odradek.security.sasl.delegation import TokenCredentials
from odradek.security.sasl.gssapi import GSSAPI
from odradek.security.sasl.listener import (
    OAUTHBEARER,
    PLAIN,
    ListenerSasl,
    SaslSettingError,
    Surroundings,
    build_listener_sasl,
    own_name,
    own_ticket,
)
from odradek.security.sasl.tokens import TokenChecks
from odradek.server.parts.ports import Ports
from odradek.settings.broker import BrokerSettings

WITH_SASL = ("SASL_PLAINTEXT", "SASL_SSL")


class Logins:
    """The SASL logins of this node, for the present settings.

    Attributes:
        listeners: the mechanisms of this node's listeners with SASL, by name.
    """

    def __init__(
        self, settings: BrokerSettings, image: Callable[[], MetadataImage], ports: Ports, peers: Iterable[str]
    ) -> None:
        """
        Args:
            image: returns the present metadata: SCRAM credentials, delegation tokens.
            peers: listeners of other nodes.
        Raises:
            ConfigError: a line for each mechanism that is not served, or that has no users or no name.
        """
        self._random = ports.random
        self._node = _surroundings(settings, image, ports)
        self._given = _given(settings)
        self.listeners, self._own = self._build(settings, peers)

    def token_checks(self) -> list[TokenChecks]:
        """The checks of OAUTHBEARER tokens, of each listener with that mechanism."""
        return [each.tokens for each in self.listeners.values() if each.tokens is not None]

    def credentials(self, listener_name: str) -> Credentials | None:
        """The credentials for a listener of other nodes; None if that has no SASL."""
        return self._own[listener_name]

    def check(self, settings: BrokerSettings) -> None:
        """Whether logins could go by these settings.

        Raises:
            ConfigError: they could not.
        """
        if _given(settings) != self._given:
            self._build(settings, self._own)

    def change(self, settings: BrokerSettings) -> None:
        """Go by these settings, for logins to come.

        Raises:
            ConfigError: nothing is changed.
        """
        given = _given(settings)
        if given == self._given:
            return
        listeners, self._own = self._build(settings, self._own)
        self._given = given
        for name, new in listeners.items():
            if name in self.listeners:
                self.listeners[name].change(new)
            else:
                self.listeners[name] = new

    def _build(
        self, settings: BrokerSettings, peers: Iterable[str]
    ) -> tuple[dict[str, ListenerSasl], dict[str, Credentials | None]]:
        listeners, problems = {}, []
        own: dict[str, Credentials | None] = {}
        for each in settings.listeners:
            if each.security_protocol in WITH_SASL:
                try:
                    listener_settings = settings.of_listener(each.name)
                    listeners[each.name] = build_listener_sasl(each.name, listener_settings, self._node)
                except SaslSettingError as error:
                    problems.append(f"listener {each.name}: {error}")
        for name in peers:
            try:
                own[name] = own_credentials(settings, name, self._random)
            except ConfigError as error:
                problems += error.problems
        if problems:
            raise ConfigError(problems)
        return listeners, own


def _surroundings(settings: BrokerSettings, image: Callable[[], MetadataImage], ports: Ports) -> Surroundings:
    now_ms = ports.clock.now_ms
    # The secret that nodes share, if it is set; clients do not know it.
    secret = str(settings["delegation.token.secret.key"] or "").encode()
    own_tokens = TokenCredentials(secret.decode(), lambda: image().delegation_tokens, now_ms, ports.random.randbytes)
    return Surroundings(lambda: image().scram, own_tokens.find, ports.random, secret, now_ms)


def _given(settings: BrokerSettings) -> dict[str, str]:
    """The settings of SASL in the file or set at run time, and the protocol of each listener."""
    protocols = {each.name: each.security_protocol for each in settings.listeners}
    return {key: text for key, text in settings.explicit.items() if "sasl." in key} | protocols


def own_credentials(settings: BrokerSettings, listener_name: str, random: Random) -> Credentials | None:
    """The credentials for a listener of other nodes; None if that has no SASL.

    Raises:
        ConfigError: a mechanism that nodes do not use, or no name and password for it.
    """
    if settings.security_protocol_of(listener_name) not in WITH_SASL:
        return None
    config = settings.build(SaslConfig)
    is_controllers = listener_name in settings.controller_listener_names
    key = f"sasl.mechanism.{'controller' if is_controllers else 'inter.broker'}.protocol"
    mechanism = (config.controller_mechanism if is_controllers else config.inter_broker_mechanism).upper()
    usable = (PLAIN, OAUTHBEARER, GSSAPI) if is_controllers else (PLAIN, *SCRAM_MECHANISMS, OAUTHBEARER, GSSAPI)
    if mechanism not in usable:
        why = ": the users of SCRAM are known only once controllers are" if mechanism in SCRAM_MECHANISMS else ""
        raise ConfigError([f"{key}={mechanism}: must be {' or '.join(usable)} for listener {listener_name}{why}"])
    own = settings.of_listener(listener_name).of_mechanism(mechanism)
    try:
        if mechanism == GSSAPI:
            ticket = own_ticket(own)
            return Credentials(mechanism, ticket.principal, "", random, kerberos=ticket)
        if mechanism == OAUTHBEARER:
            return _by_token(own, random)
        name, password = own_name(own, mechanism)
    except SaslSettingError as error:
        raise ConfigError([f"listener {listener_name}: {error}"]) from None
    return Credentials(mechanism, name, password, random)


def _by_token(own: BrokerSettings, random: Random) -> Credentials:
    """Raises SaslSettingError."""
    # The client of an issuer is loaded where there is one.
    from odradek.security.client.tokens import check_token_settings, current_token

    texts = {key: text for key, text in own.explicit.items() if key.startswith("sasl.")}
    prefix = f"{OAUTHBEARER.lower()}."
    texts |= {key.removeprefix(prefix): text for key, text in own.explicit.items() if key.startswith(prefix)}
    try:
        check_token_settings(texts)
    except ClientSaslSettingError as error:
        raise SaslSettingError(str(error)) from None
    token = partial(current_token, texts)
    return Credentials(OAUTHBEARER, "the owner of the token", "", random, token=token, is_node=True)
