"""Log lines: one per event, `time level event key=value …`, readable by people and by machines.

If a node logs JSON, each line is one object with the same fields.

`get_logger("server.network.connection").info("connection closed", peer=peer, reason=why)`. Values with spaces
are quoted. Errors that users or clients can cause have no traceback: `error(..., error=exception)` prints the kind
and the text. Only `bug(...)`, for bugs of the program, adds the traceback.

The first few of repeated warnings and errors are written in full; the others are counted, and `sum_up` writes one line
for them every few seconds: a peer that fails fifty times a second must not fill the disk. Events are alike if they have
the same fields, or the same `alike` if the caller gives one; numbers are ignored.
"""

from __future__ import annotations

import json
import logging
import re
import sys
import traceback
from collections import Counter
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, TextIO

ROOT = "odradek"
# Lines of one kind that are written in full before the rest is counted, and for how long it is.
FULL_LINES = 5
COUNTED_S = 10.0
# The limit of kinds for each logger, so that varying texts do not fill the memory, nor hide other lines.
MAX_KINDS = 500
_NUMBERS = re.compile(r"\d+")
_NEEDS_QUOTES = set(" =\"'\n\t")


class EventLogger:
    """Writes events of one part of the project.

    Attributes:
        is_enabled_for: whether events of a level of `logging` are written; `logging` knows it until a level changes.
    """

    __slots__ = ("_as_json", "_logger", "is_enabled_for")

    def __init__(self, name: str, *, as_json: bool = False) -> None:
        """`as_json`: each line is one JSON object."""
        self._logger = logging.getLogger(f"{ROOT}.{name}")
        self._as_json = as_json
        self.is_enabled_for = self._logger.isEnabledFor

    def set_level(self, level: int) -> None:
        """Write events from a level of `logging` on, whatever the level of the loggers above."""
        self._logger.setLevel(level)

    def debug(self, event: str, **fields: Any) -> None:
        self._write(logging.DEBUG, event, fields)

    def info(self, event: str, **fields: Any) -> None:
        self._write(logging.INFO, event, fields)

    def warning(self, event: str, *, alike: str | None = None, **fields: Any) -> None:
        self._write(logging.WARNING, event, fields, alike=alike)

    def error(self, event: str, *, alike: str | None = None, **fields: Any) -> None:
        self._write(logging.ERROR, event, fields, alike=alike)

    def bug(self, event: str, error: BaseException, *, alike: str | None = None, **fields: Any) -> None:
        """An unexpected exception: its traceback, in the same event."""
        trace = "".join(traceback.format_exception(error))
        self._write(logging.ERROR, event, {**fields, "error": error}, trace, alike)

    def _write(self, level: int, event: str, fields: dict[str, Any], trace: str = "", alike: str | None = None) -> None:
        if self._logger.isEnabledFor(level):
            kind = None if alike is None else _NUMBERS.sub("#", alike)
            extra = {"fields": fields, "trace": trace, "kind": kind, "as_json": self._as_json}
            self._logger.log(level, event, extra=extra)


def get_logger(name: str) -> EventLogger:
    """The logger of a part, named as its module below `odradek`."""
    return EventLogger(name)


def get_json_logger(name: str) -> EventLogger:
    """The same with one JSON object for each line, for programs."""
    return EventLogger(name, as_json=True)


class LineFormatter(logging.Formatter):
    """`2026-01-31T12:00:00.123Z INFO server.connection connection closed peer=10.0.0.1:4711`, or the same in JSON."""

    def __init__(self, *, as_json: bool = False) -> None:
        super().__init__()
        self._as_json = as_json

    def format(self, record: logging.LogRecord) -> str:
        when = datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
        name = record.name.removeprefix(ROOT + ".")
        fields: dict[str, Any] = getattr(record, "fields", {})
        trace: str = getattr(record, "trace", "")
        if record.exc_info:
            trace += self.formatException(record.exc_info)
        if self._as_json or getattr(record, "as_json", False):
            event = {"time": when, "level": record.levelname, "logger": name, "event": record.getMessage()}
            whole = event | fields | ({"trace": trace.rstrip()} if trace else {})
            return json.dumps(whole, default=_text)
        parts = [when, record.levelname, name, record.getMessage()]
        parts += [f"{key}={quoted(value)}" for key, value in fields.items()]
        line = " ".join(parts)
        return f"{line}\n{trace.rstrip()}" if trace else line


def _text(value: Any) -> str:
    return f"{type(value).__name__}: {value}" if isinstance(value, BaseException) else str(value)


def quoted(value: Any) -> str:
    """A value in a line: unquoted if that is unambiguous, else as a JSON string."""
    text = _text(value)
    if text and not _NEEDS_QUOTES.intersection(text) and text.isprintable():
        return text
    return json.dumps(text, ensure_ascii=False)


