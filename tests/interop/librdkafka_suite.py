"""librdkafka's own tests, from the sources that its npm package carries: built once, then one process a test."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from tests.interop.packages import (
    BUILD_PACKAGES,
    MissingError,
    cache_folder,
    require_command,
    require_packages,
    run_step,
)
from tests.support.nodes.apache_kafka import LOGGING_JVM_OPTIONS, TOOL_JVM_OPTIONS, find_java, kafka_libraries

PACKAGE = "@confluentinc/kafka-javascript@1.10.1"
VERSION = "2.15.1"
BROKER_VERSION = "4.2.0"
ROOT = Path(__file__).resolve().parents[2]
RUNNER = "test-runner"
# The optimizer takes most of a build's time. The libraries need it: benchmarks link them. The tests mostly wait.
QUICK_BUILD = ("env", "CFLAGS=-O0 -g0", "CXXFLAGS=-O0 -g0")


@dataclass(frozen=True, slots=True)
class Outcome:
    """The result of one test of librdkafka: `status` is PASSED, SKIPPED or FAILED; subtests are those that passed."""

    status: str
    subtest_count: int
    seconds: float
    reason: str


def sources() -> Path:
    """librdkafka's sources in `.cache`, configured and with its libraries built; raises MissingError."""
    with cache_folder(f"librdkafka-{VERSION}") as folder:
        log = folder / "built.txt"
        if not (folder / "configure").exists():
            _fetch(folder)
        if not (folder / "src" / "librdkafka.a").exists():
            require_packages(BUILD_PACKAGES)
            require_command("gcc")
            # Its tests mostly wait: a library that is built in half the time is worth more here than a fast one.
            options = ["--disable-debug-symbols", "--disable-optimization"]
            run_step(["./configure", *options], folder, log, "configure of librdkafka")
            run_step(["nice", "make", "-j2", "libs"], folder, log, "make of librdkafka")
        return folder


def runner() -> Path:
    """The built test runner; two minutes of processor time the first time. Raises MissingError."""
    folder = sources()
    with cache_folder(folder.name):
        found = folder / "tests" / RUNNER
        if _accepts_other_refusals(folder / "tests" / "0097-ssl_verify.cpp") or not found.exists():
            command = [*QUICK_BUILD, "nice", "make", "-j2", "-C", "tests", "build"]
            run_step(command, folder, folder / "built.txt", "librdkafka's tests")
        return found


# Errors that 0097 expects when a certificate is refused, and others that it must accept. Brokers of Java send
# bad_certificate (42) or handshake_failure (40); OpenSSL sends unknown_ca (48), as in RFC 8446 6.2. In TLS 1.3 a client
# has shaken hands before the broker refuses its certificate, and librdkafka reports an error of the transport; it does
# so, too, if the handshake goes on while the client waits to write.
_ALERT, _FOUND = 'event.str().find("alert number ', '") != std::string::npos'
_REFUSALS = {
    f"{_ALERT}40{_FOUND}": f" || {_ALERT}48{_FOUND}",
    "event.err() != RdKafka::ERR__ALL_BROKERS_DOWN": " && event.err() != RdKafka::ERR__TRANSPORT",
}


def _accepts_other_refusals(source: Path) -> bool:
    """Let 0097 take them; whether it did not before."""
    text = source.read_text()
    changed = text
    for theirs, ours in _REFUSALS.items():
        if text.count(theirs) != 1:
            raise MissingError(f"{source.name} is another one: change _REFUSALS")
        changed = changed if theirs + ours in text else changed.replace(theirs, theirs + ours)
    source.write_text(changed)
    return changed != text


def _fetch(folder: Path) -> None:
    npm = require_command("npm")
    log = folder / "built.txt"
    run_step([npm, "pack", "--silent", PACKAGE], folder, log, f"npm pack {PACKAGE}")
    archive = next(folder.glob("*.tgz"))
    run_step(["tar", "xzf", archive.name, "--strip-components=3", "package/deps/librdkafka"], folder, log, "tar")
    archive.unlink()
    if not (folder / "tests" / "test.c").exists():
        raise MissingError(f"{PACKAGE} carries no tests of librdkafka")


def write_tools(folder: Path) -> Path:
    """Write `bin/kafka-topics.sh` and `bin/kafka-acls.sh`, which some tests execute, and return their KAFKA_PATH."""
    for name in ("topics", "acls"):
        script = folder / "bin" / f"kafka-{name}.sh"
        script.parent.mkdir(parents=True, exist_ok=True)
        command = shlex.join([sys.executable, "-m", "tests.interop.kafka_scripts", name])
        script.write_text(f'#!/bin/sh\ncd {shlex.quote(str(ROOT))} && exec {command} "$@"\n')
        script.chmod(0o755)
    return folder


