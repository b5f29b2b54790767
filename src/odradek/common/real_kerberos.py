"""Kerberos by the library of the extra `odradek[kerberos]`, which is loaded only if GSSAPI is configured.

Its calls read keytabs, the replay cache and credentials, and send requests to the KDC: they block, so run them in a
thread.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from importlib import import_module
from typing import Any

from odradek.common.errors import OdradekError

INSTALL = (
    'GSSAPI needs the extra: pip install "odradek[kerberos]", which is built with Debian\'s gcc, python3-dev and'
    " libkrb5-dev"
)
DEFAULT_SERVICE = "kafka"
# The base of the codes of RFC 4120; those of MIT's library follow them.
_FIRST_CODE = -1765328384
_REASONS = {
    31: "the service's key is another one than the KDC's, or the ticket was changed",
    32: "the ticket has expired",
    33: "the ticket is not valid yet: compare the clocks",
    34: "the request is a replay of one that was seen",
    35: "the ticket is for another service",
    36: "the ticket is another client's",
    37: "the client's clock differs by too much",
    41: "the message was changed",
    44: "the keytab has no key of the version that the ticket is for",
    45: "the keytab has no key of the service that the ticket is for",
    144: "the ticket is for another service than the listener's principal",
    181: "the keytab has no key of the service that the ticket is for",
    230: "the keytab has no key of the version that the ticket is for",
}


class MissingKerberosError(OdradekError):
    """The extra is not installed; the text says how to install it."""


class KerberosError(OdradekError):
    """A step failed.

    Attributes:
        reason: of a fixed set, for where nothing may be shown that the peer sent; the text may hold such.
    """

    def __init__(self, text: str, reason: str) -> None:
        super().__init__(text)
        self.reason = reason


@dataclass(frozen=True, slots=True)
class KerberosLogin:
    """The credentials of a client.

    Attributes:
        service: first part of the brokers' principals.
        principal: the client's principal; "" is that of the credential cache.
        keytab: its file; "" uses the tickets of the credential cache, from kinit.
        ticket_cache: the cache; "" is that of the process (KRB5CCNAME).
    """

    service: str = DEFAULT_SERVICE
    principal: str = ""
    keytab: str = ""
    ticket_cache: str = ""

    def for_librdkafka(self) -> dict[str, str]:
        """The settings of librdkafka."""
        found = {"service.name": self.service, "principal": self.principal, "keytab": self.keytab}
        return {f"sasl.kerberos.{name}": text for name, text in found.items() if text}


class Context:
    """One side of a security context."""

    def __init__(self, library: Any, context: Any) -> None:
        self._library = library
        self._context = context
        # A failed step raises; otherwise the library would first return a KRB-ERROR for the peer.
        context.__DEFER_STEP_ERRORS__ = False

    @property
    def complete(self) -> bool:
        return bool(self._context.complete)

    @property
    def initiator(self) -> str:
        """The principal of the client, once it is complete."""
        return str(self._context.initiator_name)

    def step(self, token: bytes | None) -> bytes:
        """Process the peer's token, and return the token for the peer; None begins. Raises KerberosError."""
        try:
            return self._context.step(token) or b""
        except self._library.exceptions.GSSError as error:
            raise _error(error) from None

    def wrap(self, message: bytes) -> bytes:
        """Sign a message. Raises KerberosError."""
        try:
            return bytes(self._context.wrap(message, False).message)
        except self._library.exceptions.GSSError as error:
            raise _error(error) from None

    def unwrap(self, message: bytes) -> bytes:
        """A message that the peer signed. Raises KerberosError."""
        try:
            return bytes(self._context.unwrap(message).message)
        except self._library.exceptions.GSSError as error:
            raise _error(error) from None


class Acceptor:
    """A service with its key. The keytab is read at each login: a key that was changed there is used at once."""

    def __init__(self, principal: str, keytab: str) -> None:
        """Raises MissingKerberosError, or KerberosError where the keytab has no such key."""
        self._library = library = load()
        try:
            self._credentials = library.Credentials(
                name=library.Name(principal, library.NameType.kerberos_principal),
                usage="accept",
                mechs=[library.MechType.kerberos],
                store={"keytab": f"FILE:{keytab}"},
            )
        except library.exceptions.GSSError as error:
            raise _error(error) from None

    def begin(self) -> Context:
        """The context of a client that begins to log in."""
        library = self._library
        try:
            return Context(library, library.SecurityContext(creds=self._credentials, usage="accept"))
        except library.exceptions.GSSError as error:
            raise _error(error) from None


def initiate(login: KerberosLogin, host: str) -> Context:
    """The context of a login to the service on a host.

    With a keytab, tickets are requested when needed, and kept in memory.

    Raises:
        MissingKerberosError, or KerberosError if there are no credentials.
    """
    library = load()
    store = {"ccache": login.ticket_cache} if login.ticket_cache else {}
    if login.keytab:
        mark = hashlib.sha256(f"{login.keytab}\0{login.principal}".encode()).hexdigest()[:32]
        store = {"client_keytab": f"FILE:{login.keytab}", "ccache": f"MEMORY:odradek-{mark}"}
    try:
        name = library.Name(login.principal, library.NameType.kerberos_principal) if login.principal else None
        mechanisms = [library.MechType.kerberos]
        credentials = library.Credentials(name=name, usage="initiate", mechs=mechanisms, store=store or None)
        service = library.Name(f"{login.service}@{host}", library.NameType.hostbased_service)
        flag = library.RequirementFlag
        flags = (flag.mutual_authentication, flag.integrity, flag.replay_detection, flag.out_of_sequence_detection)
        context = library.SecurityContext(
            name=service, creds=credentials, mech=mechanisms[0], flags=flags, usage="initiate"
        )
    except library.exceptions.GSSError as error:
        raise _error(error) from None
    return Context(library, context)


def default_realm() -> str:
    """`default_realm` of krb5.conf; "" if it has none. Raises MissingKerberosError."""
    library = load()
    try:
        name = library.Name("x", library.NameType.kerberos_principal).canonicalize(library.MechType.kerberos)
    except library.exceptions.GSSError:
        return ""
    return str(name).rpartition("@")[2]


def load() -> Any:
    """The library. Raises MissingKerberosError."""
    try:
        return import_module("gssapi")
    except (ImportError, OSError):
        raise MissingKerberosError(INSTALL) from None


def _error(error: Any) -> KerberosError:
    number = error.min_code - (1 << 32) if error.min_code >= 1 << 31 else error.min_code
    codes = f"GSS-API codes {error.maj_code} and {error.min_code}"
    reason = _REASONS.get(number - _FIRST_CODE, f"the message is none of Kerberos, or is damaged ({codes})")
    texts = [*error.get_all_statuses(error.min_code, False), *error.get_all_statuses(error.maj_code, True)]
    text = next((each.strip() for each in texts if each.strip() not in ("", "Success", "Unknown error")), codes)
    return KerberosError(text, reason)