@dataclass(slots=True)
class _Kind:
    """Lines that are alike, since `began_s`."""

    began_s: float
    left: int
    counted: int = 0
    last: logging.LogRecord | None = None


class SummingHandler(logging.StreamHandler[TextIO]):
    """Writes lines to a stream; of many that are alike, the first few and how many followed."""

    def __init__(self, stream: TextIO) -> None:
        super().__init__(stream)
        self._kinds: dict[tuple[str, str, str], _Kind] = {}
        self._counts: Counter[str] = Counter()

    def emit(self, record: logging.LogRecord) -> None:
        if record.levelno < logging.WARNING or self._is_written_in_full(record):
            super().emit(record)

    def sum_up(self, now_s: float) -> None:
        """Write one line for each kind with counted events whose interval is over; negative: for all kinds."""
        with self.lock:  # type: ignore[union-attr]  # a handler has one after its __init__
            for key, kind in list(self._kinds.items()):
                if 0 <= now_s < kind.began_s + COUNTED_S:
                    continue
                if kind.last is None:
                    del self._kinds[key]
                    self._counts[key[0]] -= 1
                    continue
                super().emit(_summary(kind.last, kind.counted, kind.last.created - kind.began_s))
                # The events may continue: the next one is written in full.
                self._kinds[key] = _Kind(max(now_s, kind.last.created), 1)

    def _is_written_in_full(self, record: logging.LogRecord) -> bool:
        alike: str | None = getattr(record, "kind", None)
        event = record.getMessage()
        if alike is None:
            alike = "" if not (fields := getattr(record, "fields", {})) else str(fields)
        key = (record.name, event, alike)
        if key not in self._kinds and self._counts[record.name] >= MAX_KINDS:
            key = (record.name, event, "")
        kind = self._kinds.get(key)
        if kind is None:
            self._counts[record.name] += 1
            kind = self._kinds[key] = _Kind(record.created, FULL_LINES)
        if kind.left:
            kind.left -= 1
            return True
        kind.counted += 1
        kind.last = record
        return False


def _summary(last: logging.LogRecord, count: int, seconds: float) -> logging.LogRecord:
    """A line that stands for `count` that were not written; its fields are those of the last of them."""
    fields = {"repeated": count, "in_s": f"{seconds:.0f}", **getattr(last, "fields", {})}
    return logging.makeLogRecord({**vars(last), "fields": fields, "trace": "", "exc_info": None})


def sum_up(now_s: float = -1.0) -> None:
    """Write the lines for counted events whose interval is over; without a time, for all. To be called each second."""
    for handler in logging.getLogger(ROOT).handlers:
        if isinstance(handler, SummingHandler):
            handler.sum_up(now_s)


def write_log_lines(stream: TextIO | None = None, level: str = "INFO", *, as_json: bool = False) -> None:
    """Send the events of the project, from `level` on, to a stream (default: standard error)."""
    handler = SummingHandler(stream or sys.stderr)
    handler.setFormatter(LineFormatter(as_json=as_json))
    root = logging.getLogger(ROOT)
    root.handlers[:] = [handler]
    root.setLevel(level)
    root.propagate = False
    others = logging.getLogger()
    others.handlers[:] = [handler]
    others.setLevel(logging.WARNING)


LEVEL_NAMES = "DEBUG, INFO, WARN, ERROR"
_LEVELS = {
    "TRACE": logging.DEBUG,
    "DEBUG": logging.DEBUG,
    "INFO": logging.INFO,
    "WARN": logging.WARNING,
    "ERROR": logging.ERROR,
    "FATAL": logging.CRITICAL,
}


def change_level(logger: str, level: str | None) -> None:
    """Write a logger's events from a level of Kafka's names on, which `check_level` has passed."""
    logging.getLogger(logger).setLevel(logging.NOTSET if level is None else _LEVELS[level])


def check_level(logger: str, level: str | None) -> None:
    """Whether a logger's level can be changed; None for the level of the logger above it.

    Raises:
        ValueError: there is no such logger or level, or the topmost logger would have none.
    """
    if logger not in logger_levels():
        raise ValueError(f"Logger {logger} does not exist!")
    if level is None and logger == ROOT:
        raise ValueError(f"Can't clear the log level of the {ROOT} logger, which has none above it")
    if level is not None and level not in _LEVELS:
        raise ValueError(f"{level} is not one of the log levels {', '.join(_LEVELS)}")


def logger_levels() -> dict[str, str]:
    """The level of each of our loggers, in Kafka's names."""
    names = sorted(name for name in logging.root.manager.loggerDict if name.startswith(ROOT))
    kafka_names = {logging.WARNING: "WARN", logging.CRITICAL: "FATAL"}
    levels = {name: logging.getLogger(name).getEffectiveLevel() for name in [ROOT, *names]}
    return {name: kafka_names.get(level, logging.getLevelName(level)) for name, level in levels.items()}
