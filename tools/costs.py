"""The wall-clock and processor seconds of each test file, with those of all processes that it starts.

    .venv/bin/python -m pytest -p tools.costs -m "not slow" -n 5 --dist loadfile ...

prints, after the run, the files by seconds of processors, and writes each test with its seconds to `build/costs.tsv`. A
broker, a JVM or a compiler counts for the test in whose time it worked; the seconds of a process that its parent did
not wait for are lost.

    .venv/bin/python -m tools.costs

orders the test files of later runs by the wall-clock seconds of that file (tests/support/order.py).
"""

from __future__ import annotations

import os
from collections import defaultdict
from collections.abc import Generator, Iterator
from pathlib import Path

import pytest

from tests.support import order

TABLE = Path("build/costs.tsv")
PROPERTY = "processor seconds"
_TICKS = os.sysconf("SC_CLK_TCK")
_SHOWN = 60


def descendants(pid: int) -> Iterator[int]:
    """The pids of a process and of its running descendants."""
    yield pid
    for task in Path(f"/proc/{pid}/task").glob("*/children"):
        try:
            children = task.read_text().split()
        except OSError:
            continue  # The thread has ended between the two looks.
        for child in children:
            yield from descendants(int(child))


def processor_seconds(pid: int) -> float:
    """The processor seconds of a process and its descendants, with those that have ended and were waited for."""
    ticks = 0
    for each in descendants(pid):
        try:
            stat = Path(f"/proc/{each}/stat").read_text()
        except OSError:
            continue  # Its parent has it in its own sum by now, or has left it behind.
        ticks += sum(int(field) for field in stat.rpartition(")")[2].split()[11:15])
    return ticks / _TICKS


class Meter:
    """Measures, in a worker, the processor seconds since the report before."""

    def __init__(self) -> None:
        self.before: float | None = None

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_logstart(self) -> None:
        """Begin to measure here, so that the first test does not pay for the collection."""
        if self.before is None:
            self.before = processor_seconds(os.getpid())

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(self) -> Generator[None, pytest.TestReport, pytest.TestReport]:
        """A report carries what its part of the test took: setting up, the test, or taking down."""
        report = yield
        now = processor_seconds(os.getpid())
        report.user_properties.append((PROPERTY, max(0.0, now - (self.before or now))))
        self.before = now
        return report


class Sums:
    """Adds up all reports, in the process that prints."""

    def __init__(self) -> None:
        self.tests: dict[str, list[float]] = defaultdict(lambda: [0.0, 0.0])

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """The last property is that of this report: the list is the test's, and grows."""
        sums = self.tests[report.nodeid]
        sums[0] += report.duration
        sums[1] += next((float(str(value)) for name, value in reversed(report.user_properties) if name == PROPERTY), 0)

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        """The table of files, and the file of tests."""
        TABLE.parent.mkdir(exist_ok=True)
        TABLE.write_text("".join(f"{wall:.2f}\t{used:.2f}\t{test}\n" for test, (wall, used) in self.tests.items()))
        for title, depth in (("directories", -1), ("files", None)):
            terminalreporter.section(f"seconds of {title}: clock, processors, tests")
            for name, (wall, used, count) in self._by(depth)[:_SHOWN]:
                terminalreporter.write_line(f"{wall:9.1f} {used:9.1f} {count:6.0f}  {name}")

    def _by(self, depth: int | None) -> list[tuple[str, list[float]]]:
        sums: dict[str, list[float]] = defaultdict(lambda: [0.0, 0.0, 0.0])
        for test, (wall, used) in self.tests.items():
            name = "/".join(test.split("::")[0].split("/")[:depth])
            sums[name] = [have + more for have, more in zip(sums[name], (wall, used, 1), strict=True)]
        return sorted(sums.items(), key=lambda each: -each[1][1])


def write_order() -> None:
    """Files that took `LISTED_S` or more, with their seconds, in the table beside `tests/support/order.py`."""
    seconds: dict[str, float] = defaultdict(float)
    for line in TABLE.read_text().splitlines():
        wall, _, test = line.split("\t")
        seconds[test.partition("::")[0]] += float(wall)
    listed = ((file, round(wall)) for file, wall in sorted(seconds.items()) if wall >= order.LISTED_S)
    order.TABLE.write_text("".join(f"{file}\t{wall}\n" for file, wall in listed))


def pytest_configure(config: pytest.Config) -> None:
    """A worker measures; where there is none, the one process does both."""
    worker = hasattr(config, "workerinput")
    if worker or not config.getoption("numprocesses", None):
        config.pluginmanager.register(Meter())
    if not worker:
        config.pluginmanager.register(Sums())


if __name__ == "__main__":
    write_order()
