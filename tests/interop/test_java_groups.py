"""Groups as Kafka's own tools and clients see and change them: the commands of kafka-consumer-groups, consumers of both
protocols in one group, and a data directory that changes hands in the middle of a roll."""

from __future__ import annotations

import re
import subprocess
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer

from tests.interop.test_one_directory import Ours
from tests.support.clients.confluent import admin, commit_alone, create_topic
from tests.support.clients.group_fleet import SETTINGS, Fleet, drained
from tests.support.nodes.apache_kafka import ApacheKafka, java_command, require_kafka, run_tool
from tests.support.nodes.node import Node

pytestmark = [pytest.mark.interop, pytest.mark.java, pytest.mark.timeout(600)]

TOOLS = "org.apache.kafka.tools"
TOPIC, GROUP = "commanded", "commanded-group"


@pytest.fixture(scope="module", autouse=True)
def topic(broker: Node | ApacheKafka) -> None:
    require_kafka()
    create_topic(broker.bootstrap, TOPIC, 2, retention_ms=-1)
    for partition in range(2):
        fill(broker, TOPIC, partition, [b"v"] * 100)


def fill(broker: Node | ApacheKafka, topic: str, partition: int, values: list[bytes]) -> None:
    producer = Producer({"bootstrap.servers": broker.bootstrap, "linger.ms": 0})
    for value in values:
        producer.produce(topic, value, partition=partition)
    assert producer.flush(100) == 0


def groups(broker: Node | ApacheKafka, *arguments: object, check: bool = True) -> str:
    tool = f"{TOOLS}.consumer.group.ConsumerGroupCommand"
    done = run_tool(tool, ["--bootstrap-server", broker.bootstrap, *arguments], check=check)
    return done.stdout + ("" if check else done.stderr)


def commit(broker: Node | ApacheKafka, group: str, *offsets: int) -> None:
    commit_alone(broker.bootstrap, group, {(TOPIC, index): offset for index, offset in enumerate(offsets)})


def column(table: str, name: str) -> list[str]:
    """The cells of a column, of the rows about our topic or group."""
    lines = [line.split() for line in table.splitlines() if line.strip()]
    header = next(line for line in lines if line[0] == "GROUP")
    return [line[header.index(name)] for line in lines if line[0] in (GROUP, "live") and len(line) >= len(header)]


@contextmanager
def live(broker: Node | ApacheKafka, protocol: str) -> Iterator[Consumer]:
    """A group "live" with one member that has both partitions."""
    settings = {"bootstrap.servers": broker.bootstrap, "group.id": "live", "client.id": "stock"}
    consumer = Consumer(settings | {"group.protocol": protocol, "auto.offset.reset": "earliest"})
    consumer.subscribe([TOPIC])
    deadline = time.monotonic() + 150
    while len(consumer.assignment()) < 2:
        assert time.monotonic() < deadline
        consumer.poll(0.1)
    try:
        yield consumer
    finally:
        consumer.close()


RESET = ("--reset-offsets", "--group", GROUP, "--topic", TOPIC)


@pytest.mark.parametrize(
    ("where", "expected"),
    [
        (("--to-datetime", "2000-01-01T00:00:00.000"), ["0", "0"]),
        (("--shift-by", -10), ["30", "50"]),
        *(
            pytest.param(where, expected, marks=pytest.mark.slow)
            for where, expected in (
                (("--to-earliest",), ["0", "0"]),
                (("--to-latest",), ["100", "100"]),
                (("--to-current",), ["40", "60"]),
                (("--to-offset", 7), ["7", "7"]),
                (("--by-duration", "P1000D"), ["0", "0"]),
            )
        ),
    ],
    ids=lambda value: value[0],
)
def test_a_dry_run_of_a_reset(broker: Node | ApacheKafka, where: tuple[object, ...], expected: list[str]) -> None:
    """The reset is tried with all options that name a target."""
    commit(broker, GROUP, 40, 60)
    assert column(groups(broker, *RESET, *where, "--dry-run"), "NEW-OFFSET") == expected


