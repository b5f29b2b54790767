"""Apache Kafka's own command-line tools against our broker, and its log dumper over our files."""

from __future__ import annotations

import json
import re
import statistics
import subprocess
from pathlib import Path

import pytest

from tests.support.clients.confluent import create_topic, produce_all
from tests.support.nodes.apache_kafka import (
    BROKER_CLASSES,
    HOME,
    ApacheKafka,
    class_archive_options,
    java_command,
    require_kafka,
    run_tool,
)
from tests.support.nodes.node import Node, free_port
from tests.support.waiting import eventually

pytestmark = [pytest.mark.interop, pytest.mark.java, pytest.mark.timeout(600)]

TOOLS = "org.apache.kafka.tools"
TOPIC = "tools"
PARTITIONS = 2


@pytest.fixture(scope="module", autouse=True)
def topic(broker: Node | ApacheKafka) -> None:
    """One topic with 100 records for the tests that look at something."""
    require_kafka()
    create_topic(broker.bootstrap, TOPIC, PARTITIONS)
    produce_all(broker.bootstrap, TOPIC, [(f"k{number}".encode(), b"v" * 50) for number in range(100)])


def tool(broker: Node | ApacheKafka, name: str, *arguments: object, stdin: str | None = None) -> str:
    """Run a tool with `--bootstrap-server` and return its standard output; it must end with 0."""
    return run_tool(f"{TOOLS}.{name}", ["--bootstrap-server", broker.bootstrap, *arguments], stdin=stdin).stdout


def test_kafka_topics(broker: Node | ApacheKafka) -> None:
    tool(broker, "TopicCommand", "--create", "--topic", "made", "--partitions", 3, "--config", "retention.ms=60000")
    described = tool(broker, "TopicCommand", "--describe", "--topic", "made")
    assert "PartitionCount: 3" in described and "retention.ms=60000" in described
    assert len(re.findall(r"Partition: \d\tLeader: 1\tReplicas: 1\tIsr: 1", described)) == 3
    tool(broker, "TopicCommand", "--alter", "--topic", "made", "--partitions", 5)
    assert "PartitionCount: 5" in tool(broker, "TopicCommand", "--describe", "--topic", "made")
    tool(broker, "TopicCommand", "--delete", "--topic", "made")
    assert "made" not in tool(broker, "TopicCommand", "--list").split()


def test_console_producer_and_consumer(broker: Node | ApacheKafka) -> None:
    lines = "".join(f"k{number}:line {number}\n" for number in range(20))
    properties = ["--reader-property", "parse.key=true", "--reader-property", "key.separator=:"]
    tool(broker, "ConsoleProducer", "--topic", "console", *properties, stdin=lines)
    shown = ["--formatter-property", "print.key=true", "--formatter-property", "key.separator=:"]
    read = tool(
        broker, "consumer.ConsoleConsumer", "--topic", "console", "--from-beginning", "--max-messages", 20, *shown
    )
    assert sorted(read.splitlines()) == sorted(lines.splitlines())


@pytest.mark.slow
def test_kafka_configs(broker: Node | ApacheKafka) -> None:
    def configs(*arguments: object) -> str:
        return run_tool("kafka.admin.ConfigCommand", ["--bootstrap-server", broker.bootstrap, *arguments]).stdout

    of_topic = ("--entity-type", "topics", "--entity-name", TOPIC)
    configs("--alter", *of_topic, "--add-config", "segment.bytes=2097152,cleanup.policy=[compact,delete]")
    described = configs("--describe", *of_topic)
    assert "segment.bytes=2097152" in described and "cleanup.policy=compact,delete" in described
    configs("--alter", *of_topic, "--delete-config", "segment.bytes,cleanup.policy")
    assert "segment.bytes" not in configs("--describe", *of_topic)
    everything = configs("--describe", "--all", "--entity-type", "brokers", "--entity-name", "1")
    assert "log.segment.bytes=1073741824" in everything and "STATIC_BROKER_CONFIG" in everything


