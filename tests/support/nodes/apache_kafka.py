"""Apache Kafka itself, from Maven Central: a broker to compare with, and its command-line tools to run against us.

Everything lands in `.cache/kafka-<version>/` and is fetched once. Without Java, Maven or a way to fetch, tests that
call `require_kafka()` skip and say which of them is missing.

    python -m tests.support.nodes.apache_kafka start --port 9092 --dir DIR    run a node in the foreground
    python -m tests.support.nodes.apache_kafka tool kafka.tools.StorageTool random-uuid
"""

from __future__ import annotations

import argparse
import base64
import contextlib
import fcntl
import functools
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import uuid
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Self

import pytest

from tests.support.nodes import class_archive
from tests.support.nodes.node import free_port
from tests.support.nodes.server_process import ServerProcess

VERSION = "4.3.1"
ROOT = Path(__file__).resolve().parents[3]
CACHE = ROOT / ".cache"
HOME = CACHE / f"kafka-{VERSION}"
LIBRARIES = HOME / "lib"
START_TIMEOUT_S = 180.0
ARCHIVE_STEP_TIMEOUT_S = 60.0  # a machine that is slower than that makes no class archives

# For JVMs that run for a second or two: the second compiler and a collector with threads would only cost them time.
SHORT_JVM_OPTIONS = ("-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC")
TOOL_JVM_OPTIONS = ("-Xmx256m", *SHORT_JVM_OPTIONS, "-Xshare:auto")
LOGGING_JVM_OPTIONS = ("-Dorg.slf4j.simpleLogger.defaultLogLevel=warn",)

# Class archives: of a broker, and of what speaks to one.
BROKER_CLASSES, TOOL_CLASSES = "broker.jsa", "tools.jsa"
_ROUND_TRIP = ROOT / "tests" / "interop" / "java" / "RoundTrip.java"

# slf4j-simple: the tools speak through slf4j, and without a backend a failure would be silent.
POM = f"""<project xmlns="http://maven.apache.org/POM/4.0.0">
  <modelVersion>4.0.0</modelVersion>
  <groupId>odradek.test</groupId><artifactId>kafka</artifactId><version>1</version><packaging>pom</packaging>
  <dependencies>
    <dependency><groupId>org.apache.kafka</groupId><artifactId>kafka_2.13</artifactId>
      <version>{VERSION}</version></dependency>
    <dependency><groupId>org.apache.kafka</groupId><artifactId>kafka-tools</artifactId>
      <version>{VERSION}</version></dependency>
    <dependency><groupId>org.slf4j</groupId><artifactId>slf4j-simple</artifactId>
      <version>1.7.36</version></dependency>
  </dependencies>
</project>
"""


class KafkaUnavailableError(Exception):
    """Apache Kafka is not available on this machine; the text says why in one line."""


def find_java() -> Path:
    """The `java` to use: of JAVA_HOME, else of PATH; raises KafkaUnavailableError where there is none."""
    home = os.environ.get("JAVA_HOME")
    if home and (Path(home) / "bin" / "java").exists():
        return Path(home) / "bin" / "java"
    found = shutil.which("java")
    if found is None:
        raise KafkaUnavailableError("java is not on PATH and JAVA_HOME is not set")
    return Path(found)


