"""Checks of a pipeline's topics and sinks before its start; each problem is reported with advice."""

from __future__ import annotations

from pathlib import Path
from typing import Any
from uuid import UUID, uuid4

from pyspark_odradek.client.cluster import ClientSettings, Cluster
from pyspark_odradek.client.offsets import TopicPartition, to_json
from pyspark_odradek.pipelines.ends import CheckpointState, End, check_ends
from tests.support.clients.confluent import create_topic, produce_all
from tests.support.nodes.node import Node

VALUE: dict[str, Any] = {
    "type": "struct",
    "fields": [{"name": "value", "type": "string", "nullable": True, "metadata": {}}],
}
UNKNOWN_ID = "127.0.0.1:1"


def reported(*ends: End) -> list[tuple[str, bool]]:
    return [(str(finding), finding.stops) for finding in check_ends(ends)]


def at(topic: str, *offsets: int, ids: dict[str, UUID] | None = None) -> dict[str, CheckpointState]:
    """The checkpoint of `visits`, at these offsets of the topic's partitions."""
    positions = {TopicPartition(topic, number): offset for number, offset in enumerate(offsets)}
    return {"visits": CheckpointState([to_json(positions, ids)], "delete it")}


def read(bootstrap: str, **options: str) -> End:
    return End("visits", {"kafka.bootstrap.servers": bootstrap, **options})


def write(bootstrap: str, flow: str = "tell", **options: str) -> End:
    return End(flow, {"kafka.bootstrap.servers": bootstrap, **options}, VALUE)


def test_existing_topics_have_no_findings(odradek: str, topic: str) -> None:
    create_topic(odradek, topic)
    ends = [read(odradek, subscribe=topic), read(odradek, subscribepattern="no.*such"), write(odradek, topic=topic)]
    assert reported(*ends) == []


def test_a_missing_topic_stops_the_run(odradek: str, topic: str) -> None:
    create_topic(odradek, topic)
    assert reported(read(odradek, subscribe=f"{topic},{topic}-2"), write(odradek, topic=f"{topic}-3")) == [
        (
            f"visits: reads topic {topic}-2, which does not exist: `odradek topics create --topic {topic}-2` makes it",
            True,
        ),
        (
            f"tell: writes to topic {topic}-3, which does not exist: `odradek topics create --topic {topic}-3` "
            "makes it, or the sink with createTopic=true",
            True,
        ),
    ]


def test_a_pipeline_may_read_a_topic_that_it_creates(odradek: str, topic: str) -> None:
    assert reported(read(odradek, assign=f'{{"{topic}": [0]}}'), write(odradek, topic=topic, createtopic="true")) == []


def test_a_topic_of_an_at_least_once_sink(odradek: str, topic: str, tmp_path: Path) -> None:
    """Its flow may create it; otherwise it must exist, or brokers must create topics automatically."""
    loose = {"topic": topic, "delivery": "at_least_once"}
    assert reported(read(odradek, subscribe=topic), write(odradek, **loose, createtopic="true")) == []
    says = (
        f"writes to topic {topic}, which does not exist: `odradek topics create --topic {topic}` makes it, or the sink "
        "with createTopic=true"
    )
    perhaps = f"tell: {says}; else the brokers have to (auto.create.topics.enable)"
    assert reported(write(odradek, **loose)) == [(perhaps, False)]
    ((text, stops),) = reported(write(odradek, **loose), read(odradek, subscribe=topic))
    assert text.startswith(f"visits: reads topic {topic}, which does not exist") and stops
    with Node(tmp_path, {"auto.create.topics.enable": "false"}) as strict:
        assert reported(write(strict.bootstrap, **loose)) == [(f"tell: {says}", True)]


def test_flows_that_report_as_one_group_are_a_note(odradek: str, topic: str) -> None:
    """The view with their source is not such a flow, and standbys share a gate but no group."""
    create_topic(odradek, topic)
    of_shop = {"kafka.bootstrap.servers": odradek, "subscribe": topic, "groupid": "shop"}
    ends = [End(flow, of_shop, is_view=flow == "lines") for flow in ("lines", "visits", "tell")]
    own = [End("alone", of_shop | {"groupid": "other"}), End("gated", of_shop | {"gate": "g"})]
    assert reported(*ends[:2], *own) == []
    assert reported(*ends, *own) == [
        (
            "tell, visits: report as one group, shop, whose lag is then that of whichever committed last: give each "
            "flow a source with a groupId of its own",
            False,
        )
    ]


