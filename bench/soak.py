"""Three brokers under a steady load for long, one of them restarted half-way: `python -m bench.soak --minutes 60`.

`odradek perf soak` writes at a fixed rate with acks=all to a topic with three replicas and reads it at once, in a
process of its own. Printed are what was lost and repeated, the percentiles of each tenth of the time, the processor
time of the three brokers for each GB of records (their start included), and the slope of each broker's memory. The exit
code is 1 where an acknowledged record was not read, or not all records that were sent were acknowledged.
"""

from __future__ import annotations

import argparse
import csv
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from bench.trios import SETTINGS, Trio, until
from odradek.cli.output import print_table
from odradek.testing.processes import NodeProcess, ProcessCluster

TOPIC = "soak"
PARTITIONS = 6
COPIES = 3
SAMPLE_S = 2.0
TENTHS = 10
GB = 1e9
MIB = 1 << 20
# Records that were read may be deleted: an hour at 5,800 records of 1 KiB a second is 21 GB in each replica.
RETENTION = {"log.segment.bytes": 64 * MIB, "log.retention.bytes": 256 * MIB, "log.retention.check.interval.ms": 10_000}
# The first part of the life of a process fills caches and pools; a slope is taken behind it.
WARM_UP = 0.3
CLICKS_PER_S = os.sysconf("SC_CLK_TCK")


@dataclass
class Life:
    """One process of a broker: its memory over time, and its processor time.

    Attributes:
        samples: (seconds from the start of the load, resident bytes).
    """

    node_id: int
    pid: int
    samples: list[tuple[float, int]] = field(default_factory=list)
    cpu_s: float = 0.0

    def sample(self, at_s: float) -> None:
        """Look at the process; one that has ended keeps what was seen last."""
        try:
            status = Path(f"/proc/{self.pid}/status").read_text()
            stat = Path(f"/proc/{self.pid}/stat").read_text()
        except OSError:
            return
        # The name of the program, in parentheses, may hold blanks; user and system time are 11 and 12 fields behind it.
        times = stat.rpartition(")")[2].split()[11:13]
        self.cpu_s = sum(map(int, times)) / CLICKS_PER_S
        resident = next((line for line in status.splitlines() if line.startswith("VmRSS:")), None)
        if resident is not None:  # a process that ends has none
            self.samples.append((at_s, int(resident.split()[1]) * 1024))

    def slope_mb_per_hour(self) -> float | None:
        """The growth of the memory, by least squares after the warm-up; None if there are too few samples."""
        first, last = self.samples[0][0], self.samples[-1][0]
        kept = [each for each in self.samples if each[0] >= first + WARM_UP * (last - first)]
        if len(kept) < 3:
            return None
        mean_s = sum(at for at, _ in kept) / len(kept)
        mean_bytes = sum(size for _, size in kept) / len(kept)
        spread = sum((at - mean_s) ** 2 for at, _ in kept)
        return sum((at - mean_s) * (size - mean_bytes) for at, size in kept) / spread * 3600 / 1e6


def perf_soak(bootstrap: str, minutes: float, rate: float, folder: Path) -> subprocess.Popen[bytes]:
    """The load, as a user would start it."""
    options = ["--minutes", minutes, "--rate", rate, "--threads", 2, "--size", 1000, "--json"]
    options += ["--interval", max(1.0, minutes * 60 / (6 * TENTHS))]
    options += ["--csv", folder / "soak.csv", "--svg", folder / "soak.svg", "--bootstrap-server", bootstrap]
    command = [sys.executable, "-m", "odradek", "perf", "soak", TOPIC, *map(str, options)]
    with (folder / "soak.json").open("wb") as output, (folder / "soak.err").open("wb") as errors:
        return subprocess.Popen(command, stdout=output, stderr=errors)


class Watch:
    """The brokers while the load runs."""

    def __init__(self, cluster: Trio) -> None:
        self._cluster = cluster
        self._started = self._sampled = time.monotonic()
        self.lives = [Life(node_id, node.pid) for node_id, node in cluster.nodes.items()]

    def until_end(self, load: subprocess.Popen[bytes], due: Sequence[float]) -> None:
        """Sample until the load ends; at each of these seconds the next broker is restarted, one at a time."""
        node_ids = list(self._cluster.nodes)
        count = 0
        while load.poll() is None:
            self._sample()
            if count < len(due) and time.monotonic() - self._started >= due[count]:
                self._restart(node_ids[count % len(node_ids)])
                count += 1
            time.sleep(SAMPLE_S / 4)

    def _restart(self, node_id: int) -> None:
        cluster = self._cluster
        print(f"{time.monotonic() - self._started:7.1f} s: broker {node_id} restarts", file=sys.stderr, flush=True)
        cluster.stop_cleanly(node_id)
        cluster.launch(node_id)
        self.lives.append(Life(node_id, cluster.nodes[node_id].pid))

        def is_whole() -> bool:
            self._sample()
            return cluster.copies_in_sync(TOPIC) == COPIES

        until(is_whole, "all replicas are in sync again")

    def _sample(self) -> None:
        now = time.monotonic()
        if now - self._sampled >= SAMPLE_S:
            self._sampled = now
            for life in self.lives:
                life.sample(now - self._started)