@pytest.mark.slow
def test_resets(broker: Node | ApacheKafka, tmp_path: Path) -> None:
    """A dry run changes nothing; an execution does, and so does one from a file that was exported."""
    reset = RESET
    commit(broker, GROUP, 40, 60)
    assert column(groups(broker, *reset, "--to-offset", 7, "--dry-run"), "NEW-OFFSET") == ["7", "7"]
    assert column(groups(broker, "--describe", "--group", GROUP), "CURRENT-OFFSET") == ["40", "60"]
    assert column(groups(broker, *reset, "--to-offset", 11, "--execute"), "NEW-OFFSET") == ["11", "11"]
    assert column(groups(broker, "--describe", "--group", GROUP), "CURRENT-OFFSET") == ["11", "11"]
    plan = tmp_path / "plan.csv"
    exported = groups(broker, *reset, "--to-earliest", "--export")
    plan.write_text("\n".join(line for line in exported.splitlines() if "," in line))
    from_file = ("--reset-offsets", "--group", GROUP, "--from-file", plan, "--execute")
    assert column(groups(broker, *from_file), "NEW-OFFSET") == ["0", "0"]
    assert column(groups(broker, "--describe", "--group", GROUP, "--offsets"), "LAG") == ["100", "100"]


@pytest.mark.parametrize("protocol", [pytest.param("classic", marks=pytest.mark.slow), "consumer"])
def test_kafkas_tool_describes_a_group_with_a_member(broker: Node | ApacheKafka, protocol: str) -> None:
    with live(broker, protocol) as consumer:
        listed = groups(broker, "--list", "--state")
        assert re.search(r"^live\s+Stable", listed, re.MULTILINE), listed
        assert "live" in groups(broker, "--list", "--state", "stable").split()
        assert "live" not in groups(broker, "--list", "--state", "empty").split()
        assert "live" in groups(broker, "--list", "--type", protocol).split()
        members = groups(broker, "--describe", "--group", "live", "--members", "--verbose")
        assert f"{TOPIC}" in members and "stock" in members and "127.0.0.1" in members, members
        assert column(groups(broker, "--describe", "--group", "live", "--state"), "STATE") == ["Stable"]
        assert len(column(groups(broker, "--describe", "--all-groups"), "LAG")) >= 2
        consumer.poll(0)
        for what, said in (
            (("--delete", "--group", "live"), "is not empty"),
            (("--reset-offsets", "--group", "live", "--topic", TOPIC, "--to-earliest", "--execute"), "inactive"),
            (("--delete-offsets", "--group", "live", "--topic", TOPIC), "subscribed"),
        ):
            consumer.poll(0)
            refused = groups(broker, *what, check=False)
            assert said in refused.lower(), refused
    groups(broker, "--delete", "--group", "live")


@pytest.mark.slow
def test_offsets_and_groups_are_deleted(broker: Node | ApacheKafka) -> None:
    commit(broker, GROUP, 40, 60)
    deleted = groups(broker, "--delete-offsets", "--group", GROUP, "--topic", f"{TOPIC}:1")
    assert "successful" in deleted.lower(), deleted
    assert column(groups(broker, "--describe", "--group", GROUP), "CURRENT-OFFSET") == ["40"]
    groups(broker, "--delete", "--group", GROUP)
    assert GROUP not in groups(broker, "--list").split()
    assert "GroupIdNotFoundException" in groups(broker, "--describe", "--group", GROUP, check=False)
    assert "not" in groups(broker, "--delete", "--group", GROUP, check=False).lower()


def kind_of(broker: Node | ApacheKafka, group: str) -> tuple[str, int]:
    client = admin(broker.bootstrap)  # a client that is collected before it is answered gives up
    described = client.describe_consumer_groups([group])[group].result(timeout=30)
    return str(described.type.name), len(described.members)


