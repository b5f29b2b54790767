"""Log lines: one per event, `time level event key=value …`, readable by people and by machines.

`get_logger("server.connection").info("connection closed", peer=peer, reason=why)`. Values with spaces are quoted. No
traceback is ever printed for what a user or a client can cause; `error(..., error=exception)` prints its kind and text,
and `bug(...)` alone adds the traceback, because there it is ours.
"""

from __future__ import annotations

import json
import logging
import sys
import traceback
from datetime import UTC, datetime
from typing import Any, TextIO

ROOT = "odradek"
_NEEDS_QUOTES = set(" =\"'\n\t")


class EventLogger:
    """Writes events of one part of the project."""

    __slots__ = ("_logger",)

    def __init__(self, name: str) -> None:
        self._logger = logging.getLogger(f"{ROOT}.{name}")

    def debug(self, event: str, **fields: Any) -> None:
        self._write(logging.DEBUG, event, fields)

    def info(self, event: str, **fields: Any) -> None:
        self._write(logging.INFO, event, fields)

    def warning(self, event: str, **fields: Any) -> None:
        self._write(logging.WARNING, event, fields)

    def error(self, event: str, **fields: Any) -> None:
        self._write(logging.ERROR, event, fields)

    def bug(self, event: str, error: BaseException, **fields: Any) -> None:
        """An unexpected exception: its traceback, in the same event."""
        trace = "".join(traceback.format_exception(error))
        self._write(logging.ERROR, event, {**fields, "error": error}, trace)

    def _write(self, level: int, event: str, fields: dict[str, Any], trace: str = "") -> None:
        if self._logger.isEnabledFor(level):
            self._logger.log(level, event, extra={"fields": fields, "trace": trace})


def get_logger(name: str) -> EventLogger:
    """The logger of a part, named as its module below `odradek`."""
    return EventLogger(name)


class LineFormatter(logging.Formatter):
    """`2026-01-31T12:00:00.123Z INFO server.connection connection closed peer=10.0.0.1:4711`."""

    def format(self, record: logging.LogRecord) -> str:
        when = datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
        name = record.name.removeprefix(ROOT + ".")
        fields: dict[str, Any] = getattr(record, "fields", {})
        parts = [when, record.levelname, name, record.getMessage()]
        parts += [f"{key}={quoted(value)}" for key, value in fields.items()]
        line = " ".join(parts)
        trace = getattr(record, "trace", "")
        if record.exc_info:
            trace += self.formatException(record.exc_info)
        return f"{line}\n{trace.rstrip()}" if trace else line


def quoted(value: Any) -> str:
    """A value as it stands in a line: bare where that is clear, else as a JSON string."""
    if isinstance(value, BaseException):
        value = f"{type(value).__name__}: {value}"
    text = str(value)
    if text and not _NEEDS_QUOTES.intersection(text) and text.isprintable():
        return text
    return json.dumps(text, ensure_ascii=False)


def write_log_lines(stream: TextIO | None = None, level: str = "INFO") -> None:
    """Send the events of the project, from `level` on, to a stream (default: standard error)."""
    handler = logging.StreamHandler(stream or sys.stderr)
    handler.setFormatter(LineFormatter())
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
