"""Errors of the command line: the output and exit code of each family of errors."""

from __future__ import annotations

import errno
from typing import TextIO

from odradek.common.errors import ApiError, ConfigError, OdradekError, ProtocolError, StorageError

OK = 0
FAILED = 1
USAGE = 2
UNREACHABLE = 3
NOT_FOUND = 4
BAD_CONFIG = 5
FENCED = 6  # of `odradek pipeline`, which ends as pyspark_odradek.pipelines does
INTERRUPTED = 130

_MISSING = {
    "UNKNOWN_TOPIC_OR_PARTITION",
    "UNKNOWN_TOPIC_ID",
    "GROUP_ID_NOT_FOUND",
    "RESOURCE_NOT_FOUND",
}

# The next step for the user, by the error's name.
_HINTS = {
    "UNKNOWN_TOPIC_OR_PARTITION": "`odradek topics list` shows which topics there are",
    "TOPIC_ALREADY_EXISTS": "choose another name, or pass --if-not-exists",
    "INVALID_TOPIC_EXCEPTION": "use letters, digits, '.', '_' and '-', at most 249 of them",
    "INVALID_REPLICATION_FACTOR": "`odradek cluster brokers` shows how many brokers there are",
    "INVALID_REPLICA_ASSIGNMENT": "`odradek cluster brokers` shows the ids of the brokers",
    "INVALID_CONFIG": "`odradek configs describe --all` shows settings with their values",
    "BROKER_NOT_AVAILABLE": "`odradek cluster brokers` shows the ids of the brokers",
    "LEADER_NOT_AVAILABLE": "start the brokers that `odradek topics describe --unavailable-partitions` shows",
    "GROUP_ID_NOT_FOUND": "`odradek groups list` shows which groups there are",
    "NON_EMPTY_GROUP": "stop its members first; `odradek groups describe --members` shows them",
    "UNKNOWN_MEMBER_ID": "the group has members: stop them first",
    "GROUP_SUBSCRIBED_TO_TOPIC": "stop the members that read the topic first",
    "TOPIC_AUTHORIZATION_FAILED": "use --command-config of a user who may do this",
    "GROUP_AUTHORIZATION_FAILED": "use --command-config of a user who may do this",
    "CLUSTER_AUTHORIZATION_FAILED": "use --command-config of a user who may do this",
    "REQUEST_TIMED_OUT": "look at the log of the broker, or raise default.api.timeout.ms in --command-config",
    "COORDINATOR_NOT_AVAILABLE": "the topic __consumer_offsets has no leader; look at the log of the broker",
}


class CliError(OdradekError):
    """An error of one line, with advice."""

    def __init__(self, message: str, *, code: int = FAILED) -> None:
        super().__init__(message)
        self.code = code


def exit_code(error: Exception) -> int:
    """The exit code of an error."""
    if isinstance(error, CliError):
        return error.code
    if isinstance(error, ConfigError):
        return BAD_CONFIG
    if isinstance(error, ApiError):
        return NOT_FOUND if error.code.name in _MISSING else FAILED
    if isinstance(error, TimeoutError | ConnectionError):
        return UNREACHABLE
    return FAILED


def lines(error: Exception) -> list[str]:
    """The lines of an error: one, or one for each problem of a configuration."""
    if isinstance(error, ConfigError):
        return error.problems
    if isinstance(error, ApiError):
        return [_of_api_error(error)]
    if isinstance(error, StorageError | ProtocolError | CliError):
        return [str(error)]
    if isinstance(error, OSError):
        return [_of_system_error(error)]
    return [str(error) or type(error).__name__]


def _of_api_error(error: ApiError) -> str:
    name = error.code.name
    text = name if error.message in ("", name) else f"{error.message.rstrip('. ')} ({name})"
    # A broker that says itself what to do knows more than the name of its error.
    return f"{text}; {_HINTS[name]}" if name in _HINTS and "; " not in text else text


def _of_system_error(error: OSError) -> str:
    if error.errno == errno.EADDRINUSE:
        hint = "stop who listens there, or choose other ports with `listeners` or `odradek.metrics.listener`"
        return f"{error.strerror or error}; {hint}"
    if error.strerror:
        where = f"{error.filename}: " if error.filename else ""
        return where + error.strerror
    return str(error) or type(error).__name__


def report(error: Exception, out: TextIO, *, as_json: bool = False) -> int:
    """Print an error's lines, or one JSON value; returns the exit code."""
    from odradek.cli.output import harmless, json_text  # bring typer, which a node that starts well has no use for

    if as_json:
        name = error.code.name if isinstance(error, ApiError) else None
        out.write(json_text({"error": "\n".join(lines(error)), "name": name, "exit_code": exit_code(error)}) + "\n")
        return exit_code(error)
    for line in lines(error):
        # A broker's message may hold names that another client chose; our own may be several lines.
        parts = [line] if isinstance(error, ApiError) else line.split("\n")
        out.write("odradek: " + "\n".join(harmless(each) for each in parts) + "\n")
    return exit_code(error)
