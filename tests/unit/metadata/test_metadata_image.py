"""Records into images, images into snapshots, and back."""

from __future__ import annotations

import random
import time
from dataclasses import replace
from typing import Any
from uuid import UUID

import pytest

from odradek.metadata.delta import MetadataDelta
from odradek.metadata.features import METADATA_VERSION, LevelRange
from odradek.metadata.image import MetadataImage
from odradek.metadata.model import UNASSIGNED_DIRECTORY, ResourceType
from odradek.metadata.publisher import MetadataPublisher, delta_from_nothing
from odradek.protocol.messages.abort_transaction_record import AbortTransactionRecord
from odradek.protocol.messages.access_control_entry_record import AccessControlEntryRecord
from odradek.protocol.messages.begin_transaction_record import BeginTransactionRecord
from odradek.protocol.messages.broker_registration_change_record import BrokerRegistrationChangeRecord
from odradek.protocol.messages.clear_elr_record import ClearElrRecord
from odradek.protocol.messages.client_quota_record import ClientQuotaRecord, EntityData
from odradek.protocol.messages.config_record import ConfigRecord
from odradek.protocol.messages.delegation_token_record import DelegationTokenRecord
from odradek.protocol.messages.end_transaction_record import EndTransactionRecord
from odradek.protocol.messages.feature_level_record import FeatureLevelRecord
from odradek.protocol.messages.fence_broker_record import FenceBrokerRecord
from odradek.protocol.messages.no_op_record import NoOpRecord
from odradek.protocol.messages.partition_change_record import PartitionChangeRecord
from odradek.protocol.messages.partition_record import PartitionRecord
from odradek.protocol.messages.producer_ids_record import ProducerIdsRecord
from odradek.protocol.messages.register_broker_record import BrokerEndpoint, BrokerFeature, RegisterBrokerRecord
from odradek.protocol.messages.register_controller_record import RegisterControllerRecord
from odradek.protocol.messages.remove_access_control_entry_record import RemoveAccessControlEntryRecord
from odradek.protocol.messages.remove_topic_record import RemoveTopicRecord
from odradek.protocol.messages.remove_user_scram_credential_record import RemoveUserScramCredentialRecord
from odradek.protocol.messages.topic_record import TopicRecord
from odradek.protocol.messages.unfence_broker_record import UnfenceBrokerRecord
from odradek.protocol.messages.unregister_broker_record import UnregisterBrokerRecord
from odradek.protocol.messages.user_scram_credential_record import UserScramCredentialRecord


def identifier(number: int) -> UUID:
    return UUID(int=number + 100)


def build(*records: Any, image: MetadataImage | None = None, offset: int = 0) -> MetadataImage:
    delta = MetadataDelta(image or MetadataImage())
    for record in records:
        delta.replay(record)
    return delta.apply(offset, 1)


def partition(topic: int, number: int, replicas: list[int] | None = None, **fields: Any) -> PartitionRecord:
    replicas = replicas or [1]
    return PartitionRecord(
        partition_id=number,
        topic_id=identifier(topic),
        replicas=replicas,
        leader=replicas[0],
        leader_epoch=0,
        partition_epoch=0,
        directories=[UNASSIGNED_DIRECTORY] * len(replicas),
        **{"isr": replicas, **fields},
    )


def broker(broker_id: int, epoch: int = 5) -> RegisterBrokerRecord:
    return RegisterBrokerRecord(
        broker_id=broker_id,
        broker_epoch=epoch,
        incarnation_id=identifier(broker_id),
        end_points=[BrokerEndpoint(name="PLAINTEXT", host="h", port=9092, security_protocol=0)],
        features=[BrokerFeature(name=METADATA_VERSION, min_supported_version=7, max_supported_version=30)],
        rack="r1",
        log_dirs=[identifier(77)],
    )


def test_a_topic_with_partitions_and_a_change_of_leader() -> None:
    image = build(TopicRecord(name="a", topic_id=identifier(1)), partition(1, 0, [1, 2]), partition(1, 1, [2, 1]))
    changed = build(PartitionChangeRecord(partition_id=0, topic_id=identifier(1), leader=2, isr=[2]), image=image)
    before, after = image.partition("a", 0), changed.partition("a", 0)
    assert before is not None and after is not None
    assert (after.leader, after.leader_epoch, after.partition_epoch, after.isr) == (2, 1, 1, (2,))
    assert (before.leader, before.leader_epoch) == (1, 0)
    assert changed.partition("a", 1) is image.partition("a", 1)
    assert changed.topics_by_id[identifier(1)] is changed.topics_by_name["a"]


