"""The order in which test files are given to workers: every test once, the long files first, Spark's to few workers."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from random import Random

import pytest

from tests.support import order
from tests.support.order import SECONDS, SHORT_S, SPARK_WORKERS, longest_first, unit_of_work
from tools import costs

ROOT = Path(__file__).resolve().parents[3]


@dataclass(frozen=True)
class Item:
    nodeid: str


def test_files_that_are_called_long_exist() -> None:
    assert [file for file in SECONDS if not (ROOT / file).is_file()] == []


def test_every_test_stays_and_keeps_its_place_in_its_file() -> None:
    files = [*SECONDS, "tests/unit/test_few.py", "tests/unit/test_many.py", "tests/spark/test_small.py"]
    sizes = {file: 40 if "many" in file else 3 for file in files}
    Random(1).shuffle(files)
    items = [Item(f"{file}::test_{number}") for file in files for number in range(sizes[file])]
    ordered = longest_first(items)
    assert sorted(item.nodeid for item in ordered) == sorted(item.nodeid for item in items)
    for file in files:
        names = [item.nodeid for item in ordered if item.nodeid.startswith(f"{file}::")]
        assert names == [f"{file}::test_{number}" for number in range(sizes[file])]
    units = [unit_of_work(item.nodeid) for item in ordered]
    assert units == [unit for unit in dict.fromkeys(units) for _ in range(units.count(unit))], "units come whole"
    order = list(dict.fromkeys(item.nodeid.split("::")[0] for item in ordered if "/spark/" not in item.nodeid))
    seconds = [SECONDS.get(file, SHORT_S) for file in order]
    assert seconds == sorted(seconds, reverse=True)


def test_the_files_of_spark_are_shared_by_few_workers() -> None:
    files = [f"tests/spark/{path.name}" for path in (ROOT / "tests" / "spark").glob("test_*.py")]
    shares = Counter(unit_of_work(f"{file}::test_x[a::b]") for file in files)
    assert len(shares) == SPARK_WORKERS
    seconds = [sum(SECONDS.get(file, SHORT_S) for file in files if unit_of_work(file) == share) for share in shares]
    assert max(seconds) - min(seconds) <= max(SECONDS.get(file, SHORT_S) for file in files)


def test_the_table_has_what_took_long_in_the_last_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(costs, "TABLE", tmp_path / "costs.tsv")
    monkeypatch.setattr(order, "TABLE", tmp_path / "seconds.tsv")
    tests = {"tests/b.py::test_one": 2.0, "tests/b.py::test_two[a::b]": 1.6, "tests/a.py::test_one": 2.9}
    costs.TABLE.write_text("".join(f"{seconds}\t9.9\t{test}\n" for test, seconds in tests.items()))
    costs.write_order()
    assert order.TABLE.read_text() == "tests/b.py\t4\n"
