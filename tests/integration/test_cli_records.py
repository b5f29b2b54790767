"""`odradek produce` and `consume` against a node: every byte in comes out, once, and says where it stopped."""

from __future__ import annotations

import fcntl
import json
import os
import signal
import subprocess
import sys
import termios
import time
from pathlib import Path

import pytest

from odradek.cli import errors
from tests.support.clients.cli import all_shown, odradek, odradek_process
from tests.support.clients.confluent import create_topic, produce_all, read_all
from tests.support.nodes.node import Node
from tests.support.waiting import eventually


def test_lines_in_lines_out(node: Node) -> None:
    create_topic(node.bootstrap, "lines")
    lines = [f"line {number} ä".encode() for number in range(5000)] + [b"", b"\xff\x00", b"last"]
    done = odradek_process(node.bootstrap, "produce", "--topic", "lines", stdin=b"\n".join(lines))
    assert not done.stdout
    assert done.stderr.startswith(b"5,003 records (")
    assert b" records/s, " in done.stderr
    read = odradek_process(node.bootstrap, "consume", "--topic", "lines", "--from-beginning", "--to-end")
    assert read.stdout == b"".join(line + b"\n" for line in lines)
    assert read.stderr.startswith(b"5,003 records (")
    assert [message.value() for message in read_all(node.bootstrap, "lines")] == lines


def test_the_topic_and_the_cluster_as_kcat_takes_them(node: Node) -> None:
    """The topic behind the command or with -t, the brokers with -b; a rate only of what is enough for one."""
    for words in (("produce", "short"), ("produce", "-t", "short")):
        command = [sys.executable, "-m", "odradek", *words, "-b", node.bootstrap]
        done = subprocess.run(command, input=b"x\n", capture_output=True, timeout=120, check=True)
        assert done.stderr.endswith(b"1 record (1 byte) written\n"), done.stderr
    for words in (("consume", "short"), ("consume", "-t", "short")):
        command = [sys.executable, "-m", "odradek", *words, "-b", node.bootstrap, "--from-beginning", "--to-end"]
        done = subprocess.run(command, capture_output=True, timeout=120, check=True)
        assert (done.stdout, done.stderr) == (b"x\nx\n", b"2 records (2 bytes) read\n")


def test_a_topic_that_is_created_is_reported(node: Node) -> None:
    said = odradek_process(node.bootstrap, "produce", "newborn", stdin=b"x\n").stderr.decode()
    assert said.splitlines()[0].startswith("Created topic newborn")
    said = odradek_process(node.bootstrap, "produce", "newborn", stdin=b"x\n").stderr.decode()
    assert said == "1 record (1 byte) written\n"
    assert odradek_process(node.bootstrap, "produce", "newborn-2", "-q", stdin=b"x\n").stderr == b""
    for created in (True, False):
        done = odradek_process(node.bootstrap, "produce", "newborn-3", "--json", stdin=b"x\n")
        answer = json.loads(done.stdout)
        assert (answer["created"], answer["records_per_second"]) == (created, None)


def test_a_login_has_no_effect_where_the_protocol_has_none(node: Node, tmp_path: Path) -> None:
    config = tmp_path / "client.properties"
    for login in ('PlainLoginModule required username="a" password="b";', "unreadable"):
        config.write_text(f"sasl.jaas.config={login}\nsasl.oauthbearer.client.credentials.client.id=a\n")
        odradek_process(node.bootstrap, "produce", "--topic", "plain", "--command-config", config, stdin=b"x\n")
    assert [message.value() for message in read_all(node.bootstrap, "plain")] == [b"x", b"x"]


