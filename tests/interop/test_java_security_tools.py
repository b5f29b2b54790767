"""`kafka-acls`, and `kafka-configs` for users, against our node and Apache Kafka: the same commands print the same."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.interop.java_tools import Ran, ToolRunner
from tests.support.clients.permission_matrix import PASSWORD, secure
from tests.support.nodes.apache_kafka import ApacheKafka, require_kafka
from tests.support.nodes.node import Node, accepts
from tests.support.waiting import eventually

pytestmark = [pytest.mark.interop, pytest.mark.java, pytest.mark.slow, pytest.mark.only_ours, pytest.mark.timeout(600)]

ACLS = "org.apache.kafka.tools.AclCommand"
CONFIGS = "kafka.admin.ConfigCommand"
TOKENS = "org.apache.kafka.tools.DelegationTokenCommand"
ALICE, BOB = "User:alice", "User:bob"
LOGIN = f"""security.protocol=SASL_PLAINTEXT
sasl.mechanism=PLAIN
sasl.jaas.config=org.apache.kafka.common.security.plain.PlainLoginModule required \
username="{{name}}" password="{PASSWORD}";
"""


@dataclass(frozen=True)
class Side:
    """One of the two clusters: the addresses of its listeners, and the files of those who log in."""

    ports: Mapping[str, int]
    files: Path
    tools: ToolRunner

    def run(self, tool: str, *arguments: str, to: str = "broker", user: str = "admin", typed: str = "") -> Ran:
        flag = "--bootstrap-server" if to == "broker" else "--bootstrap-controller"
        address = f"127.0.0.1:{self.ports[to]}"
        login = ("--command-config", str(self.files / f"{user}.properties"))
        ran = self.tools.run(tool, flag, address, *login, *arguments, typed=typed)
        return Ran(ran.code, normalized(ran.printed.replace(address, "ADDRESS")))


@dataclass(frozen=True)
class Both:
    """Our cluster and Kafka's."""

    ours: Side
    theirs: Side

    def change(self, tool: str, *arguments: str, **how: str) -> Ran:
        """Make the same change on both, which must give the same output."""
        one, other = (side.run(tool, *arguments, **how) for side in (self.ours, self.theirs))
        assert one == other, f"{arguments}\nours  {one.code} {one.printed}\nKafka {other.code} {other.printed}"
        return one

    def show(self, *command: str, has: str = "", lacks: str = "nothing of this", **how: str) -> str:
        """Wait until both print the same, with the text `has` and without `lacks`, and return that output."""
        found: list[tuple[Ran, Ran]] = []

        def known() -> bool:
            found.append((self.ours.run(*command, **how), self.theirs.run(*command, **how)))
            one, other = found[-1]
            return one == other and has in one.printed and lacks not in one.printed

        eventually(known, lambda: found[-1], patience_s=30.0)
        return found[-1][0].printed


def normalized(printed: str) -> str:
    """The output without the client's log and stacks, and without the texts of refusals; sets of Kafka are sorted."""
    printed = re.sub(r"(AuthorizationException): .*", r"\1", printed)
    printed = re.sub(r"(?<= are ).*", lambda found: ", ".join(sorted(found[0].split(", "))), printed)
    lines = [line.strip() for line in printed.splitlines() if line.strip()]
    sections: list[tuple[str, list[str]]] = []
    for line in lines:
        if re.match(r"\[?[\w-]*\]? ?(WARN|INFO|ERROR) |at [\w.]+|\.\.\. \d+ more", line):
            continue
        if line.startswith("(principal=") and sections:
            sections[-1][1].append(line)
        else:
            sections.append((line, []))
    return "\n".join(sorted("\n  ".join([title, *sorted(entries)]) for title, entries in sections))


@pytest.fixture(scope="module")
def both(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Both]:
    require_kafka()
    folder = tmp_path_factory.mktemp("sides")
    for name in ("admin", "nothing"):
        (folder / f"{name}.properties").write_text(LOGIN.format(name=name))
    with ExitStack() as running:
        tools = running.enter_context(ToolRunner())
        sides = []
        for node in (Node(folder / "ours"), ApacheKafka(folder / "kafka")):
            ports = secure(node)
            running.enter_context(node)
            eventually(lambda port=ports["broker"]: accepts(port))
            sides.append(Side(ports, folder, tools))
        yield Both(*sides)


