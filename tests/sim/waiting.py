"""Describes the tasks of a world that makes no progress: a line for each task, with the line of source it waits at."""

from __future__ import annotations

import asyncio
import asyncio.tasks
from collections.abc import Iterable
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
# A task that sleeps says so at the line that called it; the lines of asyncio itself are of no use.
LIBRARY = Path(asyncio.tasks.__file__).parent
# A run that fails for want of progress names no more tasks than these.
MAX_LINES = 60


def innermost(awaited: Any) -> tuple[FrameType | None, Any]:
    """Follow a suspended coroutine to where it waits: (its innermost frame outside asyncio, the awaited object)."""
    frame: FrameType | None = None
    while awaited is not None:
        for kind in ("cr", "ag", "gi"):
            inner_frame = getattr(awaited, f"{kind}_frame", None)
            if inner_frame is not None:
                if frame is None or LIBRARY not in Path(inner_frame.f_code.co_filename).parents:
                    frame = inner_frame
                awaited = getattr(awaited, f"{kind}_yieldfrom" if kind == "gi" else f"{kind}_await")
                break
        else:
            break
    return frame, awaited


def describe(task: asyncio.Task[Any]) -> str:
    """A line with the task's name, its coroutine, the place where it waits, and the awaited object."""
    coroutine = task.get_coro()
    frame, awaited = innermost(coroutine)
    name = getattr(coroutine, "__qualname__", repr(coroutine))
    # A task that is about to run again no longer has the future that it waited for.
    future = getattr(task, "_fut_waiter", None) or awaited
    return f"task {task.get_name()!r}, {name}, at {_place(frame)}, waits for {_what(future)}"


def report(tasks: Iterable[tuple[str, asyncio.Task[Any]]]) -> str:
    """A line for each unfinished task, given with its host."""
    lines = [f"  {host}: {describe(task)}" for host, task in tasks if not task.done()]
    if len(lines) > MAX_LINES:
        lines[MAX_LINES:] = [f"  and {len(lines) - MAX_LINES} more"]
    return "\n".join(lines) or "  none"


def _place(frame: FrameType | None) -> str:
    if frame is None:
        return "its first line"
    code: CodeType = frame.f_code
    path = Path(code.co_filename)
    shown = path.relative_to(ROOT) if path.is_relative_to(ROOT) else path
    return f"{shown}:{frame.f_lineno} in {code.co_name}"


def _what(future: Any) -> str:
    if isinstance(future, asyncio.Task):
        return f"task {future.get_name()!r}"
    if isinstance(future, asyncio.Future):
        children = getattr(future, "_children", None)
        if children:
            names = [child.get_name() if isinstance(child, asyncio.Task) else "a future" for child in children]
            return "all of " + ", ".join(repr(name) for name in names)
        return "a future that is done" if future.done() else "a future"
    return "its turn" if future is None else type(future).__name__
