"""The SASL of one listener: its mechanisms, users and counters."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from odradek.common.errors import OdradekError
from odradek.common.numbers import INT32_MAX, parse_natural
from odradek.common.real_kerberos import (
    Acceptor,
    KerberosError,
    KerberosLogin,
    MissingKerberosError,
    default_realm,
    load,
)
from odradek.common.scram import SCRAM_MECHANISMS, encode64
from odradek.metadata.model import ScramCredential
from odradek.security.sasl.config import SaslConfig, TokenConfig
from odradek.security.sasl.exchange import Exchange, plain
from odradek.security.sasl.gssapi import GSSAPI, gssapi
from odradek.security.sasl.kerberos_names import KEY as RULES_KEY
from odradek.security.sasl.kerberos_names import parse_rules
from odradek.security.sasl.oauthbearer import oauthbearer
from odradek.security.sasl.scram import NONCE_BYTES, FindToken, ScramUsers, scram
from odradek.security.sasl.tokens import TokenChecks
from odradek.settings.broker import BrokerSettings
from odradek.settings.jaas import JaasEntry, parse_jaas, tls_options

if TYPE_CHECKING:
    from random import Random

JAAS_KEY = "sasl.jaas.config"
_USER = "user_"
PLAIN = "PLAIN"
OAUTHBEARER = "OAUTHBEARER"
SERVED = (PLAIN, *SCRAM_MECHANISMS, OAUTHBEARER, GSSAPI)
_HANDLER_KEY = "sasl.server.callback.handler.class"
# Kafka's own name for tokens that no one signed, for development; without it there must be keys.
_UNSIGNED = "OAuthBearerUnsecuredValidatorCallbackHandler"
# Classes of Kafka's that check signatures, times, issuer and audience, as is done here.
_VALIDATOR_KEY = "sasl.oauthbearer.jwt.validator.class"
_VALIDATORS = ("", "DefaultJwtValidator", "BrokerJwtValidator")
_HANDLERS = {
    PLAIN: ("PlainServerCallbackHandler",),
    OAUTHBEARER: ("OAuthBearerValidatorCallbackHandler", _UNSIGNED),
    **dict.fromkeys(SCRAM_MECHANISMS, ("ScramServerCallbackHandler",)),
}

Credentials = Mapping[tuple[str, int], ScramCredential]


class SaslSettingError(OdradekError):
    """Settings of a listener that cannot be; the text begins with the setting's name, and holds no value of it."""


@dataclass(slots=True)
class AuthenticationCounts:
    """Logins on one listener by one mechanism."""

    succeeded: int = 0
    failed: int = 0
    reauthentications: int = 0
    reauthentications_failed: int = 0


@dataclass(slots=True)
class ListenerSasl:
    """The shared state of connections of a listener with SASL.

    Attributes:
        mechanisms: a function for each that begins a login, in the order in which they are offered.
        tokens: the checks of OAUTHBEARER tokens; None without that mechanism.
        off_loop: mechanisms whose steps may block, or compute for long.
        max_reauth_ms: of each mechanism, `connections.max.reauth.ms`.
        sessions_expired: connections that were closed, since they did not re-authenticate.
    """

    name: str
    config: SaslConfig
    mechanisms: Mapping[str, Callable[[], Exchange]]
    tokens: TokenChecks | None = None
    off_loop: frozenset[str] = frozenset()
    max_reauth_ms: Mapping[str, int] = field(default_factory=dict)
    counts: dict[str, AuthenticationCounts] = field(default_factory=dict)
    sessions_expired: int = 0

    def change(self, new: ListenerSasl) -> None:
        """Apply changed settings to new logins; counters stay, and so do keys of tokens until the next refresh."""
        if self.tokens is not None and new.tokens is not None:
            new.tokens.keys.replace(self.tokens.keys.keys)
        self.config, self.mechanisms, self.tokens = new.config, new.mechanisms, new.tokens
        self.off_loop, self.max_reauth_ms = new.off_loop, new.max_reauth_ms

    def counts_of(self, mechanism: str) -> AuthenticationCounts:
        return self.counts.setdefault(mechanism, AuthenticationCounts())


@dataclass(frozen=True, slots=True)
class Surroundings:
    """The parts of a node that logins use.

    Attributes:
        credentials: returns the present SCRAM credentials.
        find_token: delegation tokens, see `scram`.
        random: the source of nonces; it must be unpredictable.
        secret: see `ScramUsers`.
        now_ms: the wall clock.
    """

    credentials: Callable[[], Credentials]
    find_token: FindToken
    random: Random
    secret: bytes = field(repr=False)
    now_ms: Callable[[], int]


