"""The value of sasl.jaas.config: login modules, each with a flag and options.

`org.apache.kafka.common.security.plain.PlainLoginModule required username="a" password="b" user_alice="c";`
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field

# Kafka's modules and Java's for Kerberos. No module is loaded: the name determines the expected options. Kafka forbids
# JndiLoginModule and LdapLoginModule by name.
LOGIN_MODULES = ("PlainLoginModule", "ScramLoginModule", "OAuthBearerLoginModule", "Krb5LoginModule")
_FLAGS = ("required", "requisite", "sufficient", "optional")
_TOKEN = re.compile(
    r"""\s*(?:(?P<end>;)|(?P<quoted>"(?:[^"\\]|\\.)*"|'(?:[^'\\]|\\.)*')|(?P<word>[^\s;='"]+)|(?P<is>=))"""
)


@dataclass(frozen=True, slots=True)
class JaasEntry:
    """One login module; `options` may hold secrets."""

    module: str
    options: Mapping[str, str] = field(repr=False)

    @property
    def is_plain(self) -> bool:
        return self.module.endswith(".PlainLoginModule")

    @property
    def is_kerberos(self) -> bool:
        return self.module.endswith(".Krb5LoginModule")


def parse_jaas(text: str) -> JaasEntry:
    """The one entry of a setting.

    Raises:
        ValueError: it cannot be read, has several entries, or a module that is none of LOGIN_MODULES; the message holds
            nothing of the text.
    """
    tokens = _tokens(text)
    if len(tokens) < 3 or tokens[-1] != (";", False) or (";", False) in tokens[:-1]:
        raise ValueError('must be one entry that ends with ";": LoginModule required name="value" …;')
    module, flag = tokens[0][0], tokens[1][0]
    if flag.lower() not in _FLAGS:
        raise ValueError(f"the login module must be followed by {', '.join(_FLAGS[:-1])} or {_FLAGS[-1]}")
    rest = tokens[2:-1]
    options: dict[str, str] = {}
    for place in range(0, len(rest), 3):
        name, *value = rest[place : place + 3]
        if len(value) != 2 or value[0] != ("=", False) or name == ("=", False) or value[1] == ("=", False):
            raise ValueError('options must be name="value"')
        options[name[0]] = value[1][0]
    if module.rpartition(".")[2] not in LOGIN_MODULES:
        raise ValueError(f"the login module must be one of {', '.join(LOGIN_MODULES)}")
    return JaasEntry(module, options)


def tls_options(options: Mapping[str, str]) -> dict[str, str]:
    """The options of an entry for TLS connections to an issuer: `ssl.truststore.*`, and the client's certificate."""
    return {name: text for name, text in options.items() if name.startswith("ssl.")}


def _tokens(text: str) -> list[tuple[str, bool]]:
    """Words and signs, with whether each stood in quotes."""
    found: list[tuple[str, bool]] = []
    position, text = 0, text.strip()
    while position < len(text):
        match = _TOKEN.match(text, position)
        if match is None:
            raise ValueError("a quote is not closed, or stands where none may")
        position = match.end()
        quoted = match["quoted"]
        if quoted is not None:
            found.append((re.sub(r"\\(.)", r"\1", quoted[1:-1]), True))
        else:
            found.append((match[0].strip(), False))
    return found