def tenths(path: Path) -> list[list[object]]:
    """Rows of the load's CSV file, ten for the whole time: the worst percentile of each tenth's intervals."""
    with path.open(newline="") as file:
        lines = list(csv.DictReader(file))
    end_s = float(lines[-1]["end_s"])
    rows: list[list[object]] = []
    for number in range(TENTHS):
        part = [line for line in lines if number * end_s < float(line["end_s"]) * TENTHS <= (number + 1) * end_s]
        if part:
            worst = [
                max((float(line[column]) for line in part if line[column]), default=0.0)
                for column in ("ack_p50_ms", "ack_p99_ms", "ack_max_ms", "read_p50_ms", "read_p99_ms", "read_max_ms")
            ]
            acked = sum(int(line["acknowledged"]) for line in part)
            rows.append([f"{float(part[-1]['end_s']):.0f}", acked, *(f"{value:.1f}" for value in worst)])
    return rows


def show(outcome: dict[str, Any], lives: Sequence[Life], folder: Path) -> None:
    """The tables of a run."""
    headings = ["until s", "acked", "ack p50", "ack p99", "ack max", "read p50", "read p99", "read max"]
    print_table(headings, tenths(folder / "soak.csv"))
    print("milliseconds from when a record was due; the worst interval of each tenth\n")
    rows: list[list[object]] = []
    for life in lives:
        if not life.samples:
            continue
        slope = life.slope_mb_per_hour()
        first, last = life.samples[0], life.samples[-1]
        sizes = f"{first[1] / 1e6:.1f}", f"{last[1] / 1e6:.1f}", f"{max(size for _, size in life.samples) / 1e6:.1f}"
        rows.append([life.node_id, f"{last[0] - first[0]:.0f}", *sizes, "-" if slope is None else f"{slope:+.2f}"])
    print_table(["broker", "seconds", "MB first", "MB last", "MB most", "MB/h"], rows)
    size_bytes = outcome["bytes_per_second"] * outcome["seconds"]
    cpu_s = sum(life.cpu_s for life in lives)
    print(
        f"\n{outcome['sent']:,} sent, {outcome['acknowledged']:,} acknowledged, {outcome['read']:,} read, "
        f"{outcome['lost']:,} lost, {outcome['repeated']:,} repeated, {outcome['failed']:,} failed\n"
        f"{cpu_s / max(size_bytes / GB, 1e-9):.1f} processor seconds of the brokers for each GB produced, replicated "
        f"to {COPIES} and read once"
    )


def main(argv: Sequence[str] | None = None) -> int:
    """Run, show, and return the exit code."""
    parser = argparse.ArgumentParser(prog="python -m bench.soak", description=__doc__.partition("\n")[0])
    parser.add_argument("--minutes", type=float, default=60.0)
    parser.add_argument("--rate", type=float, default=5800.0, help="records of 1,000 bytes a second")
    parser.add_argument("--restarts", type=int, default=1, help="how many restarts of a broker, in equal distances")
    parser.add_argument("--keep", type=Path, help="a directory for the CSV file, the picture and the brokers' logs")
    options = parser.parse_args(argv)
    with tempfile.TemporaryDirectory() as temporary:
        folder = options.keep or Path(temporary)
        folder.mkdir(parents=True, exist_ok=True)
        made = ProcessCluster(folder / "nodes", brokers=3, settings={**SETTINGS, **RETENTION})
        nodes: dict[int, NodeProcess] = dict(made.nodes)
        cluster = Trio("Odradek", nodes)
        try:
            cluster.start()
            cluster.create(TOPIC, PARTITIONS, COPIES)
            load = perf_soak(cluster.bootstrap, options.minutes, options.rate, folder)
            watch = Watch(cluster)
            distance_s = options.minutes * 60 / (options.restarts + 1)
            try:
                watch.until_end(load, [distance_s * (number + 1) for number in range(options.restarts)])
            finally:
                load.kill()
                load.wait()
        finally:
            cluster.stop()
        if not (folder / "soak.json").stat().st_size:
            print((folder / "soak.err").read_text()[-2000:], file=sys.stderr)
            return 1
        outcome = json.loads((folder / "soak.json").read_text())
        show(outcome, watch.lives, folder)
        return int(bool(outcome["lost"] or outcome["failed"] or outcome["acknowledged"] < outcome["sent"]))


if __name__ == "__main__":
    sys.exit(main())