def test_java_consumers_of_both_protocols_share_a_group(broker: Node | ApacheKafka, tmp_path: Path) -> None:  # noqa: C901 - the steps follow one another
    """The Java consumer as a classic member, then beside one of the newer protocol, then alone again."""
    create_topic(broker.bootstrap, "javas", 4)
    group = "java-group"

    def started(protocol: str, output: Path) -> subprocess.Popen[bytes]:
        arguments = ["--bootstrap-server", broker.bootstrap, "--topic", "javas", "--group", group, "--from-beginning"]
        more = ["--command-property", f"group.protocol={protocol}"]
        more += ["--formatter-property", "print.partition=true"]
        with output.open("ab") as file:
            command = java_command(f"{TOOLS}.consumer.ConsoleConsumer", [*arguments, *more])
            return subprocess.Popen(command, stdout=file, stderr=subprocess.DEVNULL, stdin=subprocess.DEVNULL)

    def until(expected: tuple[str, int]) -> None:
        deadline = time.monotonic() + 150
        while True:
            try:
                if kind_of(broker, group) == expected:
                    return
            except Exception as error:
                assert "GROUP_ID_NOT_FOUND" in str(error) or "not found" in str(error), error
            assert time.monotonic() < deadline, kind_of(broker, group)
            time.sleep(0.5)

    outputs = [tmp_path / "classic.txt", tmp_path / "consumer.txt"]
    processes: list[subprocess.Popen[bytes]] = []
    try:
        processes.append(started("classic", outputs[0]))
        until(("CLASSIC", 1))
        processes.append(started("consumer", outputs[1]))
        until(("CONSUMER", 2))
        sent = 0
        deadline = time.monotonic() + 150
        while any(output.read_bytes().count(b"\n") < 10 for output in outputs):
            assert time.monotonic() < deadline, [output.read_bytes()[-200:] for output in outputs]
            for partition in range(4):
                fill(broker, "javas", partition, [str(sent).encode()])
                sent += 1
            time.sleep(0.2)
        processes[1].terminate()
        until(("CLASSIC", 1))
        deadline = time.monotonic() + 150
        while len({line for each in outputs for line in each.read_text().splitlines()}) < sent:
            assert time.monotonic() < deadline
            time.sleep(0.5)
    finally:
        for process in processes:
            process.kill()
        for process in processes:
            process.wait()


@pytest.mark.slow
def test_a_directory_changes_hands_in_the_middle_of_a_roll(tmp_path: Path) -> None:
    """Members of both protocols read on while Apache Kafka, we, and Apache Kafka again coordinate their group.

    Each is killed: one that stops says for a moment that there are no brokers, and librdkafka 2.16 may then never
    connect to any again.
    """
    kafka = ApacheKafka(tmp_path / "node", SETTINGS)
    with ExitStack() as closing:
        with kafka:
            fleet = Fleet(kafka, "handed", "range")
            closing.callback(fleet.close)
            for protocol in ("classic", "classic", "consumer"):
                fleet.add(protocol)
                fleet.until(fleet.shared, f"one more of {protocol}")
            before = [sorted(member.owned) for member in fleet.members]
            kafka.kill()
        with Ours(kafka) as ours:
            seen = len(fleet.read)
            fleet.until(lambda: len(fleet.read) > seen + 60 and fleet.shared(), "they read on with us")
            assert [sorted(member.owned) for member in fleet.members] == before, "no member lost its place"
            assert fleet.group_type() == "CONSUMER"
            fleet.add("consumer")
            fleet.until(fleet.shared, "one more joins")
            before = [sorted(member.owned) for member in fleet.members]
            ours.kill()
        with kafka:
            seen = len(fleet.read)
            fleet.until(lambda: len(fleet.read) > seen + 60 and fleet.shared(), "they read on with Kafka")
            assert [sorted(member.owned) for member in fleet.members] == before, "no member lost its place"
            for member in [each for each in fleet.members if each.protocol == "consumer"]:
                fleet.stop(member)
            fleet.until(fleet.shared, "the classic members are alone")
            assert fleet.group_type() == "CLASSIC"
            drained(fleet)