def test_keys_headers_and_nulls(node: Node) -> None:
    create_topic(node.bootstrap, "keyed", 3)
    odradek_process(
        node.bootstrap,
        *("produce", "--topic", "keyed", "--key-separator", "=", "--null-marker", "NULL", "--parse-headers"),
        *("--header", "all=yes", "--compression-codec", "lz4"),
        stdin=b"a:1,b:\tk1=v1\n\tk2=NULL\na:2\tNULL=v3=x\n",
    )
    found = {message.key(): message for message in read_all(node.bootstrap, "keyed", 3)}
    assert {key: message.value() for key, message in found.items()} == {b"k1": b"v1", b"k2": None, None: b"v3=x"}
    assert found[b"k1"].headers() == [("all", b"yes"), ("a", b"1"), ("b", b"")]
    assert found[b"k2"].headers() == [("all", b"yes")]
    shown = odradek_process(
        node.bootstrap,
        *("consume", "--topic", "keyed", "--from-beginning", "--to-end", "--quiet"),
        *("--print-key", "--print-headers", "--key-separator", " | "),
    )
    assert sorted(shown.stdout.splitlines()) == sorted(
        [b"all:yes,a:1,b: | k1 | v1", b"all:yes | k2 | null", b"all:yes,a:2 | null | v3=x"]
    )
    assert not shown.stderr


def test_json_is_a_copy_of_a_topic(node: Node, tmp_path: Path) -> None:
    for topic in ("original", "copy"):
        create_topic(node.bootstrap, topic, 2)
    records = [(os.urandom(8) if n % 3 else None, os.urandom(20) if n % 5 else None) for n in range(500)]
    produce_all(node.bootstrap, "original", records)
    path = tmp_path / "records.jsonl"
    odradek_process(
        node.bootstrap,
        *("consume", "--topic", "original", "--from-beginning", "--to-end", "--json", "--output", path),
    )
    summary = odradek_process(
        node.bootstrap, "produce", "--topic", "copy", "--format", "json", "--file", path, "--json", "--quiet"
    )
    assert json.loads(summary.stdout)["records"] == 500

    def content(topic: str) -> list[tuple[object, ...]]:
        return sorted(
            (message.partition(), message.offset(), message.timestamp()[1], str(message.key()), str(message.value()))
            for message in read_all(node.bootstrap, topic, 2)
        )

    assert content("copy") == content("original")


def test_files_are_records_or_lines(node: Node, tmp_path: Path) -> None:
    create_topic(node.bootstrap, "files")
    one, two = tmp_path / "one", tmp_path / "two"
    one.write_bytes(b"first\nfile")
    two.write_bytes(os.urandom(300_000))
    odradek(
        node.bootstrap, "produce", "--topic", "files", "--format", "file", "--file", one, "--file", two, "--key", "k"
    )
    odradek(node.bootstrap, "produce", "--topic", "files", "--file", one)
    messages = read_all(node.bootstrap, "files")
    assert [message.value() for message in messages] == [one.read_bytes(), two.read_bytes(), b"first", b"file"]
    assert [message.key() for message in messages] == [b"k", b"k", None, None]


def test_where_to_begin_and_to_end(node: Node) -> None:
    create_topic(node.bootstrap, "places", 2)
    for partition in (0, 1):
        lines = b"".join(f"{partition}-{n}\n".encode() for n in range(10))
        odradek_process(node.bootstrap, "produce", "--topic", "places", "--partition", partition, stdin=lines)

    def read(*arguments: object) -> list[str]:
        done = odradek_process(node.bootstrap, "consume", "--topic", "places", "-q", *arguments)
        return done.stdout.decode().split()

    assert read("--partition", 1, "--offset", 7, "--to-end") == ["1-7", "1-8", "1-9"]
    assert read("--partition", 0, "--offset", -2, "--to-end") == ["0-8", "0-9"]
    assert read("--partition", 0, "--offset", "earliest", "--max-messages", 2) == ["0-0", "0-1"]
    assert len(read("--from-beginning", "--max-messages", 13)) == 13
    assert read("--to-end") == []
    assert read("--timeout-ms", 300) == []
    # A busy machine may be silent for so long before it is through.
    eventually(lambda: len(read("--from-beginning", "--timeout-ms", 1500)) == 20)


