"""The cost of several brokers on one machine: `python -m bench.host_bench`; `BROKERS=1,2,4` sets their numbers.

`odradek host` runs them; `odradek perf produce` writes values of 1 KB into a topic with one replica and partitions on
all of them, at one rate and in batches of a tenth of a second, so that every number of brokers gets the same batches.
The benchmark prints, for each number of brokers, a broker's share of a core while it is idle, the processor seconds of
all brokers for each GB beyond that, the memory of a broker, and the rate that was reached: medians of rounds that
alternate. It cannot show how much faster more brokers are, because the generator uses the same cores.
"""

from __future__ import annotations

import os
import statistics
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path

from bench.brokers import cpu_s
from tests.support.clients.cli import odradek, odradek_process
from tests.support.nodes.host_process import KINDS, MOST_BROKERS, HostProcess, ports_in_a_row

ROUNDS = 2
SECONDS = 4
# A broker imports and compiles with the first requests what it needs for them: 30 ms, as much as for 20 MB.
WARM_UP_S = 1
SETTLE_S = 1
VALUE_BYTES = 1000
PARTITIONS = 8
RATE = 20_000
LINGER_MS = 100
GB = 1e9


@dataclass
class Cost:
    """The measurements of one number of brokers, a value for each round."""

    idle_percent: list[float] = field(default_factory=list)
    cpu_s_per_gb: list[float] = field(default_factory=list)
    memory_mb: list[float] = field(default_factory=list)
    mb_per_s: list[float] = field(default_factory=list)

    def line(self, brokers: int) -> str:
        """A row of the table."""
        columns = (self.idle_percent, self.cpu_s_per_gb, self.memory_mb, self.mb_per_s)
        idle, cpu, memory, rate = map(statistics.median, columns)
        return f"{brokers:7}  {idle:6.2f}  {cpu:12.2f}  {memory:15.0f}  {rate:7.0f}"


def total_cpu_s(host: HostProcess) -> float:
    """Processor seconds of all its brokers so far."""
    return sum(cpu_s(broker["pid"]) for broker in host.brokers())


def produce(host: HostProcess, seconds: int) -> None:
    load = ("--size", VALUE_BYTES, "--seconds", seconds, "--rate", RATE, "--linger-ms", LINGER_MS)
    odradek_process(host.bootstrap, "perf", "produce", "load", *load)


def written_bytes(host: HostProcess) -> int:
    """The size of all partitions of the topic."""
    return sum(path.stat().st_size for disk in host.disks for path in disk.glob("broker-*/load-*/*.log"))


def measure(root: Path, brokers: int, cost: Cost) -> None:
    """Run one round and add its values to `cost`."""
    with ports_in_a_row(len(KINDS) * MOST_BROKERS + 1) as first, HostProcess(root, first) as host:
        host.start("--cores", brokers)
        odradek(host.bootstrap, "topics", "create", "load", "--partitions", PARTITIONS, "--replication-factor", 1)
        produce(host, WARM_UP_S)
        time.sleep(SETTLE_S)
        idle_s, began_s = -total_cpu_s(host), time.monotonic()
        time.sleep(SECONDS)
        before_s, before_bytes = total_cpu_s(host), written_bytes(host)
        share = (idle_s + before_s) / (time.monotonic() - began_s)
        began_s = time.monotonic()
        produce(host, SECONDS)
        used_s = total_cpu_s(host) - before_s - share * (time.monotonic() - began_s)
        written = written_bytes(host) - before_bytes
        described = odradek(host.bootstrap, "topics", "describe", "load", "--json").json
        assert len({part["leader"] for part in described[0]["partitions"]}) == brokers
        cost.idle_percent.append(100 * share / brokers)
        cost.cpu_s_per_gb.append(used_s / (written / GB))
        cost.memory_mb.append(statistics.median(each["memory_bytes"] for each in host.brokers()) / 1e6)
        cost.mb_per_s.append(written / 1e6 / SECONDS)


def main() -> None:
    """Print the table."""
    numbers = [int(each) for each in os.environ.get("BROKERS", "1,2,4").split(",")]
    costs = {number: Cost() for number in numbers}
    with tempfile.TemporaryDirectory() as name:
        for turn in range(ROUNDS):
            for number, cost in costs.items():
                measure(Path(name) / f"{turn}-{number}", number, cost)
    print(f"{os.cpu_count()} cores, which the generator shares")
    print("brokers  idle %  CPU s per GB  MB of a broker  MB a second")
    for number, cost in costs.items():
        print(cost.line(number))


if __name__ == "__main__":
    main()
