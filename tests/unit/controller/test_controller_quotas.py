"""AlterClientQuotas: refusals, written records, and changes of an entity, which are made all or not at all."""

from __future__ import annotations

import math
from collections.abc import Mapping

import pytest

from odradek.common.errors import ErrorCode
from odradek.controller.client_quotas import alter_client_quotas
from odradek.metadata.delta import MetadataDelta
from odradek.metadata.image import MetadataImage
from odradek.metadata.model import QuotaEntity
from odradek.protocol.messages.alter_client_quotas_request import (
    AlterClientQuotasRequest,
    EntityData,
    EntryData,
    OpData,
)
from tests.support.models.controller_harness import Harness

Parts = list[tuple[str, str | None]]
ALICE: Parts = [("user", "alice")]
PRODUCE, CONSUME, CONNECT = "producer_byte_rate", "consumer_byte_rate", "connection_creation_rate"


def entry(parts: Parts, *changes: tuple[str, float | None]) -> EntryData:
    entity = [EntityData(entity_type=kind, entity_name=name) for kind, name in parts]
    ops = [OpData(key=key, value=value or 0.0, remove=value is None) for key, value in changes]
    return EntryData(entity=entity, ops=ops)


def alter(harness: Harness, *entries: EntryData, validate_only: bool = False) -> list[int]:
    request = AlterClientQuotasRequest(entries=list(entries), validate_only=validate_only)
    answer = harness.do(alter_client_quotas(harness.state, request))
    assert all(bool(each.error_code) == bool(each.error_message) for each in answer.entries)
    named = [[(part.entity_type, part.entity_name) for part in each.entity] for each in answer.entries]
    assert named == [[(part.entity_type, part.entity_name) for part in each.entity] for each in entries]
    return [each.error_code for each in answer.entries]


def known(harness: Harness) -> Mapping[QuotaEntity, Mapping[str, float]]:
    """The quotas that every node has from the records."""
    delta = MetadataDelta(MetadataImage())
    for record in harness.log:
        delta.replay(record)
    return delta.apply(len(harness.log), 1).client_quotas


def test_quotas_are_set_changed_and_removed() -> None:
    harness = Harness()
    both: Parts = [("user", None), ("client-id", "app")]
    assert alter(harness, entry(ALICE, (PRODUCE, 1024), (CONSUME, 5)), entry(both, ("request_percentage", 12.5))) == [
        0,
        0,
    ]
    alice, pair = (("user", "alice"),), (("client-id", "app"), ("user", None))
    assert known(harness) == {alice: {PRODUCE: 1024, CONSUME: 5}, pair: {"request_percentage": 12.5}}
    assert alter(harness, entry(ALICE, (PRODUCE, None), (CONSUME, 6))) == [0]
    assert alter(harness, entry(list(reversed(both)), ("request_percentage", None))) == [0]
    assert known(harness) == {alice: {CONSUME: 6}}


def test_an_unchanged_quota_writes_no_record() -> None:
    harness = Harness()
    alter(harness, entry(ALICE, (PRODUCE, 7)))
    before = len(harness.log)
    assert alter(harness, entry(ALICE, (PRODUCE, 7), (CONSUME, None))) == [0]
    assert alter(harness, entry(ALICE, (PRODUCE, 8)), validate_only=True) == [0]
    assert len(harness.log) == before


@pytest.mark.parametrize(
    "refused",
    [
        entry([], (PRODUCE, 1)),
        entry([("group", "g")], (PRODUCE, 1)),
        entry([("user", "")], (PRODUCE, 1)),
        entry([("user", "a"), ("user", "b")], (PRODUCE, 1)),
        entry([("user", "a"), ("ip", "10.0.0.1")], (PRODUCE, 1)),
        entry([("ip", "not an address")], (CONNECT, 1)),
        entry([("ip", "10.0.0.1")], (PRODUCE, 1)),
        entry(ALICE, (CONNECT, 1)),
        entry(ALICE, ("bytes", 1)),
        entry(ALICE, ("bytes", None)),
        entry(ALICE, (PRODUCE, 1.5)),
        entry(ALICE, (PRODUCE, 1e30)),
        entry(ALICE, (PRODUCE, -1)),
        entry(ALICE, ("request_percentage", math.nan)),
        entry(ALICE, ("request_percentage", math.inf)),
        entry([("ip", None)], (CONNECT, 2**31)),
        entry(ALICE, (PRODUCE, 1), (PRODUCE, 2)),
        entry(ALICE, (CONSUME, 1), (PRODUCE, 0.5)),
    ],
)
def test_a_refused_quota_writes_nothing_and_hinders_no_other(refused: EntryData) -> None:
    harness = Harness()
    bob = entry([("user", "bob")], (PRODUCE, 1))
    assert alter(harness, refused, bob) == [ErrorCode.INVALID_REQUEST, 0]
    assert known(harness) == {(("user", "bob"),): {PRODUCE: 1}}


def test_one_entity_twice_is_refused_the_second_time() -> None:
    harness = Harness()
    assert alter(harness, entry(ALICE, (PRODUCE, 1)), entry(ALICE, (PRODUCE, 2))) == [0, ErrorCode.INVALID_REQUEST]
    assert known(harness) == {(("user", "alice"),): {PRODUCE: 1}}


def test_addresses() -> None:
    harness = Harness()
    entries = [entry([("ip", name)], (CONNECT, 20)) for name in ("10.0.0.1", "::1", None)]
    assert alter(harness, *entries) == [0, 0, 0]
    assert len(known(harness)) == 3
