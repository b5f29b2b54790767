"""Delegation tokens are found by their HMACs."""

from __future__ import annotations

import pytest

from odradek.common import delegation
from odradek.common.delegation import SPARE_IDS, TokenIds, token_hmac


def test_a_token_is_found_by_its_hmac_while_it_is_there() -> None:
    ids = TokenIds("key")
    assert ids.find(token_hmac("key", "a"), ["b"]) is None
    assert ids.find(token_hmac("key", "a"), ["b", "a"]) == "a"
    assert ids.find(token_hmac("key", "b"), ["b", "a"]) == "b"
    assert ids.find(token_hmac("key", "a"), ["b"]) is None
    assert ids.find(token_hmac("another key", "b"), ["b"]) is None
    assert ids.find(b"", []) is None


def test_each_hmac_is_computed_once_and_forgotten_in_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    computed: list[str] = []

    def counted(secret_key: str, token_id: str) -> bytes:
        computed.append(token_id)
        return token_hmac(secret_key, token_id)

    monkeypatch.setattr(delegation, "token_hmac", counted)
    ids, many = TokenIds("key"), [str(each) for each in range(SPARE_IDS + 3)]
    for _ in range(3):
        assert ids.find(b"of none", many) is None
    assert computed == many
    assert ids.find(token_hmac("key", "0"), ["0"]) == "0"
    assert computed == [*many, "0"], "those that are no more are forgotten"
