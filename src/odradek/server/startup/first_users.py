"""`storage format --add-scram`: the users that a new cluster begins with, in the words of Kafka's tool (KIP-900)."""

from __future__ import annotations

import re
from collections.abc import Iterable
from random import Random

from odradek.common.errors import ConfigError
from odradek.common.numbers import parse_natural
from odradek.common.saslprep import is_prepared
from odradek.common.scram import (
    DEFAULT_ITERATIONS,
    MAX_ITERATIONS,
    MIN_ITERATIONS,
    SALT_BYTES,
    SCRAM_MECHANISMS,
    ScramMechanism,
    decode64,
    keys_of,
    salted_password,
)
from odradek.protocol.messages.user_scram_credential_record import UserScramCredentialRecord

_ARGUMENT = re.compile(r"(?P<mechanism>[A-Za-z0-9-]+)=\[(?P<options>.*)\]", re.DOTALL)
_OPTION = re.compile(r"""\s*([a-z]+)=(?:"([^"]*)"|([^,"]*))\s*(?:,|$)""")
_KNOWN = {"name", "password", "salt", "iterations", "saltedpassword"}
_FORM = "SCRAM-SHA-256=[name=NAME,password=PASSWORD]"


def first_users(arguments: Iterable[str], random: Random) -> list[UserScramCredentialRecord]:
    """A record for each argument, such as SCRAM-SHA-256=[name=alice,password=secret,iterations=8192].

    Args:
        random: the source of salts that are not given; it must be unpredictable.
    Raises:
        ConfigError: an argument that cannot be read, or two for one user; the text holds no password.
    """
    records: dict[tuple[str, int], UserScramCredentialRecord] = {}
    for text in arguments:
        record = _record(text, random)
        if (record.name, record.mechanism) in records:
            raise ConfigError([f"--add-scram: user {record.name} stands twice with one mechanism"])
        records[(record.name, record.mechanism)] = record
    return list(records.values())


def _record(text: str, random: Random) -> UserScramCredentialRecord:
    match = _ARGUMENT.fullmatch(text.strip())
    if match is None:
        raise ConfigError([f"--add-scram: must be {_FORM}"])
    mechanism = SCRAM_MECHANISMS.get(match["mechanism"].upper())
    if mechanism is None:
        raise ConfigError([f"--add-scram: {match['mechanism']} is not one of {', '.join(SCRAM_MECHANISMS)}"])
    options = _options(match["options"])
    name = options.get("name", "")
    if not name:
        raise ConfigError(["--add-scram: name is missing"])
    iterations = parse_natural(options.get("iterations", str(DEFAULT_ITERATIONS)), MAX_ITERATIONS)
    if iterations is None or iterations < MIN_ITERATIONS:
        raise ConfigError([f"--add-scram: iterations must be from {MIN_ITERATIONS} to {MAX_ITERATIONS}"])
    salt = _decoded("salt", options["salt"]) if "salt" in options else random.randbytes(SALT_BYTES)
    keys = keys_of(mechanism, _salted(mechanism, options, salt, iterations))
    return UserScramCredentialRecord(
        name=name,
        mechanism=mechanism.number,
        salt=salt,
        stored_key=keys.stored_key,
        server_key=keys.server_key,
        iterations=iterations,
    )


def _salted(mechanism: ScramMechanism, options: dict[str, str], salt: bytes, iterations: int) -> bytes:
    if ("password" in options) == ("saltedpassword" in options):
        raise ConfigError(["--add-scram: give one of password and saltedpassword"])
    if "password" in options:
        if not options["password"] or not is_prepared(options["password"]):
            raise ConfigError(["--add-scram: password is empty, or clients would hash it differently (RFC 4013)"])
        return salted_password(mechanism, options["password"].encode(), salt, iterations)
    salted = _decoded("saltedpassword", options["saltedpassword"])
    if "salt" not in options or len(salted) != mechanism.key_bytes:
        raise ConfigError([f"--add-scram: saltedpassword needs its salt, and {mechanism.key_bytes} bytes"])
    return salted


def _options(text: str) -> dict[str, str]:
    found: dict[str, str] = {}
    position = 0
    while position < len(text):
        match = _OPTION.match(text, position)
        if match is None or match[1] not in _KNOWN or match[1] in found:
            raise ConfigError([f"--add-scram: must be {_FORM}; options are {', '.join(sorted(_KNOWN))}, each once"])
        found[match[1]] = match[3] if match[2] is None else match[2]
        position = match.end()
    return found


def _decoded(name: str, text: str) -> bytes:
    try:
        return decode64(text)
    except ValueError:
        raise ConfigError([f"--add-scram: {name} must be base64"]) from None
