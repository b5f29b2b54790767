"""Checks that nothing grows without a limit: tasks, connections and timers of a host, and all containers of a broker.

A run has a few thousand requests, so a container that keeps an entry for each of them is soon above these limits, which
are two or three times the numbers of good runs.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from enum import Enum
from functools import cache
from types import MethodType
from typing import Any

from tests.sim.world import Machine, World

MAX_TASKS = 120
MAX_CONNECTIONS = 100
MAX_TIMERS = 1_000
MAX_ENTRIES = 800
MAX_BYTES = 8 << 20
_CONTAINERS = (dict, list, deque, set, frozenset)


class Kind(Enum):
    """The ways in which a walk treats an object."""

    BYTES = "count"
    DICT = "count, and go on with the values"
    CONTAINER = "count, and go on with what is in it"
    TUPLE = "go on with what is in it"
    METHOD = "go on with whose it is"
    OURS = "go on with what it holds"
    OTHER = "nothing"


def too_many(world: World, machine: Machine) -> Iterator[str]:
    """A line for each kind of object of which a host has too many now; cheap enough to be called all the time."""
    # The total of all hosts is known without counting, and nearly always few enough for each.
    tasks = world.loop.task_count(machine.name)
    if tasks > MAX_TASKS and (tasks := len(world.loop.tasks_of(machine.name))) > MAX_TASKS:
        yield f"{tasks} tasks are alive"
    connections = len(world.wires.transports)
    if connections > MAX_CONNECTIONS:
        # Connections that the process has not accepted yet, as while it is paused, are the system's.
        connections = sum(each.host == machine.name and each.accepted for each in world.wires.transports.values())
    if connections > MAX_CONNECTIONS:
        yield f"{connections} connections are open"
    timers = world.loop.timer_count()
    if timers > MAX_TIMERS:
        yield f"{timers} timers are set in the whole world"


def too_large(root: object) -> Iterator[str]:
    """Containers and buffers that can be reached from a process and hold too much, by the attribute that holds them.

    A walk looks at all that a process has, so it asks only once what a class is.
    """
    seen: set[int] = set()
    pending: list[tuple[str, Any]] = [(type(root).__name__, root)]
    while pending:
        holder, found = pending.pop()
        cls = type(found)
        kind = kind_of(cls)
        if kind is Kind.OTHER or id(found) in seen:
            continue
        seen.add(id(found))
        if kind is Kind.OURS:
            pending += _attributes(found)
        elif kind is Kind.TUPLE:
            pending += [(holder, value) for value in found]
        elif kind is Kind.METHOD:
            pending.append((holder, found.__self__))
        else:
            size = len(found)
            if size > (MAX_BYTES if kind is Kind.BYTES else MAX_ENTRIES):
                yield f"{holder} holds {size}"
            if kind is Kind.DICT:
                pending += [(holder, value) for value in found.values() if kind_of(type(value)) is not Kind.OTHER]
            elif kind is Kind.CONTAINER:
                pending += [(holder, value) for value in found if kind_of(type(value)) is not Kind.OTHER]


def _kind_of(cls: type) -> Kind:
    """The way in which a walk treats objects of this class."""
    if issubclass(cls, bytes | bytearray):
        return Kind.BYTES
    if issubclass(cls, dict):
        return Kind.DICT
    if issubclass(cls, _CONTAINERS):
        return Kind.CONTAINER
    if issubclass(cls, tuple):
        return Kind.TUPLE
    if issubclass(cls, MethodType):
        return Kind.METHOD
    # The attributes of a class, as messages hold their fields, belong to the program and not to the process.
    ours = cls.__module__.split(".")[0] == "odradek" and not issubclass(cls, type)
    return Kind.OURS if ours else Kind.OTHER


kind_of: Callable[[type], Kind] = cache(_kind_of)


def _attributes(found: object) -> list[tuple[str, Any]]:
    name = type(found).__name__
    held = [
        (f"{name}.{attribute}", value)
        for attribute, value in getattr(found, "__dict__", {}).items()
        if kind_of(type(value)) is not Kind.OTHER
    ]
    for attribute, holder in _slots(type(found)):  # type: ignore[arg-type]  # any class
        value = getattr(found, attribute, None)
        if kind_of(type(value)) is not Kind.OTHER:
            held.append((holder, value))
    return held


@cache
def _slots(cls: type) -> list[tuple[str, str]]:
    """(attribute, class and attribute) of every slot of a class."""
    names = [name for owner in cls.__mro__ for name in vars(owner).get("__slots__", ())]
    return [(name, f"{cls.__name__}.{name}") for name in names]
