"""Sealed secrets: the keys that open them, refusals, and the settings that are secrets."""

from __future__ import annotations

import base64
import random
from pathlib import Path

import pytest

from odradek.common.errors import ConfigError
from odradek.security.sealing import SealError, SecretKeys, SecretsConfig, is_sealed, read_secret_keys
from odradek.settings.table import is_secret

ONE, TWO = bytes(range(32)), bytes(range(32, 64))
SETTING = ("1", "ssl.key.password")
randbytes = random.Random(1).randbytes


def keys(*given: bytes) -> SecretKeys:
    return SecretKeys(given, randbytes)


def test_a_sealed_value_is_opened_by_the_same_key() -> None:
    sealed = keys(ONE).stored(*SETTING, "gehäim", None)
    assert is_sealed(sealed) and "gehäim" not in sealed
    assert keys(ONE).open(*SETTING, sealed) == "gehäim"
    assert keys(TWO, ONE).open(*SETTING, sealed) == "gehäim"


def test_the_same_secret_is_stored_once_and_sealed_again_by_a_new_key() -> None:
    first = keys(ONE).stored(*SETTING, "secret", None)
    assert keys(ONE).stored(*SETTING, "secret", first) == first
    assert keys(ONE).stored(*SETTING, "another", first) != first
    again = keys(TWO, ONE).stored(*SETTING, "secret", first)
    assert again != first and keys(TWO).open(*SETTING, again) == "secret"
    plain = keys(ONE).stored(*SETTING, "secret", "secret")
    assert is_sealed(plain), "an old one in plain text is sealed when it is set again"


def test_two_secrets_that_are_alike_do_not_look_alike() -> None:
    node = keys(ONE)
    assert node.stored(*SETTING, "secret", None) != node.stored(*SETTING, "secret", None)


def test_without_a_key_a_secret_is_refused_and_an_old_one_is_read() -> None:
    with pytest.raises(ConfigError, match=r"ssl\.key\.password is a secret.*set odradek\.secret\.key\.file") as caught:
        keys().stored(*SETTING, "hunter2", None)
    assert "hunter2" not in str(caught.value.problems)
    assert keys().open(*SETTING, "hunter2") == "hunter2"


SEALED = keys(ONE).stored(*SETTING, "secret", None)


@pytest.mark.parametrize(
    ("node", "setting", "stored", "reason"),
    [
        (keys(), SETTING, SEALED, "odradek.secret.key.file is not set"),
        (keys(TWO), SETTING, SEALED, "has no key"),
        (keys(ONE), ("2", "ssl.key.password"), SEALED, "sealed for another setting"),
        (keys(ONE), ("1", "ssl.keystore.password"), SEALED, "sealed for another setting"),
        (keys(ONE), SETTING, SEALED[:-8] + "AAAAAAA=", "damaged"),
        (keys(ONE), SETTING, SEALED.rpartition(":")[0] + ":", "damaged"),
        (keys(ONE), SETTING, SEALED[:-3] + "?", "damaged"),
    ],
)
def test_values_that_cannot_be_opened(node: SecretKeys, setting: tuple[str, str], stored: str, reason: str) -> None:
    with pytest.raises(SealError, match=reason) as caught:
        node.open(*setting, stored)
    assert "secret" not in str(caught.value).replace("odradek.secret", "")


def test_a_secret_that_cannot_be_opened_is_replaced() -> None:
    damaged = SEALED[:-8] + "AAAAAAA="
    assert keys(ONE).open(*SETTING, keys(ONE).stored(*SETTING, "secret", damaged)) == "secret"


def test_the_keys_are_lines_of_a_file() -> None:
    text = b"".join(base64.b64encode(key) + b"\n" for key in (TWO, ONE))
    node = read_secret_keys(SecretsConfig(key_file="/keys"), lambda path: text, randbytes)
    assert node.open(*SETTING, SEALED) == "secret"
    assert is_sealed(node.stored(*SETTING, "x", None))


@pytest.mark.parametrize("content", [b"", b"\n", b"no base64!", base64.b64encode(bytes(16)), "schlüssel".encode()])
def test_a_file_without_keys_is_refused_without_its_content(content: bytes) -> None:
    with pytest.raises(ConfigError, match="32 bytes") as caught:
        read_secret_keys(SecretsConfig(key_file="/keys"), lambda path: content, randbytes)
    assert content.decode().strip() == "" or content.decode().strip() not in caught.value.problems[0]


def test_a_file_that_is_not_there() -> None:
    def read(path: Path) -> bytes:
        raise FileNotFoundError(2, "No such file or directory", str(path))

    with pytest.raises(ConfigError, match="/keys: cannot be read: No such file or directory"):
        read_secret_keys(SecretsConfig(key_file="/keys"), read, randbytes)


@pytest.mark.parametrize(
    ("key", "secret"),
    [
        ("ssl.keystore.key", True),
        ("ssl.key.password", True),
        ("listener.name.external.ssl.keystore.password", True),
        ("listener.name.a.b.scram-sha-256.sasl.jaas.config", True),
        ("listener.name.external.plian.sasl.jaas.config", True),
        ("sasl.jaas.config", True),
        ("my.plugin.password", True),
        ("listener.name.external.ssl.keystore.certificate.chain", False),
        ("ssl.truststore.certificates", False),
        ("listener.name.external.ssl.keystore.location", False),
        ("sasl.oauthbearer.assertion.private.key.file", False),
        ("odradek.secret.key.file", False),
        ("odradek.drain.until.ms", False),
        ("leader.replication.throttled.rate", False),
        ("my.plugin.setting", False),
        ("", False),
    ],
)
def test_which_settings_are_secrets(key: str, secret: bool) -> None:
    assert is_secret(key) is secret