def test_kafka_acls_adds_lists_and_removes(both: Both) -> None:
    both.change(ACLS, "--add", "--allow-principal", ALICE, "--operation", "Read", "--topic", "t")
    both.change(
        ACLS, "--add", "--allow-principal", ALICE, "--allow-principal", BOB, "--allow-host", "10.0.0.1",
        "--allow-host", "10.0.0.2", "--operation", "Write", "--operation", "Describe", "--topic", "t", "--topic", "u",
    )  # fmt: skip
    both.change(
        ACLS, "--add", "--deny-principal", "User:*", "--deny-host", "10.0.0.9", "--operation", "All", "--group", "g"
    )
    both.change(
        ACLS, "--add", "--allow-principal", ALICE, "--operation", "All", "--topic", "pre-",
        "--resource-pattern-type", "prefixed",
    )  # fmt: skip
    both.change(ACLS, "--add", "--allow-principal", ALICE, "--operation", "Alter", "--cluster")
    both.change(ACLS, "--add", "--allow-principal", ALICE, "--operation", "Describe", "--delegation-token", "token")
    both.change(ACLS, "--add", "--allow-principal", ALICE, "--operation", "CreateTokens", "--user-principal", BOB)

    everything = both.show(ACLS, "--list", has="name=User:bob")
    assert everything.count("principal=") == 22 and "permissionType=DENY" in everything, everything
    both.show(ACLS, "--list", "--topic", "t")
    both.show(ACLS, "--list", "--topic", "pre-fix", lacks="pre-")
    both.show(ACLS, "--list", "--topic", "pre-fix", "--resource-pattern-type", "match", has="pre-")
    both.show(ACLS, "--list", "--topic", "*", "--resource-pattern-type", "any")
    both.show(ACLS, "--list", "--principal", BOB)
    both.show(ACLS, "--list", "--cluster")
    both.show(ACLS, "--list", "--topic", "none")

    # Asked, and not sure.
    kept = both.change(ACLS, "--remove", "--topic", "t", typed="n\n")
    assert "Are you sure" in kept.printed
    both.show(ACLS, "--list", has="name=t, patternType=LITERAL")
    both.change(ACLS, "--remove", "--allow-principal", BOB, "--operation", "Write", "--topic", "t", typed="y\n")
    both.show(ACLS, "--list")
    both.change(ACLS, "--remove", "--force", "--topic", "t")
    both.change(ACLS, "--remove", "--force", "--topic", "pre-", "--resource-pattern-type", "prefixed")
    both.change(ACLS, "--remove", "--force", "--topic", "was-never")
    assert both.show(ACLS, "--list", lacks="name=pre-").count("principal=") == 12


def test_kafka_acls_for_producers_and_consumers(both: Both) -> None:
    who = ("--allow-principal", "User:carol")
    both.change(ACLS, "--add", *who, "--producer", "--topic", "orders")
    both.change(ACLS, "--add", *who, "--producer", "--topic", "orders", "--transactional-id", "id", "--idempotent")
    both.change(ACLS, "--add", *who, "--consumer", "--topic", "orders", "--group", "billing")
    both.change(
        ACLS, "--add", *who, "--producer", "--topic", "p-", "--resource-pattern-type", "prefixed", "--idempotent"
    )
    both.show(ACLS, "--list", "--principal", "User:carol", has="IDEMPOTENT_WRITE")
    both.change(ACLS, "--remove", "--force", *who, "--consumer", "--topic", "orders", "--group", "billing")
    both.change(ACLS, "--remove", "--force", *who, "--producer", "--topic", "orders")
    both.show(ACLS, "--list", "--principal", "User:carol")


def test_kafka_acls_of_a_controller(both: Both) -> None:
    who = ("--allow-principal", "User:dora", "--operation", "Read", "--topic", "d")
    both.change(ACLS, "--add", *who, to="controller")
    both.show(ACLS, "--list", "--topic", "d", to="controller", has="User:dora")
    both.show(ACLS, "--list", "--topic", "d", has="User:dora")
    both.change(ACLS, "--remove", "--force", *who, to="controller")
    both.show(ACLS, "--list", "--topic", "d", lacks="User:dora")


@pytest.mark.parametrize(
    "arguments",
    [
        ("--add", "--allow-principal", ALICE, "--operation", "Read"),
        ("--add", "--operation", "Read", "--topic", "t"),
        ("--add", "--allow-principal", "alice", "--operation", "Read", "--topic", "t"),
        ("--add", "--allow-principal", ALICE, "--operation", "Read", "--topic", "t", "--resource-pattern-type", "any"),
        ("--add", "--allow-principal", ALICE, "--operation", "IdempotentWrite", "--topic", "t"),
        ("--add", "--allow-principal", ALICE, "--operation", "Fly", "--topic", "t"),
        ("--list", "--add"),
    ],
    ids=lambda arguments: " ".join(each.lstrip("-") for each in arguments)[:40],
)
def test_kafka_acls_refuses_what_makes_no_sense(both: Both, arguments: tuple[str, ...]) -> None:
    assert both.change(ACLS, *arguments).printed


@pytest.mark.parametrize("arguments", [("--list",), ("--add", "--allow-principal", ALICE, "--topic", "t")], ids="".join)
def test_kafka_acls_without_permission(both: Both, arguments: tuple[str, ...]) -> None:
    assert "ClusterAuthorizationException" in both.change(ACLS, *arguments, user="nothing").printed


