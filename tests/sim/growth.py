"""Nothing grows without a limit: tasks, connections and timers of a host, and every container that a broker holds.

A run has a few thousand requests, so what keeps one entry of each and lets none go is soon above these limits, which
are two or three times what good runs need.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from typing import Any

from tests.sim.world import Machine, World

MAX_TASKS = 120
MAX_CONNECTIONS = 100
MAX_TIMERS = 20_000
MAX_ENTRIES = 800
MAX_BYTES = 8 << 20
_CONTAINERS = (dict, list, deque, set, frozenset)


def too_many(world: World, machine: Machine) -> Iterator[str]:
    """Of what a host has at this moment, what is too much; cheap enough to be asked all the time."""
    tasks = len(world.loop.tasks_of(machine.name))
    if tasks > MAX_TASKS:
        yield f"{tasks} tasks are alive"
    connections = sum(1 for transport in world.wires.transports.values() if transport.host == machine.name)
    if connections > MAX_CONNECTIONS:
        yield f"{connections} connections are open"
    timers = world.loop.timer_count()
    if timers > MAX_TIMERS:
        yield f"{timers} timers are set in the whole world"


def too_large(root: object) -> Iterator[str]:
    """Containers and buffers that can be reached from a process and hold too much, by the attribute that holds them."""
    for holder, held in containers(root):
        limit = MAX_BYTES if isinstance(held, bytes | bytearray) else MAX_ENTRIES
        if len(held) > limit:
            yield f"{holder} holds {len(held)}"


def containers(root: object) -> Iterator[tuple[str, Any]]:
    """(class and attribute, container) of everything that objects of the product hold, from `root` on."""
    seen: set[int] = set()
    pending: list[tuple[str, Any]] = [(type(root).__name__, root)]
    while pending:
        holder, found = pending.pop()
        if id(found) in seen:
            continue
        seen.add(id(found))
        if isinstance(found, bytes | bytearray):
            yield holder, found
        elif isinstance(found, _CONTAINERS):
            yield holder, found
            values = found.values() if isinstance(found, dict) else found
            pending += [(holder, value) for value in values]
        elif isinstance(found, tuple):
            pending += [(holder, value) for value in found]
        elif hasattr(found, "__func__"):
            pending.append((holder, found.__self__))
        elif type(found).__module__.split(".")[0] == "odradek":
            pending += list(_attributes(found))


def _attributes(found: object) -> Iterator[tuple[str, Any]]:
    name = type(found).__name__
    for attribute, value in getattr(found, "__dict__", {}).items():
        yield f"{name}.{attribute}", value
    for owner in type(found).__mro__:
        for attribute in vars(owner).get("__slots__", ()):
            if hasattr(found, attribute):
                yield f"{name}.{attribute}", getattr(found, attribute)
