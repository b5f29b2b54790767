"""`python -m bench.log_bench compaction`: what the log does beside Apache Kafka's, on the same files, in one run."""

from __future__ import annotations

import argparse
import sys
import tempfile
from pathlib import Path

from bench.compaction_bench import measure, table
from tests.support.apache_kafka import KafkaUnavailableError, kafka_libraries


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.log_bench", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    compaction = commands.add_parser("compaction", help="the cleaner, over a log of random keys")
    compaction.add_argument("--records", type=int, default=1_000_000)
    compaction.add_argument("--rounds", type=int, default=3)
    compaction.add_argument("--codec", action="append", help="none and lz4 by default")
    options = parser.parse_args()
    try:
        kafka_libraries()
    except KafkaUnavailableError as error:
        print(f"needs Apache Kafka: {error}", file=sys.stderr)
        return 1
    with tempfile.TemporaryDirectory() as home:
        results = [
            measure(Path(home), codec, options.records, options.rounds) for codec in options.codec or ["none", "lz4"]
        ]
    print(table(results))
    return 0


if __name__ == "__main__":
    sys.exit(main())