@pytest.mark.only_ours
@pytest.mark.slow  # test_dynamic_listeners changes them by librdkafka's client, and by our own command
def test_kafka_configs_adds_and_removes_a_listener(broker: Node) -> None:
    def configs(*arguments: object, check: bool = True) -> subprocess.CompletedProcess[str]:
        given = ["--bootstrap-server", broker.bootstrap, *arguments, "--entity-type", "brokers", "--entity-name", "1"]
        return run_tool("kafka.admin.ConfigCommand", given, check=check)

    present, protocols = broker.overrides["listeners"], "CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT,EXTRA:PLAINTEXT"
    address = f"127.0.0.1:{free_port()}"
    added = f"listeners=[{present},EXTRA://{address}],listener.security.protocol.map=[{protocols}]"
    configs("--alter", "--add-config", added)
    eventually(lambda: TOPIC in run_tool(f"{TOOLS}.TopicCommand", ["--bootstrap-server", address, "--list"]).stdout)
    described = configs("--describe").stdout
    assert f"listeners={present},EXTRA://{address} sensitive=false synonyms={{DYNAMIC_BROKER_CONFIG:" in described
    refused = configs("--alter", "--add-config", f"listeners=[{present},EXTRA://192.0.2.1:9]", check=False)
    assert refused.returncode == 1 and "the address is not of this machine" in refused.stdout + refused.stderr
    configs("--alter", "--delete-config", "listeners,listener.security.protocol.map")
    assert "listeners=" not in configs("--describe").stdout


ALICE = ("--entity-type", "users", "--entity-name", "alice")
APP = ("--entity-type", "clients", "--entity-name", "app")
ANY_CLIENT = ("--entity-type", "clients", "--entity-default")


@pytest.mark.parametrize(
    ("quota", "entity"),
    [
        pytest.param("producer_byte_rate=1024", ALICE, marks=pytest.mark.slow),
        pytest.param("consumer_byte_rate=2048", ANY_CLIENT, marks=pytest.mark.slow),
        pytest.param("request_percentage=50", (*ALICE, *APP), marks=pytest.mark.slow),
        pytest.param("request_percentage=50", (*ALICE, *ANY_CLIENT), marks=pytest.mark.slow),
        pytest.param(
            "connection_creation_rate=5",
            ("--entity-type", "ips", "--entity-name", "10.0.0.1"),
            marks=pytest.mark.slow,
        ),
    ],
)
def test_kafka_configs_sets_quotas(broker: Node | ApacheKafka, quota: str, entity: tuple[str, ...]) -> None:
    """test_quotas and test_console_changes set them by our own commands."""

    def configs(*arguments: object) -> str:
        return run_tool("kafka.admin.ConfigCommand", ["--bootstrap-server", broker.bootstrap, *arguments]).stdout

    configs("--alter", *entity, "--add-config", quota)
    assert quota in configs("--describe", *entity)
    configs("--alter", *entity, "--delete-config", quota.partition("=")[0])
    assert quota.partition("=")[0] not in configs("--describe", *entity)


@pytest.mark.slow  # a minute, and a busy machine may be slower; test_quotas has the short form
def test_performance_tools_get_their_quota_within_a_tenth(broker: Node | ApacheKafka) -> None:
    """1 MiB per second, for half a minute each way."""
    create_topic(broker.bootstrap, "rated")
    rates = "producer_byte_rate=1048576,consumer_byte_rate=1048576"
    entity = ("--entity-type", "clients", "--entity-name", "rated", "--alter", "--add-config", rates)
    run_tool("kafka.admin.ConfigCommand", ["--bootstrap-server", broker.bootstrap, *entity])
    common = ("--topic", "rated", "--num-records", 3072, "--command-property", "client.id=rated")
    sizes = ("--record-size", 10_240, "--throughput", -1)
    reported = tool(broker, "ProducerPerformance", *common, *sizes)
    # The rates of each five seconds; in the first the virtual machine warms up.
    produced = [float(each) for each in re.findall(r"\(([\d.]+) MB/sec\)", reported)]
    assert 0.9 < statistics.median(produced) < 1.1, reported
    reported = tool(broker, "ConsumerPerformance", *common)
    headings, values = (line.split(", ") for line in reported.strip().splitlines()[-2:])
    assert 0.9 < float(values[headings.index("fetch.MB.sec")]) < 1.1, reported


