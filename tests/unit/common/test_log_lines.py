"""Lines that repeat are counted, and no line that differs is lost."""

from __future__ import annotations

import io
import json
import logging
from collections.abc import Iterator

import pytest

from odradek.common.log_lines import (
    COUNTED_S,
    FULL_LINES,
    MAX_KINDS,
    ROOT,
    EventLogger,
    SummingHandler,
    get_json_logger,
    get_logger,
    sum_up,
    write_log_lines,
)


class Written:
    """A logger, and the lines that it has written."""

    def __init__(self) -> None:
        self._stream = io.StringIO()
        write_log_lines(self._stream)
        self.log: EventLogger = get_logger("test.floods")

    def lines(self) -> list[str]:
        """The lines without their time and name."""
        return [line.split("test.floods ", 1)[-1] for line in self._stream.getvalue().splitlines()]


@pytest.fixture
def written(monkeypatch: pytest.MonkeyPatch) -> Iterator[Written]:
    # All is of one moment, however long a busy machine takes over it.
    monkeypatch.setattr("time.time", lambda: 1000.0)
    monkeypatch.setattr("time.time_ns", lambda: 1_000_000_000_000)
    root, others = logging.getLogger(ROOT), logging.getLogger()
    before = (root.handlers[:], root.level, root.propagate, others.handlers[:], others.level)
    yield Written()
    root.handlers[:], root.propagate, others.handlers[:] = before[0], before[2], before[3]
    root.setLevel(before[1])
    others.setLevel(before[4])


def test_the_first_are_whole_and_the_rest_is_a_number(written: Written) -> None:
    for number in range(1000):
        written.log.warning("closed", alike=f"from port {number}", peer=f"host:{number}")
    assert written.lines() == [f"closed peer=host:{number}" for number in range(FULL_LINES)]
    sum_up()
    assert written.lines()[FULL_LINES:] == [f"closed repeated={1000 - FULL_LINES} in_s=0 peer=host:999"]
    sum_up()
    assert len(written.lines()) == FULL_LINES + 1, "what was said is said"


def test_a_flood_that_goes_on_has_one_whole_line_each_time(written: Written, monkeypatch: pytest.MonkeyPatch) -> None:
    now_s = 1000.0
    monkeypatch.setattr("time.time", lambda: now_s)
    monkeypatch.setattr("time.time_ns", lambda: int(now_s * 1e9))
    for _ in range(3):
        for _ in range(100):
            written.log.warning("closed", reason="the same")
        sum_up(now_s + COUNTED_S / 2)
        now_s += COUNTED_S
        sum_up(now_s)
    full, counted = 'closed reason="the same"', 'closed repeated={} in_s=0 reason="the same"'
    assert written.lines() == [
        *[full] * FULL_LINES, counted.format(100 - FULL_LINES), full, counted.format(99), full, counted.format(99)
    ]  # fmt: skip
    sum_up(now_s + COUNTED_S)
    for _ in range(FULL_LINES):
        written.log.warning("closed", reason="the same")
    assert written.lines()[-FULL_LINES:] == [full] * FULL_LINES, "after a quiet time all is as at first"


def test_different_lines_are_counted_apart(written: Written) -> None:
    for number in range(50):
        written.log.warning("a batch is damaged", partition=f"t-{number}")
        written.log.info("the same piece of news")
    sum_up()
    assert len(written.lines()) == 100


def test_a_traceback_that_repeats_is_written_a_few_times(written: Written) -> None:
    for number in range(50):
        try:
            raise KeyError(number)
        except KeyError as error:
            written.log.bug("a handler failed", error, alike="Fetch KeyError", api="Fetch")
    sum_up()
    lines = written.lines()
    assert sum("Traceback" in line for line in lines) == FULL_LINES
    assert lines[-1] == 'a handler failed repeated=45 in_s=0 api=Fetch error="KeyError: 49"'


def test_inventive_peers_fill_no_memory(written: Written) -> None:
    for number in range(MAX_KINDS * 3):
        written.log.warning("closed", alike="x" * (number + 1), peer=number)
    (handler,) = (each for each in logging.getLogger(ROOT).handlers if isinstance(each, SummingHandler))
    assert len(handler._kinds) <= MAX_KINDS + 1
    sum_up()
    assert written.lines()[-1] == f"closed repeated={2 * MAX_KINDS - FULL_LINES} in_s=0 peer={3 * MAX_KINDS - 1}"


def test_an_inventive_crowd_hides_nothing_that_others_log(written: Written) -> None:
    for number in range(MAX_KINDS * 3):
        written.log.warning("closed", alike="x" * (number + 1), peer=number)
    other = get_logger("another.part")
    for number in range(3):
        other.warning("a disk fails", disk=number)
    lines = [line.split("another.part ", 1)[-1] for line in written.lines()]
    assert lines[-3:] == [f"a disk fails disk={number}" for number in range(3)]


def test_a_log_in_json_has_an_object_for_each_event(written: Written) -> None:
    stream = io.StringIO()
    write_log_lines(stream, as_json=True)
    written.log.info("connection closed", peer="10.0.0.1:4711", count=3)
    try:
        raise KeyError("x")
    except KeyError as error:
        written.log.error("a step failed", error=error)
        written.log.bug("a handler failed", error)
    logging.getLogger("asyncio").warning("of another library")
    closed, failed, bug, other = map(json.loads, stream.getvalue().splitlines())
    assert closed == {
        "time": "1970-01-01T00:16:40.000Z",
        "level": "INFO",
        "logger": "test.floods",
        "event": "connection closed",
        "peer": "10.0.0.1:4711",
        "count": 3,
    }
    assert failed["error"] == "KeyError: 'x'" and "trace" not in failed
    assert bug["trace"].startswith("Traceback") and bug["trace"].endswith("KeyError: 'x'")
    assert (other["logger"], other["level"], other["event"]) == ("asyncio", "WARNING", "of another library")
    for _ in range(50):
        written.log.warning("closed")
    sum_up()
    assert json.loads(stream.getvalue().splitlines()[-1])["repeated"] == 50 - FULL_LINES


def test_a_line_of_json_is_one_line_and_drives_no_terminal(written: Written) -> None:
    get_json_logger("audit").warning("denied", resource="a\u2028b\x9b31m\n\u202e", rule=None)
    (line,) = written.lines()
    assert line.isascii() and line.isprintable()
    found = json.loads(line)
    assert (found["event"], found["resource"], found["rule"]) == ("denied", "a\u2028b\x9b31m\n\u202e", None)