def add_java(folder: Path) -> None:
    """Add Kafka's jars and kafka-run-class.sh, with which the tests build and run their own Java programs.

    Raises:
        KafkaUnavailableError.
    """
    libraries = kafka_libraries()
    link = folder / "libs"
    if not link.exists():
        link.symlink_to(libraries)
    script = folder / "bin" / "kafka-run-class.sh"
    options = shlex.join((*TOOL_JVM_OPTIONS, *LOGGING_JVM_OPTIONS))
    java, jars = shlex.quote(str(find_java())), shlex.quote(f"{libraries}/*")
    script.write_text(f'#!/bin/sh\nexec {java} {options} -cp "$CLASSPATH":{jars} "$@"\n')
    script.chmod(0o755)


def run_test(
    number: str,
    bootstrap: str,
    folder: Path,
    *,
    quick: bool,
    client: Mapping[str, str] | None = None,
    arguments: tuple[str, ...] = (),
    environment: dict[str, str] | None = None,
    java: bool = False,
    timeout_s: float = 300.0,
) -> Outcome:
    """Run one test of librdkafka in a process and a folder of its own.

    Args:
        number: of the test, four digits; with `/` and the name of a function behind it, only its subtests run.
        bootstrap: the broker, host:port.
        folder: empty; gets the configuration and the output.
        quick: librdkafka's quick mode, which turns many subtests off.
        client: settings of its clients, above those that all tests have.
        arguments: further ones of the test runner.
        environment: further variables.
        java: the test runs Java programs of its own.
        timeout_s: the process is killed after it, and the test has failed.
    """
    number, _, subtests = number.partition("/")
    folder.mkdir(parents=True, exist_ok=True)
    tools = write_tools(folder)
    if java:
        add_java(tools)
    config = folder / "test.conf"
    settings = {"bootstrap.servers": bootstrap, "test.topic.random": "true", **(client or {})}
    config.write_text("".join(f"{name}={value}\n" for name, value in settings.items()))
    command = [str(runner()), "-p1", "-L", "-K", *(["-Q"] if quick else []), *arguments]
    variables = {
        **{key: value for key, value in os.environ.items() if key != "CI"},
        "LD_LIBRARY_PATH": f"{sources() / 'src'}:{sources() / 'src-cpp'}",
        "RDKAFKA_TEST_CONF": str(config),
        "BROKERS": bootstrap,
        "TEST_KAFKA_VERSION": BROKER_VERSION,
        "KAFKA_PATH": str(tools),
        "TESTS": number,
        **({"SUBTESTS": f"{subtests}:"} if subtests else {}),
        **(environment or {}),
    }
    output = folder / "output.txt"
    started = time.monotonic()
    with output.open("wb") as log:
        try:
            subprocess.run(
                command,
                cwd=runner().parent,
                env=variables,
                stdout=log,
                stderr=subprocess.STDOUT,
                stdin=subprocess.DEVNULL,
                timeout=timeout_s,
            )
        except subprocess.TimeoutExpired:
            return Outcome("FAILED", 0, timeout_s, f"still running after {timeout_s:.0f} s: {_last_words(output)}")
    outcome = _read_outcome(output, number, time.monotonic() - started)
    if subtests and outcome.status == "PASSED" and outcome.subtest_count == 0:
        return Outcome("FAILED", 0, outcome.seconds, f"no subtest is named {subtests}")
    return outcome


def _read_outcome(output: Path, number: str, seconds: float) -> Outcome:
    text = _plain_text(output)
    subtests = len(re.findall(r": PASS (\([\d.]+s\) )?\]", text))
    # One line for each test of the number: those that need no broker are others, and are skipped.
    summary = set(re.findall(rf"\| +{number}_\S+ +\| +(\w+) \|", text))
    if not summary:  # an assertion that failed ends the process before its summary
        return Outcome("FAILED", subtests, seconds, f"ended without a summary: {_last_words(output)}")
    status = next((each for each in ("FAILED", "PASSED") if each in summary), "SKIPPED")
    return Outcome(status, subtests, seconds, "" if status == "PASSED" else _last_words(output))


def _last_words(output: Path) -> str:
    """The line that says what failed, else the last lines."""
    lines = [line for line in _plain_text(output).splitlines() if line.strip()]
    failed = [line for line in lines if "FAIL" in line or "TEST FAILURE" in line or "assert" in line.lower()]
    return " / ".join(failed[:3] or lines[-3:])[-600:]


def _plain_text(output: Path) -> str:
    """The output of a test without its colour codes."""
    return re.sub(r"\x1b\[\d*m", "", output.read_text(errors="replace"))
