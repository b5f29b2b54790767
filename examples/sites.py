"""Helpers of examples with several clusters: read a command line, run commands of links, read the mirrored records."""

from __future__ import annotations

import argparse
import json
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, Protocol, Self

from confluent_kafka import OFFSET_BEGINNING, KafkaError, KafkaException, Message, TopicPartition

from examples.topics import TIMEOUT_S, reader
from odradek.testing.processes import ProcessCluster


class Report(Protocol):
    """The result of an example; its text is for a person."""

    @property
    def holds(self) -> bool: ...


def parser_of(name: str, description: str | None) -> argparse.ArgumentParser:
    """A parser for an example, with --folder."""
    parser = argparse.ArgumentParser(
        prog=f"python -m examples.{name}",
        description=description,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--folder", type=Path, help="keeps the data of all sites; it must be empty")
    return parser


def print_report(folder: Path | None, run: Callable[[Path], Report]) -> int:
    """Run an example in its folder, or in a temporary one, and print its report; returns 1 if that does not hold.

    Its nodes end with it, by SIGTERM as well.
    """
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    with tempfile.TemporaryDirectory(prefix="odradek-sites-") as temporary:
        report = run(folder or Path(temporary))
    print(report)
    return 0 if report.holds else 1


def odradek(site: ProcessCluster, *words: str) -> None:
    """Run a command about links at a site; what it prints is shown."""
    command(site, "links", *words)


def command(site: ProcessCluster, *words: str) -> None:
    """Run any command at a site; what it prints is shown."""
    print("odradek", *words, flush=True)
    subprocess.run(_command(site, *words), check=True)


def described(site: ProcessCluster, link: str) -> dict[str, Any]:
    """All that the brokers of a site say of a link."""
    shown = subprocess.run(_command(site, "links", "describe", link, "--json"), check=True, capture_output=True).stdout
    found: dict[str, Any] = json.loads(shown)
    return found


def _command(site: ProcessCluster, *words: str) -> list[str]:
    return [sys.executable, "-m", "odradek", *words, "--bootstrap-server", site.bootstrap_servers]


def await_true(there: Callable[[], bool], what: str, within_s: float = TIMEOUT_S, every_s: float = 0.1) -> None:
    """Look again and again. Raises TimeoutError."""
    deadline = time.monotonic() + within_s
    while not there():
        if time.monotonic() > deadline:
            raise TimeoutError(f"{what}: not within {within_s:g} s")
        time.sleep(every_s)


class Reading(threading.Thread):
    """Reads partitions of a site from their start, and gives each record to `take`, until it is stopped.

    Starts at once; the site may go away and come back.
    """

    def __init__(self, bootstrap: str, partitions: Iterable[tuple[str, int]], take: Callable[[Message], None]) -> None:
        super().__init__(daemon=True)
        self._take = take
        self._is_over = threading.Event()
        self._consumer = reader(bootstrap)
        self._consumer.assign([TopicPartition(topic, number, OFFSET_BEGINNING) for topic, number in partitions])
        self.start()

    def run(self) -> None:
        try:
            while not self._is_over.is_set():
                for message in self._consumer.consume(1000, 0.05):
                    error = message.error()
                    if error is None:
                        self._take(message)
                    elif error.code() != KafkaError._PARTITION_EOF:
                        raise KafkaException(error)
        finally:
            self._consumer.close()

    def stop(self) -> None:
        """Return when it has ended."""
        self._is_over.set()
        self.join(TIMEOUT_S)


class Running:
    """`python -m` with these words, in a process that may be killed and started again. Used with `with`."""

    def __init__(self, *words: str, quiet: bool = False) -> None:
        """With `quiet` its standard error is not shown."""
        self._command = [sys.executable, "-m", *words]
        self._errors = subprocess.DEVNULL if quiet else None
        self._process = self._start()

    def kill(self) -> None:
        """As `kill -9`, and start it again."""
        self._process.kill()
        self._process.wait()
        self._process = self._start()

    def _start(self) -> subprocess.Popen[bytes]:
        print(*self._command[2:], flush=True)
        return subprocess.Popen(self._command, stderr=self._errors)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._process.terminate()
        self._process.wait()