@pytest.mark.slow
def test_get_offsets(broker: Node | ApacheKafka) -> None:
    ends = tool(broker, "GetOffsetShell", "--topic", TOPIC).split()
    assert sum(int(line.rsplit(":", 1)[1]) for line in ends) == 100
    starts = tool(broker, "GetOffsetShell", "--topic", TOPIC, "--time", "earliest").split()
    assert starts == [f"{TOPIC}:{partition}:0" for partition in range(PARTITIONS)]
    latest = tool(broker, "GetOffsetShell", "--topic", TOPIC, "--time", "max-timestamp").split()
    assert [line.rsplit(":", 1)[0] for line in latest] == [f"{TOPIC}:{partition}" for partition in range(PARTITIONS)]
    assert all(0 <= int(line.rsplit(":", 1)[1]) < 100 for line in latest), latest


@pytest.mark.slow  # test_java_groups does all of it, and more
def test_consumer_groups(broker: Node | ApacheKafka) -> None:
    reading = ("--topic", TOPIC, "--from-beginning", "--max-messages", 100, "--group", "console-group")
    tool(broker, "consumer.ConsoleConsumer", *reading)
    assert "console-group" in tool(broker, "consumer.group.ConsumerGroupCommand", "--list").split()
    described = tool(broker, "consumer.group.ConsumerGroupCommand", "--describe", "--group", "console-group")
    # GROUP TOPIC PARTITION CURRENT-OFFSET LOG-END-OFFSET LAG …; newer tools put the leader epoch between.
    rows = [line.split() for line in described.splitlines() if line.split()[1:2] == [TOPIC]]
    assert len(rows) == PARTITIONS, described
    header = next(line.split() for line in described.splitlines() if line.startswith("GROUP"))
    assert {row[header.index("LAG")] for row in rows} == {"0"}
    reset = ("--reset-offsets", "--to-earliest", "--execute", "--group", "console-group", "--topic", TOPIC)
    assert TOPIC in tool(broker, "consumer.group.ConsumerGroupCommand", *reset)
    tool(broker, "consumer.group.ConsumerGroupCommand", "--delete", "--group", "console-group")
    assert "console-group" not in tool(broker, "consumer.group.ConsumerGroupCommand", "--list").split()


@pytest.mark.slow  # test_java_groups has such consumers
def test_a_consumer_of_the_newer_protocol(broker: Node | ApacheKafka) -> None:
    newer = ("--command-property", "group.protocol=consumer")
    reading = ("--topic", TOPIC, "--from-beginning", "--max-messages", 100, "--group", "newer-group", *newer)
    tool(broker, "consumer.ConsoleConsumer", *reading)
    listed = tool(broker, "consumer.group.ConsumerGroupCommand", "--list", "--type", "consumer")
    assert "newer-group" in listed.split()
    described = tool(broker, "consumer.group.ConsumerGroupCommand", "--describe", "--group", "newer-group")
    assert sum(line.split()[1:2] == [TOPIC] for line in described.splitlines()) == PARTITIONS, described
    tool(broker, "consumer.group.ConsumerGroupCommand", "--delete", "--group", "newer-group")


