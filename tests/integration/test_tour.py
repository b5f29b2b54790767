"""docs/ARCHITECTURE.md names the functions that one Produce and one Fetch pass, in order: compared with a trace."""

from __future__ import annotations

import re
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

import odradek
from odradek.testing import EmbeddedBroker
from tests.support.clients.api_calls import Calls, batch

PACKAGE = Path(odradek.__file__).parent
PAGE = Path(__file__).resolve().parents[2] / "docs" / "ARCHITECTURE.md"
# A row: | `server/network/connection.py` | `Connection.buffer_updated`, `Connection._begin` |
ROW = re.compile(r"^\| `([a-z_/]+\.py)` \| (`.*`) \|", re.MULTILINE)

# One of the six: | 1 | `src/odradek/server/network/requests.py` | 197 | …
SIX = re.compile(r"^\| \d \| `src/odradek/([a-z_/]+\.py)` \|", re.MULTILINE)
# A row of the files whose functions the tables leave out: | `record/batch.py` | … |
LEFT_OUT = re.compile(r"^\| `([a-z_/]+\.py)` \| [^`]", re.MULTILINE)
# The loop calls these of a connection.
BEGINNINGS = ("Connection.buffer_updated", "Connection.advance")
# An embedded broker's clock, which a test can move.
OF_TESTS = "testing/faults.py"


def on_the_page(title: str) -> list[tuple[str, str]]:
    """(file, function) of the table below a heading, in order."""
    section = PAGE.read_text().split(f"### {title}\n")[1].split("\n### ")[0].split("\n## ")[0]
    return [(file, function) for file, cell in ROW.findall(section) for function in re.findall(r"`([^`]+)`", cell)]


class Trace:
    """Functions of the product that a node's loop calls, in order."""

    def __init__(self, broker: EmbeddedBroker) -> None:
        self.calls: list[tuple[str, str]] = []
        self.lines: dict[str, set[int]] = {}  # of each file, those of the functions that were passed
        self.files: set[str] = set()  # that the request itself passed, and no timer that came in between
        self._depth = 0  # of the connection's own calls
        self._broker = broker

    def during(self, work: Callable[[], Any]) -> Trace:
        self._set(self._record_call)
        work()
        self._set(None)
        return self

    def _set(self, hook: Callable[[FrameType, str, Any], None] | None) -> None:
        node, done = self._broker._node, threading.Event()
        assert node is not None
        node.on_loop(lambda: (sys.setprofile(hook), done.set())[1])  # type: ignore[func-returns-value]  # both in one call on the loop
        assert done.wait(60)

    def _record_call(self, frame: FrameType, event: str, argument: Any) -> None:
        file = frame.f_code.co_filename
        if frame.f_code.co_qualname in BEGINNINGS and event in ("call", "return"):
            self._depth += 1 if event == "call" else -1
        if event == "call" and file.startswith(f"{PACKAGE}/"):
            name, code = file[len(str(PACKAGE)) + 1 :], frame.f_code
            self.calls.append((name, code.co_qualname))
            if self._depth:
                self.files.add(name)
            last = max(line for _, _, line in code.co_lines() if line)
            self.lines.setdefault(name, set()).update(range(code.co_firstlineno, last + 1))


@pytest.fixture(scope="module")
def broker() -> Iterator[EmbeddedBroker]:
    with EmbeddedBroker() as running:
        yield running


@pytest.fixture
def calls(broker: EmbeddedBroker) -> Iterator[Calls]:
    with Calls(int(broker.bootstrap_servers.rpartition(":")[2])) as made:
        yield made


def missing(named: list[tuple[str, str]], traced: list[tuple[str, str]]) -> tuple[str, str] | None:
    """The first function of the page that the trace does not have behind the one before it."""
    left = iter(traced)
    return next((each for each in named if each not in left), None)


def test_a_produce_and_a_fetch_pass_what_the_page_names(broker: EmbeddedBroker, calls: Calls) -> None:
    topic = calls.create_topic()
    producer_id = calls.producer()
    first, second = (
        batch(b"value" * 20, producer_id=producer_id, producer_epoch=0, sequence=sequence) for sequence in range(2)
    )
    calls.produce(topic, first)
    calls.read(topic, 0)  # compiles the codecs
    produced = Trace(broker).during(lambda: calls.produce(topic, second))
    assert len(on_the_page("Produce")) >= 30 and len(on_the_page("Fetch")) >= 20, "the tables have another form"
    assert missing(on_the_page("Produce"), produced.calls) is None
    fetched = Trace(broker).during(lambda: calls.read(topic, 0))
    waited = Trace(broker).during(lambda: calls.read(topic, 2, max_wait_ms=10))
    assert missing(on_the_page("Fetch"), fetched.calls) is None
    assert_most_is_on_the_way(produced, fetched, waited)
    in_tables = {file for title in ("Produce", "Fetch") for file, _ in on_the_page(title)}
    left_out = LEFT_OUT.findall(PAGE.read_text().split("### Files that the tables leave out\n")[1].split("\n## ")[0])
    assert sorted((produced.files | fetched.files) - in_tables - {OF_TESTS}) == left_out


def assert_most_is_on_the_way(*ways: Trace) -> None:
    """Check that more than half of the six files' lines are in functions that a Produce or a Fetch passes."""
    files = SIX.findall(PAGE.read_text())
    assert len(files) == 6
    whole = sum(len((PACKAGE / file).read_text().splitlines()) for file in files)
    passed = sum(len(set().union(*(way.lines.get(file, set()) for way in ways))) for file in files)
    assert whole <= 2000 and passed > whole / 2, f"{passed} of {whole} lines are on the way"


def test_a_function_that_is_not_passed_is_noticed() -> None:
    passed = [("a.py", "one"), ("a.py", "two"), ("b.py", "three")]
    assert missing([passed[0], passed[2]], passed) is None
    assert missing([passed[2], passed[0]], passed) == passed[0]
    assert missing([("c.py", "four")], passed) == ("c.py", "four")
