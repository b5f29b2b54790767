"""Several log directories: the controller knows each replica's, cordoned ones take none, a lost one is reported."""

from __future__ import annotations

import shutil
from pathlib import Path
from uuid import UUID

from odradek.metadata.image import MetadataImage
from odradek.metadata.model import LOST_DIRECTORY, NO_LEADER, PartitionImage
from odradek.protocol.apis import ApiKey
from odradek.protocol.messages.create_topics_request import CreatableTopic, CreateTopicsRequest
from odradek.protocol.messages.incremental_alter_configs_request import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from odradek.testing import EmbeddedBroker
from tests.support.clients.api_calls import Calls, name_of
from tests.support.clients.confluent import produce_all, read_all
from tests.support.waiting import eventually

BROKER = 4
SET, DELETE = 0, 1


def image_of(broker: EmbeddedBroker) -> MetadataImage:
    assert broker._node is not None
    return broker._node.broker.publisher.image


def partitions(broker: EmbeddedBroker, topic: str) -> dict[int, PartitionImage]:
    found = image_of(broker).topic(topic)
    assert found is not None
    return dict(found.partitions)


def ids_of(broker: EmbeddedBroker) -> dict[str, UUID]:
    assert broker._node is not None
    return {each.path.name: each.directory_id for each in broker._node.broker.log_manager.directories}


def create(broker: EmbeddedBroker, topic: str, count: int) -> str:
    request = CreateTopicsRequest(topics=[CreatableTopic(name=topic, num_partitions=count, replication_factor=1)])
    with Calls(int(broker.bootstrap_servers.rpartition(":")[2])) as calls:
        (answer,) = calls.request(ApiKey.CREATE_TOPICS, 7, request).topics
    return name_of(answer.error_code)


def cordon(broker: EmbeddedBroker, paths: str | None) -> None:
    change = AlterableConfig(name="cordoned.log.dirs", config_operation=DELETE if paths is None else SET, value=paths)
    resource = AlterConfigsResource(resource_type=BROKER, resource_name="1", configs=[change])
    with Calls(int(broker.bootstrap_servers.rpartition(":")[2])) as calls:
        request = IncrementalAlterConfigsRequest(resources=[resource])
        (answer,) = calls.request(ApiKey.INCREMENTAL_ALTER_CONFIGS, 1, request).responses
    assert answer.error_code == 0, answer


def two(directory: Path) -> EmbeddedBroker:
    dirs = f"{directory / 'one'},{directory / 'two'}"
    return EmbeddedBroker({"log.dirs": dirs, "broker.heartbeat.interval.ms": 50}, directory=directory)


def test_the_controller_knows_the_directory_of_each_replica(tmp_path: Path) -> None:
    with two(tmp_path) as broker:
        assert create(broker, "t", 20) == "NONE"
        ids = ids_of(broker)

        def reported() -> bool:
            where = [partition.directories for partition in partitions(broker, "t").values()]
            return sorted(where) == sorted([(ids["one"],)] * 10 + [(ids["two"],)] * 10)

        eventually(reported)
        lies_in_one = {number for number in range(20) if (tmp_path / "one" / f"t-{number}").is_dir()}
        assert lies_in_one == {n for n, part in partitions(broker, "t").items() if part.directories == (ids["one"],)}


def test_cordoned_directories_take_no_new_replicas(tmp_path: Path) -> None:
    with two(tmp_path) as broker:
        cordon(broker, str(tmp_path / "one"))
        eventually(lambda: image_of(broker).brokers[1].cordoned_directories == (ids_of(broker)["one"],))
        assert create(broker, "t", 3) == "NONE"
        assert all((tmp_path / "two" / f"t-{number}").is_dir() for number in range(3))
        cordon(broker, "*")
        eventually(lambda: image_of(broker).brokers[1].cordoned)
        assert create(broker, "u", 1) == "INVALID_REPLICATION_FACTOR"
        cordon(broker, None)
        eventually(lambda: not image_of(broker).brokers[1].cordoned_directories)
        assert create(broker, "u", 1) == "NONE"


def test_a_new_disk_takes_the_place_of_one_that_broke(tmp_path: Path) -> None:
    with two(tmp_path) as broker:
        assert create(broker, "t", 2) == "NONE"
        first = ids_of(broker)
        eventually(
            lambda: (
                {part.directories for part in partitions(broker, "t").values()} == {(first["one"],), (first["two"],)}
            )
        )
        (lost,) = [number for number in range(2) if (tmp_path / "two" / f"t-{number}").is_dir()]
        broker.stop()
        shutil.rmtree(tmp_path / "two")
        broker.start()
        second = ids_of(broker)["two"]
        assert second != first["two"]
        eventually(lambda: partitions(broker, "t")[lost].directories != (first["two"],))
        eventually(lambda: partitions(broker, "t")[lost].leader == 1)
        assert partitions(broker, "t")[lost].leader_epoch > 0, "elected again, after the loss was known"
        produce_all(broker.bootstrap_servers, "t", [(None, b"again")])
        assert [message.value() for message in read_all(broker.bootstrap_servers, "t", 2)] == [b"again"]


def test_a_partition_created_in_a_failing_directory_has_no_leader_there(tmp_path: Path) -> None:
    """The controller cannot know from the failed directory: the partition's assignment to it was never reported."""
    with two(tmp_path) as broker:
        assert create(broker, "first", 1) == "NONE"
        (tmp_path / "two" / "t-0").write_text("in the way")
        assert create(broker, "t", 1) == "NONE"
        eventually(lambda: partitions(broker, "t")[0].directories == (LOST_DIRECTORY,))
        assert partitions(broker, "t")[0].leader == NO_LEADER, "it leads nothing that it does not have"
        broker.stop()
        (tmp_path / "two" / "t-0").unlink()
        broker.start()
        eventually(lambda: partitions(broker, "t")[0].leader == 1)
        produce_all(broker.bootstrap_servers, "t", [(None, b"kept")])
        assert [message.value() for message in read_all(broker.bootstrap_servers, "t", 1)] == [b"kept"]