def test_to_the_end_as_it_was_though_more_arrives(node: Node) -> None:
    create_topic(node.bootstrap, "growing")
    lines = [b"line %d" % number + b"." * 40 for number in range(20_500)]
    produce_all(node.bootstrap, "growing", [(None, line) for line in lines])
    command = [sys.executable, "-m", "odradek", "consume", "--topic", "growing", "--from-beginning", "--to-end", "-q"]
    reader = subprocess.Popen([*command, "--bootstrap-server", node.bootstrap], stdout=subprocess.PIPE)
    with reader:
        assert reader.stdout is not None
        # It knows the end now, and waits for us to take the rest: a pipe holds less than all.
        assert reader.stdout.readline() == lines[0] + b"\n"
        produce_all(node.bootstrap, "growing", [(None, b"more")] * 5000)
        assert reader.stdout.read().splitlines() == lines[1:]
        assert reader.wait(120) == 0


def test_a_write_cut_short_by_a_signal_loses_nothing(node: Node) -> None:
    """Ctrl-Z and `fg` interrupt a write while the reader of the pipe is slow and Python's output is unbuffered."""
    create_topic(node.bootstrap, "cut")
    lines = [b"line %d" % number + b"." * 40 for number in range(5000)]
    produce_all(node.bootstrap, "cut", [(None, line) for line in lines])
    command = [sys.executable, "-m", "odradek", "consume", "--topic", "cut", "--from-beginning", "--to-end", "-q"]
    reader = subprocess.Popen(
        [*command, "--bootstrap-server", node.bootstrap],
        stdout=subprocess.PIPE,
        env={**os.environ, "PYTHONUNBUFFERED": "1"},
    )
    with reader:
        assert reader.stdout is not None
        pipe = reader.stdout.fileno()
        size = fcntl.fcntl(pipe, fcntl.F_GETPIPE_SZ)

        def is_full() -> bool:
            return bool(int.from_bytes(fcntl.ioctl(pipe, termios.FIONREAD, bytes(4)), sys.byteorder) > size - 4096)

        eventually(is_full)
        reader.send_signal(signal.SIGSTOP)
        reader.send_signal(signal.SIGCONT)
        assert reader.stdout.read().splitlines() == lines
        assert reader.wait(120) == 0


def test_a_group_goes_on_where_it_stopped(node: Node) -> None:
    create_topic(node.bootstrap, "grouped", 2)
    produce_all(node.bootstrap, "grouped", [(None, b"%d" % n) for n in range(100)])
    arguments = ("consume", "--topic", "grouped", "--group", "readers", "--from-beginning", "-q")
    first = odradek_process(node.bootstrap, *arguments, "--max-messages", 30).stdout.split()
    second = odradek_process(node.bootstrap, *arguments, "--max-messages", 70).stdout.split()
    assert len(first) == 30
    assert sorted(map(int, first + second)) == list(range(100))
    assert not odradek_process(node.bootstrap, *arguments, "--timeout-ms", 3000).stdout, "nothing comes twice"
    (group,) = odradek(node.bootstrap, "groups", "describe", "--group", "readers", "--json").json
    assert sum(each["current_offset"] for each in group["offsets"]) == 100
    assert sum(each["lag"] for each in group["offsets"]) == 0


def test_without_a_group_no_group_is_touched(node: Node) -> None:
    create_topic(node.bootstrap, "alone")
    produce_all(node.bootstrap, "alone", [(None, b"x")])
    before = odradek(node.bootstrap, "groups", "list", "--json").json
    odradek_process(node.bootstrap, "consume", "--topic", "alone", "--from-beginning", "--to-end")
    assert odradek(node.bootstrap, "groups", "list", "--json").json == before


def test_ctrl_c_is_a_clean_end_that_commits(node: Node) -> None:
    create_topic(node.bootstrap, "interrupted")
    produce_all(node.bootstrap, "interrupted", [(None, b"x")] * 10)
    command = [sys.executable, "-m", "odradek", "consume", "--topic", "interrupted", "--group", "stopped"]
    reader = subprocess.Popen(
        [*command, "--from-beginning", "--bootstrap-server", node.bootstrap],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        # A shell that starts the tests in the background has them, and all below, ignore Ctrl-C.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
    )
    with reader:
        assert reader.stdout is not None and reader.stderr is not None
        for _ in range(10):
            assert reader.stdout.readline() == b"x\n"
        time.sleep(0.2)
        reader.send_signal(signal.SIGINT)
        try:
            assert reader.wait(120) == errors.INTERRUPTED
        finally:
            reader.kill()
        said = reader.stderr.read().decode()
    assert said.startswith("10 records ("), said
    assert said.count("\n") == 1
    (group,) = odradek(node.bootstrap, "groups", "describe", "--group", "stopped", "--json").json
    assert group["state"] == "Empty"
    assert [each["current_offset"] for each in group["offsets"]] == [10]


