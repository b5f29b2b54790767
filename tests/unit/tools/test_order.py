"""The order in which test files are given to workers: every test once, the long files first, Spark's last."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from random import Random

import pytest

from tests.support.order import SECONDS, longest_first

ROOT = Path(__file__).resolve().parents[3]


@dataclass(frozen=True)
class Item:
    nodeid: str


@pytest.mark.parametrize("file", SECONDS)
def test_a_file_that_is_called_long_exists(file: str) -> None:
    assert (ROOT / file).is_file()


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
    order = list(dict.fromkeys(item.nodeid.split("::")[0] for item in ordered))
    seconds = [SECONDS.get(file, sizes[file]) for file in order if "/spark/" not in file]
    assert seconds == sorted(seconds, reverse=True)
    assert [("/spark/" in file) for file in order] == sorted("/spark/" in file for file in order)
