"""The settings of SASL, of the whole node or of one listener."""

from __future__ import annotations

from odradek.settings.options import config, option


@config
class SaslConfig:
    """SASL of clients of this node, and of its connections to other nodes."""

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


@config
class TokenConfig:
    """The required claims of clients' tokens, and the keys that may sign them."""

    jwks_url: str | None = option(
        "sasl.oauthbearer.jwks.endpoint.url",
        default=None,
        doc="Where the public keys of the issuer of tokens are (JWKS): file:///path or https://….",
    )
    refresh_ms: int = option(
        "sasl.oauthbearer.jwks.endpoint.refresh.ms",
        default=3_600_000,
        unit="ms",
        doc="How often the keys are read again; they are read sooner where a token names a key that is not known.",
    )
    retry_ms: int = option(
        "sasl.oauthbearer.jwks.endpoint.retry.backoff.ms",
        default=100,
        unit="ms",
        doc="First pause before the keys are asked for again where that failed.",
    )
    retry_max_ms: int = option(
        "sasl.oauthbearer.jwks.endpoint.retry.backoff.max.ms",
        default=10_000,
        unit="ms",
        doc="Longest pause before the keys are asked for again where that failed.",
    )
    issuer: str | None = option(
        "sasl.oauthbearer.expected.issuer", default=None, doc="The issuer that tokens must have (iss)."
    )
    audience: tuple[str, ...] = option(
        "sasl.oauthbearer.expected.audience",
        default=(),
        doc="Audiences of which tokens must have one (aud).",
    )
    any_issuer: bool = option(
        "sasl.oauthbearer.allow.unverified.issuer",
        default=False,
        doc="Whether tokens of any issuer are taken where sasl.oauthbearer.expected.issuer is not set.",
    )
    any_audience: bool = option(
        "sasl.oauthbearer.allow.unverified.audience",
        default=False,
        doc="Whether tokens for any audience are taken where sasl.oauthbearer.expected.audience is not set.",
    )
    skew_s: float = option(
        "sasl.oauthbearer.clock.skew.seconds",
        default=30,
        doc="How far the issuer's clock may be from ours, in seconds.",
    )
    scope_claim: str = option(
        "sasl.oauthbearer.scope.claim.name", default="scope", doc="The claim that has the scopes."
    )
    subject_claim: str = option(
        "sasl.oauthbearer.sub.claim.name", default="sub", doc="The claim that has the user's name."
    )
    validator: str = option(
        "sasl.oauthbearer.jwt.validator.class",
        default="org.apache.kafka.common.security.oauthbearer.DefaultJwtValidator",
        doc="Of Kafka's classes that check tokens: DefaultJwtValidator or BrokerJwtValidator, which are the same here."
        " A node with another one does not start.",
    )