@pytest.mark.parametrize(
    ("config", "code", "said"),
    [
        ([], errors.INTERRUPTED, "2 records (2 bytes) written\n"),
        (["--config", "cleanup.policy=compact"], errors.FAILED, "odradek: refused after 0 records were written: "),
    ],
    ids=["taken", "refused"],
)
def test_ctrl_c_on_a_terminal_reports_the_written_lines(
    own_node: Node, config: list[str], code: int, said: str
) -> None:
    odradek(own_node.bootstrap, "topics", "create", "typed", *config)
    master, terminal = os.openpty()
    writer = subprocess.Popen(
        [sys.executable, "-m", "odradek", "produce", "typed", "--bootstrap-server", own_node.bootstrap],
        stdin=terminal,
        stderr=subprocess.PIPE,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
    )
    with writer:
        try:
            assert writer.stderr is not None
            assert writer.stderr.readline() == b"A record a line; Ctrl-D ends.\n"
            own_node.pause()  # so that the answers come behind Ctrl-C
            for line in (b"a\n", b"b\n"):
                os.write(master, line)
                assert os.read(master, 100).startswith(line[:1])  # the terminal has it, and shows it
                eventually(lambda: fcntl.ioctl(terminal, termios.FIONREAD, b"\0" * 4) == b"\0" * 4)  # it was read
            eventually(lambda: Path(f"/proc/{writer.pid}/wchan").read_text() not in ("0", ""))
            writer.send_signal(signal.SIGINT)
            own_node.resume()
            assert writer.wait(120) == code
            shown = writer.stderr.read().decode()
        finally:
            writer.kill()
            os.close(master)
            os.close(terminal)
    assert shown.startswith(said), shown
    assert shown.count("\n") == 1