def test_an_isr_change_alone_keeps_the_leader_epoch() -> None:
    image = build(TopicRecord(name="a", topic_id=identifier(1)), partition(1, 0, [1, 2]))
    changed = build(PartitionChangeRecord(partition_id=0, topic_id=identifier(1), isr=[1]), image=image)
    after = changed.partition("a", 0)
    assert after is not None and (after.leader_epoch, after.partition_epoch) == (0, 1)


def test_deleting_a_topic_removes_its_settings_and_its_name_may_return() -> None:
    image = build(
        TopicRecord(name="a", topic_id=identifier(1)),
        partition(1, 0),
        ConfigRecord(resource_type=2, resource_name="a", name="k", value="v"),
    )
    delta = MetadataDelta(image)
    delta.replay(RemoveTopicRecord(topic_id=identifier(1)))
    delta.replay(TopicRecord(name="a", topic_id=identifier(2)))
    delta.replay(partition(2, 0))
    after = delta.apply(9, 1)
    assert list(after.topics_by_id) == [identifier(2)] and after.topics_by_name["a"].topic_id == identifier(2)
    assert not after.configs and set(delta.deleted_topics) == {identifier(1)}
    assert delta.changed_partitions == {identifier(2): {0}}


def test_settings_of_an_older_image_stay_as_they_were() -> None:
    """The records of one delta change one copy of a resource's settings."""

    def config(key: str, value: str | None) -> ConfigRecord:
        return ConfigRecord(resource_type=ResourceType.BROKER, resource_name="1", name=key, value=value)

    image = build(config("a", "1"), config("b", "2"))
    changed = build(config("a", "3"), config("b", None), config("c", "4"), image=image)
    gone = build(config("a", None), config("c", None), image=changed)
    again = build(config("a", None), config("c", None), config("d", "5"), image=changed)
    assert image.config(ResourceType.BROKER, "1") == {"a": "1", "b": "2"}
    assert changed.config(ResourceType.BROKER, "1") == {"a": "3", "c": "4"}
    assert gone.configs == {}
    assert again.config(ResourceType.BROKER, "1") == {"d": "5"}


def test_brokers_are_fenced_unfenced_changed_and_removed() -> None:
    image = build(broker(1))
    assert image.brokers[1].fenced and image.brokers[1].features[METADATA_VERSION] == LevelRange(7, 30)
    image = build(BrokerRegistrationChangeRecord(broker_id=1, broker_epoch=5, fenced=-1), image=image)
    assert image.brokers[1].active
    stopping = build(BrokerRegistrationChangeRecord(broker_id=1, broker_epoch=5, in_controlled_shutdown=1), image=image)
    assert not stopping.brokers[1].active and not stopping.brokers[1].fenced
    assert build(FenceBrokerRecord(id=1, epoch=5), image=image).brokers[1].fenced
    assert not build(UnfenceBrokerRecord(id=1, epoch=5), image=stopping).brokers[1].fenced
    assert not build(UnregisterBrokerRecord(broker_id=1, broker_epoch=5), image=image).brokers


@pytest.mark.parametrize(
    "record",
    [
        BrokerRegistrationChangeRecord(broker_id=1, broker_epoch=4, fenced=1),
        BrokerRegistrationChangeRecord(broker_id=2, broker_epoch=5, fenced=1),
        PartitionChangeRecord(partition_id=0, topic_id=identifier(9)),
        PartitionChangeRecord(partition_id=7, topic_id=identifier(1)),
        RemoveTopicRecord(topic_id=identifier(9)),
        object(),
    ],
)
def test_records_that_contradict_the_image_are_refused(record: Any) -> None:
    image = build(broker(1), TopicRecord(name="a", topic_id=identifier(1)), partition(1, 0))
    with pytest.raises(ValueError, match=r"\w"):
        build(record, image=image)


