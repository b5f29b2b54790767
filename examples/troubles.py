"""Errors before an example does anything, as one line that says what to do. Unforeseen errors keep their traceback."""

from __future__ import annotations

import sys
from types import TracebackType

# Which extra of the distribution brings a package that an example imports.
EXTRAS = {"pyspark": "spark", "pandas": "spark", "pyarrow": "spark", "deltalake": "spark", "psycopg": "postgres"}
# What a database says that lacks a table, a schema, a right or a setting.
NOT_THERE = {
    f"psycopg.errors.{name}"
    for name in (
        "InsufficientPrivilege",
        "InvalidSchemaName",
        "ObjectNotInPrerequisiteState",
        "UndefinedColumn",
        "UndefinedTable",
    )
}
SLOW_WORKER = "Python worker failed to connect back"
NO_DATABASE = ("connection failed", "connection is bad", "connection timeout expired", "failed to resolve host")
NO_BROKER = ("_TRANSPORT", "_ALL_BROKERS_DOWN", "_TIMED_OUT", "_RESOLVE")


def advice(error: BaseException) -> str | None:
    """One line, or None for what only a stack can explain."""
    if isinstance(error, KeyboardInterrupt):
        return "stopped"
    if isinstance(error, ModuleNotFoundError):
        extra = EXTRAS.get((error.name or "").partition(".")[0])
        return f'{error.name} is missing: pip install "odradek[{extra}]"' if extra else None
    kind = f"{type(error).__module__}.{type(error).__name__}"
    if kind == "cimpl.KafkaException" and error.args and error.args[0].name() in NO_BROKER:
        return f"no broker answers ({error.args[0].str()}): start one with `odradek broker`, or give --bootstrap"
    said = " ".join(str(error).split())
    if kind in ("psycopg.OperationalError", "psycopg.errors.ConnectionTimeout") and said.startswith(NO_DATABASE):
        return f"PostgreSQL: {said}; --database takes postgresql://USER@HOST:PORT/NAME of a server that runs"
    if kind in NOT_THERE:
        return f"PostgreSQL: {str(error).splitlines()[0]}; the example's page says what must be there"
    if SLOW_WORKER in str(error):
        return "Spark gave up a Python process that had not begun after ten seconds: the machine is busy; run it again"
    if "JAVA_GATEWAY_EXITED" in str(error):
        return "Spark does not start: it needs Java 17 or newer, which it finds by JAVA_HOME or on the PATH"
    return None


def tell_in_one_line() -> None:
    """From here on, an error that ends the process is its one line on stderr where there is one."""
    whole = sys.excepthook

    def tell(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
        line = advice(error)
        if line is None:
            whole(kind, error, trace)
        else:
            print(line, file=sys.stderr)

    sys.excepthook = tell