def test_a_cluster_that_does_not_respond_is_a_note() -> None:
    ((text, stops),) = reported(read(UNKNOWN_ID, subscribe="a"), write(UNKNOWN_ID, topic="b"))
    assert text.startswith("tell, visits: the cluster was not looked at, and a run waits for it: 127.0.0.1:1 did not")
    assert not stops


def test_rows_that_a_sink_would_refuse_are_reported_before_the_run(odradek: str) -> None:
    wrong = [
        write(odradek, topik="x"),
        write(odradek, topic="x", delivery="twice"),
        End("lake", {"sink": "delta", "pth": "/x"}, VALUE),
        End("store", {"sink": "postgres", "table": "x"}, VALUE),
    ]
    found = check_ends(wrong)
    assert all(finding.stops for finding in found)
    assert [finding.subject for finding in found] == ["tell", "tell", "lake", "store"]
    assert "did you mean 'topic'?" in str(found[0])
    assert "needs the options connection" in str(found[3])


def test_invalid_settings_of_tls_and_sasl_are_reported_before_the_run(odradek: str, topic: str) -> None:
    nowhere = {"kafka.security.protocol": "SSL", "kafka.ssl.truststore.location": "/no/such/file"}
    unknown = {"kafka.security.protocol": "SASL_PLAINTEXT", "kafka.sasl.mechanism": "PLAIN"}
    ends = [read(odradek, subscribe=topic, **nowhere), write(odradek, topic=topic, **unknown)]
    (reading, _), (writing, _) = found = reported(*ends)
    assert all(stops for _, stops in found)
    assert reading.startswith("visits: kafka.ssl.") and "/no/such/file" in reading
    assert writing.startswith("tell: kafka.sasl.jaas.config")


def test_a_checkpoint_outside_of_the_log_is_reported(odradek: str, topic: str) -> None:
    create_topic(odradek, topic)
    produce_all(odradek, topic, [(None, b"x")] * 3)
    source = read(odradek, subscribe=topic)
    assert check_ends([source], at(topic, 3)) == []
    (cut,) = check_ends([source], at(topic, 7))
    assert cut.stops
    assert "its checkpoint continues at offsets that do not exist" in str(cut)
    assert "ends at 3: it was truncated, or the topic was recreated; delete it" in str(cut)
    (gone,) = check_ends([read(odradek, subscribe=topic, failondataloss="false")], at(topic, 3, 5))
    assert f"{topic}-1: from offset 5 on, the partition does not exist any more; it goes on with what is left" in str(
        gone
    )
    assert not gone.stops


def test_a_topic_that_was_recreated_since_is_reported(odradek: str, topic: str) -> None:
    """It is detected by its id, also if it has more records than the checkpoint has read of the old one."""
    create_topic(odradek, topic)
    produce_all(odradek, topic, [(None, b"x")] * 3)
    cluster = Cluster(ClientSettings.parse({"bootstrap.servers": odradek, "client.id": "ends"}))
    cluster.partitions([topic])
    assert check_ends([read(odradek, subscribe=topic)], at(topic, 2, ids=cluster.topic_ids)) == []
    cluster.close()
    (found,) = check_ends([read(odradek, subscribe=topic)], at(topic, 2, ids={topic: uuid4()}))
    assert found.stops
    assert f"{topic}-0: from offset 2 on, another topic has its name now: it was deleted and recreated" in str(found)
    positions = {TopicPartition(topic, 0): 2}
    of_two_clusters = [to_json(positions, {topic: uuid4()}) for _ in range(2)]
    assert check_ends([read(odradek, subscribe=topic)], {"visits": CheckpointState(of_two_clusters, "delete it")}) == []


def test_a_checkpoint_of_another_query_stops(odradek: str, topic: str) -> None:
    create_topic(odradek, topic)
    (found,) = check_ends([read(odradek, subscribe=topic)], at("elsewhere", 3))
    assert found.stops
    assert "the checkpoint holds offsets of elsewhere, which this query does not read" in str(found)
    assert str(found).endswith("delete it")