def test_features_at_level_zero_are_gone() -> None:
    image = build(FeatureLevelRecord(name="group.version", feature_level=1))
    assert image.features == {"group.version": 1}
    assert build(FeatureLevelRecord(name="group.version", feature_level=0), image=image).features == {}


def test_eligible_replicas_are_cleared_for_one_topic_or_all() -> None:
    image = build(
        TopicRecord(name="a", topic_id=identifier(1)),
        partition(1, 0, [1, 2], isr=[1], eligible_leader_replicas=[2], last_known_elr=[1]),
        TopicRecord(name="b", topic_id=identifier(2)),
        partition(2, 0, [1, 2], isr=[1], eligible_leader_replicas=[2]),
    )

    def eligible(of: MetadataImage) -> list[tuple[int, ...]]:
        return [topic.partitions[0].elr + topic.partitions[0].last_known_elr for topic in of.topics_by_name.values()]

    assert eligible(image) == [(2, 1), (2,)]
    assert eligible(build(ClearElrRecord(topic_name="a"), image=image)) == [(), (2,)]
    assert eligible(build(ClearElrRecord(topic_name=""), image=image)) == [(), ()]


def other_record(chance: random.Random, number: int, topic: int, count: int) -> Any:
    """A record that is about neither partitions nor brokers."""
    named, owner = f"t{number}", chance.choice("uv")
    resource_type, resource_name = chance.choice([(2, f"t{topic}"), (4, ""), (4, "1"), (32, "g")])
    key, value = chance.choice("abc"), chance.choice([None, "x", "y"])
    entity = [EntityData(entity_type="user", entity_name=chance.choice([None, "u"]))]
    return chance.choice(
        [
            ConfigRecord(resource_type=resource_type, resource_name=resource_name, name=key, value=value),
            ClientQuotaRecord(entity=entity, key=chance.choice("pq"), value=1.5, remove=chance.random() < 0.3),
            AccessControlEntryRecord(id=identifier(number), resource_name="r", principal="User:a", host="*"),
            RemoveAccessControlEntryRecord(id=identifier(chance.randrange(count))),
            UserScramCredentialRecord(
                name=owner, mechanism=1, salt=b"s", stored_key=b"k", server_key=b"x", iterations=4096
            ),
            RemoveUserScramCredentialRecord(name="u", mechanism=1),
            ProducerIdsRecord(broker_id=1, broker_epoch=1, next_producer_id=number * 1000),
            DelegationTokenRecord(owner="o", requester="o", renewers=["r"], token_id=named),
            NoOpRecord(),
            RegisterControllerRecord(controller_id=1),
        ]
    )


def random_records(seed: int, count: int) -> list[Any]:
    """A log that a controller could have written, with every kind of record."""
    chance = random.Random(seed)
    records: list[Any] = [FeatureLevelRecord(name=METADATA_VERSION, feature_level=30)]
    topics: dict[int, int] = {}
    brokers: dict[int, int] = {}
    for number in range(count):
        verb = chance.randrange(14)
        topic = chance.choice(list(topics)) if topics else None
        if verb == 0 or topic is None:
            topics[number] = chance.randrange(1, 4)
            records.append(TopicRecord(name=f"t{number}", topic_id=identifier(number)))
            records.extend(partition(number, place, [1, 2, 3]) for place in range(topics[number]))
        elif verb == 1:
            del topics[topic]
            records.append(RemoveTopicRecord(topic_id=identifier(topic)))
        elif verb == 2:
            leader, isr = chance.choice([(-2, None), (-2, [1, 2]), (-1, [1]), (1, [1]), (2, [1, 2])])
            records.append(
                PartitionChangeRecord(
                    partition_id=chance.randrange(topics[topic]),
                    topic_id=identifier(topic),
                    leader=leader,
                    isr=isr,
                    eligible_leader_replicas=None if isr is None else chance.choice([None, [], [3]]),
                    directories=chance.choice([None, [identifier(7), identifier(8), identifier(9)]]),
                )
            )
        elif verb == 3:
            brokers[chance.randrange(3)] = number
            records.append(broker(list(brokers)[-1], number))
            brokers[list(brokers)[-1]] = number
        elif verb == 4 and brokers:
            broker_id = chance.choice(list(brokers))
            records.append(
                BrokerRegistrationChangeRecord(
                    broker_id=broker_id,
                    broker_epoch=records_epoch(records, broker_id),
                    fenced=chance.choice([-1, 0, 1]),
                )
            )
        else:
            records.append(other_record(chance, number, topic, count))
    return records


