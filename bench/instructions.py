"""Machine instructions that a broker executes for one request, counted by Valgrind: the same on a busy machine.

`python -m bench.instructions` prints those of four small requests; `bench.request_steps` says where they go. Only
instructions of the process are counted, not those of the kernel for it (of a Produce of 1 KiB the smaller part). A
request is sent when the one before it is answered. The broker's periodic work is measured without requests, and
subtracted.
"""

from __future__ import annotations

import re
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import ClassVar

from bench.brokers import SETTINGS
from odradek.protocol.apis import ApiKey
from odradek.protocol.messages.offset_commit_request import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from tests.support.clients.api_calls import Calls, batch
from tests.support.nodes.node import Node

IDLE_S = 2.0
# The broker's periodic work falls into some counts more than into others.
COUNTS = 5
COUNTED = 160
# The caches of the interpreter and of the broker are filled by then.
WARM_UP = 60
GROUP = "a-group-of-usual-length"


def can_count() -> bool:
    """Whether Valgrind is installed."""
    return shutil.which("valgrind") is not None


def counting(directory: Path, within: str = "") -> list[str]:
    """The command that runs another one under callgrind, which counts on command, into files of `directory`.

    Args:
        within: the C function in which instructions are counted, called ones included; "" counts all of the process.
    """
    target = f"--callgrind-out-file={directory}/counted"
    collect = [f"--toggle-collect={within}"] if within else []
    return ["valgrind", "-q", "--tool=callgrind", "--instr-atstart=no", *collect, target]


@dataclass(frozen=True, slots=True)
class Counter:
    """Counts the instructions of a process that `counting` started with this directory.

    `idle_s` is how long it counts what the process does without requests; 0 if that is nothing.
    """

    pid: int
    directory: Path
    idle_s: float = IDLE_S

    def per_request(self, work: Callable[[], object]) -> float:
        """Instructions of one call of `work`, which sends a request and waits for its answer."""
        for _ in range(WARM_UP):
            work()
        counts = []
        for _ in range(COUNTS):
            idle, idle_s = self._count(lambda: time.sleep(self.idle_s)) if self.idle_s else (0, 1.0)
            used, used_s = self._count(lambda: [work() for _ in range(COUNTED)])
            counts.append((used - idle * used_s / idle_s) / COUNTED)
        return statistics.median(counts)

    def _count(self, work: Callable[[], object]) -> tuple[int, float]:
        """Instructions and seconds of some work."""
        self.control("--instr=on")
        self.control("--zero")
        begun = time.monotonic()
        work()
        took_s = time.monotonic() - begun
        self.control("--dump")
        self.control("--instr=off")
        newest = max(self.directory.glob("counted*"), key=lambda path: path.stat().st_mtime_ns)
        return total_of(newest.read_text()), took_s

    def control(self, what: str) -> None:
        """Give callgrind a command."""
        subprocess.run(["callgrind_control", what, str(self.pid)], check=True, capture_output=True, timeout=120)


def total_of(dump: str) -> int:
    """The instructions of one of callgrind's files."""
    total = re.search(r"^totals: (\d+)$", dump, re.MULTILINE)
    assert total is not None, dump[:1000]
    return int(total[1])


# Quotas are filled, and time is paid for, once a millisecond: as many requests are to share that as without Valgrind.
SLOWER = 50
_SLOWED = """
import runpy, time
from odradek.common import real_io
from odradek.server.network import request_quotas
request_quotas.LEAST_PAID_NS *= {times}
real_io.RealClock.monotonic_ms = lambda self: time.monotonic_ns() // (1_000_000 * {times})
runpy.run_module("{name}", run_name="__main__", alter_sys=True)
"""


class CountedNode(Node):
    """A node under Valgrind's callgrind, SLOWER times slower while its instructions are counted."""

    start_timeout_s = 600.0
    # The argument `within` of `counting`.
    within: ClassVar[str] = ""

    def environment(self) -> dict[str, str]:
        """The environment of a node with fixed hashes: others change the layout of dicts, which costs 2 to 4 %."""
        return super().environment() | {"PYTHONHASHSEED": "0"}

    def command(self) -> list[str]:
        python, _, name, *options = super().command()
        return [*counting(self.directory, self.within), python, "-c", _SLOWED.format(name=name, times=SLOWER), *options]

    def per_request(self, work: Callable[[], object]) -> float:
        """Instructions of one call of `work`, which sends a request and waits for its answer."""
        idle_s = 0.0 if self.within else IDLE_S
        return Counter(self.pid, Path(self.directory), idle_s).per_request(work)


def small_requests(calls: Calls) -> dict[str, Callable[[], object]]:
    """Requests of one partition; the Fetch reads the last record, as a consumer that keeps up does."""
    topic, read_topic, small = calls.create_topic(), calls.create_topic(), batch(bytes(128))
    calls.fill(read_topic, 3)
    calls.find_coordinator(GROUP)
    producer_id, numbers = calls.producer(), count()

    def produce_idempotent() -> None:
        numbered = batch(bytes(128), producer_id=producer_id, producer_epoch=0, sequence=next(numbers))
        answer = calls.produce(topic, numbered)
        assert not answer.error_code, answer

    return {
        "Produce of one record, acks=1": lambda: calls.produce(topic, small, acks=1),
        "Produce of one record, acks=all, idempotent": produce_idempotent,
        "Fetch of one record": lambda: calls.read(read_topic, 2),
        "OffsetCommit of one partition": lambda: commit(calls, topic),
    }


def commit(calls: Calls, topic: str) -> None:
    """Commit an offset."""
    partition = OffsetCommitRequestPartition(partition_index=0, committed_offset=1, committed_metadata="")
    named = OffsetCommitRequestTopic(name=topic, partitions=[partition])
    request = OffsetCommitRequest(group_id=GROUP, generation_id_or_member_epoch=-1, topics=[named])
    answer = calls.request(ApiKey.OFFSET_COMMIT, 8, request).topics[0].partitions[0]
    assert not answer.error_code, answer


def main() -> None:
    """Print a line for each request."""
    with (
        tempfile.TemporaryDirectory() as name,
        CountedNode(Path(name), dict(SETTINGS)) as node,
        Calls(node.port) as calls,
    ):
        for title, request in small_requests(calls).items():
            print(f"{title}: {node.per_request(request):,.0f} instructions", flush=True)


if __name__ == "__main__":
    if not can_count():
        sys.exit("Valgrind is not installed: apt-get install valgrind")
    main()
