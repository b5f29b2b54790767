"""Builds how clients log in to a node's listeners, and as what the node logs in to those of others."""

from __future__ import annotations

from collections.abc import Callable
from random import Random

from odradek.client.sasl import Credentials
from odradek.common.errors import ConfigError
from odradek.common.scram import SCRAM_MECHANISMS
from odradek.metadata.image import MetadataImage
from odradek.security.sasl.config import SaslConfig
from odradek.security.sasl.delegation import TokenCredentials
from odradek.security.sasl.listener import (
    PLAIN,
    ListenerSasl,
    SaslSettingError,
    Surroundings,
    build_listener_sasl,
    own_name,
)
from odradek.server.parts.ports import Ports
from odradek.settings.broker import BrokerSettings

WITH_SASL = ("SASL_PLAINTEXT", "SASL_SSL")


def build_logins(settings: BrokerSettings, image: Callable[[], MetadataImage], ports: Ports) -> dict[str, ListenerSasl]:
    """The SASL of the node's own listeners that have it, by name.

    Args:
        image: what is known of the cluster now: users of SCRAM, delegation tokens.
    Raises:
        ConfigError: a line for each mechanism that is not served, or that has no users.
    """
    now_ms = ports.clock.now_ms
    # What nodes share and clients do not know, where it is set.
    secret = str(settings["delegation.token.secret.key"] or "").encode()
    own_tokens = TokenCredentials(secret.decode(), lambda: image().delegation_tokens, now_ms, ports.random.randbytes)
    node = Surroundings(lambda: image().scram, own_tokens.find, ports.random, secret, now_ms)
    found, problems = {}, []
    for each in settings.listeners:
        if each.security_protocol in WITH_SASL:
            try:
                own = settings.of_listener(each.name)
                found[each.name] = build_listener_sasl(each.name, own, node)
            except SaslSettingError as error:
                problems.append(f"listener {each.name}: {error}")
    if problems:
        raise ConfigError(problems)
    return found


def own_credentials(settings: BrokerSettings, listener_name: str, random: Random) -> Credentials | None:
    """As what this node logs in to a listener of other nodes; None where that has no SASL.

    Raises:
        ConfigError: a mechanism that nodes do not use, or no name and password for it.
    """
    if settings.security_protocol_of(listener_name) not in WITH_SASL:
        return None
    config = settings.build(SaslConfig)
    is_controllers = listener_name in settings.controller_listener_names
    key = f"sasl.mechanism.{'controller' if is_controllers else 'inter.broker'}.protocol"
    mechanism = (config.controller_mechanism if is_controllers else config.inter_broker_mechanism).upper()
    usable = (PLAIN,) if is_controllers else (PLAIN, *SCRAM_MECHANISMS)
    if mechanism not in usable:
        why = ": the users of SCRAM are known only once controllers are" if mechanism in SCRAM_MECHANISMS else ""
        raise ConfigError([f"{key}={mechanism}: must be {' or '.join(usable)} for listener {listener_name}{why}"])
    try:
        name, password = own_name(settings.of_listener(listener_name), mechanism)
    except SaslSettingError as error:
        raise ConfigError([f"listener {listener_name}: {error}"]) from None
    return Credentials(mechanism, name, password, random)