def records_epoch(records: list[Any], broker_id: int) -> int:
    return next(
        record.broker_epoch
        for record in reversed(records)
        if isinstance(record, RegisterBrokerRecord) and record.broker_id == broker_id
    )


@pytest.mark.parametrize("seed", range(40))
def test_a_snapshot_and_the_rest_of_the_log_give_what_the_whole_log_gives(seed: int) -> None:
    records = random_records(seed, 150)
    whole = build(*records)
    cut = random.Random(seed).randrange(len(records))
    snapshot = build(*build(*records[:cut]).records())
    assert replace(snapshot) == replace(build(*records[:cut]))
    assert build(*records[cut:], image=snapshot) == whole
    # One delta per record gives the same image as one delta for all.
    stepwise = MetadataImage()
    for record in records:
        stepwise = build(record, image=stepwise)
    assert stepwise == whole


def test_one_change_of_ten_thousand_partitions_shares_the_rest() -> None:
    records: list[Any] = []
    for topic in range(1000):
        records.append(TopicRecord(name=f"t{topic}", topic_id=identifier(topic)))
        records.extend(partition(topic, number) for number in range(10))
    image = build(*records)
    change = PartitionChangeRecord(partition_id=3, topic_id=identifier(7), leader=-1)
    started = time.process_time()
    for _ in range(100):
        changed = build(change, image=image)
    each_s = (time.process_time() - started) / 100
    assert each_s < 0.01, f"{each_s * 1e6:.0f} us of a processor: as long as all partitions take"
    assert changed.topics_by_name["t8"] is image.topics_by_name["t8"]


def test_subscribers_see_batches_and_no_half_transaction() -> None:
    publisher = MetadataPublisher("cluster")
    seen: list[tuple[int, set[str]]] = []
    publisher.subscribe(lambda delta, image: seen.append((image.offset, set(image.topics_by_name))))
    publisher.committed([(0, NoOpRecord()), (1, TopicRecord(name="a", topic_id=identifier(1)))], 1)
    publisher.committed([(2, BeginTransactionRecord()), (3, TopicRecord(name="b", topic_id=identifier(2)))], 1)
    publisher.committed([(4, partition(2, 0))], 1)
    assert seen == [(1, {"a"})]
    publisher.committed([(5, EndTransactionRecord())], 1)
    assert seen[-1] == (5, {"a", "b"})
    publisher.committed([(6, BeginTransactionRecord()), (7, TopicRecord(name="c", topic_id=identifier(3)))], 1)
    publisher.committed([(8, AbortTransactionRecord())], 1)
    assert seen[-1] == (8, {"a", "b"})
    assert publisher.image.cluster_id == "cluster"


def test_a_late_subscriber_gets_everything_as_new() -> None:
    publisher = MetadataPublisher()
    publisher.committed([(0, TopicRecord(name="a", topic_id=identifier(1))), (1, partition(1, 0))], 1)
    deltas: list[MetadataDelta] = []
    publisher.subscribe(lambda delta, image: deltas.append(delta))
    assert deltas[0].changed_partitions == {identifier(1): {0}}
    publisher.controller_changed(3)
    assert publisher.image.controller_id == 3 and not deltas[1].changed_partitions


def test_loading_a_snapshot_over_an_image_reports_what_is_gone() -> None:
    publisher = MetadataPublisher("c")
    publisher.committed([(0, TopicRecord(name="a", topic_id=identifier(1))), (1, partition(1, 0))], 1)
    deltas: list[MetadataDelta] = []
    publisher._subscribers.append(lambda delta, image: deltas.append(delta))
    publisher.load_snapshot([TopicRecord(name="b", topic_id=identifier(2))], 10, 2)
    assert set(deltas[0].deleted_topics) == {identifier(1)} and publisher.image.offset == 10
    assert delta_from_nothing(publisher.image).changed_partitions == {identifier(2): set()}