@pytest.mark.parametrize(
    ("arguments", "stdin", "code", "said"),
    [
        (
            ["produce", "--topic", "bad", "--partition", "9"],
            b"x",
            errors.USAGE,
            "topic bad has no partition 9; it has 1",
        ),
        (
            ["produce", "--topic", "bad", "--key-separator", ":"],
            b"a:b\nc",
            errors.BAD_CONFIG,
            "standard input, line 2: no",
        ),
        (["produce", "--topic", "bad", "--format", "json"], b"{", errors.BAD_CONFIG, "line 1: not JSON"),
        (
            ["produce", "--topic", "bad", "--format", "json"],
            b'{"value": "x", "timestamp_ms": 100000000000000000000}',
            errors.BAD_CONFIG,
            "timestamp_ms is not a whole number, or too large",
        ),
        (
            ["produce", "--topic", "bad", "--format", "json"],
            b'{"value": "x", "headers": [["a\\u0000b", "c"]]}',
            errors.BAD_CONFIG,
            "has a NUL",
        ),
        (["produce", "--topic", "bad", "--file", "/nowhere"], b"", errors.BAD_CONFIG, "/nowhere: No such file"),
        (["produce", "--topic", "bad", "--header", "x"], b"", errors.USAGE, "'x' is not name=value"),
        (["produce", "--topic", "bad", "--command-property", "no=1"], b"", errors.BAD_CONFIG, "No such configuration"),
        (["produce", "--topic", "bad", "--acks", "7"], b"", errors.USAGE, "acks"),
        (["produce", "--topic", "small"], b"x" * 5000, errors.FAILED, "raise max.message.bytes"),
        (["produce", "--topic", "compacted"], b"x", errors.FAILED, "takes no record without a key"),
        (["consume", "--topic", "no such topic"], b"", errors.FAILED, "topic"),
        (["consume", "--topic", "absent"], b"", errors.NOT_FOUND, "topic absent does not exist; create it with"),
        (
            ["consume", "--topic", "bad", "--partition", "4"],
            b"",
            errors.USAGE,
            "topic bad has no partition 4; it has 1",
        ),
        (["consume", "--topic", "bad", "--partition", "0", "--offset", "x"], b"", errors.USAGE, "must be earliest"),
        (
            ["consume", "--topic", "bad", "--partition", "0", "--to-end", "--offset", "9" * 23],
            b"",
            errors.USAGE,
            "no offset is that far",
        ),
        (["consume", "--topic", "bad", "--output", "/nowhere/x"], b"", errors.BAD_CONFIG, "/nowhere/x: No such file"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_a_refused_command_is_one_line(node: Node, arguments: list[str], stdin: bytes, code: int, said: str) -> None:
    for topic, config in (
        ("bad", []),
        ("small", ["max.message.bytes=1000"]),
        ("compacted", ["cleanup.policy=compact"]),
    ):
        more = [word for each in config for word in ("--config", each)]
        odradek(node.bootstrap, "topics", "create", "--topic", topic, "--if-not-exists", *more)
    done = odradek_process(node.bootstrap, *arguments, "--quiet", stdin=stdin, code=code)
    message = done.stderr.decode()
    assert said in message
    assert message.count("\n") == 1
    assert not done.stdout


def test_lines_before_a_bad_one_are_written(node: Node) -> None:
    create_topic(node.bootstrap, "partly")
    odradek_process(
        node.bootstrap,
        *("produce", "--topic", "partly", "--format", "json"),
        stdin=b'{"value": 1}\n\n{"value": 2}\nnonsense\n{"value": 3}\n',
        code=errors.BAD_CONFIG,
    )
    assert [message.value() for message in read_all(node.bootstrap, "partly")] == [b"1", b"2"]


def test_a_bar_on_a_terminal_and_none_elsewhere(node: Node, tmp_path: Path) -> None:
    create_topic(node.bootstrap, "bars")
    path = tmp_path / "lines"
    path.write_bytes(b"x" * 50 + b"\n" + b"y\n" * 20_000)
    master, terminal = os.openpty()
    command = [sys.executable, "-m", "odradek", "produce", "--topic", "bars", "--file", str(path)]
    environment = {**os.environ, "TERM": "xterm", "COLUMNS": "100"}
    writer = subprocess.Popen(
        [*command, "--bootstrap-server", node.bootstrap],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=terminal,
        env=environment,
    )
    os.close(terminal)
    with writer:
        try:
            shown = all_shown(master)
        finally:
            os.close(master)
        assert writer.stdout is not None
        assert not writer.stdout.read()
    assert writer.returncode == 0
    assert "bytes read" in shown
    assert "/40051" in shown
    assert "20,001 records (" in shown.splitlines()[-1]
    quiet = odradek_process(node.bootstrap, "consume", "--topic", "bars", "--from-beginning", "--to-end", "--quiet")
    assert not quiet.stderr
    assert len(quiet.stdout.splitlines()) == 20_001


def test_commands_wait_for_a_broker_that_restarts(own_node: Node) -> None:
    create_topic(own_node.bootstrap, "patient")
    command = [sys.executable, "-m", "odradek", "consume", "--topic", "patient", "--from-beginning", "-q"]
    reader = subprocess.Popen(
        [*command, "--max-messages", "2", "--bootstrap-server", own_node.bootstrap],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    with reader:
        assert reader.stdout is not None and reader.stderr is not None
        odradek_process(own_node.bootstrap, "produce", "--topic", "patient", stdin=b"before\n")
        assert reader.stdout.readline() == b"before\n"
        own_node.kill()
        assert reader.stderr.readline() == b"odradek: no broker answers any more; waiting for one to come back\n"
        own_node.start()
        odradek_process(own_node.bootstrap, "produce", "--topic", "patient", stdin=b"after\n")
        assert reader.stdout.readline() == b"after\n"
        assert reader.wait(120) == 0
        assert not reader.stderr.read()
