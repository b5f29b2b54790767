"""docs/operations.md: its commands run in their order, on nodes of the units of deploy/systemd.

Each command in its running text is in one of its blocks as well, or is run by a test that is named here.
"""

from __future__ import annotations

import contextlib
import io
import json
import re
import shlex
import shutil
import subprocess
from pathlib import Path

import pytest

from odradek.cli.app import run
from odradek.cli.errors import FAILED, NOT_FOUND
from tests.integration.test_deploy_systemd import write_settings
from tests.support.clients.cli import odradek
from tests.support.clients.confluent import create_topic, produce_all, read_all
from tests.support.nodes.node import free_port
from tests.support.nodes.systemd_unit import Unit
from tests.support.page_commands import inline_commands, problems
from tests.support.waiting import PATIENCE_S, eventually

DOCS = Path(__file__).resolve().parents[2] / "docs"
PAGE = (DOCS / "operations.md").read_text()
STANDARD = "org.apache.kafka.metadata.authorizer.StandardAuthorizer"
RECORDS = 30
HOST_TESTS = "tests/integration/test_host.py"
UPGRADE = "tests/interop/test_java_controllers.py::test_metadata_version_is_raised_by_the_command_of_the_page"
GROWS = f"{HOST_TESTS}::test_a_host_grows_and_another_one_joins_its_cluster"
# Commands in running text that no block has, also those of the alerts' remedies: each is run by a test elsewhere.
ELSEWHERE = {
    "odradek cluster brokers --command-config admin.properties": (
        "tests/integration/test_deploy_kubernetes.py::test_a_pod_with_tls_has_an_address_outside"
    ),
    "odradek drain --force": "tests/integration/test_cluster_moves.py::test_a_drain_says_what_it_would_break",
    "odradek host --cores --rebalance": GROWS,
    "odradek host --cores --join": GROWS,
    "odradek host --replace-disk": f"{HOST_TESTS}::test_a_host_starts_with_a_replaced_disk",
    "odradek host roll": f"{HOST_TESTS}::test_brokers_of_a_machine_start_die_roll_and_stop_as_one",
    "kafka-features.sh --bootstrap-server a:9092 upgrade --feature metadata.version=30": UPGRADE,
    "kafka-features.sh --bootstrap-server a:9092 upgrade --release-version 4.3": UPGRADE,
    "kafka-metadata-quorum.sh remove-controller": (
        "tests/interop/test_mixed_quorum.py::test_kafkas_tool_describes_and_changes_our_quorum"
    ),
    "odradek partitions elect --partition orders-0 --unclean": (
        "tests/integration/test_unclean_election.py::test_an_unclean_election_makes_the_replica_that_is_left_the_leader"
    ),
    "odradek groups describe --group billing": "tests/integration/test_cli_groups.py::test_a_group_with_a_member",
    "odradek groups explain billing": (
        "tests/integration/test_cli_groups_explain.py::test_a_member_that_is_killed_times_out"
    ),
}
# It prints what systemd knows of a unit, and tests have no systemd.
OF_SYSTEMD = "systemctl status odradek"


def blocks() -> dict[str, list[list[str]]]:
    """The blocks of commands below each heading, in lines."""
    found: dict[str, list[list[str]]] = {}
    for section in re.split(r"^## ", PAGE, flags=re.MULTILINE):
        fenced = re.findall(r"^```\n(.*?)^```$", section, re.DOTALL | re.MULTILINE)
        found[section.partition("\n")[0]] = [text.splitlines() for text in fenced]
    return found


def sizings() -> list[tuple[str, str]]:
    """The arguments of `odradek plan` in the table of sizes, and the rest of the row."""
    return re.findall(r"^\| [^|]+ \| `(--size [^`]+)` \|(.*)\|$", PAGE, re.MULTILINE)


def lines_that_run() -> list[str]:
    """The lines of all blocks, and the commands of the table of sizes."""
    lines = [line for section in blocks().values() for block in section for line in block]
    return [*lines, *(f"odradek plan {arguments} --outlive 1" for arguments, _ in sizings())]