@config
class OwnTokenConfig:
    """The source of the tokens of a node, or of our client, and the requests for them."""

    retriever: str = option(
        "sasl.oauthbearer.jwt.retriever.class",
        default="org.apache.kafka.common.security.oauthbearer.DefaultJwtRetriever",
        doc="Of Kafka's classes that get tokens: DefaultJwtRetriever (a file, or client credentials, as the URL says),"
        " FileJwtRetriever, ClientCredentialsJwtRetriever, JwtBearerJwtRetriever (a signed assertion, KIP-1139).",
    )
    endpoint_url: str | None = option(
        "sasl.oauthbearer.token.endpoint.url",
        default=None,
        doc="Where tokens come from by which this node logs in to others: the issuer (https://…), which gives one for"
        " the client's id and secret, or a file (file:///path) that another process keeps fresh.",
    )
    client_id: str | None = option(
        "sasl.oauthbearer.client.credentials.client.id",
        default=None,
        doc="The client's id at the issuer; where it is not set, clientId of the JAAS configuration.",
    )
    client_secret: str | None = option(
        "sasl.oauthbearer.client.credentials.client.secret",
        default=None,
        doc="The client's secret at the issuer; where it is not set, clientSecret of the JAAS configuration.",
    )
    scope: str | None = option(
        "sasl.oauthbearer.scope",
        default=None,
        doc="The scope that is asked for; where it is not set, scope of the JAAS configuration.",
    )
    connect_timeout_ms: int | None = option(
        "sasl.login.connect.timeout.ms",
        default=None,
        unit="ms",
        doc="How long a connection to the issuer of tokens may take; 10 s where it is not set.",
    )
    read_timeout_ms: int | None = option(
        "sasl.login.read.timeout.ms",
        default=None,
        unit="ms",
        doc="How long the issuer may take to answer; 10 s where it is not set.",
    )
    backoff_ms: int = option(
        "sasl.login.retry.backoff.ms",
        default=100,
        unit="ms",
        doc="The first pause before an issuer is asked again that does not answer, or has trouble; each next one is"
        " twice as long.",
    )
    backoff_max_ms: int = option(
        "sasl.login.retry.backoff.max.ms",
        default=10_000,
        unit="ms",
        doc="For how long an issuer is asked again before the login fails.",
    )
    refresh_factor: float = option(
        "sasl.login.refresh.window.factor",
        default=0.8,
        doc="The part of a token's life after which another one is fetched.",
    )
    refresh_jitter: float = option(
        "sasl.login.refresh.window.jitter",
        default=0.05,
        doc="The part of a token's life by which that is later at most, by chance.",
    )
    refresh_min_period_s: int = option(
        "sasl.login.refresh.min.period.seconds",
        default=60,
        doc="For how long a token is kept at least, where it lives for longer than this and the buffer together.",
    )
    refresh_buffer_s: int = option(
        "sasl.login.refresh.buffer.seconds",
        default=300,
        doc="How long before a token ends another one is fetched at the latest, where it lives for longer than this and"
        " the shortest period together.",
    )


@config
class AssertionConfig:
    """The assertion that authenticates a node, or our client, to an issuer (RFC 7523, KIP-1139, KIP-1258)."""

    file: str | None = option(
        "sasl.oauthbearer.assertion.file",
        default=None,
        doc="File with a signed assertion, which another process keeps fresh; no other setting of assertions counts.",
    )
    key_file: str | None = option(
        "sasl.oauthbearer.assertion.private.key.file",
        default=None,
        doc="File with the private key that signs assertions: PKCS#8 in PEM, or in base64 alone.",
    )
    passphrase: str | None = option(
        "sasl.oauthbearer.assertion.private.key.passphrase",
        default=None,
        doc="Password of an encrypted key.",
    )
    algorithm: str = option(
        "sasl.oauthbearer.assertion.algorithm",
        default="RS256",
        doc="Algorithm of the signature: RS256 for RSA keys, ES256 for keys of the curve P-256.",
    )
    template_file: str | None = option(
        "sasl.oauthbearer.assertion.template.file",
        default=None,
        doc="JSON file with further parts of assertions, under header (as kid) and payload.",
    )
    issuer: str | None = option(
        "sasl.oauthbearer.assertion.claim.iss", default=None, doc="Who makes the assertion (iss)."
    )
    subject: str | None = option(
        "sasl.oauthbearer.assertion.claim.sub", default=None, doc="For whom a token is asked (sub)."
    )
    audience: str | None = option(
        "sasl.oauthbearer.assertion.claim.aud",
        default=None,
        doc="The issuer of tokens that the assertion is for (aud).",
    )
    lifetime_s: int = option(
        "sasl.oauthbearer.assertion.claim.exp.seconds",
        default=300,
        doc="For how long an assertion holds (exp); each request to the issuer has a new one.",
    )
    began_s: int = option(
        "sasl.oauthbearer.assertion.claim.nbf.seconds",
        default=60,
        doc="How long before now an assertion has begun to hold (nbf), as clocks differ.",
    )
    has_id: bool = option(
        "sasl.oauthbearer.assertion.claim.jti.include",
        default=False,
        doc="Whether each assertion has an id of its own (jti), by which an issuer takes it once.",
    )
