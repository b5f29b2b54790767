"""Converts errors of Spark to one line for the author of the files: file and line, the problem, and advice.

Spark's errors address the developer of a driver: classes of errors, SQLSTATEs, stacks of both languages, and for some
mistakes none of the user's names. The line is Spark's own sentence if there is one.
"""

from __future__ import annotations

import contextlib
import io
import os
import re
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any

from pyspark_odradek.pipelines import PipelineError

_TRACE = "Traceback (most recent call last):"
# Advice of Spark that begins with these does not help the author of a pipeline.
_ENDS = ("\n\tat ", "SQLSTATE:", "JVM stacktrace", "Search path: [", "To tolerate the error on drop")
_NO_TARGET = re.compile(r"Unsupported destination (\S+) in flow: (\S+)")
_OF_THE_LOADER = re.compile(
    r"\d{4}-\d\d-\d\d [\d:]{8}: (Loading definitions|Found \d+ files|Importing|Registering SQL)"
)
_AROUND = re.compile(
    r"\[STREAM_FAILED\] Query \[.*?\] terminated with exception: |\[USER_RAISED_EXCEPTION\] "
    r"|\(?\borg\.apache\.spark\.[\w.$]+Exception(?:\)|:) ",
    re.DOTALL,
)
# Errors on a busy machine: Spark waits ten seconds for each Python process, without a setting for it.
_PASSING = re.compile(r"Python worker (?:failed to|did not) connect back")
# Advice for errors of Spark whose messages have none.
_ADVICE = (
    (
        _PASSING,
        "Spark waits ten seconds for each Python process that it starts, and the machine was busy for longer. Nothing "
        "is lost: run it again when less else runs there, or with fewer flows at once "
        "(spark.sql.pipelines.execution.maxConcurrentFlows under configuration)",
    ),
    (
        re.compile(r"OutOfMemoryError|Java heap space|GC overhead limit exceeded"),
        "the JVM had too little memory: give it more (spark.driver.memory under configuration), or read less at once "
        "(maxOffsetsPerTrigger of the source)",
    ),
    (
        re.compile(r"Python worker exited unexpectedly"),
        "a Python process was ended from outside, mostly by the system when memory was short: the system's log says "
        "so. Run it again with fewer tasks at once (--master 'local[2]') or with more memory",
    ),
    (
        re.compile(r"No space left on device"),
        "make room there, and run it again: it goes on where it was",
    ),
)
_PLACE = re.compile(r"\(line (\d+), pos \d+\)")


def first_line(text: object) -> str:
    """The message of Spark without stacks and codes; if Python raised the error below it, that error alone."""
    said = str(text)
    if _TRACE in said:
        said = _raised_by_python(said.rsplit(_TRACE, 1)[1]) or said
    for end in _ENDS:
        said = said.split(end)[0]
    if (found := _NO_TARGET.search(said)) is not None:
        target, flow = (short(name) for name in found.groups())
        return (
            f"{flow}: flows into {target}, which is not a table of the pipeline: declare it with "
            f"create_streaming_table (a sink with create_sink, and its flows in Python)"
        )
    return " ".join(_AROUND.sub("", said).split())


def _raised_by_python(trace: str) -> str:
    """The error at the end of a Python stack; an error of this package without its class."""
    raised = [line for line in trace.splitlines() if line[:1].strip()]
    kind, _, message = (raised[0] if raised else "").partition(": ")
    if not message or kind.startswith("pyspark_odradek."):
        return message
    return f"{kind.rsplit('.', 1)[-1]}: {message}"


def is_passing(reason: str) -> bool:
    """Whether a retry without changes may succeed."""
    return _PASSING.search(reason) is not None


def advised(reason: str) -> str:
    """The reason of a failure, with advice if Spark gives none and it is known here."""
    advice = next((advice for pattern, advice in _ADVICE if pattern.search(reason)), "")
    return f"{reason.rstrip('. ')}: {advice}" if advice and advice not in reason else reason


def message_of(error: BaseException) -> str:
    """The first line of an error; for an error of the JVM, of the JVM's message and not of py4j's."""
    java = getattr(error, "java_exception", None)
    return first_line(error if java is None else java.getMessage() or java)


@contextlib.contextmanager
def plain_errors() -> Iterator[None]:
    """Convert errors of Spark in this context to a PipelineError of one line."""
    from py4j.protocol import Py4JError
    from pyspark.errors import PySparkException

    try:
        yield
    except (Py4JError, PySparkException) as error:
        raise PipelineError(message_of(error)) from None


