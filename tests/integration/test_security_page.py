"""The commands and settings of docs/security.md and the pages that it lists: clusters are started by them and used."""

from __future__ import annotations

import contextlib
import json
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

from confluent_kafka.admin import AclOperation, AclPermissionType

from tests.integration.test_authorizer_setting import GuardedNode, java_settings, produce, rule
from tests.support.clients.cli import odradek
from tests.support.nodes.certificates import Certificates
from tests.support.nodes.node import Node, free_port
from tests.support.nodes.server_process import ServerProcess
from tests.support.waiting import eventually

DOCS = Path(__file__).resolve().parents[2] / "docs"
PAGE, TLS, SASL, ACLS, QUOTAS = (
    (DOCS / f"{name}.md").read_text() for name in ("security", "tls", "sasl", "authorization", "quotas")
)
FIFTEEN_MINUTES = PAGE[PAGE.index("## A cluster with TLS") : PAGE.index("## From a plain cluster")]
# The environment in which the shell finds the commands of this installation, as a user's does.
SHELL = {**os.environ, "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}


def settings_of(name: str, section: str = SASL) -> dict[str, str]:
    """The settings of a block of the page that begins with a file's name."""
    block = re.search(rf"```properties\n# {re.escape(name)}\n(.*?)```", section, re.DOTALL)
    assert block is not None, name
    return dict(line.split("=", 1) for line in block[1].splitlines())


def commands(section: str = SASL) -> list[list[str]]:
    block = re.search(r"```\n(odradek .*?)```", section, re.DOTALL)
    assert block is not None
    return [shlex.split(line.replace('"$(odradek random-uuid)"', "a-cluster"))[1:] for line in block[1].splitlines()]


def test_the_users_of_the_page_log_in(tmp_path: Path) -> None:
    node = Node(tmp_path / "node")
    ports = {"EXTERNAL": node.port, "INTERNAL": free_port(), "CONTROLLER": node.controller_port}
    certificates = Certificates(tmp_path / "certificates")
    page = settings_of("server.properties")
    listeners = re.sub(
        r"(\w+)://[^:,]*:\d+", lambda found: f"{found[1]}://127.0.0.1:{ports[found[1]]}", page["listeners"]
    )
    server = node.overrides | page | certificates.server("listener.name.external.") | {"listeners": listeners}
    server |= {"node.id": 1, "process.roles": "broker,controller", "controller.listener.names": "CONTROLLER"}
    # The command of the page begins a quorum that can grow.
    del server["controller.quorum.voters"]
    server["controller.quorum.bootstrap.servers"] = f"127.0.0.1:{node.controller_port}"
    config = tmp_path / "server.properties"
    config.write_text("".join(f"{key}={value}\n" for key, value in server.items()))
    admin = tmp_path / "admin.properties"
    lines = settings_of("admin.properties") | {"ssl.truststore.location": str(certificates.ca)}
    admin.write_text("".join(f"{key}={value}\n" for key, value in lines.items()))
    (tmp_path / "alice.password").write_text("of alice\n")
    form, *others = commands()
    done = subprocess.run([sys.executable, "-m", "odradek", *form], cwd=tmp_path, capture_output=True, timeout=120)
    assert done.returncode == 0, done.stderr
    node.overrides = server
    with node.start():
        hint = f"odradek produce --topic hello --bootstrap-server {node.bootstrap} --command-config client.properties"
        eventually(lambda: hint in node.log_text())
        for command in others:
            odradek(node.bootstrap, *(str(tmp_path / word) if (tmp_path / word).exists() else word for word in command))
        alice = tmp_path / "alice.properties"
        text = admin.read_text().replace('username="admin" password="secret"', 'username="alice" password="of alice"')
        alice.write_text(text)
        assert "alice" in odradek(node.bootstrap, "users", "list", "--command-config", alice, "--json").json


def test_the_permissions_of_the_page_are_in_force(tmp_path: Path) -> None:
    admin = tmp_path / "admin.properties"
    admin.write_text("".join(f"{key}={value}\n" for key, value in java_settings().items()))
    page = settings_of("on all nodes, in server.properties", ACLS)
    with GuardedNode(tmp_path / "node", **{key.replace(".", "__"): value for key, value in page.items()}) as node:
        bootstrap = node.sasl_bootstrap
        odradek(bootstrap, "topics", "create", "orders", "--command-config", admin)
        refused = produce(node, "orders")
        printed = []
        for command in commands(ACLS):
            printed.append(odradek(bootstrap, *command[:-1], admin).out)
        assert refused is not None and produce(node, "orders") is None
        said = "allowed: ALLOW User:alice from * WRITE TOPIC LITERAL orders\n"
        assert printed[4] == said
        assert "10.6.0.0/16" in printed[3]
        node.allow(rule("User:alice", AclOperation.ALL, "orders", permission=AclPermissionType.DENY))
        assert produce(node, "orders") is not None
        # One or more: a client that is refused asks again when it likes.
        lines = [each for each in node.audit_lines() if each["reason"] == "acl"]
        (example,) = re.findall(r"^{.*}$", ACLS, re.MULTILINE)
        assert {tuple(each) for each in lines} == {tuple(json.loads(example))}


def blocks(section: str) -> list[str]:
    """The blocks of commands: those without a language."""
    fenced = re.findall(r"^```(\w*)\n(.*?)^```$", section, re.DOTALL | re.MULTILINE)
    return [text for language, text in fenced if not language]


def test_a_secured_cluster_in_fifteen_minutes(tmp_path: Path) -> None:
    """The commands of the section work, in their order, in a shell in an empty directory."""
    ports = {port: str(free_port()) for port in ("9092", "9093", "9094")}
    for name, text in re.findall(r"```properties\n# (\S+)\n(.*?)```", FIFTEEN_MINUTES, re.DOTALL):
        (tmp_path / name).write_text(re.sub(r"\b909[234]\b", lambda port: ports[port[0]], text))
    with (tmp_path / "server.properties").open("a") as file:
        file.write("group.initial.rebalance.delay.ms=0\n")  # for the sake of the test's time
    printed = {}
    (lines,) = blocks(FIFTEEN_MINUTES)
    with contextlib.ExitStack() as stack:
        for line in lines.splitlines():
            if line.startswith("odradek broker "):
                stack.enter_context(Started(tmp_path, line, int(ports["9092"])))
                continue
            done = in_shell(tmp_path, line)
            assert done.returncode == 0 or " acls why " in line, (line, done.stdout, done.stderr)
            printed[line.split()[0] + " " + line.split()[1]] = done.stdout
    assert printed["odradek consume"] == "a first order\n"
    assert "denied" in printed["odradek acls"]


class Started(ServerProcess):
    """The node of a command line, in a directory."""

    what = "the node"

    def __init__(self, directory: Path, line: str, port: int) -> None:
        super().__init__(directory, "node.log", port)
        self._line = line

    def command(self) -> list[str]:
        return ["sh", "-c", f"cd {self.directory} && exec {self._line}"]

    def environment(self) -> dict[str, str]:
        return SHELL


def in_shell(directory: Path, line: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(["sh", "-c", line], cwd=directory, env=SHELL, capture_output=True, text=True, timeout=120)


def test_the_quotas_of_the_page_are_set(tmp_path: Path) -> None:
    with Node(tmp_path).start() as node:
        for command in commands(QUOTAS):
            ran = odradek(node.bootstrap, *command)
            if command[1] == "list":
                assert "2097152" in ran.out


def test_each_command_of_the_pages_is_run() -> None:
    """The tests here, or in the named files, run every command, except those that install packages."""
    of_plain = PAGE[PAGE.index("## From a plain cluster") :]  # test_secure_a_plain_cluster.py
    assert blocks(PAGE) == [blocks(each)[0] for each in (FIFTEEN_MINUTES, of_plain)]
    certs = TLS[TLS.index("## In five") : TLS.index("## A listener with TLS")]  # test_cli_certs.py
    listeners = TLS[TLS.index("## Listeners that change") : TLS.index("## One port")]  # test_dynamic_listeners.py
    assert blocks(TLS) == [blocks(each)[0] for each in (certs, listeners)]
    kerberos = SASL[SASL.index("## Kerberos") : SASL.index("## Before a login")]  # packages
    users = SASL[SASL.index("## Users with passwords") : SASL.index("## Mechanisms")]
    assert blocks(SASL) == [blocks(each)[0] for each in (users, kerberos)]
    assert len(blocks(ACLS)) == len(blocks(QUOTAS)) == 1
