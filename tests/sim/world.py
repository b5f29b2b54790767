"""Machines in a box: the real broker on simulated disks, clocks and a network, started, killed and started again.

A `Machine` is a host with a disk that outlives its processes. A `World` has the loop, the wires and all machines, draws
faults from the seed, and keeps a readable timeline of what happened.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import replace
from decimal import Decimal
from pathlib import Path
from random import Random
from typing import Self

from odradek.common.errors import OdradekError
from odradek.server.broker import Broker
from odradek.server.startup.format import ensure_formatted
from odradek.settings.node import load_node_settings
from tests.sim.clock import SimClock
from tests.sim.disk import UNLIMITED_BYTES, DiskFaults, SimDisk
from tests.sim.faults import DISK_ERRORS, Swarm, counted
from tests.sim.loop import SimLoop
from tests.sim.network import NetworkFaults, NetworkLinks, SimNetwork

PORT = 9092
RESTART_S = (0.05, 3.0)
# Faults that end a machine's processes.
DEADLY = ("crash", "power", "stop", "wipe", "older")
PAUSE_S = (0.1, 8.0)
CUT_S = (0.1, 8.0)
FULL_S = (0.2, 4.0)
STOP_LIMIT_S = 8.0
# The share of the points at which the product may be delayed that a seed uses, and the delays.
ACTIVE_POINTS = 0.4
HOLD_UP_S = ((0.0, 0.0), (0.0, 0.005), (0.0, 0.1), (0.2, 1.0))
POINTS_SALT = 0xB0661F
# Injected errors of a disk for which a process may end.
REASONS_TO_GIVE_UP = ("no space", *(name for kind in DISK_ERRORS for name in counted(kind)))
# The probability that a cut is in both directions between two hosts.
BOTH_WAYS = 0.3
# Small, so that a run of seconds rolls segments, has index entries and takes snapshots.
SETTINGS = {
    "odradek.log.scrub.enable": "false",
    "offsets.topic.num.partitions": "2",
    "group.initial.rebalance.delay.ms": "0",
    "group.min.session.timeout.ms": "500",
    "log.index.interval.bytes": "64",
    "log.roll.ms": "3000",
    "log.retention.check.interval.ms": "4000",
    "replica.high.watermark.checkpoint.interval.ms": "700",
    "metadata.log.max.record.bytes.between.snapshots": "2000",
    "broker.heartbeat.interval.ms": "500",
    "broker.session.timeout.ms": "3000",
}


def pause_s(random: Random, every_s: float) -> float:
    """The seconds until an event that happens once in `every_s` on the average (exponentially distributed).

    Not `Random.expovariate`: the logarithm of the C library has another last bit on another processor, and a seed would
    be another run there.
    """
    return -every_s * float(Decimal(1.0 - random.random()).ln())


class Machine:
    """One host: a disk, a wall clock, and at most one process of the broker."""

    def __init__(self, world: World, name: str, node_id: int, settings: dict[str, str]) -> None:
        """`settings` are of this node alone, above those of the world."""
        self.world = world
        self.name = name
        self.node_id = node_id
        self.settings = settings
        self.clock = SimClock(world.loop)
        self.disk = SimDisk(Random(world.random.getrandbits(64)), world.swarm.disk, self.clock.now_ms)
        self.disk.on_change = world.loop.trace.data
        self.disk.happens = lambda fault: world.swarm.happens(f"{fault} of {name}")
        # The node, once it serves clients; `process` also while it starts.
        self.broker: Broker | None = None
        self.process: Broker | None = None
        # The files of its disk some time ago.
        self.backup: dict[Path, bytes] | None = None
        self.starts = 0
        self.running = False

    @property
    def is_broker(self) -> bool:
        """Whether clients may ask it; a controller has no listener for them."""
        return "broker" in self.settings.get("process.roles", "broker")

    def start(self) -> None:
        """Start the broker's process; it starts again by itself where it ends for a disk that fails."""
        self.starts += 1
        self.running = True
        self.world.wires.host_came_up(self.name)
        self.world.loop.spawn(self.name, self._process(), name=f"{self.name} start {self.starts}")

    def kill(self, *, power: bool = False) -> None:
        """kill -9, or with `power` the whole machine goes dark."""
        if self.running:
            self.running = False
            self.broker = self.process = None
            self.world.loop.crash(self.name)
            self.disk.process_died()
            if not power:
                self.world.wires.host_died(self.name)
        if power:
            self.world.wires.host_went_dark(self.name)
            self.disk.lose_power()

    async def _process(self) -> None:
        world = self.world
        overrides = {
            "node.id": str(self.node_id),
            "listeners": f"PLAINTEXT://{self.name}:{PORT},CONTROLLER://{self.name}:{PORT + 1}",
            "controller.quorum.voters": f"{self.node_id}@{self.name}:{PORT + 1}",
            "log.dirs": "/data",
            **SETTINGS,
            **world.settings,
            **self.settings,
        }
        random = Random(world.random.getrandbits(64))
        try:
            settings = load_node_settings(
                self.disk, None, [f"{key}={value}" for key, value in overrides.items()], environment={}
            )
            ensure_formatted(
                self.disk, settings, random=random, now_ms=self.clock.now_ms(), cluster_id=world.cluster_id
            )
            broker = Broker(
                settings,
                clock=self.clock,
                disk=self.disk,
                network=SimNetwork(world.wires, self.name),
                random=random,
                hostname=self.name,
            )
            self.process = broker
            await broker.start()
            self.broker = broker
            world.report(f"{self.name} is ready")
            failure = await broker.failure
        except (OdradekError, OSError) as error:
            failure = error
        world.ended_by_itself(self, failure)