def test_verifiable_producer_and_consumer(broker: Node | ApacheKafka) -> None:
    create_topic(broker.bootstrap, "verifiable", 2)
    produced = tool(broker, "VerifiableProducer", "--topic", "verifiable", "--max-messages", 500, "--acks", -1)
    assert json.loads(produced.splitlines()[-1])["acked"] == 500
    consumed = tool(
        broker, "VerifiableConsumer", "--topic", "verifiable", "--group-id", "verifiable",
        "--max-messages", 500, "--reset-policy", "earliest",
    )  # fmt: skip
    counts = [json.loads(line) for line in consumed.splitlines() if line.startswith("{")]
    assert sum(event["count"] for event in counts if event["name"] == "records_consumed") == 500
    assert any(event["name"] == "offsets_committed" and event["success"] for event in counts)


@pytest.mark.slow
def test_performance_tools(broker: Node | ApacheKafka) -> None:
    create_topic(broker.bootstrap, "perf", 3)
    common = ("--topic", "perf", "--num-records", 5000)
    reported = run_tool(
        f"{TOOLS}.ProducerPerformance",
        [*common, "--record-size", 500, "--throughput", -1, "--bootstrap-server", broker.bootstrap],
    ).stdout
    assert "5000 records sent" in reported
    assert re.search(r", 5000, ", tool(broker, "ConsumerPerformance", *common))
    latency = tool(
        broker, "EndToEndLatency", "--topic", "perf", "--num-records", 100, "--producer-acks", "all",
        "--record-size", 100,
    )  # fmt: skip
    assert "99th = " in latency


@pytest.mark.slow
def test_client_metrics(broker: Node | ApacheKafka) -> None:
    wanted = ("--name", "sub", "--metrics", "org.apache.kafka.producer.", "--interval", 1000)
    tool(broker, "ClientMetricsCommand", "--alter", *wanted)
    described = tool(broker, "ClientMetricsCommand", "--describe", "--name", "sub")
    assert "interval.ms=1000" in described and "metrics=org.apache.kafka.producer." in described
    assert "sub" in tool(broker, "ClientMetricsCommand", "--list").split()
    tool(broker, "ClientMetricsCommand", "--delete", "--name", "sub")
    assert "sub" not in tool(broker, "ClientMetricsCommand", "--list").split()


@pytest.mark.slow
def test_replica_verification(broker: Node | ApacheKafka) -> None:
    arguments = ["--broker-list", broker.bootstrap, "--topics-include", TOPIC, "--time", "-1"]
    command = java_command(f"{TOOLS}.ReplicaVerificationTool", [*arguments, "--report-interval-ms", "500"])
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as process:
        assert process.stdout is not None
        try:  # it reports until it is ended
            reported = next(line for line in process.stdout if "max lag is" in line)
        finally:
            process.kill()
    assert f"max lag is 0 for partition {TOPIC}-" in reported


@pytest.mark.slow
def test_streams_application_reset(broker: Node | ApacheKafka) -> None:
    printed = tool(broker, "StreamsResetter", "--application-id", "app", "--input-topics", TOPIC)
    assert f"Topic: {TOPIC} Partition: 1 Offset: 0" in printed


@pytest.mark.slow
def test_client_compatibility(broker: Node | ApacheKafka) -> None:
    create_topic(broker.bootstrap, "compatible")
    features = ["offsets-for-times", "cluster-id", "describe-acls", "describe-configs", "create-topics"]
    supported = [word for name in [*features, "idempotent-producer"] for word in (f"--{name}-supported", "true")]
    others = ("--topic", "compatible", "--num-cluster-nodes", "1", "--expect-record-too-large-exception", "false")
    arguments = ["--bootstrap-server", broker.bootstrap, *others, *supported]

    def succeeds() -> bool:
        return "SUCCESS" in run_tool(f"{TOOLS}.ClientCompatibilityTest", arguments, check=False).stdout

    eventually(succeeds, "all features are there")  # the tool waits ten seconds for what it reads, and no longer


@pytest.mark.slow
def test_log_compaction_tester(broker: Node | ApacheKafka) -> None:
    sizes = ("--messages", 2000, "--duplicates", 4, "--percent-deletes", 10, "--sleep", 1, "--topics", 1)
    assert ", 0 mismatches" in tool(broker, "LogCompactionTester", *sizes)