def test_kafka_configs_of_scram_users(both: Both) -> None:
    erin, users = ("--entity-type", "users", "--entity-name", "erin"), ("--entity-type", "users")
    for scram in ("SCRAM-SHA-256=[iterations=8192,password=secret]", "SCRAM-SHA-512=[password=secret]"):
        both.change(CONFIGS, "--alter", *erin, "--add-config", scram)
    both.show(CONFIGS, "--describe", *erin, has="iterations=8192")
    both.show(CONFIGS, "--describe", *users)
    both.change(CONFIGS, "--alter", *erin, "--delete-config", "SCRAM-SHA-512")
    both.show(CONFIGS, "--describe", *erin, lacks="SCRAM-SHA-512")
    assert both.change(CONFIGS, "--alter", *erin, "--delete-config", "SCRAM-SHA-512").code
    assert both.change(CONFIGS, "--alter", *erin, "--add-config", "SCRAM-SHA-256=[iterations=1,password=a]").code
    both.change(CONFIGS, "--alter", *erin, "--delete-config", "SCRAM-SHA-256")
    both.show(CONFIGS, "--describe", *users, lacks="SCRAM")


def test_kafka_configs_changes_both_mechanisms_at_once_on_ours(both: Both) -> None:
    """The documentation of Kafka has this command; Kafka itself refuses it as two changes of one credential."""
    fred = ("--entity-type", "users", "--entity-name", "fred")
    scram = "SCRAM-SHA-256=[iterations=8192,password=secret],SCRAM-SHA-512=[password=secret]"
    assert "altered twice" in both.theirs.run(CONFIGS, "--alter", *fred, "--add-config", scram).printed
    assert both.ours.run(CONFIGS, "--alter", *fred, "--add-config", scram).code == 0
    assert both.ours.run(CONFIGS, "--describe", *fred).printed.count("iterations=") == 2
    for mechanism in ("SCRAM-SHA-256", "SCRAM-SHA-512"):
        assert both.ours.run(CONFIGS, "--alter", *fred, "--delete-config", mechanism).code == 0


def test_kafka_configs_of_quotas_of_users(both: Both) -> None:
    """The tool itself does not do this by --bootstrap-controller."""
    gina, default = ("--entity-type", "users", "--entity-name", "gina"), ("--entity-type", "users", "--entity-default")
    ran = both.change(CONFIGS, "--alter", *gina, "--add-config", "producer_byte_rate=1024,request_percentage=50")
    assert not ran.code, ran.printed
    both.show(CONFIGS, "--describe", *gina, has="producer_byte_rate=1024")
    both.change(CONFIGS, "--alter", *default, "--add-config", "request_percentage=9")
    both.show(CONFIGS, "--describe", *default, has="request_percentage=9")
    both.show(CONFIGS, "--describe", "--entity-type", "users")
    assert both.change(CONFIGS, "--alter", *gina, "--add-config", "no_such_quota=1").code
    both.change(CONFIGS, "--alter", *gina, "--delete-config", "producer_byte_rate,request_percentage")
    both.change(CONFIGS, "--alter", *default, "--delete-config", "request_percentage")
    both.show(CONFIGS, "--describe", "--entity-type", "users", lacks="request_percentage")


@pytest.mark.parametrize("name", ["ours", "theirs"])
def test_kafka_delegation_tokens_creates_renews_and_expires(both: Both, name: str) -> None:
    side: Side = getattr(both, name)
    created = side.run(TOKENS, "--create", "--max-life-time-period", "-1", "--renewer-principal", ALICE)
    assert created.code == 0, created.printed
    # TOKENID HMAC OWNER REQUESTER RENEWERS ISSUEDATE EXPIRYDATE MAXDATE
    row = next(line.split() for line in created.printed.splitlines() if "User:admin" in line)
    token, hmac = row[0], row[1]
    mine = ("--describe", "--owner-principal", "User:admin")
    eventually(lambda: token in side.run(TOKENS, *mine).printed, "the token is known", patience_s=30.0)
    assert token not in side.run(TOKENS, "--describe", "--owner-principal", BOB).printed
    renewed = side.run(TOKENS, "--renew", "--renew-time-period", "3600000", "--hmac", hmac)
    assert renewed.code == 0 and "expiry date" in renewed.printed, renewed.printed
    ended = side.run(TOKENS, "--expire", "--expiry-time-period", "-1", "--hmac", hmac)
    assert ended.code == 0, ended.printed
    eventually(lambda: token not in side.run(TOKENS, *mine).printed, "the token is gone", patience_s=30.0)
    assert side.run(TOKENS, "--renew", "--renew-time-period", "-1", "--hmac", hmac).code
