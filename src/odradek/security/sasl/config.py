"""The settings of SASL, of the whole node or of one listener."""

from __future__ import annotations

from odradek.settings.options import config, option


@config
class SaslConfig:
    """How clients log in, and as what this node logs in elsewhere."""

    enabled_mechanisms: tuple[str, ...] = option(
        "sasl.enabled.mechanisms",
        default=("GSSAPI",),
        doc="Mechanisms by which clients log in: PLAIN, SCRAM-SHA-256, SCRAM-SHA-512, OAUTHBEARER, GSSAPI.",
    )
    jaas_config: str | None = option(
        "sasl.jaas.config",
        default=None,
        doc="Users of PLAIN (user_NAME=PASSWORD), and the username and password by which this node logs in to others;"
        " mostly as listener.name.NAME.MECHANISM.sasl.jaas.config.",
    )
    kerberos_service_name: str | None = option(
        "sasl.kerberos.service.name",
        default=None,
        doc="First part of the brokers' Kerberos principals, where the JAAS configuration has no serviceName.",
    )
    kerberos_rules: tuple[str, ...] = option(
        "sasl.kerberos.principal.to.local.rules",
        default=("DEFAULT",),
        doc="How a Kerberos principal becomes the name of a user; the first rule that matches decides.",
    )
    server_handler: str | None = option(
        "sasl.server.callback.handler.class",
        default=None,
        doc="Of Kafka's classes that check logins: OAuthBearerUnsecuredValidatorCallbackHandler takes tokens that no"
        " one signed; those of a mechanism that are its own anyway change nothing; others are refused.",
    )
    max_receive_bytes: int = option(
        "sasl.server.max.receive.size",
        default=524_288,
        unit="bytes",
        doc="Largest request that is taken before a client has logged in, and largest message of a login.",
    )
    max_reauth_ms: int = option(
        "connections.max.reauth.ms",
        default=0,
        unit="ms",
        doc="A client must log in again after so long, on the same connection (KIP-368); 0 asks for none.",
    )
    failure_delay_ms: int = option(
        "connection.failed.authentication.delay.ms",
        default=100,
        unit="ms",
        doc="How long a client waits for the answer that its login failed; the connection ends with it.",
    )
    inter_broker_mechanism: str = option(
        "sasl.mechanism.inter.broker.protocol",
        default="GSSAPI",
        doc="Mechanism by which brokers log in to each other.",
    )
    controller_mechanism: str = option(
        "sasl.mechanism.controller.protocol",
        default="GSSAPI",
        doc="Mechanism by which nodes log in to controllers; not SCRAM, whose users only controllers know.",
    )
