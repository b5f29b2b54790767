"""A node whose coordinators' topics want more brokers than there are: its log and our commands say what is missing."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from odradek.cli import errors
from odradek.protocol.apis import ApiKey
from odradek.protocol.messages.find_coordinator_request import FindCoordinatorRequest
from tests.support.clients.cli import odradek, odradek_process
from tests.support.clients.confluent import create_topic, produce_all
from tests.support.clients.wire import Wire
from tests.support.nodes.node import Node

GROUPS = "__consumer_offsets needs 3 brokers, 1 is registered; start more, or set offsets.topic.replication.factor=1"
TRANSACTIONS = (
    "__transaction_state needs 3 brokers, 1 is registered; start more, or set "
    "transaction.state.log.replication.factor=1"
)


@pytest.fixture(scope="module")
def lonely(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Node]:
    """One node with Kafka's defaults, which are made for three."""
    factors = {"offsets.topic.replication.factor": 3, "transaction.state.log.replication.factor": 3}
    with Node(tmp_path_factory.mktemp("lonely"), {**factors}) as node:
        create_topic(node.bootstrap, "read", 1)
        produce_all(node.bootstrap, "read", [(b"k", b"v")])
        yield node


def test_the_log_says_at_the_start_what_cannot_be_served(lonely: Node) -> None:
    log = lonely.log_text()
    assert GROUPS in log.partition("ready")[0]
    assert TRANSACTIONS in log.partition("ready")[0]


@pytest.mark.parametrize("limits", [["--timeout-ms", "500"], ["--max-messages", "1"]])
def test_a_group_that_no_one_coordinates_is_no_empty_topic(lonely: Node, limits: list[str]) -> None:
    words = ["consume", "--topic", "read", "--from-beginning", *limits]
    done = odradek_process(lonely.bootstrap, *words, "--group", "g", code=errors.FAILED)
    assert f"odradek: coordinator of group g: {GROUPS} (COORDINATOR_NOT_AVAILABLE)\n" in done.stderr.decode()
    assert not done.stdout
    assert odradek_process(lonely.bootstrap, *words).stdout == b"v\n"


def test_commands_for_groups_say_it_too(lonely: Node, tmp_path: Path) -> None:
    config = tmp_path / "client.properties"
    config.write_text("default.api.timeout.ms=1000\n")
    words = ["groups", "describe", "--group", "g", "--command-config", config]
    ran = odradek(lonely.bootstrap, *words, code=errors.FAILED)
    assert f"{GROUPS} (COORDINATOR_NOT_AVAILABLE)\n" in ran.err


def test_a_transactional_producer_is_answered_the_reason(lonely: Node) -> None:
    request = FindCoordinatorRequest(key_type=1, coordinator_keys=["tx"])
    with Wire(lonely.port) as wire:
        (found,) = wire.request(ApiKey.FIND_COORDINATOR, 4, request).coordinators
    assert found.error_message == TRANSACTIONS


def test_a_node_that_makes_them_of_one_replica_warns_of_nothing(node: Node) -> None:
    assert "cannot be served" not in node.log_text()
