"""Both brokers as processes that can be measured: processor time and memory from /proc."""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Mapping
from pathlib import Path

from bench.generator import run_load
from tests.support.clients.confluent import admin, create_topic
from tests.support.nodes.apache_kafka import ApacheKafka
from tests.support.nodes.node import Node

KAFKA_HEAP = "1g"
# Deleted topics leave the disk at once; everything else is as each broker has it by default.
SETTINGS: Mapping[str, object] = {"log.segment.delete.delay.ms": 0, "auto.create.topics.enable": "false"}
TICKS_PER_S = os.sysconf("SC_CLK_TCK")
_CPUCLOCK_SCHED = 2


def cpu_s(pid: int) -> float:
    """Processor seconds of a process so far, of all its threads, in user and kernel."""
    # The clock of another process, numbered as clock_getcpuclockid(3) does: nanoseconds, where /proc has ticks.
    return time.clock_gettime(~pid << 3 | _CPUCLOCK_SCHED)


class Contestant:
    """One broker under measurement."""

    def __init__(self, name: str, broker: Node | ApacheKafka) -> None:
        self.name = name
        self.broker = broker

    @property
    def bootstrap(self) -> str:
        return self.broker.bootstrap

    def cpu_s(self) -> float:
        """Processor seconds of the process so far, of all its threads, in user and kernel."""
        return cpu_s(self.broker.pid)

    def memory_bytes(self) -> int:
        """Resident memory of the process."""
        status = Path(f"/proc/{self.broker.pid}/status").read_text()
        fields = dict(line.split(":", 1) for line in status.splitlines())
        return int(fields["VmRSS"].split()[0]) * 1024

    def start_seconds(self, program: Path) -> float:
        """The time from the start of the process to the first acknowledged record, with one topic on the disk."""
        if "first" not in admin(self.bootstrap).list_topics(timeout=30).topics:
            create_topic(self.bootstrap, "first")
        self.broker.stop()
        started = time.monotonic()
        fast = {"producer:reconnect.backoff.ms": 5, "producer:reconnect.backoff.max.ms": 10, "producer:linger.ms": 0}
        fast["producer:retry.backoff.ms"] = 10
        fast["producer:topic.metadata.refresh.fast.interval.ms"] = 10
        self.broker.launch()  # without waiting for the port: the generator waits at a finer grain
        result = run_load(program, "first", self.bootstrap, "first", {"size": 100, "seconds": 60, **fast})
        seconds = time.monotonic() - started
        assert result.raw["acked"] >= 1, f"{self.name} took no record in a minute"
        return seconds


class OtherCheckout(Node):
    """A node of the sources in another checkout, with the packages of this one."""

    def __init__(self, directory: Path, tree: Path) -> None:
        super().__init__(directory, dict(SETTINGS))
        self._tree = tree

    def environment(self) -> dict[str, str]:
        """The environment of a node, with the other checkout's sources before the installed ones."""
        return {**super().environment(), "PYTHONPATH": str(self._tree / "src")}


def start_contestants(folder: Path, *, against_itself: bool = False, tree: Path | None = None) -> list[Contestant]:
    """Two brokers, both running, each over a folder of its own.

    Args:
        against_itself: Apache Kafka in both places.
        tree: another checkout of Odradek, in the place of Apache Kafka.
    """
    if tree is not None:
        other, node = OtherCheckout(folder / "other", tree), Node(folder / "odradek", dict(SETTINGS))
        return [Contestant(str(tree), other.start()), Contestant("Odradek", node.start())]
    kafka = ApacheKafka(folder / "kafka", SETTINGS, heap=KAFKA_HEAP, measured=True)
    ours: Node | ApacheKafka
    if against_itself:
        ours = ApacheKafka(folder / "odradek", SETTINGS, heap=KAFKA_HEAP, measured=True)
    else:
        ours = Node(folder / "odradek", dict(SETTINGS))
    return [Contestant("Apache Kafka", kafka.start()), Contestant("Odradek", ours.start())]


def machine() -> dict[str, str]:
    """The machine and the versions of a measurement."""
    info = Path("/proc/cpuinfo").read_text()
    model = next((line.split(":")[1].strip() for line in info.splitlines() if line.startswith("model name")), "unknown")
    memory_kb = int(Path("/proc/meminfo").read_text().split()[1])
    java = subprocess.run(["java", "-version"], capture_output=True, text=True).stderr.splitlines()[:1]
    return {
        "processor": f"{os.cpu_count()} cores, {model}",
        "memory": f"{memory_kb / 2**20:.0f} GiB",
        "kernel": os.uname().release,
        "Java": java[0] if java else "none",
    }
