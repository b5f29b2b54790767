"""Errors of the command line, and what each family of errors prints and returns."""

from __future__ import annotations

from odradek.common.errors import ApiError, ConfigError, OdradekError, ProtocolError, StorageError

OK = 0
FAILED = 1
USAGE = 2
UNREACHABLE = 3
NOT_FOUND = 4
BAD_CONFIG = 5
INTERRUPTED = 130

_MISSING = {
    "UNKNOWN_TOPIC_OR_PARTITION",
    "UNKNOWN_TOPIC_ID",
    "GROUP_ID_NOT_FOUND",
    "RESOURCE_NOT_FOUND",
}


class CliError(OdradekError):
    """One line for the user, with what to do next."""

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
    """What to print of an error: one line, or one for each problem of a configuration."""
    if isinstance(error, ConfigError):
        return error.problems
    if isinstance(error, ApiError):
        name = error.code.name
        return [name if error.message in ("", name) else f"{error.message} ({name})"]
    if isinstance(error, StorageError | ProtocolError | CliError):
        return [str(error)]
    if isinstance(error, OSError) and error.strerror:
        where = f"{error.filename}: " if error.filename else ""
        return [where + error.strerror]
    return [str(error) or type(error).__name__]