def build_listener_sasl(name: str, settings: BrokerSettings, node: Surroundings) -> ListenerSasl:
    """
    Args:
        settings: as the listener has them.
    Raises:
        SaslSettingError: a mechanism that is not served, or one without its users.
    """
    config = settings.build(SaslConfig)
    wanted = dict.fromkeys(each.upper() for each in config.enabled_mechanisms)
    if not wanted:
        raise SaslSettingError("sasl.enabled.mechanisms: names none, and no client could log in")
    mechanisms: dict[str, Callable[[], Exchange]] = {}
    max_reauth_ms: dict[str, int] = {}
    tokens: TokenChecks | None = None
    for each in wanted:
        own = settings.of_mechanism(each)
        max_reauth_ms[each] = own.build(SaslConfig).max_reauth_ms
        if (handler := _handler(own)) not in ("", *_HANDLERS.get(each, ())):
            raise SaslSettingError(f"{_HANDLER_KEY}: there is no {handler} here, and {each} would be served without it")
        jaas_entry(own, each)  # SCRAM does not use it, and an invalid one is refused nevertheless
        if each == PLAIN:
            mechanisms[each] = _plain(own)
        elif each in SCRAM_MECHANISMS:
            mechanisms[each] = _scram(each, node)
        elif each == OAUTHBEARER:
            tokens = _token_checks(name, own)
            mechanisms[each] = _oauthbearer(tokens, node)
        elif each == GSSAPI:
            mechanisms[each] = _gssapi(own)
        else:
            raise SaslSettingError(f"sasl.enabled.mechanisms: {each} is not served; {', '.join(SERVED)} are")
    # Of a delegation token the password is hashed here, once; of other users the keys are kept.
    off_loop = {GSSAPI, *SCRAM_MECHANISMS} if node.secret else {GSSAPI}
    return ListenerSasl(name, config, mechanisms, tokens, frozenset(off_loop), max_reauth_ms)


def _plain(settings: BrokerSettings) -> Callable[[], Exchange]:
    entry = jaas_entry(settings, PLAIN)
    if entry is None or not entry.is_plain:
        raise SaslSettingError(
            f"{_key(PLAIN)}: PLAIN needs it, as in: org.apache.kafka.common.security.plain.PlainLoginModule"
            ' required user_alice="…";'
        )
    passwords = {key.removeprefix(_USER): text for key, text in entry.options.items() if key.startswith(_USER)}
    return lambda: plain(passwords)


def _scram(mechanism: str, node: Surroundings) -> Callable[[], Exchange]:
    users = ScramUsers(SCRAM_MECHANISMS[mechanism], node.secret)
    return lambda: scram(users, node.credentials(), encode64(node.random.randbytes(NONCE_BYTES)), node.find_token)


def _oauthbearer(tokens: TokenChecks, node: Surroundings) -> Callable[[], Exchange]:
    return lambda: oauthbearer(lambda text: tokens.check(text, node.now_ms()))


def _gssapi(settings: BrokerSettings) -> Callable[[], Exchange]:
    _, entry = own_service(settings)
    try:
        names = parse_rules(settings.build(SaslConfig).kerberos_rules, default_realm())
        acceptor = Acceptor(entry.options["principal"], entry.options["keyTab"])
    except MissingKerberosError as error:
        raise SaslSettingError(f"sasl.enabled.mechanisms: {error}") from None
    except KerberosError as error:
        raise SaslSettingError(f"{_key(GSSAPI)}: the key of the node cannot be used: {error}") from None
    except ValueError as error:
        raise SaslSettingError(f"{RULES_KEY}: {error}") from None
    return lambda: gssapi(acceptor.begin, names)


def own_service(settings: BrokerSettings) -> tuple[str, JaasEntry]:
    """Name of the brokers' service, and the entry with the keytab and the principal of the node.

    Args:
        settings: of GSSAPI on a listener.
    Raises:
        SaslSettingError: there are none, or they contradict each other.
    """
    entry = jaas_entry(settings, GSSAPI)
    if entry is None or not entry.is_kerberos or not (entry.options.get("keyTab") and entry.options.get("principal")):
        raise SaslSettingError(
            f"{_key(GSSAPI)}: GSSAPI needs it, as in: com.sun.security.auth.module.Krb5LoginModule"
            ' required useKeyTab=true storeKey=true keyTab="/…/node.keytab" principal="kafka/HOST@REALM";'
        )
    named = settings.build(SaslConfig).kerberos_service_name
    in_entry = entry.options.get("serviceName")
    if named and in_entry and named != in_entry:
        raise SaslSettingError(f"sasl.kerberos.service.name: is another one than serviceName of {_key(GSSAPI)}")
    service = named or in_entry
    if not service:
        raise SaslSettingError(f"sasl.kerberos.service.name: is not set, nor is serviceName in {_key(GSSAPI)}")
    return service, entry


