"""`python -m bench`: measure both brokers cell by cell, in interleaved rounds, and print the table."""

from __future__ import annotations

import argparse
import os
import statistics
import sys
import tempfile
import time
from pathlib import Path

from bench.brokers import Contestant, machine, start_contestants
from bench.cells import CELLS, FILLED, LIMIT_BYTES, PARTITIONS, QUICK, Cell
from bench.codec_bench import measure as codec_costs
from bench.generator import LoadResult, build, own_cost, run_load
from bench.page import write_page
from bench.report import Row, Run, table
from tests.interop.packages import MissingError
from tests.support.clients.confluent import admin, create_topic
from tests.support.nodes.apache_kafka import KafkaUnavailableError, kafka_libraries


def fill(program: Path, contestant: Contestant) -> None:
    """Write the topics that the consuming cells read."""
    for topic, (size, size_bytes) in FILLED.items():
        create_topic(contestant.bootstrap, topic, PARTITIONS)
        options = {"size": size, "partitions": PARTITIONS, "limit": size_bytes, "seconds": 60, "warmup": 0}
        # Full batches on both, however fast they acknowledge: a fetch then takes as many records from either.
        run_load(program, "produce", contestant.bootstrap, topic, options | {"producer:linger.ms": 1000})


def measure(program: Path, contestant: Contestant, cell: Cell, topic: str, seconds: float) -> tuple[LoadResult, float]:
    """Run the load of one cell and return what the generator saw and the broker's processor seconds."""
    if cell.filled_topic is None:
        create_topic(contestant.bootstrap, topic, PARTITIONS)
    defaults = {"partitions": PARTITIONS, "seconds": seconds, "limit": LIMIT_BYTES}
    options: dict[str, object] = defaults | dict(cell.options)
    os.sync()  # what earlier runs have left to be written is not this one's
    before = contestant.cpu_s()
    result = run_load(program, cell.mode, contestant.bootstrap, cell.filled_topic or topic, options)
    cpu_s = contestant.cpu_s() - before
    if cell.filled_topic is None:
        client = admin(contestant.bootstrap)
        client.delete_topics([topic])[topic].result(timeout=30)
    return result, cpu_s


def one_round(program: Path, contestants: list[Contestant], rows: list[Row], index: int, seconds: float) -> None:
    """Run every cell once against each broker, one right after the other; the first one alternates.

    A round with index 0 warms both up and is not kept.
    """
    seen: dict[tuple[str, str, str], tuple[LoadResult, float]] = {}
    for position, row in enumerate(rows):
        cell = row.cell
        runs: dict[str, Run] = {}
        for contestant in contestants if index % 2 else reversed(contestants):
            key = (contestant.name, cell.mode, repr(cell.options))
            if key not in seen:  # cells that look at the same run share it
                seen[key] = measure(program, contestant, cell, f"round-{index}-{position}", seconds)
            result, cpu_s = seen[key]
            runs[contestant.name] = Run(cell.value(result), cpu_s, result.moved_bytes, result.record_count)
        if index > 0:
            row.rounds.append((runs[contestants[0].name], runs[contestants[1].name]))
            theirs, ours = row.rounds[-1]
            print(f"  round {index}  {cell.name:<45} {theirs.value:>12,.1f} {ours.value:>12,.1f}", file=sys.stderr)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m bench", description=__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=2.0, help="of each run that is measured")
    parser.add_argument(
        "--quick", action="store_true", help="a first look in under 90 seconds; does not touch the docs"
    )
    parser.add_argument("--cells", default="", help="only cells whose name contains this")
    parser.add_argument("--self", action="store_true", help="Apache Kafka against itself: the noise of this machine")
    parser.add_argument("--against", type=Path, help="another checkout, in the place of Apache Kafka; writes nothing")
    parser.add_argument("--write", action="store_true", help="write docs/benchmarks.md (the full form does)")
    options = parser.parse_args()
    try:
        if options.against is None:
            kafka_libraries()
        program = build()
    except (KafkaUnavailableError, MissingError) as error:
        print(f"bench: {error}", file=sys.stderr)
        return 1
    cells = [cell for cell in (QUICK if options.quick else CELLS) if options.cells in cell.name]
    rounds, seconds = (1, 1.0) if options.quick else (options.rounds, options.seconds)
    rows = [Row(cell) for cell in cells]
    started = time.monotonic()
    costs = {size: own_cost(program, size) for size in (128, 1024)}
    codec = codec_costs()
    with tempfile.TemporaryDirectory(prefix="odradek-bench-") as folder:
        contestants = start_contestants(Path(folder), against_itself=options.self, tree=options.against)
        try:
            time.sleep(2)
            idle = {contestant.name: contestant.memory_bytes() for contestant in contestants}
            if any(cell.filled_topic for cell in cells):
                for contestant in contestants:
                    fill(program, contestant)
            for index in range(rounds + 1):
                one_round(program, contestants, rows, index, seconds)
            if options.against is not None:
                print(table(rows, against=str(options.against)))
                return 0
            loaded = {contestant.name: contestant.memory_bytes() for contestant in contestants}
            starts = {
                contestant.name: statistics.median(
                    contestant.start_seconds(program) for _ in range(1 if options.quick else 3)
                )
                for contestant in contestants
            }
        finally:
            for contestant in contestants:
                if contestant.broker.process is not None:
                    contestant.broker.stop()
    memory = {name: (starts[name], idle[name] / 2**20, loaded[name] / 2**20) for name in idle}
    page = write_page(table(rows), memory, costs, codec, machine(), rounds, seconds, time.monotonic() - started)
    print(page)
    if options.write or not (options.quick or options.cells or options.self):
        (Path(__file__).parents[1] / "docs" / "benchmarks.md").write_text(page)
    return 0


if __name__ == "__main__":
    sys.exit(main())
