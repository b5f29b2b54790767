"""How test files go to the workers of `make test`: Spark's to two of them, the long ones first, so all end together.

xdist gives a worker file after file, and by itself begins with the files of many tests: those with one test of two
minutes would come last, and one worker would be at it alone. The files of Spark share a virtual machine, a broker and
an Apache Kafka for as long as one worker has them, so that few workers have them all.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import Protocol, TypeVar

import pytest
from _pytest.mark import ParameterSet
from xdist.scheduler import LoadFileScheduling

# Seconds in a whole run of `make test` on two cores of files that take far longer than a second for each of their
# tests; librdkafka's with the build of its tests. They need not be exact: they only say what begins first.
SECONDS = {
    "tests/component/log/test_cleaner.py": 15,
    "tests/component/raft/test_quorum_bugs.py": 25,
    "tests/fuzz/test_fuzz.py": 12,
    "tests/fuzz/test_fuzz_more.py": 10,
    "tests/fuzz/test_under_atheris.py": 12,
    "tests/integration/test_cli_records.py": 40,
    "tests/integration/test_cluster.py": 40,
    "tests/integration/test_commit_modes.py": 35,
    "tests/integration/test_deploy_kubernetes.py": 25,
    "tests/integration/test_exactly_once.py": 50,
    "tests/integration/test_example_cdc.py": 40,
    "tests/integration/test_example_idempotent.py": 30,
    "tests/integration/test_example_orders.py": 40,
    "tests/integration/test_hostile_batches.py": 40,
    "tests/integration/test_hostile_frames.py": 30,
    "tests/integration/test_hostile_peers.py": 40,
    "tests/integration/test_log_floods.py": 40,
    "tests/integration/test_many_connections.py": 50,
    "tests/integration/test_produce_consume.py": 35,
    "tests/integration/test_pytest_plugin.py": 20,
    "tests/integration/test_quorum.py": 35,
    "tests/integration/test_replicated_cluster.py": 35,
    "tests/integration/test_request_memory.py": 15,
    "tests/integration/test_restarts_under_load.py": 20,
    "tests/interop/test_compacted_logs.py": 50,
    "tests/interop/test_java_groups.py": 50,
    "tests/interop/test_java_transactions.py": 40,
    "tests/interop/test_kafka_python_suite.py": 35,
    "tests/interop/test_librdkafka.py": 330,
    "tests/interop/test_one_directory.py": 40,
    "tests/sim/self/test_sim_cluster.py": 15,
    "tests/sim/self/test_sim_copying.py": 15,
    "tests/sim/self/test_sim_determinism.py": 20,
    "tests/sim/self/test_sim_faults.py": 15,
    "tests/sim/self/test_sim_moving.py": 15,
    "tests/sim/self/test_sim_planted.py": 20,
    "tests/sim/self/test_sim_shrink.py": 10,
    "tests/sim/self/test_sim_world.py": 10,
    "tests/spark/test_activity.py": 15,
    "tests/spark/test_bad_input.py": 55,
    "tests/spark/test_batch_read.py": 25,
    "tests/spark/test_cards.py": 35,
    "tests/spark/test_exact_sink.py": 35,
    "tests/spark/test_iceberg_rest.py": 15,
    "tests/spark/test_marker_topic.py": 20,
    "tests/spark/test_merging_sinks.py": 15,
    "tests/spark/test_output_lease.py": 20,
    "tests/spark/test_pipelines.py": 120,
    "tests/spark/test_rekeyed.py": 15,
    "tests/spark/test_reordered.py": 15,
    "tests/spark/test_secured.py": 15,
    "tests/spark/test_starting.py": 15,
    "tests/spark/test_stream_read.py": 40,
    "tests/spark/test_table_sinks.py": 15,
    "tests/spark/test_transaction.py": 20,
    "tests/spark/test_writing_examples.py": 15,
}


SPARK = "tests/spark/"
SPARK_WORKERS = 2
# Files that have an Apache Kafka, and files that have a PostgreSQL: either is started for one worker and not for each.
SPARK_TOGETHER = (
    (
        "tests/spark/test_batch_read.py",
        "tests/spark/test_exact_sink.py",
        "tests/spark/test_marker_topic.py",
        "tests/spark/test_output_lease.py",
        "tests/spark/test_stream_read.py",
        "tests/spark/test_topic_sink.py",
        "tests/spark/test_transaction.py",
    ),
    (
        "tests/spark/test_cards.py",
        "tests/spark/test_merging_sinks.py",
        "tests/spark/test_postgres_locks.py",
        "tests/spark/test_postgres_sink.py",
        "tests/spark/test_table_sinks.py",
        "tests/spark/test_writing_examples.py",
    ),
)
_SPARK_FILES = sorted(f"{SPARK}{path.name}" for path in (Path(__file__).parents[1] / "spark").glob("test_*.py"))


class HasNodeId(Protocol):
    """What pytest collects, as far as its place counts."""

    @property
    def nodeid(self) -> str:
        """The file, then `::` and the rest."""


Item = TypeVar("Item", bound=HasNodeId)


def _shares_of_spark() -> dict[str, str]:
    """The share of each of Spark's files; the longest file goes to whichever share is the shortest so far."""
    seconds = [0] * SPARK_WORKERS
    shares = {}
    together = {file: number for number, files in enumerate(SPARK_TOGETHER) for file in files}
    for file in sorted(_SPARK_FILES, key=lambda each: (each not in together, -SECONDS.get(each, 5), each)):
        share = together.get(file, seconds.index(min(seconds)))
        seconds[share] += SECONDS.get(file, 5)
        shares[file] = f"{SPARK}{share}"
    return shares


SHARES = _shares_of_spark()


def unit_of_work(nodeid: str) -> str:
    """The unit of work of one worker: a file, or a share of Spark's files."""
    file = nodeid.split("::")[0]
    return SHARES.get(file, file)


class UnitScheduling(LoadFileScheduling):  # type: ignore[misc]
    """xdist's `--dist loadfile`, with the files of Spark in as many units as there are workers for them."""

    def _split_scope(self, nodeid: str) -> str:
        return unit_of_work(nodeid)


def longest_first(items: list[Item]) -> list[Item]:
    """The same tests, ordered by the length of what they are handed out with; inside of that their order stays."""
    units = [unit_of_work(item.nodeid) for item in items]
    tests = Counter(item.nodeid.split("::")[0] for item in items)
    seconds: Counter[str] = Counter()
    for file, count in tests.items():
        seconds[unit_of_work(file)] += SECONDS.get(file, count)
    numbers = {unit: number for number, unit in enumerate(sorted(seconds, key=lambda unit: (-seconds[unit], unit)))}
    order = sorted(range(len(items)), key=lambda index: (numbers[units[index]], index))
    return [items[index] for index in order]


def slow_after(last: int, numbers: Iterable[int]) -> list[int | ParameterSet]:
    """Parameters of a test: the numbers up to and with `last` as they are, those above marked slow."""
    return [number if number <= last else pytest.param(number, marks=pytest.mark.slow) for number in numbers]