@pytest.mark.slow
def test_transactional_message_copier(broker: Node | ApacheKafka) -> None:
    create_topic(broker.bootstrap, "copied", 1)
    ends = ("--input-topic", TOPIC, "--input-partition", "0", "--output-topic", "copied", "--max-messages", "20")
    names = ("--transactional-id", "copier", "--consumer-group", "copiers", "--broker-list", broker.bootstrap)
    printed = run_tool(f"{TOOLS}.TransactionalMessageCopier", [*ends, *names]).stdout
    last = json.loads(printed.splitlines()[-1])
    assert last["stage"] == "ShutdownComplete" and last["totalProcessed"] >= 20
    read = tool(
        broker, "consumer.ConsoleConsumer", "--topic", "copied", "--from-beginning", "--isolation-level",
        "read_committed", "--max-messages", last["totalProcessed"],
    )  # fmt: skip
    assert len(read.splitlines()) == last["totalProcessed"]


@pytest.mark.slow
@pytest.mark.only_ours
def test_tools_of_share_groups_say_that_there_are_none(broker: Node | ApacheKafka) -> None:
    """Share groups (KIP-932) are not served: listings are empty, and readers end with the reason."""
    assert not tool(broker, "consumer.group.ShareGroupCommand", "--list").strip()
    assert not tool(broker, "streams.StreamsGroupCommand", "--list").strip()
    where = ["--bootstrap-server", broker.bootstrap, "--topic", TOPIC]
    for name, arguments in (
        ("consumer.ConsoleShareConsumer", ["--max-messages", "1", "--timeout-ms", "4000"]),
        ("ShareConsumerPerformance", ["--num-records", "1", "--timeout", "4000"]),
        ("VerifiableShareConsumer", ["--group-id", "share", "--max-messages", "1"]),
    ):
        command = java_command(f"{TOOLS}.{name}", [*where, *arguments])
        ran = subprocess.run(command, capture_output=True, text=True, timeout=180)
        printed = ran.stdout + ran.stderr
        assert "UnsupportedVersionException" in printed and "share group protocol" in printed, (name, printed)


@pytest.mark.slow
def test_groups_and_endpoints(broker: Node | ApacheKafka) -> None:
    tool(broker, "consumer.ConsoleConsumer", "--topic", TOPIC, "--from-beginning", "--max-messages", 1, "--group", "g")
    assert re.search(r"^g\s+Classic\s+consumer", tool(broker, "GroupsCommand", "--list"), re.MULTILINE)
    listed = run_tool(f"{TOOLS}.ClusterTool", ["list-endpoints", "--bootstrap-server", broker.bootstrap]).stdout
    assert re.search(r"^1\s+127\.0\.0\.1\s", listed, re.MULTILINE) and "unfenced" in listed
    producers = tool(broker, "TransactionsCommand", "describe-producers", "--topic", TOPIC, "--partition", 0)
    assert "ProducerId" in producers


def test_delete_records(broker: Node | ApacheKafka, tmp_path: Path) -> None:
    create_topic(broker.bootstrap, "shortened")
    produce_all(broker.bootstrap, "shortened", [(None, b"v")] * 10)
    wish = tmp_path / "offsets.json"
    wish.write_text(json.dumps({"partitions": [{"topic": "shortened", "partition": 0, "offset": 7}], "version": 1}))
    assert "low_watermark: 7" in tool(broker, "DeleteRecordsCommand", "--offset-json-file", wish)
    assert tool(broker, "GetOffsetShell", "--topic", "shortened", "--time", "earliest").strip() == "shortened:0:7"


def test_log_dirs(broker: Node | ApacheKafka) -> None:
    printed = tool(broker, "LogDirsCommand", "--describe", "--topic-list", TOPIC)
    answer = json.loads(next(line for line in printed.splitlines() if line.startswith("{")))
    directory = answer["brokers"][0]["logDirs"][0]
    assert directory["error"] is None and directory["logDir"] == str(broker.data_dir)
    sizes = {entry["partition"]: entry["size"] for entry in directory["partitions"]}
    assert set(sizes) == {f"{TOPIC}-{partition}" for partition in range(PARTITIONS)} and sum(sizes.values()) > 0


