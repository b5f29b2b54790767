"""The effective settings of a node: those changed at run time, with their secrets opened."""

from __future__ import annotations

import random
from collections.abc import Mapping
from dataclasses import replace

import pytest

from odradek.metadata.image import MetadataImage
from odradek.metadata.model import ResourceType
from odradek.security.sealing import SecretKeys
from odradek.server.dynamic_settings import DynamicSettings
from odradek.settings.broker import resolve
from odradek.settings.config_providers import Sources

PASSWORD = "listener.name.external.ssl.key.password"
ONE, TWO = bytes(32), bytes(range(32))
NODE = {
    "node.id": "1",
    "process.roles": "broker,controller",
    "controller.listener.names": "CONTROLLER",
    "controller.quorum.voters": "1@localhost:2",
    "listeners": "EXTERNAL://:1,CONTROLLER://:2",
    "listener.security.protocol.map": "EXTERNAL:PLAINTEXT,CONTROLLER:PLAINTEXT",
    PASSWORD: "of the file",
}


def node(*keys: bytes) -> DynamicSettings:
    return DynamicSettings(resolve(NODE, Sources({}, lambda path: "")), SecretKeys(keys))


def image(settings: Mapping[str, str]) -> MetadataImage:
    return replace(MetadataImage(), configs={(int(ResourceType.BROKER), "1"): settings})


def sealed(key: bytes, text: str) -> str:
    return SecretKeys([key], random.Random(1).randbytes).stored("1", PASSWORD, text, None)


def password(settings: DynamicSettings, stored: Mapping[str, str]) -> str:
    return settings.current(image(stored)).explicit[PASSWORD]


def test_a_secret_that_cannot_be_opened_leaves_the_one_in_force() -> None:
    one = node(ONE)
    assert password(one, {}) == "of the file"
    assert password(one, {PASSWORD: sealed(ONE, "first")}) == "first"
    for _ in range(3):
        assert password(one, {PASSWORD: sealed(TWO, "second")}) == "first"
    assert password(one, {PASSWORD: sealed(ONE, "third")}) == "third"
    assert password(one, {}) == "of the file"


@pytest.mark.parametrize(
    ("keys", "stored", "said"),
    [
        ((), sealed(ONE, "hunter2"), "odradek.secret.key.file is not set"),
        ((TWO,), sealed(ONE, "hunter2"), "has no key"),
        ((), "hunter2", "stored in plain text"),
        ((ONE,), "hunter2", "stored in plain text"),
    ],
)
def test_one_line_says_what_is_wrong_with_secrets(
    keys: tuple[bytes, ...], stored: str, said: str, caplog: pytest.LogCaptureFixture
) -> None:
    of_node = node(*keys)
    for _ in range(3):
        of_node.current(image({PASSWORD: stored, "log.retention.ms": "1000"}))
    (record,) = caplog.records
    line = f"{record.getMessage()} {record.__dict__}"
    assert said in line and PASSWORD in line
    assert "hunter2" not in line


def test_a_preview_of_changed_settings_changes_none() -> None:
    one = node(ONE)
    now = image({PASSWORD: sealed(ONE, "first"), "ssl.client.auth": "required"})
    assert one.current(now).explicit[PASSWORD] == "first"
    changed = one.after(now, {PASSWORD: "second", "ssl.client.auth": None, "ssl.keystore.type": "PEM"})
    assert changed.explicit[PASSWORD] == "second"
    assert "ssl.client.auth" not in changed.explicit and changed["ssl.keystore.type"] == "PEM"
    assert one.after(now, {}).explicit[PASSWORD] == "first"
    assert one.after(image({PASSWORD: sealed(TWO, "?")}), {}).explicit[PASSWORD] == "first"
    assert one.current(now).explicit[PASSWORD] == "first"