def own_ticket(settings: BrokerSettings) -> KerberosLogin:
    """The Kerberos credentials of this node for a listener with GSSAPI.

    Args:
        settings: of GSSAPI on the listener.
    Raises:
        SaslSettingError: the listener has no keytab and principal, or the extra is not installed.
    """
    service, entry = own_service(settings)
    try:
        load()
    except MissingKerberosError as error:
        raise SaslSettingError(f"sasl.enabled.mechanisms: {error}") from None
    return KerberosLogin(service, entry.options["principal"], entry.options["keyTab"])


def _handler(settings: BrokerSettings) -> str:
    """Kafka's class that checks the logins of a mechanism, without its package; "" for the mechanism's default."""
    return (settings.build(SaslConfig).server_handler or "").rpartition(".")[2]


def _token_checks(name: str, settings: BrokerSettings) -> TokenChecks:
    config = settings.build(TokenConfig)
    url = config.jwks_url or ""
    if _handler(settings) == _UNSIGNED:
        return _unsigned_checks(name, config, jaas_entry(settings, OAUTHBEARER))
    if (validator := config.validator.rpartition(".")[2]) not in _VALIDATORS:
        raise SaslSettingError(f"{_VALIDATOR_KEY}: there is no {validator} here, and tokens would be taken without it")
    if not url.startswith(("file://", "https://")):
        raise SaslSettingError(
            "sasl.oauthbearer.jwks.endpoint.url: OAUTHBEARER needs it, as file:///path or https://…, to check tokens"
        )
    if config.issuer is None and not config.any_issuer:
        raise SaslSettingError(
            "sasl.oauthbearer.expected.issuer: is not set; set it, or sasl.oauthbearer.allow.unverified.issuer=true"
        )
    if not config.audience and not config.any_audience:
        raise SaslSettingError(
            "sasl.oauthbearer.expected.audience: is not set; set it, or sasl.oauthbearer.allow.unverified.audience=true"
        )
    entry = jaas_entry(settings, OAUTHBEARER)
    return TokenChecks(name, config, {} if entry is None else tls_options(entry.options))


def _unsigned_checks(name: str, config: TokenConfig, entry: JaasEntry | None) -> TokenChecks:
    """The checks of unsigned tokens by the options of Kafka's validator, which override the settings.

    Raises:
        SaslSettingError: an option that cannot be.
    """
    options: Mapping[str, str] = {} if entry is None else entry.options
    named = replace(
        config,
        subject_claim=options.get("unsecuredValidatorPrincipalClaimName") or config.subject_claim,
        scope_claim=options.get("unsecuredValidatorScopeClaimName") or config.scope_claim,
        skew_s=_allowed_skew_ms(options) / 1000,
    )
    scopes = options.get("unsecuredValidatorRequiredScope", "")
    return TokenChecks(name, named, unsigned=True, scopes=tuple(scopes.split()))


def _allowed_skew_ms(options: Mapping[str, str]) -> int:
    """The clock skew that is allowed between a token's issuer and this node; by default none, as in Kafka."""
    name = "unsecuredValidatorAllowableClockSkewMs"
    skew_ms = parse_natural(options.get(name, "").strip() or "0", INT32_MAX)
    if skew_ms is None:
        raise SaslSettingError(f"{_key(OAUTHBEARER)}: {name} must be a number of milliseconds")
    return skew_ms


def own_name(settings: BrokerSettings, mechanism: str) -> tuple[str, str]:
    """The name and password by which this node logs in to a listener.

    Args:
        settings: of the mechanism on the listener.
    Raises:
        SaslSettingError: there are none.
    """
    entry = jaas_entry(settings, mechanism)
    options: Mapping[str, str] = {} if entry is None else entry.options
    name, password = options.get("username", ""), options.get("password", "")
    if not name or not password:
        raise SaslSettingError(f"{_key(mechanism)}: needs username and password, by which this node logs in to others")
    return name, password


def jaas_entry(settings: BrokerSettings, mechanism: str) -> JaasEntry | None:
    """The JAAS entry of a listener for a mechanism.

    Args:
        settings: of the mechanism on the listener.
    Raises:
        SaslSettingError: it is invalid, or has another login module.
    """
    text = settings.build(SaslConfig).jaas_config
    if text is None:
        return None
    try:
        return parse_jaas(text)
    except ValueError as error:
        raise SaslSettingError(f"{_key(mechanism)}: {error}") from None


def _key(mechanism: str) -> str:
    return f"{mechanism.lower()}.{JAAS_KEY}"
