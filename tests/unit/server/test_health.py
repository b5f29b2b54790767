"""A probe names the condition that fails, for each that can fail."""

from __future__ import annotations

import json
from dataclasses import replace
from types import MappingProxyType
from typing import Any
from uuid import UUID

import pytest

from odradek.metadata.image import MetadataImage
from odradek.metadata.model import BrokerImage, ControllerImage, PartitionImage, ResourceType, TopicImage
from odradek.server.health import Health
from odradek.server.network.http_pages import OK, UNAVAILABLE, Page
from odradek.settings.broker import DRAIN_KEY

NODE = 1
EPOCH = 7


class Seen:
    """The state of a healthy node; a test changes one part of it."""

    def __init__(self, **changes: Any) -> None:
        self.roles = frozenset(changes.get("roles", {"broker", "controller"}))
        self.lag = changes.get("lag", 0)
        self.serves = changes.get("serves", True)
        self.failure = changes.get("failure")
        own = {"broker_id": NODE, "broker_epoch": EPOCH, "incarnation_id": UUID(int=1), "fenced": False}
        brokers = {NODE: BrokerImage(**{**own, **changes.get("own", {})}), 2: BrokerImage(2, 5, UUID(int=2))}
        if "own" in changes and changes["own"] is None:
            del brokers[NODE]
        other = changes.get("other", {"fenced": False})
        brokers[2] = BrokerImage(2, 5, UUID(int=2), **other)
        partitions = changes.get("partitions", [PartitionImage((1, 2), (1, 2), 1, 0, 0)])
        topic = TopicImage("orders", UUID(int=9), dict(enumerate(partitions)))
        draining = {(int(ResourceType.BROKER), str(each)): {DRAIN_KEY: "-1"} for each in changes.get("draining", ())}
        self.image = MetadataImage(
            brokers=MappingProxyType(brokers),
            controllers=MappingProxyType(changes.get("controllers", {NODE: ControllerImage(NODE, UUID(int=3))})),
            topics_by_name=MappingProxyType({"orders": topic}),
            configs=MappingProxyType(draining),
        )

    def health(self) -> Health:
        return Health(
            NODE,
            self.roles,
            image=lambda: self.image,
            broker_epoch=lambda: EPOCH,
            metadata_lag=lambda: self.lag,
            serves=lambda: self.serves,
            failure=lambda: self.failure,
        )


def answer(page: Page) -> dict[str, Any]:
    said: dict[str, Any] = json.loads(page.body)
    return said


def fell_out(**change: Any) -> PartitionImage:
    return replace(PartitionImage((2, 1), (2,), 2, 0, 0), **change)


@pytest.mark.parametrize(
    ("changes", "failing"),
    [
        ({}, []),
        ({"own": {"broker_epoch": 6}}, ["registered"]),
        ({"own": {"fenced": True}}, ["unfenced"]),
        ({"lag": 3}, ["caught_up"]),
        ({"lag": None}, ["caught_up"]),
        ({"partitions": [fell_out()]}, ["in_sync"]),
        ({"partitions": [fell_out(adding_replicas=(1,))]}, []),
        ({"partitions": [fell_out(removing_replicas=(1,))]}, []),
        ({"partitions": [fell_out(leader=-1)]}, []),
        ({"partitions": [fell_out(replicas=(2,))]}, []),
        ({"serves": False}, ["serving"]),
        ({"own": {"in_controlled_shutdown": True}}, ["serving"]),
        ({"roles": {"controller"}, "serves": False}, []),
        ({"roles": {"controller"}, "lag": None}, ["caught_up"]),
        ({"roles": {"controller"}, "controllers": {}}, ["registered"]),
    ],
)
def test_readiness_names_what_fails(changes: dict[str, Any], failing: list[str]) -> None:
    page = Seen(**changes).health().ready()
    said = answer(page)
    assert said["failing"] == failing
    assert said["ready"] is (not failing)
    assert page.status == (UNAVAILABLE if failing else OK)
    assert [name for name, each in said["conditions"].items() if not each["ok"]] == failing
    assert all(said["conditions"][name]["why"] for name in failing)


def test_readiness_names_the_partitions_but_not_thousands() -> None:
    said = answer(Seen(partitions=[fell_out()] * 1000).health().ready())["conditions"]["in_sync"]
    assert said["count"] == 1000
    assert said["partitions"] == [f"orders-{number}" for number in range(20)]


def test_a_walk_over_all_partitions_is_kept_until_the_image_changes() -> None:
    seen = Seen(partitions=[fell_out()])
    health = seen.health()
    assert health.ready().status == UNAVAILABLE
    seen.image = Seen().image
    assert health.ready().status == OK


@pytest.mark.parametrize(
    ("changes", "drained", "leads", "movable"),
    [
        ({}, False, 1, 1),
        ({"draining": [NODE]}, False, 1, 1),
        ({"draining": [NODE, 2]}, True, 1, 0),
        ({"draining": [NODE], "other": {"fenced": True}}, True, 1, 0),
        ({"draining": [NODE], "other": {"fenced": False, "in_controlled_shutdown": True}}, True, 1, 0),
        ({"draining": [NODE], "partitions": [fell_out()]}, True, 0, 0),
        ({"own": {"in_controlled_shutdown": True}, "partitions": [fell_out()]}, True, 0, 0),
        ({"partitions": [fell_out()]}, False, 0, 0),
        ({"roles": {"controller"}, "partitions": []}, True, 0, 0),
    ],
)
def test_drained_is_asked_for_and_leads_nothing_movable(
    changes: dict[str, Any], drained: bool, leads: int, movable: int
) -> None:
    page = Seen(**changes).health().drained()
    said = answer(page)
    assert (said["drained"], said["leads"], said["movable"]) == (drained, leads, movable)
    assert page.status == (OK if drained else UNAVAILABLE)


def test_a_node_that_cannot_go_on_does_not_live() -> None:
    assert Seen().health().live().status == OK
    page = Seen(failure=ValueError("the last disk failed")).health().live()
    assert (page.status, answer(page)["why"]) == (UNAVAILABLE, "the last disk failed")