@contextlib.contextmanager
def refused_where(folder: Path) -> Iterator[None]:
    """Convert errors in the definition files of a folder to a PipelineError with file and line.

    Output of the files goes to stderr, since stdout has the result of the command; the lines that Spark's loader prints
    for each file are dropped.
    """
    from pyspark.errors import PySparkException

    try:
        with contextlib.redirect_stdout(_StderrOutput()):
            yield
    except PySparkException as error:
        raise PipelineError(_where(error, folder) + first_line(error)) from None
    except SyntaxError as error:
        name = os.path.relpath(error.filename, folder) if error.filename else "a definition file"
        raise PipelineError(f"{name}:{error.lineno}: {error.msg}") from None
    except SystemExit as error:
        where = _where(error, folder)
        raise PipelineError(f"{where}ends Python with exit({error.code}): a definition file only declares") from None
    except Exception as error:
        ours = type(error).__module__.startswith("pyspark_odradek.")
        said = first_line(error) if ours else f"{type(error).__name__}: {first_line(error)}"
        if isinstance(error, AttributeError) and error.name == "_plan":
            said = f"the query function returns {type(error.obj).__name__}, and not a DataFrame"
        raise PipelineError(_where(error, folder) + said) from None


class _StderrOutput(io.TextIOBase):
    """A stdout that writes to stderr and drops the lines of Spark's loader."""

    def __init__(self) -> None:
        self._line = ""

    def write(self, text: str) -> int:
        *lines, self._line = (self._line + text).split("\n")
        for line in lines:
            if not _OF_THE_LOADER.match(line):
                sys.stderr.write(line + "\n")
        return len(text)


def _where(error: BaseException, folder: Path) -> str:
    """The user's line in a traceback, as `file:line: `; for SQL, the file and line of Spark's parser."""
    found = ""
    trace: TracebackType | None = error.__traceback__
    while trace is not None:
        name = trace.tb_frame.f_code.co_filename
        if name.startswith(str(folder)):
            found = f"{os.path.relpath(name, folder)}:{trace.tb_lineno}: "
        elif trace.tb_frame.f_code.co_name == "register_sql":
            place = _PLACE.search(str(error))
            line = f":{place[1]}" if place else ""
            found = f"{trace.tb_frame.f_locals['file_path']}{line}: "
        trace = trace.tb_next
    return found


def name_of(identifier: Any) -> str:
    """The name of an identifier, without the default catalog and database."""
    return short(str(identifier.unquotedString()))


def short(name: str) -> str:
    """A full name without the default catalog and database."""
    return name.removeprefix("spark_catalog.").removeprefix("default.")


def origin_of(element: Any) -> str:
    """The definition of an element of the graph, as `file:line`; empty if Spark does not know it."""
    path, line = element.origin().filePath(), element.origin().line()
    if path.isEmpty():
        return ""
    return Path(str(path.get())).name + (f":{line.get()}" if line.isDefined() else "")


def why(listed: Callable[[Any], list[Any]], failed: Sequence[Any]) -> str:
    """The reason why flows do not resolve: the first that is not another flow's failure, or the cycle of the flows.

    Args:
        listed: converts a Scala collection to a list.
        failed: the flows, in the JVM.
    """
    waiting = {}
    for flow in failed:
        where = origin_of(flow)
        for reason in listed(flow.failure()):
            if "UnresolvedDatasetException" not in str(reason.getClass().getName()):
                return f"{where + ': ' if where else ''}{name_of(flow.identifier())}: {first_line(reason.getMessage())}"
        inputs = [name_of(each) for each in listed(flow.funcResult().requestedInputs())]
        waiting[name_of(flow.destinationIdentifier())] = inputs
    circle = circle_in(waiting)
    if circle:
        return f"a circle: {' reads '.join([*circle, circle[0]])}; one of them has to read something else"
    return f"{next(iter(waiting))} waits for what cannot be resolved"


def circle_in(reads: dict[str, list[str]]) -> list[str]:
    """A cycle of names, each of which reads the next; empty if there is none.

    Args:
        reads: name -> the names that it reads.
    """
    for start in reads:
        path = [start]
        while (following := next((each for each in reads[path[-1]] if each in reads), None)) is not None:
            if following in path:
                return path[path.index(following) :]
            path.append(following)
    return []
