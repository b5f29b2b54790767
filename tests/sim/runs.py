"""One run of one seed in one world: the class of all worlds, and the report of a run."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from random import Random
from typing import Any, ClassVar

from odradek.common.log_lines import EventLogger
from tests.sim import faults
from tests.sim.clients import Recorder
from tests.sim.invariants import Watch
from tests.sim.world import World

LIMIT_S = 400.0
# The failed assertions that a run lists: one that failed may fail again with each request.
MOST_ASSERTIONS = 5


@dataclass
class Report:
    """The result of one run.

    Attributes:
        problems: every broken promise; empty if the run is good.
        trace: equal for equal seeds, see `trace.Trace`.
        marks: the trace at each simulated second.
        faults: how often each kind of fault happened.
        kinds: the kinds of faults that can be left out, see `faults.shrinkable`.
        happened: single faults that can be left out, in their order.
        without: the kinds and single faults that were left out.
        kind: the world's class, which may be a test's own.
    """

    world: str
    seed: int
    problems: list[str]
    trace: str
    marks: list[tuple[float, str]]
    simulated_s: float
    operations: int
    faults: dict[str, int]
    swarm: str
    kinds: list[str] = field(default_factory=list)
    happened: list[str] = field(default_factory=list)
    without: frozenset[str] = frozenset()
    kind: type[Scenario] | None = None

    @property
    def failed(self) -> bool:
        return bool(self.problems)


class Scenario:
    """One run: machines, clients, faults, and the verdict. Every world is a class of these.

    Attributes:
        world_name: its name on the command line.
        salt: makes its seeds draw other faults than those of other worlds.
        limit_s: the simulated seconds after which a run has failed.
        settings, durable_settings: the settings of every broker; the second only if machines lose power.
    """

    world_name: ClassVar[str]
    salt: ClassVar[int] = 0x5EED
    limit_s: ClassVar[float] = LIMIT_S
    settings: ClassVar[dict[str, str]] = {}
    durable_settings: ClassVar[dict[str, str]] = {}

    def __init__(self, world: World) -> None:
        self.world = world
        self.recorder = Recorder()
        self.random = Random(world.random.getrandbits(64))

    @classmethod
    def draw(cls, random: Random, without: frozenset[str]) -> faults.Swarm:
        """The faults of a seed."""
        return faults.draw(random, without)

    @classmethod
    def make_world(cls, seed: int, swarm: faults.Swarm, on_event: Callable[[str], None] | None) -> World:
        settings = cls.settings | (cls.durable_settings if swarm.loses_power else {})
        return World(seed, swarm, settings=settings, on_event=on_event)

    @property
    def problems(self) -> list[str]:
        """Every broken promise so far."""
        return self.recorder.problems

    @property
    def operations(self) -> int:
        """The number of operations of all clients."""
        return len(self.recorder.history)

    def make_watch(self) -> Watch:
        """The watch that checks the machines while they run."""
        return Watch(self.world, self.recorder)

    @asynccontextmanager
    async def watched(self) -> AsyncIterator[None]:
        """Hold the invariants against every moment of this block."""
        watching = self.world.loop.spawn("world", self.make_watch().run(), name="watch")
        try:
            yield
        finally:
            watching.cancel()
            ended: BaseException | None
            (ended,) = await asyncio.gather(watching, return_exceptions=True)
            if not isinstance(ended, asyncio.CancelledError):
                self.problems.append(f"the watch ended: {ended!r}")

    async def run(self) -> None:
        """Run from the first start to the last check; `problems` has the broken promises."""
        raise AssertionError("a world without a run")


def run_seed(
    seed: int,
    *,
    kind: type[Scenario],
    without: frozenset[str] = frozenset(),
    on_event: Callable[[str], None] | None = None,
) -> Report:
    """Run one seed in a new world.

    Args:
        kind: the class of the world.
        without: the faults to leave out: kinds ("crash") and single ones ("crash:3", the third).
        on_event: gets the timeline.
    """
    with own_garbage():
        return _run_seed(seed, kind, without, on_event)


@contextmanager
def fired_assertions() -> Iterator[list[str]]:
    """Collect what the product's own assertions find.

    A handler or an operation whose assertion fails is answered with an error, which a client takes for a broker in
    trouble: no other check would see the failed assertion.
    """
    found: list[str] = []
    right = EventLogger.bug

    def bug(self: EventLogger, event: str, error: BaseException, **fields: Any) -> None:
        if isinstance(error, AssertionError) and len(found) < MOST_ASSERTIONS:
            found.append(f"{type(error).__name__}: {event}: {error}")
        right(self, event, error, **fields)

    EventLogger.bug = bug  # type: ignore[method-assign]  # the test replaces it
    try:
        yield found
    finally:
        EventLogger.bug = right  # type: ignore[method-assign]  # the test replaces it


@contextmanager
def own_garbage() -> Iterator[None]:
    """Collect only what is made in this block, at its end and where it asks.

    A run makes garbage by the million and is over in seconds. The collector would walk through all that lives, most of
    which the process had before, again and again: that was a fifth of the time. Left to itself it comes by seldom in a
    process that has much else, and worlds that are over would pile up to gigabytes.
    """
    enabled = gc.isenabled()
    gc.disable()
    gc.freeze()
    try:
        yield
    finally:
        gc.collect()
        gc.unfreeze()
        if enabled:
            gc.enable()


def _run_seed(
    seed: int, kind: type[Scenario], without: frozenset[str], on_event: Callable[[str], None] | None
) -> Report:
    swarm = kind.draw(Random(seed ^ kind.salt), without)
    world = kind.make_world(seed, swarm, on_event)
    scenario = kind(world)
    problems = scenario.problems
    with world, fired_assertions() as fired:
        try:
            world.loop.run_world(scenario.run(), limit_s=kind.limit_s)
        except TimeoutError as error:
            problems.append(f"the run did not end within {kind.limit_s:g} simulated seconds: {error}")
        except AssertionError as error:
            # The box itself, or a client, found what cannot go on.
            problems.append(f"{type(error).__name__}: {error}")
        # The error of a task that died in a cycle of references shows only when it is collected.
        gc.collect()
        problems += [f"{type(failure).__name__}: {failure}" for failure in world.loop.failures]
        problems += fired
        report = Report(
            kind.world_name,
            seed,
            list(problems),
            world.loop.trace.digest(),
            world.loop.trace.marks,
            world.elapsed_s,
            scenario.operations,
            world.injected(),
            swarm.describe(),
            faults.shrinkable(swarm),
            swarm.happened,
            without,
            kind,
        )
        # Objects of clients keep dropped processes alive: they must go before the world collects what is left of it.
        del scenario, problems
    return report
