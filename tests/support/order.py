"""In which order test files go to the workers of `make test`: the long ones first, so that all workers end together.

xdist gives a worker file after file, and by itself begins with the files of many tests: those with one test of two
minutes would come last, and one worker would be at it alone.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import Any

import pytest

# Seconds in a whole run of `make test` on two cores, as `--durations=0` tells them, of files that take far longer
# than a second for each of their tests. They need not be exact.
SECONDS = {
    "tests/fuzz/test_fuzz.py": 190,
    "tests/fuzz/test_fuzz_more.py": 110,
    "tests/integration/test_example_cdc.py": 40,
    "tests/integration/test_example_idempotent.py": 50,
    "tests/integration/test_example_orders.py": 40,
    "tests/integration/test_exactly_once.py": 80,
    "tests/integration/test_hostile_frames.py": 30,
    "tests/interop/test_compacted_logs.py": 50,
    "tests/interop/test_java_groups.py": 80,
    "tests/interop/test_java_transactions.py": 50,
    "tests/interop/test_kafka_python_suite.py": 35,
    "tests/interop/test_librdkafka.py": 330,
    "tests/interop/test_one_directory.py": 60,
    "tests/protocol/test_declarations_fresh.py": 35,
    "tests/sim/self/test_sim_cluster.py": 430,
    "tests/sim/self/test_sim_cluster_more.py": 425,
    "tests/sim/self/test_sim_compaction.py": 60,
    "tests/sim/self/test_sim_copying.py": 60,
    "tests/sim/self/test_sim_damaged.py": 40,
    "tests/sim/self/test_sim_determinism.py": 150,
    "tests/sim/self/test_sim_faults.py": 80,
    "tests/sim/self/test_sim_moving.py": 120,
    "tests/sim/self/test_sim_planted.py": 200,
    "tests/sim/self/test_sim_shrink.py": 60,
    "tests/sim/self/test_sim_world.py": 434,
    "tests/spark/test_activity.py": 50,
    "tests/spark/test_bigstate.py": 106,
    "tests/spark/test_cards.py": 60,
    "tests/spark/test_cdc_lake.py": 60,
    "tests/spark/test_marker_topic.py": 65,
    "tests/spark/test_merging_sinks.py": 80,
    "tests/spark/test_pipelines.py": 200,
    "tests/spark/test_standalone.py": 75,
    "tests/spark/test_table_sinks.py": 60,
}


def longest_first(items: list[Any]) -> list[Any]:
    """The same tests, ordered by the length of their files; inside a file their order stays.

    Those of Spark come last: each worker that has begun with them keeps a virtual machine that the others would share
    their processors with.

    Args:
        items: of pytest, or whatever has its `nodeid`.
    """
    files = [item.nodeid.split("::")[0] for item in items]
    counts = Counter(files)

    def rank(file: str) -> tuple[bool, int, str]:
        return file.startswith("tests/spark/"), -SECONDS.get(file, counts[file]), file

    numbers = {file: number for number, file in enumerate(sorted(counts, key=rank))}
    order = sorted(range(len(items)), key=lambda index: (numbers[files[index]], index))
    return [items[index] for index in order]


def slow_after(last: int, numbers: Iterable[int]) -> list[Any]:
    """Parameters of a test: the numbers up to and with `last` as they are, those above marked slow."""
    return [number if number <= last else pytest.param(number, marks=pytest.mark.slow) for number in numbers]
