"""The quota that applies to a client: the precedence of Kafka's documentation, and the clients that share one."""

from __future__ import annotations

from itertools import combinations

import pytest

from odradek.metadata.model import QuotaEntity, quota_entity
from odradek.security.quota.entities import Limit, limit_of_address, limit_of_client

KEY = "producer_byte_rate"

# Kafka's order, the most specific first, and by whom each is shared.
ORDER: list[tuple[QuotaEntity, tuple[str | None, str | None]]] = [
    (quota_entity([("user", "alice"), ("client-id", "app")]), ("alice", "app")),
    (quota_entity([("user", "alice"), ("client-id", None)]), ("alice", "app")),
    (quota_entity([("user", "alice")]), ("alice", None)),
    (quota_entity([("user", None), ("client-id", "app")]), ("alice", "app")),
    (quota_entity([("user", None), ("client-id", None)]), ("alice", "app")),
    (quota_entity([("user", None)]), ("alice", None)),
    (quota_entity([("client-id", "app")]), (None, "app")),
    (quota_entity([("client-id", None)]), (None, "app")),
]


@pytest.mark.parametrize("pair", list(combinations(range(len(ORDER)), 2)))
def test_of_two_the_more_specific_holds(pair: tuple[int, int]) -> None:
    quotas = {ORDER[index][0]: {KEY: float(index + 1)} for index in reversed(pair)}
    first = pair[0]
    assert limit_of_client(quotas, KEY, "alice", "app") == Limit(first + 1, ORDER[first][1])


@pytest.mark.parametrize(("entity", "sharing"), ORDER)
def test_each_holds_alone_for_its_key_and_those_it_names(
    entity: QuotaEntity, sharing: tuple[str | None, str | None]
) -> None:
    quotas = {entity: {KEY: 5.0}}
    assert limit_of_client(quotas, KEY, "alice", "app") == Limit(5, sharing)
    assert limit_of_client(quotas, "consumer_byte_rate", "alice", "app") is None
    exact = dict(entity)
    if exact.get("user"):
        assert limit_of_client(quotas, KEY, "bob", "app") is None
    if exact.get("client-id"):
        assert limit_of_client(quotas, KEY, "alice", "other") is None


def test_a_more_specific_entity_without_the_key_does_not_hide_another() -> None:
    quotas = {ORDER[0][0]: {"request_percentage": 1.0}, ORDER[7][0]: {KEY: 3.0}}
    assert limit_of_client(quotas, KEY, "alice", "app") == Limit(3, (None, "app"))


def test_no_quota_is_set_by_default() -> None:
    assert limit_of_client({}, KEY, "alice", "app") is None
    assert limit_of_address({}, "connection_creation_rate", "10.0.0.1") is None


def test_addresses_have_their_own_or_the_default() -> None:
    key = "connection_creation_rate"
    quotas: dict[QuotaEntity, dict[str, float]] = {(("ip", "10.0.0.1"),): {key: 0.0}, (("ip", None),): {key: 9.0}}
    assert limit_of_address(quotas, key, "10.0.0.1") == 0
    assert limit_of_address(quotas, key, "10.0.0.2") == 9
