"""`odradek topics`, `configs` and `cluster` against a node: their changes take effect, and their output is true."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from confluent_kafka.admin import ConfigResource, ResourceType

from odradek.cli import errors
from tests.support.clients.cli import odradek, on_terminal
from tests.support.clients.confluent import admin, create_topic
from tests.support.nodes.node import Node, silent_port
from tests.support.waiting import eventually


def test_a_topic_from_its_creation_to_its_end(node: Node) -> None:
    made = odradek(
        node.bootstrap,
        *("topics", "create", "--topic", "orders", "--partitions", 3, "--replication-factor", 1),
        *("--config", "retention.ms=3600000", "--config", "cleanup.policy=compact,delete", "--json"),
    ).json
    assert (made["created"], made["partitions"], made["replication_factor"]) == (True, 3, 1)
    # As a stock client sees it.
    found = admin(node.bootstrap).list_topics(timeout=60).topics["orders"]
    assert sorted(found.partitions) == [0, 1, 2]
    (shown,) = odradek(node.bootstrap, "topics", "describe", "--topic", "orders", "--json").json
    assert shown["topic_id"] == made["topic_id"]
    assert shown["configs"] == {"retention.ms": "3600000", "cleanup.policy": "compact,delete"}
    assert [one["partition"] for one in shown["partitions"]] == [0, 1, 2]
    assert all(one["leader"] == 1 and one["isr"] == one["replicas"] == [1] for one in shown["partitions"])

    odradek(node.bootstrap, "topics", "alter", "--topic", "orders", "--partitions", 5)
    (shown,) = odradek(node.bootstrap, "topics", "describe", "--topic", "orders", "--json").json
    assert len(shown["partitions"]) == 5

    assert "orders" in odradek(node.bootstrap, "topics", "list").out.splitlines()
    odradek(node.bootstrap, "topics", "delete", "--topic", "orders")
    assert "orders" not in odradek(node.bootstrap, "topics", "list", "--json").json


def test_topics_as_a_table(node: Node) -> None:
    create_topic(node.bootstrap, "shown", 2, max_message_bytes=12345)
    rows = odradek(node.bootstrap, "topics", "describe", "--topic", "shown").rows
    assert rows[0] == ["TOPIC", "TOPIC-ID", "PARTITIONS", "REPLICATION-FACTOR", "CONFIGS"]
    assert rows[1][0] == "shown"
    assert rows[1][2:] == ["2", "1", "max.message.bytes=12345"]
    assert rows[3] == ["TOPIC", "PARTITION", "LEADER", "REPLICAS", "ISR", "OFFLINE"]
    assert rows[4:] == [["shown", "0", "1", "1", "1", "-"], ["shown", "1", "1", "1", "1", "-"]]
    nothing = odradek(node.bootstrap, "topics", "describe", "--topic", "shown", "--unavailable-partitions", "--json")
    assert nothing.json == []
    assert "shown" in odradek(node.bootstrap, "topics", "describe", "--topics-with-overrides").out


def test_a_name_is_whole_in_every_table(node: Node) -> None:
    """A table in a pipe is as wide as it needs; a narrow terminal shows the rest in the next line."""
    name = "a-name-of-ninety-characters-" + "x" * 60 + "-z"
    create_topic(node.bootstrap, name)
    piped = odradek(node.bootstrap, "topics", "describe", name)
    assert [row[0] for row in piped.rows if row and row[0] != "TOPIC"] == [name, name]
    shown = on_terminal(node.bootstrap, "topics", "describe", name, columns=60)
    assert "\u2026" not in shown
    lines = shown.split("\n\n")[1].splitlines()[1:]
    assert all(len(line) <= 60 for line in lines)
    # The name in the first column, over as many lines as it takes.
    assert "".join(line.split()[0] for line in lines if line.strip()).replace("-", "") == name.replace("-", "")


def test_topics_are_named_behind_the_command(node: Node) -> None:
    odradek(node.bootstrap, "topics", "create", "behind", "--partitions", 2)
    odradek(node.bootstrap, "topics", "alter", "behind", "--partitions", 3)
    (shown,) = odradek(node.bootstrap, "topics", "describe", "behind", "--json").json
    assert (shown["topic"], shown["partition_count"]) == ("behind", 3)
    assert odradek(node.bootstrap, "topics", "describe", "-t", "behind", "--json").json == [shown]
    assert odradek(node.bootstrap, "topics", "list", "behi.*", "--json").json == ["behind"]
    odradek(node.bootstrap, "topics", "create", "behind-2")
    deleted = odradek(node.bootstrap, "topics", "delete", "behind", "-t", "behind-.", "--json").json
    assert deleted == {"deleted": ["behind", "behind-2"]}


def test_errors_are_json_with_the_option(node: Node) -> None:
    ran = odradek(node.bootstrap, "topics", "describe", "absent", "--json", code=errors.NOT_FOUND)
    assert not ran.out
    assert json.loads(ran.err) == {
        "error": "topic absent does not exist; `odradek topics list` shows those that do",
        "name": None,
        "exit_code": errors.NOT_FOUND,
    }
    create_topic(node.bootstrap, "there")
    ran = odradek(node.bootstrap, "topics", "create", "there", "--json", code=errors.FAILED)
    assert json.loads(ran.err)["name"] == "TOPIC_ALREADY_EXISTS"


def test_topics_by_regular_expression(node: Node) -> None:
    for name in ("re-a", "re-b", "re.c", "re8c", "other"):
        create_topic(node.bootstrap, name)
    assert odradek(node.bootstrap, "topics", "list", "--topic", "re-.").out.split() == ["re-a", "re-b"]
    # A name that exists is that name, though its dot would match more.
    assert odradek(node.bootstrap, "topics", "list", "--topic", "re.c").out.split() == ["re.c"]
    wrong = odradek(node.bootstrap, "topics", "list", "--topic", "re-[", code=errors.BAD_CONFIG)
    assert "no regular expression" in wrong.err
    deleted = odradek(node.bootstrap, "topics", "delete", "--topic", "re-.", "--topic", "re.c", "--json").json
    assert deleted == {"deleted": ["re-a", "re-b", "re.c"]}
    left = odradek(node.bootstrap, "topics", "list", "--json").json
    assert {"re8c", "other"} <= set(left)
    assert not {"re-a", "re-b", "re.c"} & set(left)


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (["create", "--topic", "taken"], 1, "choose another name, or pass --if-not-exists"),
        (["create", "--topic", "a/b"], 1, "INVALID_TOPIC_EXCEPTION"),
        (["create", "--topic", "x", "--replication-factor", "3"], 1, "INVALID_REPLICATION_FACTOR"),
        (["create", "--topic", "x", "--config", "retention.ms=soon"], 1, "INVALID_CONFIG"),
        (["create", "--topic", "x", "--config", "retention.ms"], errors.BAD_CONFIG, "must be key=value"),
        (["create", "--topic", "x", "--replica-assignment", "1:1"], errors.BAD_CONFIG, "different brokers"),
        (["create", "--topic", "x", "--partitions", "99999999999"], errors.USAGE, "'--partitions'"),
        (["create", "--topic", "x", "--replication-factor", "99999"], errors.USAGE, "'--replication-factor'"),
        (["create", "--topic", "x", "--replica-assignment", "99999999999"], errors.BAD_CONFIG, "from 0 to 2147483647"),
        (["create", "--topic", "x" * 40_000], 1, "longer than 32767"),
        (["alter", "--topic", "taken", "--partitions", "99999999999"], errors.USAGE, "'--partitions'"),
        (["create", "--topic", "x", "--replica-assignment", "9"], 1, "INVALID_REPLICA_ASSIGNMENT"),
        (["alter", "--topic", "taken", "--partitions", "1"], 1, "INVALID_PARTITIONS"),
        (["alter", "--topic", "nosuch", "--partitions", "9"], errors.NOT_FOUND, "topic nosuch does not exist"),
        (["describe", "--topic", "nosuch"], errors.NOT_FOUND, "topic nosuch does not exist"),
        (["delete", "--topic", "nosuch"], errors.NOT_FOUND, "topic nosuch does not exist"),
    ],
    ids=lambda value: " ".join(value)[:60] if isinstance(value, list) else "",
)
def test_topics_that_are_refused(node: Node, arguments: list[str], code: int, said: str) -> None:
    odradek(node.bootstrap, "topics", "create", "--topic", "taken", "--partitions", 2, "--if-not-exists")
    ran = odradek(node.bootstrap, "topics", *arguments, code=code)
    assert said in ran.err
    assert ran.err.count("\n") == 1
    assert not ran.out
    assert "x" not in odradek(node.bootstrap, "topics", "list", "--json").json


def test_validate_only_and_if_exists_change_nothing(node: Node) -> None:
    odradek(node.bootstrap, "topics", "create", "--topic", "maybe", "--validate-only")
    assert "maybe" not in odradek(node.bootstrap, "topics", "list", "--json").json
    for expected in (True, False):
        again = odradek(node.bootstrap, "topics", "create", "--topic", "maybe", "--if-not-exists", "--json").json
        assert again["created"] is expected
    odradek(node.bootstrap, "topics", "delete", "--topic", "never", "--if-exists")
    odradek(node.bootstrap, "topics", "alter", "--topic", "never", "--partitions", 2, "--if-exists")


def test_replicas_on_given_brokers(node: Node) -> None:
    odradek(node.bootstrap, "topics", "create", "--topic", "placed", "--replica-assignment", "1,1")
    odradek(node.bootstrap, "topics", "alter", "--topic", "placed", "--partitions", 3, "--replica-assignment", "1,1,1")
    (shown,) = odradek(node.bootstrap, "topics", "describe", "--topic", "placed", "--json").json
    assert [one["replicas"] for one in shown["partitions"]] == [[1], [1], [1]]


def configs(node: Node, *entity: object) -> dict[str, str]:
    (found,) = odradek(node.bootstrap, "configs", "describe", *entity, "--json").json
    return {entry["name"]: entry["value"] for entry in found["configs"]}


def test_settings_of_a_topic(node: Node, tmp_path: Path) -> None:
    create_topic(node.bootstrap, "settings")
    assert configs(node, "--topic", "settings") == {}
    everything = configs(node, "--topic", "settings", "--all")
    assert everything["cleanup.policy"] == "delete"
    assert len(everything) > 30
    odradek(
        node.bootstrap,
        *("configs", "alter", "--topic", "settings"),
        *("--add-config", "cleanup.policy=[compact,delete],retention.ms=7200000", "--add-config", "segment.ms=90000"),
    )
    expected = {"cleanup.policy": "compact,delete", "retention.ms": "7200000", "segment.ms": "90000"}
    assert configs(node, "--entity-type", "topics", "--entity-name", "settings") == expected
    file = tmp_path / "add.properties"
    file.write_text("# as in Kafka\nretention.bytes=1000\n")
    odradek(
        node.bootstrap,
        *("configs", "alter", "--topic", "settings", "--add-config-file", file),
        *("--delete-config", "cleanup.policy,segment.ms"),
    )
    assert configs(node, "--topic", "settings") == {"retention.ms": "7200000", "retention.bytes": "1000"}
    # As a stock client sees it.
    resource = ConfigResource(ResourceType.TOPIC, "settings")
    client = admin(node.bootstrap)  # a client that is collected before it is answered gives up
    found = client.describe_configs([resource])[resource].result(timeout=60)
    assert found["retention.bytes"].value == "1000"
    rows = odradek(node.bootstrap, "configs", "describe", "--topic", "settings").rows
    assert rows[1:] == [
        ["topic", "settings", "retention.bytes", "1000", "topic"],
        ["topic", "settings", "retention.ms", "7200000", "topic"],
    ]
    documented = odradek(node.bootstrap, "configs", "describe", "--topic", "settings", "--documentation", "--json").json
    assert all("documentation" in entry for entry in documented[0]["configs"])


def test_settings_of_brokers_and_groups(node: Node) -> None:
    assert configs(node, "--broker", 1, "--all")["node.id"] == "1"
    odradek(
        node.bootstrap,
        *(
            "configs",
            "alter",
            "--entity-type",
            "brokers",
            "--entity-default",
            "--add-config",
            "log.retention.ms=86400000",
        ),
    )
    assert configs(node, "--entity-type", "brokers", "--entity-default")["log.retention.ms"] == "86400000"
    found = odradek(node.bootstrap, "configs", "describe", "--entity-type", "brokers", "--json").json
    assert [each["entity_name"] for each in found] == ["1", ""]
    odradek(node.bootstrap, "configs", "alter", "--group", "g", "--add-config", "consumer.session.timeout.ms=50000")
    assert configs(node, "--group", "g") == {"consumer.session.timeout.ms": "50000"}
    groups = odradek(node.bootstrap, "configs", "describe", "--entity-type", "groups", "--json").json
    assert [each["entity_name"] for each in groups] == ["g"]


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (["alter", "--topic", "nosuch", "--add-config", "retention.ms=1"], errors.NOT_FOUND, "nosuch"),
        (["describe", "--topic", "nosuch"], errors.NOT_FOUND, "nosuch"),
        (["describe", "--broker", "7"], 1, "the cluster has no broker 7"),
        (["alter", "--broker", "1", "--add-config", "node.id=5"], 1, "node.id"),
        (["alter", "--topic", "here", "--add-config", "no.such.setting=5"], 1, "no.such.setting"),
        (["alter", "--topic", "here", "--add-config", "retention.ms=x"], 1, "retention.ms"),
        (["alter", "--topic", "here", "--add-config", "a=1", "--delete-config", "a"], errors.USAGE, "both added and"),
        (["alter", "--entity-type", "topics", "--add-config", "a=1"], errors.USAGE, "say whose settings"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_settings_that_are_refused(node: Node, arguments: list[str], code: int, said: str) -> None:
    odradek(node.bootstrap, "topics", "create", "--topic", "here", "--if-not-exists")
    ran = odradek(node.bootstrap, "configs", *arguments, code=code)
    assert said in ran.err
    assert ran.err.count("\n") == 1
    assert configs(node, "--topic", "here") == {}


def test_the_cluster(node: Node) -> None:
    cluster_id = odradek(node.bootstrap, "cluster", "id").out.strip()
    assert cluster_id == admin(node.bootstrap).list_topics(timeout=60).cluster_id
    assert odradek(node.bootstrap, "cluster", "id", "--json").json == {"cluster_id": cluster_id}
    (broker,) = odradek(node.bootstrap, "cluster", "brokers", "--json").json
    assert (broker["broker"], broker["port"], broker["fenced"], broker["controller"]) == (1, node.port, False, True)
    features = odradek(node.bootstrap, "cluster", "features", "--json").json["features"]
    (metadata,) = [each for each in features if each["feature"] == "metadata.version"]
    assert metadata["supported_min"] <= metadata["level"] <= metadata["supported_max"]
    assert metadata["release"].startswith("4.")
    quorum = odradek(node.bootstrap, "cluster", "quorum", "--json").json
    assert quorum["leader"] == 1
    assert quorum["high_watermark"] > 0
    (leader,) = quorum["replicas"]
    assert (leader["node"], leader["role"], leader["lag"]) == (1, "leader", 0)
    for command in ("brokers", "features", "quorum"):
        assert odradek(node.bootstrap, "cluster", command).out


def test_the_address_from_a_file_or_the_environment(
    node: Node, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from odradek.cli.app import run

    file = tmp_path / "client.properties"
    file.write_text(f"bootstrap.servers={node.bootstrap}\nrequest.timeout.ms=60000\nclient.id=me\n")
    assert run(["cluster", "id", "--command-config", str(file)]) == 0
    with silent_port() as port:
        monkeypatch.setenv("ODRADEK_BOOTSTRAP_SERVER", f"127.0.0.1:{port},{node.bootstrap}")
        assert run(["cluster", "id", "--json"]) == 0
    first, second = capsys.readouterr().out.splitlines()
    assert json.loads(second)["cluster_id"] == first


def test_a_broker_that_hangs_ends_in_one_line(own_node: Node, tmp_path: Path) -> None:
    file = tmp_path / "client.properties"
    file.write_text("default.api.timeout.ms=700\n")
    own_node.pause()
    try:
        ran = odradek(own_node.bootstrap, "topics", "list", "--command-config", file, code=errors.UNREACHABLE)
    finally:
        own_node.resume()
    assert "did not answer within 0.7 s" in ran.err
    assert ran.err.count("\n") == 1


def test_the_shell_completes_names(node: Node) -> None:
    create_topic(node.bootstrap, "complete-a")
    create_topic(node.bootstrap, "complete-b")

    def complete(*words: str, bootstrap: str = node.bootstrap) -> list[str]:
        environment = {
            **os.environ,
            "_ODRADEK_COMPLETE": "complete_bash",
            "COMP_WORDS": " ".join(["odradek", *words]),
            "COMP_CWORD": str(len(words)),
            "ODRADEK_BOOTSTRAP_SERVER": bootstrap,
        }
        command = [sys.executable, "-m", "odradek"]
        done = subprocess.run(command, capture_output=True, text=True, timeout=120, env=environment)
        assert not done.stderr
        return done.stdout.split()

    # A shell waits a second for names: where the node takes longer there are none, and the user asks again.
    eventually(lambda: complete("topics", "describe", "--topic", "complete-") == ["complete-a", "complete-b"])
    eventually(lambda: complete("consume", "--topic", "complete-b") == ["complete-b"])
    with silent_port() as port:
        away = ("--bootstrap-server", f"127.0.0.1:{port}")
        assert complete("topics", "describe", *away, "--topic", "complete-") == []
    odradek(node.bootstrap, "groups", "reset", "--group", "cg", "--topic", "complete-a", "--to-latest", "--execute")
    eventually(lambda: complete("groups", "describe", "--group", "c") == ["cg"])