class World:
    """All machines, and the faults that happen to them."""

    def __init__(
        self,
        seed: int,
        swarm: Swarm,
        *,
        settings: dict[str, str] | None = None,
        on_event: Callable[[str], None] | None = None,
    ) -> None:
        """
        Args:
            settings: of every broker, above `SETTINGS`.
            on_event: gets the timeline, a line for each event.
        """
        self.seed = seed
        self.swarm = swarm
        self.settings = settings or {}
        self.random = Random(seed)
        self.loop = SimLoop(Random(self.random.getrandbits(64)))
        self.wires = NetworkLinks(self.loop, Random(self.random.getrandbits(64)), swarm.network)
        self.wires.happens = swarm.happens
        self.loop.buggify = self._hold_up
        self._chance = Random(seed ^ POINTS_SALT)
        # Point of the product -> whether this seed holds tasks up there; and how often it did.
        self._points: dict[str, bool] = {}
        self.held_up: dict[str, int] = {}
        self.machines: dict[str, Machine] = {}
        # The machines that were removed for good.
        self.gone: list[Machine] = []
        self.counts: dict[str, int] = {}
        self.healing = False
        # Machines that are formatted get it; None draws one.
        self.cluster_id: str | None = None
        self._on_event = on_event
        self._began_s = self.loop.time()

    @property
    def elapsed_s(self) -> float:
        """Simulated seconds since the beginning."""
        return self.loop.time() - self._began_s

    def report(self, event: str) -> None:
        """Put an event on the timeline and into the trace."""
        self.loop.record(event)
        if self._on_event is not None:
            self._on_event(f"{self.elapsed_s:9.3f} s  {event}")

    def count(self, kind: str) -> None:
        self.counts[kind] = self.counts.get(kind, 0) + 1

    def add_machine(self, name: str, node_id: int, settings: dict[str, str] | None = None) -> Machine:
        """A new machine with an empty disk; its broker is not started."""
        machine = self.machines[name] = Machine(self, name, node_id, settings or {})
        if self.healing:
            machine.disk.faults = DiskFaults()
        return machine

    def ended_by_itself(self, machine: Machine, failure: BaseException) -> None:
        """A process gave up, as it must when its disk fails; somebody starts it again."""
        self.report(f"{machine.name} gave up: {failure}")
        self.count("gave up")
        if not any(kind in machine.disk.injected for kind in REASONS_TO_GIVE_UP):
            text = f"{machine.name} gave up, and its disk has never failed: {type(failure).__name__}: {failure}"
            self.loop.failures.append(AssertionError(text))
        self.loop.call_on("world", self._bury, machine)

    def _bury(self, machine: Machine) -> None:
        machine.kill()
        self.loop.call_on("world", self._restart, machine, delay_s=self.random.uniform(*RESTART_S))

    async def end_for_good(self, machine: Machine, way: str) -> None:
        """End a machine's process for good: "stop" in good order, "kill" it, or by a loss of "power"."""
        self.gone.append(self.machines.pop(machine.name))
        if way == "stop":
            self.loop.resume(machine.name)
            await self._stop(machine, self.random)
        machine.kill(power=way == "power")

    def _restart(self, machine: Machine) -> None:
        if not machine.running and machine not in self.gone:
            self.report(f"{machine.name} starts")
            machine.start()

    async def make_trouble(self, duration_s: float) -> None:
        """Let faults happen for so long, each kind by its own clock; returns when it is over, not yet healed."""
        deadline = self.loop.time() + duration_s
        jobs = [
            asyncio.get_running_loop().create_task(self._repeat(kind, every, deadline), name=kind)
            for kind, every in self.swarm.every_s.items()
            if every
        ]
        await asyncio.sleep(duration_s)
        await asyncio.gather(*jobs)

    async def _repeat(self, kind: str, every_s: float, deadline: float) -> None:
        random = Random(self.random.getrandbits(64))
        while True:
            pause = pause_s(random, every_s)
            if self.loop.time() + pause >= deadline:
                return
            await asyncio.sleep(pause)
            machine = random.choice(list(self.machines.values()))
            if not self.swarm.happens(kind) or (kind in DEADLY and not self.may_die(machine)):
                continue
            self.count(kind)
            await getattr(self, f"_{kind}")(machine, random)

    def may_die(self, machine: Machine) -> bool:
        """Whether a fault may end this machine's processes."""
        return True

    async def _crash(self, machine: Machine, random: Random) -> None:
        self.report(f"kill -9 {machine.name}")
        machine.kill()
        await asyncio.sleep(random.uniform(*RESTART_S))
        self._restart(machine)

    async def _power(self, machine: Machine, random: Random) -> None:
        self.report(f"{machine.name} loses power")
        machine.kill(power=True)
        await asyncio.sleep(random.uniform(*RESTART_S))
        self._restart(machine)
        while random.random() < 0.3:
            # Again during the recovery, or soon after: its changes must be as durable as the bytes before.
            await asyncio.sleep(random.uniform(0.0, 0.4))
            if not self.may_die(machine):
                break
            self.report(f"{machine.name} loses power again")
            machine.kill(power=True)
            await asyncio.sleep(random.uniform(*RESTART_S))
            self._restart(machine)

    async def stop_and_start(self, machine: Machine, random: Random) -> None:
        """Stop a machine in good order, and start it again some time later."""
        await self._stop(machine, random)

    async def _stop(self, machine: Machine, random: Random) -> None:
        broker = machine.broker
        if broker is None or not machine.running:
            return
        self.report(f"{machine.name} stops in good order")
        stopping = self.loop.spawn(machine.name, broker.stop(), name=f"{machine.name} stops")
        # A crash in the middle of it drops the task, which then never ends.
        await asyncio.wait([stopping], timeout=STOP_LIMIT_S)
        failure = stopping.exception() if stopping.done() and not stopping.cancelled() else None
        if machine.broker is broker and stopping.done() and failure is None:
            self._check_stopped(machine, stopping)
        if isinstance(failure, Exception) and not isinstance(failure, OdradekError | OSError):
            self.loop.failures.append(failure)
        if machine.broker is broker:
            self.report(
                f"{machine.name} has stopped" if stopping.done() else f"{machine.name} is killed while it stops"
            )
            machine.kill()
        await asyncio.sleep(random.uniform(*RESTART_S))
        self._restart(machine)

    def _check_stopped(self, machine: Machine, stopping: asyncio.Task[None]) -> None:
        """Check that a process which has stopped cleanly has no task left but its own: each task has an owner."""
        own = f"{machine.name} start {machine.starts}"
        left = [task for task in self.loop.tasks_of(machine.name) if task is not stopping and task.get_name() != own]
        if left:
            self.loop.failures.append(AssertionError(f"{machine.name} has stopped, and {left} has not ended"))
        listening = [address for address, listener in self.wires.listeners.items() if listener.host == machine.name]
        if listening:
            self.loop.failures.append(AssertionError(f"{machine.name} has stopped, and listens at {listening}"))

    async def _full(self, machine: Machine, random: Random) -> None:
        room = random.choice((0, 100, 3000, 30_000))
        self.report(f"the disk of {machine.name} has {room} bytes left")
        machine.disk.faults = replace(machine.disk.faults, capacity_bytes=machine.disk.used_bytes() + room)
        await asyncio.sleep(random.uniform(*FULL_S))
        machine.disk.faults = replace(machine.disk.faults, capacity_bytes=UNLIMITED_BYTES)
        self.report(f"the disk of {machine.name} has room")

    async def _pause(self, machine: Machine, random: Random) -> None:
        self.report(f"{machine.name} is paused")
        self.loop.pause(machine.name)
        await asyncio.sleep(random.uniform(*PAUSE_S))
        self.loop.resume(machine.name)
        self.report(f"{machine.name} runs on")

    async def _cut(self, machine: Machine, random: Random) -> None:
        others = [name for name in self.hosts() if name != machine.name]
        for other in others:
            if random.random() < 0.5:
                continue
            both = [(machine.name, other), (other, machine.name)]
            ways = both if random.random() < BOTH_WAYS else [random.choice(both)]
            self.count("one-way cut" if len(ways) == 1 else "two-way cut")
            for source, target in ways:
                self.report(f"the way from {source} to {target} is cut")
                self.wires.cut(source, target)
        await asyncio.sleep(random.uniform(*CUT_S))
        self.report("all ways are open")
        self.wires.heal()

    async def _clock(self, machine: Machine, random: Random) -> None:
        by_ms = random.choice([-86_400_000, -5_000, -1, 1, 700, 60_000, 86_400_000])
        self.report(f"the wall clock of {machine.name} jumps by {by_ms} ms")
        machine.clock.jump(by_ms)

    async def _drift(self, machine: Machine, random: Random) -> None:
        ppm = random.choice([-200_000, -500, -50, 50, 500, 200_000])
        self.report(f"the wall clock of {machine.name} drifts by {ppm} ppm")
        machine.clock.drift(ppm)

    async def _hold_up(self, point: str) -> None:
        """Keep a task for a while where the product says that this may be worth trying."""
        rate, chance = self.swarm.buggify, self._chance
        if not rate or self.healing:
            return
        if point not in self._points:
            self._points[point] = chance.random() < ACTIVE_POINTS
        if not self._points[point] or chance.random() >= rate or not self.swarm.happens("buggify"):
            return
        self.count("held up")
        self.held_up[point] = self.held_up.get(point, 0) + 1
        await asyncio.sleep(chance.uniform(*chance.choice(HOLD_UP_S)))

    def hosts(self) -> list[str]:
        """Every host that has an end of a connection, machines first."""
        names = dict.fromkeys(self.machines)
        names.update(dict.fromkeys(transport.host for transport in self.wires.transports.values()))
        return list(names)

    def heal(self) -> None:
        """End all faults: every machine starts, every direction is open, every disk works."""
        self.report("healing")
        self.healing = True
        self.wires.faults = NetworkFaults()
        self.wires.heal()
        for machine in self.machines.values():
            machine.disk.faults = DiskFaults()
            self.loop.resume(machine.name)
            if not machine.running:
                self._restart(machine)

    def injected(self) -> dict[str, int]:
        """The number of times that each kind of fault happened."""
        total = dict(self.counts)
        machines = [*self.machines.values(), *self.gone]
        for source in [self.wires.injected, *(machine.disk.injected for machine in machines)]:
            for kind, count in source.items():
                total[kind] = total.get(kind, 0) + count
        return dict(sorted(total.items()))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.dispose()

    def dispose(self) -> None:
        """Let go of everything."""
        for machine in [*self.machines.values(), *self.gone]:
            machine.kill()
        # Disks and wires know who waits for them, and so hold what was dropped.
        self.machines.clear()
        self.gone.clear()
        self.wires.transports.clear()
        self.loop.dispose()