@functools.cache
def kafka_libraries() -> Path:
    """The folder of Kafka's jars, fetched first where it is missing; raises KafkaUnavailableError."""
    find_java()
    if (LIBRARIES / f"kafka-clients-{VERSION}.jar").exists():
        return LIBRARIES
    if shutil.which("mvn") is None:
        raise KafkaUnavailableError("mvn (Maven) is not on PATH")
    HOME.mkdir(parents=True, exist_ok=True)
    with (HOME / ".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not LIBRARIES.exists():
            _fetch_libraries()
    return LIBRARIES


def _fetch_libraries() -> None:
    with tempfile.TemporaryDirectory(dir=HOME) as folder:
        (Path(folder) / "pom.xml").write_text(POM)
        fetched = Path(folder) / "lib"
        done = subprocess.run(
            ["mvn", "-q", "-B", "dependency:copy-dependencies", f"-DoutputDirectory={fetched}"],
            cwd=folder,
            capture_output=True,
            text=True,
            stdin=subprocess.DEVNULL,
        )
        if done.returncode != 0:
            lines = [line for line in done.stdout.splitlines() if "ERROR" in line] or ["no reason given"]
            raise KafkaUnavailableError(f"Maven could not fetch Apache Kafka {VERSION}: {lines[0][:200]}")
        fetched.rename(LIBRARIES)


def require_kafka() -> None:
    """Skip the test at hand, with the reason, where Apache Kafka is not available."""
    try:
        kafka_libraries()
    except KafkaUnavailableError as error:
        pytest.skip(f"needs Apache Kafka {VERSION}: {error}")


def java_command(main: str, arguments: Sequence[object] = (), jvm_options: Sequence[str] = ()) -> list[str]:
    """The command that runs a class, or a single `.java` file, with all of Kafka on its class path."""
    archive = BROKER_CLASSES if main.startswith("kafka.") else TOOL_CLASSES  # the tools in Scala share the broker's
    return _java(main, arguments, (*class_archive_options(archive), *(jvm_options or TOOL_JVM_OPTIONS)))


def _java(main: str, arguments: Sequence[object], jvm_options: Sequence[str]) -> list[str]:
    options = [*jvm_options, *LOGGING_JVM_OPTIONS, "-cp", f"{kafka_libraries()}/*"]
    return [str(find_java()), *options, main, *(str(argument) for argument in arguments)]


def class_archive_options(name: str) -> tuple[str, ...]:
    """The options with which a JVM starts from an archive; its class path must be exactly Kafka's."""
    libraries = kafka_libraries()
    key = class_archive.fingerprint(find_java(), libraries.iterdir(), _ROUND_TRIP.read_text())
    folder = class_archive.archives(HOME, key, _write_class_archives)
    return class_archive.read_options(folder and folder / name)


def _write_class_archives(folder: Path) -> None:
    """A broker, and a program that does to it most of what tools do."""
    with tempfile.TemporaryDirectory() as place, _Archiving(Path(place), folder / BROKER_CLASSES) as kafka:
        options = (*TOOL_JVM_OPTIONS, *class_archive.write_options(folder / TOOL_CLASSES))
        command = _java(str(_ROUND_TRIP), [kafka.bootstrap, "archived"], options)
        subprocess.run(
            command, check=True, capture_output=True, stdin=subprocess.DEVNULL, timeout=ARCHIVE_STEP_TIMEOUT_S
        )


def run_tool(
    main: str,
    arguments: Sequence[object] = (),
    *,
    stdin: str | None = None,
    check: bool = True,
    timeout_s: float = 180.0,
) -> subprocess.CompletedProcess[str]:
    """Run one of Kafka's command-line tools by its class and return what it printed.

    Args:
        main: a class name such as `org.apache.kafka.tools.TopicCommand`, or the path of a `.java` file with a main.
        arguments: as on the command line of the tool.
        stdin: text for its standard input; nothing is given by default.
        check: raise AssertionError with both outputs where the exit code is not 0.
        timeout_s: end it after so many seconds; raises subprocess.TimeoutExpired.
    """
    command = java_command(main, arguments)
    # Standard input and `input` exclude each other in subprocess.run.
    done = subprocess.run(command, capture_output=True, text=True, input=stdin or "", timeout=timeout_s)
    if check and done.returncode != 0:
        raise AssertionError(f"{main} {arguments} ended with {done.returncode}:\n{done.stdout}\n{done.stderr}")
    return done


def random_uuid() -> str:
    """An ID as Kafka writes it; one that begins with a hyphen would be an option to a tool."""
    return "k" + base64.urlsafe_b64encode(uuid.uuid4().bytes).decode()[1:22]


class ApacheKafka(ServerProcess):
    """One node of Apache Kafka, broker and controller in one, over a directory; ports stay the same over restarts.

    Args:
        directory: holds the data directory, server.properties and the log of the process.
        overrides: settings by Kafka's keys, on top of a node for tests with small internal topics.
        heap: maximum and initial heap, as the JVM writes it.
        port: of the listener for clients; a free one by default.
        measured: with the collector and the compilers of a broker that runs for long, as benchmarks compare with.
    """

    what = "Kafka"
    start_timeout_s = START_TIMEOUT_S
    stop_timeout_s = 60.0

    def __init__(
        self,
        directory: Path,
        overrides: Mapping[str, object] | None = None,
        *,
        heap: str = "512m",
        port: int | None = None,
        measured: bool = False,
    ) -> None:
        super().__init__(directory, "kafka.log", port or free_port())
        self.measured = measured
        self.data_dir = self.directory / "data"
        self.properties = self.directory / "server.properties"
        self.heap = heap
        self.controller_port = free_port()
        self.settings: dict[str, object] = {
            "process.roles": "broker,controller",
            "node.id": 1,
            "controller.quorum.voters": f"1@127.0.0.1:{self.controller_port}",
            "controller.listener.names": "CONTROLLER",
            "listeners": f"PLAINTEXT://127.0.0.1:{self.port},CONTROLLER://127.0.0.1:{self.controller_port}",
            "advertised.listeners": f"PLAINTEXT://127.0.0.1:{self.port}",
            "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT",
            "log.dirs": self.data_dir,
            "offsets.topic.num.partitions": 4,
            "offsets.topic.replication.factor": 1,
            "transaction.state.log.num.partitions": 4,
            "transaction.state.log.replication.factor": 1,
            "transaction.state.log.min.isr": 1,
            "share.coordinator.state.topic.num.partitions": 4,
            "share.coordinator.state.topic.replication.factor": 1,
            "share.coordinator.state.topic.min.isr": 1,
            "group.initial.rebalance.delay.ms": 0,
        } | dict(overrides or {})

    def write_properties(self) -> None:
        """Write the properties file."""
        self.directory.mkdir(parents=True, exist_ok=True)
        self.properties.write_text("".join(f"{key}={value}\n" for key, value in self.settings.items()))

    def format(self) -> None:
        """Write the properties and format the data directory, once."""
        self.write_properties()
        if not (self.data_dir / "meta.properties").exists():
            run_tool("kafka.tools.StorageTool", ["format", "-t", random_uuid(), "-c", self.properties])

    def start(self) -> Self:
        """Format where needed, start the process and wait until it answers on its port."""
        self.format()
        return super().start()

    def command(self) -> list[str]:
        """The command line of the process, over a formatted directory."""
        return _java("kafka.Kafka", [self.properties], [f"-Xmx{self.heap}", *self.jvm_options()])

    def jvm_options(self) -> tuple[str, ...]:
        """The options of the JVM, without the heap's maximum."""
        if self.measured:
            return f"-Xms{self.heap}", "-XX:+UseG1GC", "-XX:MaxGCPauseMillis=20"
        return (*SHORT_JVM_OPTIONS, *class_archive_options(BROKER_CLASSES))

    def _killed(self, code: int) -> int:
        return code


class _Archiving(ApacheKafka):
    """One that writes a class archive when it stops."""

    start_timeout_s = ARCHIVE_STEP_TIMEOUT_S
    stop_timeout_s = ARCHIVE_STEP_TIMEOUT_S

    def __init__(self, directory: Path, archive: Path) -> None:
        super().__init__(directory)
        self.archive = archive

    def jvm_options(self) -> tuple[str, ...]:
        return (*SHORT_JVM_OPTIONS, *class_archive.write_options(self.archive))


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.support.nodes.apache_kafka", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    start = commands.add_parser("start", help="run one node in the foreground until Ctrl-C")
    start.add_argument("--port", type=int, default=9092)
    start.add_argument("--dir", type=Path, help="a folder to keep; a temporary one by default")
    start.add_argument("--heap", default="1g")
    start.add_argument("--override", action="append", default=[], metavar="KEY=VALUE")
    tool = commands.add_parser("tool", help="run a command-line tool by its class")
    tool.add_argument("main")
    tool.add_argument("arguments", nargs=argparse.REMAINDER)
    commands.add_parser("fetch", help="only fetch Kafka into .cache")
    options = parser.parse_args(arguments)
    if options.command == "fetch":
        print(kafka_libraries())
        return 0
    if options.command == "tool":
        return subprocess.run(java_command(options.main, options.arguments)).returncode
    overrides = dict(pair.split("=", 1) for pair in options.override)
    with tempfile.TemporaryDirectory() as temporary:
        place = options.dir or Path(temporary)
        kafka = ApacheKafka(place, overrides, heap=options.heap, port=options.port, measured=True)
        with kafka:
            print(f"Apache Kafka {VERSION} listens on {kafka.bootstrap}, pid {kafka.pid}, in {kafka.directory}")
            signal.signal(signal.SIGTERM, signal.default_int_handler)
            with contextlib.suppress(KeyboardInterrupt):
                assert kafka.process is not None
                kafka.process.wait()
    return 0


if __name__ == "__main__":
    sys.exit(main())
