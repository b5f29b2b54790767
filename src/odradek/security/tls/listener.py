"""The TLS of one listener while a node runs: its context, the principals of clients, and the expiry of the certificate.

After a change of a file or setting, new connections use a new context; on an error the present one stays in force. It
also stays if the new certificate is not valid now, or is one that other nodes would refuse, and the present one is not.
"""

from __future__ import annotations

import ssl
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

from cryptography import x509

from odradek.common.log_lines import get_logger
from odradek.security.tls.config import TlsConfig, TlsSettingError
from odradek.security.tls.contexts import TlsContext, client_context, server_context, suites_beyond
from odradek.security.tls.distinguished_name import distinguished_name
from odradek.security.tls.principal_rules import parse_principal_rules
from odradek.security.tls.trial import refusal_between_nodes

_log = get_logger("security.tls")

# The state of a file when it was read: modification time in ns, and size in bytes.
_Stamp = tuple[int, int]


class RenewableContext:
    """A context that is created again when one of its files or settings changes."""

    def __init__(
        self,
        name: str,
        config: TlsConfig,
        make: Callable[[TlsConfig], TlsContext],
        now_ms: Callable[[], int],
        *,
        between_nodes: bool = False,
    ) -> None:
        """
        Args:
            name: of the listener, for log lines.
            now_ms: the wall clock.
            between_nodes: whether nodes connect to each other with these settings.
        Raises:
            TlsSettingError.
        """
        self.name = name
        self._config = config
        self._make = make
        self._now_ms = now_ms
        self._stamps = _read_stamps(config)
        self._between_nodes = between_nodes
        self._present = make(config)
        # Whether other nodes with the present settings accept this one: then those with new settings must, too.
        self._is_accepted = not (between_nodes and refusal_between_nodes(config, Path.read_bytes))
        self._early_until: datetime | None = None
        self._warn_of_settings()

    @property
    def context(self) -> ssl.SSLContext:
        """The context in force."""
        return self._present.context

    @property
    def not_after(self) -> datetime | None:
        """When the certificate, or the first of its issuers', expires; None without one."""
        return self._present.not_after

    @property
    def config(self) -> TlsConfig:
        return self._config

    def check(self, config: TlsConfig) -> None:
        """Whether an administrator may set these settings.

        Raises:
            TlsSettingError: there could be no context, or its certificate cannot replace the present one.
        """
        if config != self._config:
            new = self._make(config)
            self._check_is_usable(new, config)
            _check_replaces(self._present, new, config)

    def change_config(self, config: TlsConfig) -> None:
        """Use other settings.

        Raises:
            TlsSettingError: nothing is changed.
        """
        if config == self._config:
            return
        stamps = _read_stamps(config)
        new = self._make(config)
        self._is_accepted = self._check_is_usable(new, config)
        self._config, self._stamps, self._early_until = config, stamps, None
        self._apply(new)
        self._warn_of_settings()

    def renew(self) -> bool:
        """Read files that have changed; whether there is a new context. A bad file is reported once.

        A certificate that is valid only later is read again at that time.
        """
        stamps = _read_stamps(self._config)
        if stamps == self._stamps and (self._early_until is None or self._now() < self._early_until):
            return False
        self._stamps, self._early_until = stamps, None
        new = None
        try:
            new = self._make(self._config)
            self._is_accepted = self._check_is_usable(new, self._config)
        except TlsSettingError as error:
            if new is not None and new.not_before is not None and new.not_before > self._now():
                self._early_until = new.not_before
            _log.error("a renewed certificate is not used: the old one stays", listener=self.name, reason=str(error))
            return False
        self._apply(new)
        return True

    def _apply(self, new: TlsContext) -> None:
        self._present = new
        _log.info("certificate renewed", listener=self.name, expires=self.not_after)

    def _now(self) -> datetime:
        return datetime.fromtimestamp(self._now_ms() / 1000, UTC)

    def _check_is_usable(self, new: TlsContext, config: TlsConfig) -> bool:
        """Whether other nodes accept a new certificate.

        Raises:
            TlsSettingError: it is not valid now, or other nodes do not accept it, unlike the present one.
        """
        now = self._now()
        if _is_valid(self._present, now) and not _is_valid(new, now):
            raise TlsSettingError(
                f"ssl.keystore: the certificate is valid from {new.not_before} to {new.not_after}, and not now"
            )
        refusal = refusal_between_nodes(config, Path.read_bytes) if self._between_nodes else ""
        if refusal and self._is_accepted:
            raise TlsSettingError(f"ssl.keystore: nodes with these settings would refuse each other: {refusal}")
        return not refusal

    def _warn_of_settings(self) -> None:
        """Warn of values that have another effect than it seems."""
        for store, kind, password in (
            ("keystore", self._config.keystore_type, self._config.keystore_password),
            ("truststore", self._config.truststore_type, self._config.truststore_password),
        ):
            if kind.upper() == "PEM" and password is not None:
                _log.warning(f"ssl.{store}.password has no effect on PEM", listener=self.name)
        if beyond := suites_beyond(self._config, self.context):
            _log.warning(
                "ssl.cipher.suites chooses among suites of TLS 1.2 alone: more are agreed to in TLS 1.3",
                listener=self.name,
                suites=",".join(beyond),
            )