class Host:
    """Four nodes of one host: the first is the controller, and the fourth does not run at first.

    Attributes:
        units: by the node's number.
        bootstrap: the addresses of the first three.
    """

    def __init__(self, root: Path) -> None:
        self.root = root
        self.probes = {number: f"127.0.0.1:{free_port()}" for number in range(1, 5)}
        ports = {number: free_port() for number in self.probes}
        controller = free_port()
        self.bootstrap = ",".join(f"127.0.0.1:{ports[number]}" for number in (1, 2, 3))
        for number, port in ports.items():
            listener = f"PLAINTEXT://127.0.0.1:{port}"
            changes = {
                "process.roles": "broker,controller" if number == 1 else "broker",
                "node.id": str(number),
                "listeners": f"CONTROLLER://127.0.0.1:{controller},{listener}" if number == 1 else listener,
                "advertised.listeners": listener,
                "controller.quorum.voters": f"1@127.0.0.1:{controller}",
                "log.dirs": str(root / "var" / "odradek" / str(number)),
                "authorizer.class.name": STANDARD,
                "super.users": "User:ANONYMOUS",
            }
            write_settings(root, f"{number}.properties", changes)
        self.units = {
            number: Unit(root, "odradek@.service", self.probes[number], str(number), quick=True)
            for number in self.probes
        }

    def carry_out(self, line: str) -> str:
        """A line of the page, as it is for this host; returns what it prints."""
        line = line.replace("/var/lib/odradek", str(self.root / "var" / "odradek"))
        for number, probes in self.probes.items():
            line = line.replace(f"127.0.0.1:940{number}", probes)
        assert all(unit.process is None or unit.process.poll() is None for unit in self.units.values())
        words = shlex.split(line, comments=True)
        if words[0] == "systemctl":
            return self._systemctl(*words[1:])
        if words[0] == "odradek":
            return self._odradek(words[1:])
        done = subprocess.run(["sh", "-c", line], capture_output=True, text=True, timeout=PATIENCE_S, cwd=self.root)
        assert done.returncode == 0, (line, done.stderr)
        return done.stdout

    def _systemctl(self, verb: str, name: str) -> str:
        unit = self.units[int(name.removeprefix("odradek@"))]
        if verb in {"stop", "restart"}:
            assert unit.exec_stop() == 0
            assert unit.terminate() == 0
        if verb in {"start", "restart"}:
            unit.start()
        return ""

    def _odradek(self, words: list[str]) -> str:
        out, err = io.StringIO(), io.StringIO()
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            code = run(words)
        # The doctor finds what is bad about four nodes on one host.
        assert code == 0 or (words[0] == "doctor" and code == 1), (words, out.getvalue(), err.getvalue())
        return out.getvalue()

    def unregister(self, line: str) -> None:
        """Unregister a node that was asked to stop, and may not have yet."""
        (number,) = re.findall(r"unregister (\d)", line)
        unit = self.units[int(number)]
        process = unit.process
        assert process is not None
        self._odradek(shlex.split(line)[1:])
        assert process.wait(PATIENCE_S) == 0
        unit.process = None

    def replicas(self, topic: str) -> list[tuple[list[int], list[int]]]:
        """Replicas and those in sync, of each partition."""
        (found,) = json.loads(self._odradek(["topics", "describe", topic, "--json"]))
        return [(sorted(each["replicas"]), sorted(each["isr"])) for each in found["partitions"]]

    def fenced(self, number: int) -> bool:
        brokers = json.loads(self._odradek(["cluster", "brokers", "--json"]))
        return any(each["broker"] == number and each["fenced"] for each in brokers)

    def carry_out_section(self, name: str, *, restarts: bool) -> None:
        """Run all blocks of a section, or only those that restart no node."""
        for block in blocks()[name]:
            if not restarts and re.search(r"systemctl (restart|stop)", "\n".join(block)):
                continue
            for line in block:
                if " unregister " in line:
                    self.unregister(line)
                else:
                    self.carry_out(line)


