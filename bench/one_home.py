"""One data directory that Apache Kafka and Odradek use in turn, so that both are measured over the very same files."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path

from bench.generator import run_load
from tests.support.nodes.apache_kafka import ApacheKafka

KAFKA, OURS = "Apache Kafka", "Odradek"
START_TIMEOUT_S = 120.0
STOP_TIMEOUT_S = 300.0
RECOVERY_POINTS = "recovery-point-offset-checkpoint"
CLEAN_STOP = ".kafka_cleanshutdown"
FAST = {
    "producer:reconnect.backoff.ms": 5,
    "producer:reconnect.backoff.max.ms": 10,
    "producer:retry.backoff.ms": 10,
    "producer:topic.metadata.refresh.fast.interval.ms": 10,
    "producer:linger.ms": 0,
}


class OneHome:
    """The directory, and whichever broker runs over it."""

    def __init__(self, folder: Path, program: Path, settings: Mapping[str, object]) -> None:
        """`program` is the load generator."""
        self.kafka = ApacheKafka(folder, settings, heap="1g", measured=True)
        self.kafka.stop_timeout_s = STOP_TIMEOUT_S
        self.program = program
        self._process: subprocess.Popen[bytes] | None = None
        self._who = KAFKA

    @property
    def bootstrap(self) -> str:
        return self.kafka.bootstrap

    @property
    def data_dir(self) -> Path:
        return self.kafka.data_dir

    def launch(self, who: str) -> None:
        """Start one of the two and do not wait for it."""
        self._who = who
        if who == KAFKA:
            self.kafka.format()
            self.kafka.launch()
            return
        command = [sys.executable, "-m", "odradek", "broker", "--config", str(self.kafka.properties)]
        environment = {key: value for key, value in os.environ.items() if key != "PYTHONDONTWRITEBYTECODE"}
        with (self.kafka.directory / "ours.log").open("ab") as output:
            self._process = subprocess.Popen(command, stdout=output, stderr=subprocess.STDOUT, env=environment)

    def seconds_to_serve(self, who: str, topic: str, *, timeout_s: float = START_TIMEOUT_S) -> float:
        """The time from the start of the process to the first acknowledged record.

        Raises:
            AssertionError: there was none in that time.
        """
        began = time.monotonic()
        self.launch(who)
        load = run_load(self.program, "first", self.bootstrap, topic, {"size": 100, "seconds": timeout_s, **FAST})
        assert load.raw["acked"] >= 1, f"{who} took no record in {timeout_s:g} s"
        return time.monotonic() - began

    def __enter__(self) -> OneHome:
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()

    def kill(self) -> None:
        self._end(signal.SIGKILL)

    def stop(self) -> None:
        """Stop the broker cleanly, with SIGTERM."""
        self._end(signal.SIGTERM)

    def _end(self, how: signal.Signals) -> None:
        if self.kafka.process is not None:
            self.kafka.stop() if how is signal.SIGTERM else self.kafka.kill()
        if self._process is not None:
            process, self._process = self._process, None
            process.send_signal(how)
            process.wait(timeout=STOP_TIMEOUT_S)

    def resident_bytes(self) -> int:
        """Memory of the process that runs."""
        fields = dict(line.split(":", 1) for line in Path(f"/proc/{self._pid}/status").read_text().splitlines())
        return int(fields["VmRSS"].split()[0]) * 1024

    def open_files(self) -> int:
        """Descriptors of the process that runs; files that are mapped and closed do not count."""
        return sum(1 for _ in Path(f"/proc/{self._pid}/fd").iterdir())

    @property
    def _pid(self) -> int:
        running = self._process or self.kafka.process
        assert running is not None, "neither runs"
        return running.pid

    def believe_up_to(self, topic: str, offset: int) -> None:
        """Set the recovery point of partition 0 to the offset, as after an unclean stop; the node must not run."""
        (self.data_dir / CLEAN_STOP).unlink(missing_ok=True)
        path = self.data_dir / RECOVERY_POINTS
        lines = path.read_text().split("\n")[2:] if path.exists() else []
        entries = [line for line in lines if line.strip() and not line.startswith(f"{topic} 0 ")]
        entries.append(f"{topic} 0 {offset}")
        path.write_text("\n".join(["0", str(len(entries)), *entries]) + "\n")

    def drop_from_page_cache(self, topic: str) -> None:
        """Let the system forget a partition's log, so that the next reader waits for the disk."""
        for path in (self.data_dir / f"{topic}-0").glob("*.log"):
            descriptor = os.open(path, os.O_RDONLY)
            try:
                os.fsync(descriptor)  # what is not written yet cannot be dropped
                os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
            finally:
                os.close(descriptor)
