"""Feature levels."""

from __future__ import annotations

import pytest

from odradek.metadata import features
from odradek.protocol.messages.partition_record import PartitionRecord
from odradek.protocol.messages.register_broker_record import RegisterBrokerRecord
from odradek.protocol.messages.topic_record import TopicRecord


def test_a_new_cluster_has_the_feature_levels_of_kafka_4_3() -> None:
    assert features.default_levels(30) == {
        "metadata.version": 30,
        "transaction.version": 2,
        "group.version": 1,
        "eligible.leader.replicas.version": 1,
    }
    assert "share.version" not in features.default_levels(33)
    assert features.supported_features()["share.version"].contains(2), "a cluster that Kafka formatted has it"
    assert features.offered_features({})["share.version"] == features.LevelRange(0, 0)
    assert features.offered_features({"share.version": 1})["share.version"] == features.LevelRange(0, 1)
    assert features.default_levels(21) == {"metadata.version": 21}


def test_levels_are_found_by_release_name_or_number() -> None:
    assert features.metadata_level("4.3").level == 30
    assert features.metadata_level("4.4").level == 31, "the last of it that is offered"
    assert features.metadata_level("4.4-IV2").level == 33
    assert features.metadata_level("4.0-IV1").level == 23
    assert features.metadata_level("7").name == "3.3-IV3"
    with pytest.raises(ValueError, match=r"3\.3-IV3 to 4\.4-IV2"):
        features.metadata_level("2.8")


def test_downgrades_that_lose_metadata() -> None:
    assert features.downgrade_loses_metadata(30, 29)
    assert not features.downgrade_loses_metadata(29, 24)
    assert features.downgrade_loses_metadata(29, 22)


def test_a_feature_may_need_another() -> None:
    need = features.unmet_need(features.ELR_VERSION, 1, {"metadata.version": 22})
    assert need is not None and "23" in need
    assert features.unmet_need(features.ELR_VERSION, 1, {"metadata.version": 23}) is None


@pytest.mark.parametrize(("level", "version"), [(7, 1), (8, 2), (17, 3), (29, 3), (30, 4)])
def test_versions_of_the_registration_record(level: int, version: int) -> None:
    assert features.record_version(RegisterBrokerRecord(), level) == version


@pytest.mark.parametrize(("level", "version"), [(7, 0), (16, 0), (17, 1), (22, 1), (23, 2), (33, 2)])
def test_versions_of_the_partition_record(level: int, version: int) -> None:
    assert features.record_version(PartitionRecord(), level) == version
    assert features.record_version(TopicRecord(), level) == 0
