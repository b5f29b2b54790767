"""Gives test files to the workers of `make test`: Spark's to two of them, the long ones first, so all end together.

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

# Seconds of the clock in a run of `make test` on two busy cores, of files that took `LISTED_S` or more. After a run
# with `-p tools.costs`, `python -m tools.costs` writes them. They need not be exact: they only say what begins first.
TABLE = Path(__file__).with_name("seconds.tsv")
LISTED_S = 3
SECONDS = {file: int(seconds) for file, _, seconds in (line.partition("\t") for line in TABLE.read_text().splitlines())}
# If librdkafka is not built yet, this file builds it, and nothing takes longer.
FIRST = "tests/interop/test_librdkafka.py"
SECONDS[FIRST] = max(330, *SECONDS.values())
# A file that is not listed.
SHORT_S = 1

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
    """The attribute of pytest's items by which they are ordered."""

    @property
    def nodeid(self) -> str:
        """The file, then `::` and the rest."""


Item = TypeVar("Item", bound=HasNodeId)


def _shares_of_spark() -> dict[str, str]:
    """The share of each of Spark's files; the longest file goes to whichever share is the shortest so far."""
    seconds = [0] * SPARK_WORKERS
    shares = {}
    together = {file: number for number, files in enumerate(SPARK_TOGETHER) for file in files}
    for file in sorted(_SPARK_FILES, key=lambda each: (each not in together, -SECONDS.get(each, SHORT_S), each)):
        share = together.get(file, seconds.index(min(seconds)))
        seconds[share] += SECONDS.get(file, SHORT_S)
        shares[file] = f"{SPARK}{share}"
    return shares


SHARES = _shares_of_spark()


def unit_of_work(nodeid: str) -> str:
    """The unit of work of one worker: a file, or a share of Spark's files."""
    file = nodeid.split("::")[0]
    return SHARES.get(file, file)


class UnitScheduling(LoadFileScheduling):  # type: ignore[misc]  # xdist has no types
    """xdist's `--dist loadfile`, with the files of Spark in as many units as there are workers for them."""

    def _split_scope(self, nodeid: str) -> str:
        return unit_of_work(nodeid)


def longest_first(items: list[Item]) -> list[Item]:
    """The same tests, ordered by the length of what they are handed out with; inside of that their order stays."""
    units = [unit_of_work(item.nodeid) for item in items]
    seconds: Counter[str] = Counter()
    for file in {item.nodeid.split("::")[0] for item in items}:
        seconds[unit_of_work(file)] += SECONDS.get(file, SHORT_S)
    numbers = {unit: number for number, unit in enumerate(sorted(seconds, key=lambda unit: (-seconds[unit], unit)))}
    order = sorted(range(len(items)), key=lambda index: (numbers[units[index]], index))
    return [items[index] for index in order]


def slow_after(last: int, numbers: Iterable[int]) -> list[int | ParameterSet]:
    """Parameters of a test: the numbers up to and with `last` as they are, those above marked slow."""
    return [number if number <= last else pytest.param(number, marks=pytest.mark.slow) for number in numbers]
