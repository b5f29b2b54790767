"""Clusters of real processes, with nodes of one role each and of both roles, some of which die."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from uuid import UUID

import pytest
from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource, NewTopic

from odradek.common.real_io import RealDisk
from odradek.metadata.model import ResourceType
from odradek.protocol.apis import API, ApiKey
from odradek.protocol.messages import describe_quorum_request as quorum_request
from odradek.protocol.messages.api_versions_request import ApiVersionsRequest
from odradek.protocol.messages.describe_cluster_request import DescribeClusterRequest
from odradek.protocol.messages.describe_configs_request import DescribeConfigsRequest, DescribeConfigsResource
from odradek.protocol.messages.metadata_request import MetadataRequest, MetadataRequestTopic
from odradek.server.handlers import HANDLERS
from odradek.server.handlers.envelope import FORWARDED
from odradek.server.startup.format import META_FILE
from odradek.testing.layout import format_cluster, plan_cluster
from odradek.testing.processes import NodeFailedError, NodeProcess
from tests.support.clients.api_calls import Calls, error_codes, fresh_name, name_of
from tests.support.clients.confluent import admin, produce_all, read_all
from tests.support.nodes.cluster import CONTROLLERS, Cluster, metadata, topic_at
from tests.support.nodes.node import free_port
from tests.support.waiting import PATIENCE_S, eventually

CONTROLLER = 1001
# The session of a silent broker; far above what a dead one may take to be noticed.
LONG_SESSION_MS = 240_000
SMALL = {"offsets.topic.num.partitions": 2, "group.initial.rebalance.delay.ms": 0}


@pytest.fixture(scope="module")
def separate(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """One controller and two brokers, each in its own process."""
    with Cluster(tmp_path_factory.mktemp("separate"), brokers=2, controllers=1, settings=SMALL) as cluster:
        yield cluster
        assert_no_traceback(cluster)


@pytest.fixture(scope="module")
def trio(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """Three nodes that are broker and controller each."""
    settings = SMALL | {"broker.session.timeout.ms": LONG_SESSION_MS}
    with Cluster(tmp_path_factory.mktemp("combined"), brokers=3, settings=settings) as cluster:
        yield cluster
        assert_no_traceback(cluster)


@pytest.fixture
def combined(trio: Cluster) -> Iterator[Cluster]:
    """The three nodes; those that the test before has stopped run again."""
    all_up(trio)
    yield trio


def all_up(cluster: Cluster) -> None:
    """Start nodes that do not run, resume paused ones, and wait until every broker knows all three."""
    for node in cluster.nodes.values():
        if not node.running:
            node.start()
        elif node.paused:
            node.resume()
    eventually(lambda: all(len(metadata(node).brokers) == 3 for node in cluster.brokers))


def assert_no_traceback(cluster: Cluster) -> None:
    for node in cluster.nodes.values():
        assert "Traceback" not in node.log_text(), node.log_text()[-4000:]


def create(client: AdminClient, topic: str, partitions: int = 1, replicas: int = 1, **config: str) -> None:
    settings = {key.replace("_", "."): value for key, value in config.items()}
    futures = client.create_topics([NewTopic(topic, partitions, replicas, config=settings)], operation_timeout=30)
    futures[topic].result(timeout=90)  # longer than the client itself waits, so that it says why


def await_more(made: list[str]) -> None:
    """Wait until a few more are made."""
    before = len(made)
    eventually(lambda: len(made) > before + 2, patience_s=2 * PATIENCE_S)


def pairs(count: int) -> list[tuple[bytes | None, bytes | None]]:
    return [(f"key-{number}".encode(), f"value-{number}".encode()) for number in range(count)]


class TestRolesOfTheirOwn:
    def test_a_topic_that_one_broker_was_asked_for_is_known_to_both(self, separate: Cluster) -> None:
        name = fresh_name()
        create(admin(separate[1].bootstrap), name, 6)
        seen = []
        for broker in separate.brokers:
            found = eventually(lambda broker=broker: topic_at(broker, name).partitions)
            seen.append({each.partition_index: each.leader_id for each in found})
        assert seen[0] == seen[1]
        assert set(seen[0].values()) == {1, 2}, "leaders are spread over the brokers"

    def test_records_go_to_and_come_from_both_brokers(self, separate: Cluster) -> None:
        name = fresh_name()
        create(admin(separate.bootstrap_servers), name, 4)
        records = pairs(400)
        produce_all(separate[2].bootstrap, name, records, acks="all")
        read = read_all(separate[1].bootstrap, name, 4)
        assert sorted(message.value() or b"" for message in read) == sorted(value or b"" for _, value in records)
        assert len({message.partition() for message in read}) == 4

    def test_settings_changed_at_one_broker_hold_at_the_other(self, separate: Cluster) -> None:
        name = fresh_name()
        client = admin(separate[1].bootstrap)
        create(client, name)
        entry = ConfigEntry("retention.ms", "123456", incremental_operation=AlterConfigOpType.SET)
        resource = ConfigResource(ConfigResource.Type.TOPIC, name, incremental_configs=[entry])
        for future in client.incremental_alter_configs([resource]).values():
            future.result(timeout=90)
        other = admin(separate[2].bootstrap)
        asked = ConfigResource(ConfigResource.Type.TOPIC, name)

        def value() -> bool:
            found = other.describe_configs([asked])[asked].result(timeout=90)
            return bool(found["retention.ms"].value == "123456")

        eventually(value)

    def test_brokers_list_brokers_and_controllers_list_controllers(self, separate: Cluster) -> None:
        with Calls(separate[2].plan.port) as calls:
            reported = calls.request(ApiKey.DESCRIBE_CLUSTER, 2, DescribeClusterRequest())
        assert reported.cluster_id == separate.cluster_id
        assert [(each.broker_id, each.port) for each in reported.brokers] == [
            (node.node_id, node.plan.port) for node in separate.brokers
        ]
        with Calls(separate[CONTROLLER].plan.controller_port) as calls:
            reported = calls.request(ApiKey.DESCRIBE_CLUSTER, 2, DescribeClusterRequest(endpoint_type=CONTROLLERS))
        assert (reported.cluster_id, reported.controller_id) == (separate.cluster_id, CONTROLLER)
        assert [each.broker_id for each in reported.brokers] == [CONTROLLER]

    def test_the_quorum_is_described_by_way_of_any_broker(self, separate: Cluster) -> None:
        topic = quorum_request.TopicData(
            topic_name="__cluster_metadata", partitions=[quorum_request.PartitionData(partition_index=0)]
        )

        def observed() -> bool:
            with Calls(separate[2].plan.port) as calls:
                answer = calls.request(ApiKey.DESCRIBE_QUORUM, 2, quorum_request.DescribeQuorumRequest(topics=[topic]))
            (partition,) = answer.topics[0].partitions
            voters = [each.replica_id for each in partition.current_voters]
            observers = {each.replica_id for each in partition.observers}
            return (partition.leader_id, voters, observers) == (CONTROLLER, [CONTROLLER], {1, 2})

        eventually(observed)

    def test_a_controller_serves_what_controllers_serve(self, separate: Cluster) -> None:
        with Calls(separate[CONTROLLER].plan.controller_port) as calls:
            answer = calls.request(ApiKey.API_VERSIONS, 0, ApiVersionsRequest())
        theirs = {handler.api_key for handler in HANDLERS if "controller" in handler.listeners}
        assert {each.api_key for each in answer.api_keys} == theirs

    def test_idempotent_producers_get_ids_that_no_one_else_has(self, separate: Cluster) -> None:
        name = fresh_name()
        create(admin(separate.bootstrap_servers), name, 2)
        for broker in separate.brokers:
            produce_all(broker.bootstrap, name, pairs(20), enable_idempotence=True)
        assert len(read_all(separate.bootstrap_servers, name, 2)) == 40

    @pytest.mark.parametrize("api_key", sorted(FORWARDED & {handler.api_key for handler in HANDLERS}))
    def test_every_forwarded_request_is_answered_by_the_controller(self, separate: Cluster, api_key: ApiKey) -> None:
        """Empty requests of every version to a broker that is not a controller: refused or not, but decided."""
        spec = API[api_key]
        (handler,) = [each for each in HANDLERS if each.api_key == api_key]
        with Calls(separate[2].plan.port) as calls:
            for version in range(handler.min_version, handler.max_version + 1):
                answer = calls.request(api_key, version, spec.request())
                names = {name_of(code) for code in error_codes(answer)}
                assert names.isdisjoint({"UNKNOWN_SERVER_ERROR", "NOT_CONTROLLER"}), (version, answer)

    def test_a_controller_describes_its_own_settings(self, separate: Cluster) -> None:
        resource = DescribeConfigsResource(
            resource_type=ResourceType.BROKER, resource_name=str(CONTROLLER), configuration_keys=["process.roles"]
        )
        with Calls(separate[CONTROLLER].plan.controller_port) as calls:
            answer = calls.request(ApiKey.DESCRIBE_CONFIGS, 4, DescribeConfigsRequest(resources=[resource]))
        (result,) = answer.results
        assert [(each.name, each.value) for each in result.configs] == [("process.roles", "controller")]

    def test_a_refusal_of_the_controller_reaches_the_client(self, separate: Cluster) -> None:
        with pytest.raises(KafkaException, match="INVALID_REPLICATION_FACTOR"):
            create(admin(separate[1].bootstrap), fresh_name(), 1, 3)

    def test_a_node_of_another_cluster_is_refused(self, separate: Cluster, tmp_path: Path) -> None:
        plans = plan_cluster(tmp_path, brokers=2, controllers=1)
        disk = RealDisk()
        format_cluster(disk, plans, now_ms=0)
        disk.close()
        voters = separate[1].plan.properties["controller.quorum.voters"]
        text = plans[1].config.read_text()
        own = plans[1].properties["controller.quorum.voters"]
        plans[1].config.write_text(text.replace(_escaped(own), _escaped(voters)).replace(own, voters))
        foreign = NodeProcess(plans[1])
        foreign.launch()
        try:
            eventually(lambda: "INCONSISTENT_CLUSTER_ID" in foreign.log_text() or not foreign.running)
        finally:
            if foreign.running:
                foreign.kill()
        assert "Traceback" not in foreign.log_text()
        eventually(lambda: len(metadata(separate[1], fresh_name()).brokers) == 2)

    def test_a_node_id_in_use(self, separate: Cluster, tmp_path: Path) -> None:
        """A second broker with the id of a living one, formatted for the same cluster, in a directory of its own."""
        plans = plan_cluster(tmp_path, brokers=2, controllers=1)
        disk = RealDisk()
        format_cluster(disk, plans, now_ms=0)
        disk.close()
        plan = plans[1]
        voters = separate[1].plan.properties["controller.quorum.voters"]
        own = plan.properties["controller.quorum.voters"]
        plan.config.write_text(
            plan.config.read_text().replace(_escaped(own), _escaped(voters)).replace(own, voters)
            + "\ninitial.broker.registration.timeout.ms=2000\n"
        )
        meta = plan.data_dir / META_FILE
        lines = [line for line in meta.read_text().splitlines() if not line.startswith("cluster.id")]
        meta.write_text("\n".join([*lines, f"cluster.id={separate.cluster_id}", ""]))
        twin = NodeProcess(plan)
        with pytest.raises(NodeFailedError, match=r"another broker with node\.id|registration.timeout"):
            twin.start()
        assert "Traceback" not in twin.log_text()
        brokers = {each.node_id: each.port for each in metadata(separate[1], fresh_name()).brokers}
        assert brokers == {node.node_id: node.plan.port for node in separate.brokers}

    def test_a_broker_that_was_killed_comes_back(self, separate: Cluster) -> None:
        name = fresh_name()
        create(admin(separate.bootstrap_servers), name, 4)
        produce_all(separate.bootstrap_servers, name, pairs(40), acks="all")
        separate[2].kill()
        eventually(lambda: {each.node_id for each in metadata(separate[1], name).brokers} == {1})
        separate[2].start()
        eventually(lambda: {each.leader_id for each in topic_at(separate[1], name).partitions} == {1, 2})
        assert len(read_all(separate.bootstrap_servers, name, 4)) == 40

    def test_a_broker_that_comes_back_under_another_address_is_found(self, separate: Cluster) -> None:
        name = fresh_name()
        create(admin(separate.bootstrap_servers), name, 2, 2)
        produce_all(separate.bootstrap_servers, name, pairs(20), acks="all")
        separate[2].stop()
        text, port = separate[2].plan.config.read_text(), free_port()
        separate[2].plan.config.write_text(text.replace(str(separate[2].plan.port), str(port)))
        moved = NodeProcess(replace(separate[2].plan, port=port))
        try:
            moved.start()
            eventually(lambda: port in {each.port for each in metadata(separate[1], name).brokers})
            eventually(lambda: all(len(each.isr_nodes) == 2 for each in topic_at(moved, name).partitions))
            produce_all(separate[1].bootstrap, name, pairs(20), acks="all")
            assert len(read_all(separate[1].bootstrap, name, 2)) == 40
        finally:
            moved.stop()
            separate[2].plan.config.write_text(text)
            separate[2].start()

    def test_the_controller_is_killed_and_started_again(self, separate: Cluster) -> None:
        name, later = fresh_name(), fresh_name()
        create(admin(separate.bootstrap_servers), name, 2)
        eventually(lambda: all(len(topic_at(broker, name).partitions) == 2 for broker in separate.brokers))
        separate[CONTROLLER].kill()
        produce_all(separate.bootstrap_servers, name, pairs(20), acks="all")
        separate[CONTROLLER].start()
        create(admin(separate.bootstrap_servers), later, 2)
        assert len(read_all(separate.bootstrap_servers, name, 2)) == 20


class TestDeathIsNoticed:
    def test_a_dead_broker_is_fenced_long_before_its_session_ends(self, combined: Cluster) -> None:
        leader = combined.await_controller()
        victim, witness = [node for node in combined.brokers if node.node_id != leader]
        victim.kill()
        eventually(lambda: victim.node_id not in {each.node_id for each in metadata(witness).brokers})
        log = combined[leader].log_text()
        assert "a broker's process has ended" in log

    def test_a_dead_active_controller_is_fenced_early_too(self, combined: Cluster) -> None:
        leader = combined.await_controller()
        survivors = [node for node in combined.brokers if node.node_id != leader]
        combined[leader].kill()
        combined.await_controller(other_than=leader)
        for node in survivors:
            eventually(lambda node=node: leader not in {each.node_id for each in metadata(node).brokers})

    def test_metadata_right_after_a_death_names_the_new_leader(self, combined: Cluster) -> None:
        """librdkafka asks in this instant, and loses a second for each of the two facts that the answer lacks.

        The answer waits for the news, but not for longer than `SUSPICION_MS`. On a machine that is busy the election
        may take longer, and the request may be there before the end of the dead broker's connections: such an answer is
        stale, and the next death is asked about.
        """
        for _ in range(5):
            if self.asks_at_once(combined):
                return
            all_up(combined)
        raise AssertionError("no death was reported in time")

    def asks_at_once(self, combined: Cluster) -> bool:
        """Whether the answer after a death has both."""
        dead = combined.await_controller()
        witness = next(node for node in combined.brokers if node.node_id != dead)
        name = fresh_name()
        order = [dead, *(node.node_id for node in combined.brokers if node.node_id != dead)]
        topic = NewTopic(name, num_partitions=1, replica_assignment=[order])
        client = admin(witness.bootstrap)
        client.create_topics([topic])[name].result(timeout=90)
        eventually(lambda: len(topic_at(witness, name).partitions[0].isr_nodes) == 3)
        request = MetadataRequest(topics=[MetadataRequestTopic(name=name)])
        with Calls(witness.plan.port) as calls:
            before = calls.request(ApiKey.METADATA, 12, request)
            assert before.topics[0].partitions[0].leader_id == dead
            combined[dead].kill()
            after = calls.request(ApiKey.METADATA, 12, request)
        partition = after.topics[0].partitions[0]
        is_new = partition.leader_id not in (dead, -1) and partition.leader_epoch == 1
        is_advertised = dead in {each.node_id for each in after.brokers} and dead in partition.offline_replicas
        eventually(lambda: dead not in {each.node_id for each in metadata(witness).brokers})
        return is_new and is_advertised

    def test_a_paused_broker_keeps_its_session(self, combined: Cluster) -> None:
        leader = combined.await_controller()
        victim, witness = [node for node in combined.brokers if node.node_id != leader]
        victim.pause()
        time.sleep(1.5)
        assert victim.node_id in {each.node_id for each in metadata(witness).brokers}
        victim.resume()
        eventually(lambda: metadata(victim).brokers)


class TestBothRoles:
    def test_topics_are_created_while_active_controllers_die(self, combined: Cluster) -> None:
        client = admin(combined.bootstrap_servers)
        made: list[str] = []
        stopping = threading.Event()
        refused: list[str] = []

        def keep_creating() -> None:
            while not stopping.is_set():
                name = fresh_name("during")
                try:
                    create(client, name, 2)
                    made.append(name)
                except (KafkaException, TimeoutError) as error:
                    refused.append(str(error))

        creating = threading.Thread(target=keep_creating)
        creating.start()
        try:
            for _ in range(2):
                await_more(made)
                leader = combined.await_controller()
                combined[leader].kill()
                combined.await_controller(other_than=leader)
                await_more(made)
                combined[leader].start()
        finally:
            stopping.set()
            creating.join()
        for node in combined.brokers:
            eventually(lambda node=node: set(made) <= {topic.name for topic in metadata(node).topics})
        ids: list[dict[str | None, UUID]] = [
            {topic.name: topic.topic_id for topic in metadata(node).topics if topic.name in made}
            for node in combined.brokers
        ]
        assert ids[0] == ids[1] == ids[2], "every node has the same topics"
        # Requests in flight to the node that died may have to be sent again, and then find their work done.
        known = ("TOPIC_ALREADY_EXISTS", "_TRANSPORT", "_TIMED_OUT", "REQUEST_TIMED_OUT")
        assert all(any(name in text for name in known) for text in refused), refused

    def test_a_paused_controller_is_replaced_and_follows_when_it_resumes(self, combined: Cluster) -> None:
        leader = combined.await_controller()
        combined[leader].pause()
        name = fresh_name()
        other = combined.await_controller(other_than=leader)
        create(admin(combined[other].bootstrap), name, 1)
        combined[leader].resume()
        eventually(lambda: topic_at(combined[leader], name).partitions)
        eventually(lambda: combined.active_controller() != leader)

    def test_the_whole_cluster_dies_and_starts_again(self, combined: Cluster) -> None:
        name = fresh_name()
        create(admin(combined.bootstrap_servers), name, 6)
        produce_all(combined.bootstrap_servers, name, pairs(60), acks="all")
        for node in combined.nodes.values():
            os.kill(node.pid, signal.SIGKILL)
        combined.kill()
        combined.start()
        eventually(lambda: all(each.leader_id > 0 for each in topic_at(combined[1], name).partitions))
        assert len(read_all(combined.bootstrap_servers, name, 6)) == 60

    def test_a_clean_stop_of_one_moves_the_controller_and_refuses_no_one(self, combined: Cluster) -> None:
        leader = combined.await_controller()
        assert combined[leader].stop() == 0
        combined.await_controller(other_than=leader)
        survivor = combined.serving_brokers()[0]
        create(admin(survivor.bootstrap), fresh_name(), 2)
        combined[leader].start()
        eventually(lambda: len(metadata(survivor).brokers) == 3)


def _escaped(text: str) -> str:
    return text.replace(":", "\\:").replace("=", "\\=")