def test_metadata_quorum(broker: Node | ApacheKafka) -> None:
    status = tool(broker, "MetadataQuorumCommand", "describe", "--status")
    assert re.search(r"LeaderId:\s+1\b", status) and re.search(r"CurrentVoters:\s+\[.*1", status)
    assert "Leader" in tool(broker, "MetadataQuorumCommand", "describe", "--replication")


def test_features(broker: Node | ApacheKafka) -> None:
    described = tool(broker, "FeatureCommand", "describe")
    assert re.search(r"metadata\.version\s+SupportedMinVersion: \S+\s+SupportedMaxVersion: \S+", described)


def test_api_versions_and_cluster(broker: Node | ApacheKafka) -> None:
    listed = tool(broker, "BrokerApiVersionsCommand")
    for name in ("Produce(0)", "Fetch(1)", "Metadata(3)", "ApiVersions(18)"):
        assert name in listed
    reported = run_tool(f"{TOOLS}.ClusterTool", ["cluster-id", "--bootstrap-server", broker.bootstrap])
    assert "Cluster ID: " in reported.stdout


def test_dump_log_reads_our_segments(broker: Node | ApacheKafka) -> None:
    broker.stop()  # which writes the indexes, as a roll does
    broker.start()
    count = 0
    for partition in range(PARTITIONS):
        folder = broker.data_dir / f"{TOPIC}-{partition}"
        segment = next(folder.glob("*.log"))
        dumped = dump_log(segment)
        assert "isvalid: false" not in dumped
        count += len(re.findall(r"^\| offset: \d+", dumped, re.MULTILINE))
        dump_log(next(folder.glob("*.index")))
        dump_log(next(folder.glob("*.timeindex")))
    assert count == 100


@pytest.mark.slow
def test_dump_log_reads_our_internal_topics(broker: Node | ApacheKafka) -> None:
    metadata = next((broker.data_dir / "__cluster_metadata-0").glob("*.log"))
    dumped = dump_log(metadata, "--cluster-metadata-decoder")
    assert '"type":"TOPIC_RECORD"' in dumped and '"name":"tools"' in dumped
    reading = ("--topic", TOPIC, "--from-beginning", "--max-messages", 100, "--group", "dumped")
    tool(broker, "consumer.ConsoleConsumer", *reading)
    found = "".join(
        dump_log(segment, "--offsets-decoder")
        for folder in broker.data_dir.glob("__consumer_offsets-*")
        for segment in folder.glob("*.log")
        if segment.stat().st_size > 0
    )
    assert '"group":"dumped"' in found and '"offset":' in found


def dump_log(path: Path, *arguments: str) -> str:
    printed = run_tool(f"{TOOLS}.DumpLogSegments", ["--files", path, "--print-data-log", *arguments])
    problems = [line for line in printed.stdout.splitlines() if re.search(r"mismatch|not valid|Found timestamp", line)]
    assert not problems, problems[:3]
    return printed.stdout


def test_tools_start_from_a_class_archive() -> None:
    """Tools load Kafka's classes from an archive, which halves their start; a Java without archives skips the test."""

    def option_or_reason() -> str | None:
        for reason in HOME.glob("classes-*/why-not.txt"):
            pytest.skip(reason.read_text())
        return next(iter(class_archive_options(BROKER_CLASSES)[-1:]), None)

    option = eventually(option_or_reason, "the archives")
    command = java_command("kafka.tools.StorageTool", ["random-uuid"], ["-Xlog:class+load", "-XX:+UseSerialGC"])
    assert option in command
    loaded = subprocess.run(command, capture_output=True, text=True, check=True, timeout=180).stdout
    assert re.search(r"org\.apache\.kafka\.\S+ source: shared objects file \(top\)", loaded)