@pytest.mark.timeout(900)
@pytest.mark.parametrize(
    "restarts", [pytest.param(False, id="without restarts"), pytest.param(True, id="all", marks=pytest.mark.slow)]
)
@pytest.mark.skipif(shutil.which("curl") is None, reason="curl is not installed")
def test_the_commands_of_the_page(restarts: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    host = Host(tmp_path)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("ODRADEK_BOOTSTRAP_SERVER", host.bootstrap)
    intro, *sections = blocks()
    assert blocks()[intro] == [["export ODRADEK_BOOTSTRAP_SERVER=a:9092,b:9092,c:9092"]]
    with contextlib.ExitStack() as stack:
        for number in (1, 2, 3):
            stack.enter_context(host.units[number])
        stack.callback(host.units[4].__exit__, None, None, None)
        create_topic(host.bootstrap, "orders", 3, copies=3)
        values = [(b"%d" % number, b"%d" % number) for number in range(RECORDS)]
        produce_all(host.bootstrap, "orders", values, acks="all")
        for section in sections:
            host.carry_out_section(section, restarts=restarts)
        written = sorted(value for _, value in values)
        for topic in ("orders", "restored"):
            assert sorted(message.value() or b"" for message in read_all(host.bootstrap, topic, 6)) == written
        eventually(lambda: host.replicas("orders") == [([1, 2, 3], [1, 2, 3])] * 6, "none is left on the fourth")
        brokers = json.loads(host.carry_out("odradek cluster brokers --json"))
        assert [each["broker"] for each in brokers] == [1, 2, 3]
        for broker, code, why in ((2, FAILED, "runs"), (4, NOT_FOUND, "no broker 4")):
            refused = odradek(host.bootstrap, "cluster", "unregister", broker, "--yes", code=code)
            assert why in refused.err
        host.carry_out("systemctl stop odradek@3")
        eventually(lambda: host.fenced(3))
        refused = odradek(host.bootstrap, "cluster", "unregister", 3, "--yes", code=FAILED)
        assert "has replicas of" in refused.err


def test_the_sizes_of_the_page_are_those_of_the_plan() -> None:
    assert len(sizings()) == 4
    for arguments, row in sizings():
        out = io.StringIO()
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(io.StringIO()):
            assert run(["plan", *shlex.split(arguments), "--outlive", "1", "--json"]) in (0, 1)
        sizing = json.loads(out.getvalue())["sizing"]
        numbers = [sizing["brokers"], sizing["partitions"], sizing["disk_bytes"] / 1e12, sizing["memory_bytes"] / 1e9]
        wanted = [str(number) if isinstance(number, int) else f"{number:.1f}" for number in numbers]
        assert re.findall(r"[\d.]+", row) == wanted, arguments


def test_each_command_in_running_text_is_run_by_a_test() -> None:
    """Of this page, and of the alerts' remedies, which name many commands of it."""
    commands = inline_commands(PAGE + (DOCS / "monitoring.md").read_text())
    commands.remove(OF_SYSTEMD)
    found = list(problems(commands, lines_that_run(), ELSEWHERE))
    assert not found, "run it in a block, or name a test in ELSEWHERE:\n" + "\n".join(found)


ROLL = "odradek host roll"


@pytest.mark.parametrize(
    ("text", "elsewhere", "said"),
    [
        ("Run `odradek host\nroll` and `fenced`.", {}, [f"no test runs `{ROLL}`"]),
        ("`odradek doctor`, then `--yes --wait`, `make`", {}, ["no test runs `make`"]),
        ("`systemctl stop` and `systemctl reload odradek`", {}, ["no test runs `systemctl reload odradek`"]),
        (f"`{ROLL}`", {ROLL: f"{HOST_TESTS}::test_gone"}, [f"{HOST_TESTS}::test_gone: there is no such test"]),
        (f"`{ROLL}`", {ROLL: "tests/gone.py::test_gone"}, ["tests/gone.py::test_gone: there is no such test"]),
        (
            "`odradek host --pin`",
            {"odradek host --pin": GROWS},
            [f"{GROWS}: does not have `--pin` of `odradek host --pin`"],
        ),
        ("`kafka-features.sh`", {"kafka-features.sh": GROWS}, [f"{GROWS}: does not run kafka-features.sh"]),
        ("```\nodradek host roll\n```\n", {ROLL: ELSEWHERE[ROLL]}, [f"`{ROLL}` is on no page, or a block has it"]),
    ],
)
def test_commands_without_a_test_are_found(text: str, elsewhere: dict[str, str], said: list[str]) -> None:
    assert list(problems(inline_commands(text), lines_that_run(), elsewhere)) == said