class ListenerTls:
    """The TLS of one listener."""

    def __init__(self, name: str, config: TlsConfig, now_ms: Callable[[], int], *, between_nodes: bool = False) -> None:
        """Arguments and errors as of `RenewableContext`."""
        try:
            self._rules = parse_principal_rules(config.principal_mapping_rules)
        except ValueError as error:
            raise TlsSettingError(f"ssl.principal.mapping.rules: {error}") from None
        self.name = name
        self.renewable = RenewableContext(
            name, config, lambda new: server_context(new, Path.read_bytes), now_ms, between_nodes=between_nodes
        )

    @property
    def context(self) -> ssl.SSLContext:
        """The context for the next connection."""
        return self.renewable.context

    def principal_of(self, certificate: bytes | None) -> str | None:
        """`User:` and the name of a client; None without a certificate.

        Args:
            certificate: DER, verified by the handshake.
        Raises:
            NoMatchingRuleError: no rule matches the name: the connection must be closed.
        """
        if certificate is None:
            return None
        name = distinguished_name(x509.load_der_x509_certificate(certificate).subject)
        return f"User:{self._rules.name_of(name)}"


def _is_valid(one: TlsContext, now: datetime) -> bool:
    """Whether the certificate is valid; a node without one has nothing that could be invalid."""
    return one.not_before is None or one.not_after is None or one.not_before <= now < one.not_after


def _check_replaces(old: TlsContext, new: TlsContext, config: TlsConfig) -> None:
    """Check that a new certificate has the names of the present one, by which clients may verify the node."""
    if old.subject is None or new.subject is None:
        return
    if new.subject != old.subject and not config.allow_dn_changes:
        raise TlsSettingError(
            f"ssl.keystore: the certificate is of {new.subject}, the present one of {old.subject};"
            " ssl.allow.dn.changes=true allows that"
        )
    missing = sorted(old.hosts - new.hosts)
    if missing and not config.allow_san_changes:
        raise TlsSettingError(
            f"ssl.keystore: the certificate lacks {', '.join(missing)}, which the present one names;"
            " ssl.allow.san.changes=true allows that"
        )


def outgoing_context(name: str, config: TlsConfig, now_ms: Callable[[], int]) -> RenewableContext:
    """The context of connections to other nodes' listener of this name.

    Raises:
        TlsSettingError.
    """
    return RenewableContext(name, config, lambda new: client_context(new, Path.read_bytes), now_ms, between_nodes=True)


def _read_stamps(config: TlsConfig) -> dict[str, _Stamp | None]:
    """The present states of the files of these settings."""
    locations = (config.keystore_location, config.truststore_location)
    return {location: _stamp(location) for location in locations if location is not None}


def _stamp(location: str) -> _Stamp | None:
    try:
        status = Path(location).stat()
    except OSError:
        return None
    return status.st_mtime_ns, status.st_size
