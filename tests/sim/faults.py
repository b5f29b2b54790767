"""The faults of one run: a mix and rates that the seed draws, so that every seed is another world (swarm testing).

Two worlds are kept apart, because they keep other promises: in one only processes die, and the page cache lives; in the
other machines lose power, and only what was synced before its acknowledgement must be there afterwards.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from random import Random

from tests.sim import lost_answers
from tests.sim.disk import DiskFaults
from tests.sim.network import NetworkFaults

# Mean seconds between two faults of one kind; 0 means that this seed has none of them.
RATES_S = (0.0, 2.0, 5.0, 12.0)
# The rates of faults from which a cluster recovers slowly, so that there is time for it.
SLOW_RATES_S = (0.0, 0.0, 4.0, 8.0)
KINDS = ("crash", "power", "pause", "cut", "clock", "drift", "stop", "full", "wipe", "older")
# The faults after which a log directory is offline.
DISK_ERRORS = (
    "write_error",
    "sync_error",
    "read_error",
    "flipped_bit",
    "truncate_error",
    "rename_error",
    "sync_dir_error",
)
# The counters of a kind of fault, where they differ from its own name.
COUNTED = {
    "cut": ("one-way cut", "two-way cut", "late bytes", "connect timed out"),
    "crash": ("crash", "connect refused"),
    "power": ("power", "half open", "reset of a half-open connection"),
    "full": ("no space",),
    "wipe": ("wiped disk",),
    "older": ("older disk",),
    "tiny_segments": ("tiny segment",),
    "lost_answer": ("lost answer", "late answer"),
    "sync_dir_error": ("directory sync error",),
    "buggify": ("held up",),
}
NETWORK_KINDS = ("stall", "tiny_segments", "reset", "lost_answer")
DISK_KINDS = (
    "write_error",
    "short_write",
    "sync_error",
    "read_error",
    "flipped_bit",
    "truncate_error",
    "rename_error",
    "sync_dir_error",
    "slow_sync",
)


@dataclass
class Swarm:
    """The faults of one run.

    Attributes:
        loses_power: machines go dark; only synced topics are checked for what was acknowledged.
        every_s: mean seconds between two faults of a kind.
        buggify: how likely a task is held up at each point of the product that this seed makes use of.
        without: kinds, and single faults as "crash:3" is the third of its kind, that are left out, for shrinking.
        happened: every single fault that happened and could be left out, in order.
    """

    loses_power: bool
    every_s: dict[str, float]
    network: NetworkFaults = field(default_factory=NetworkFaults)
    disk: DiskFaults = field(default_factory=DiskFaults)
    buggify: float = 0.0
    without: frozenset[str] = frozenset()
    happened: list[str] = field(default_factory=list)
    _counts: dict[str, int] = field(default_factory=dict)

    def happens(self, kind: str) -> bool:
        """Number a fault that was drawn; returns whether it is to happen."""
        number = self._counts[kind] = self._counts.get(kind, 0) + 1
        fault = f"{kind}:{number}"
        if fault in self.without:
            return False
        self.happened.append(fault)
        return True

    def describe(self) -> str:
        """One line."""
        rates = ", ".join(f"{kind} every {every:g} s" for kind, every in self.every_s.items() if every)
        world = "power loss" if self.loses_power else "process crashes"
        return f"{world}; {rates or 'no events'}; {self.network}; {self.disk}; buggify={self.buggify:g}"


def draw(random: Random, without: frozenset[str] = frozenset(), *, copies: bool = False) -> Swarm:
    """The faults of a seed.

    Args:
        without: kinds that are drawn too and then left out, so that the rest stays what it was.
        copies: whether everything is on several machines, so that one of them may lose its disk or get an older one.
    """
    loses_power = random.random() < 0.4
    every_s = {kind: random.choice(RATES_S) for kind in KINDS if kind not in ("wipe", "older")}
    if not loses_power:
        every_s["power"] = 0.0
    else:
        every_s["power"] = random.choice((1.0, 2.0, 5.0))
    network = NetworkFaults(
        latency_ms=random.choice([(0.05, 0.5), (0.05, 2.0), (1.0, 40.0)]),
        stall=random.choice([0.0, 0.0, 0.001, 0.02]),
        tiny_segments=random.choice([0.0, 0.0, 0.05, 0.5]),
        reset=random.choice([0.0, 0.0, 0.0005, 0.005]),
    )
    disk = DiskFaults(
        write_error=random.choice([0.0, 0.0, 0.0, 0.002]),
        sync_error=random.choice([0.0, 0.0, 0.002, 0.01]),
        slow_sync=random.choice([0.0, 0.0, 0.02, 0.2]),
        short_write=random.choice([0.0, 0.0, 0.02, 0.3]),
        read_error=random.choice([0.0, 0.0, 0.0, 0.003]),
        flipped_bit=random.choice([0.0, 0.0, 0.0, 0.004]),
        truncate_error=random.choice([0.0, 0.0, 0.0, 0.05]),
        rename_error=random.choice([0.0, 0.0, 0.0, 0.03]),
        sync_dir_error=random.choice([0.0, 0.0, 0.0, 0.03]),
        flips_records=True,
    )
    for kind in ("wipe", "older"):
        every_s[kind] = random.choice(SLOW_RATES_S) if copies else 0.0
    network.connect_timeout_s = random.choice([2.0, 20.0])
    held_up = random.choice([0.0, 0.0, 0.05, 0.3])
    network.lost_answer = random.choice([0.0, 0.0, 0.05, 0.3])
    if network.lost_answer:
        network.losing = lost_answers.choose(random)
    for kind in sorted(without):
        if kind == "buggify":
            held_up = 0.0
        elif kind in every_s:
            every_s[kind] = 0.0
        elif hasattr(network, kind):
            setattr(network, kind, 0.0)
        elif hasattr(disk, kind):
            setattr(disk, kind, 0.0)
    return Swarm(loses_power, every_s, network, disk, held_up, without)


def shrinkable(swarm: Swarm) -> list[str]:
    """The kinds of faults that this swarm has and that may be left out one by one."""
    kinds = [kind for kind, every in swarm.every_s.items() if every]
    kinds += [kind for kind in NETWORK_KINDS if getattr(swarm.network, kind)]
    kinds += [kind for kind in DISK_KINDS if getattr(swarm.disk, kind)]
    kinds += ["buggify"] if swarm.buggify else []
    return kinds


def counted(kind: str) -> tuple[str, ...]:
    """The counters of `World.injected` for a kind of fault."""
    return COUNTED.get(kind, (kind.replace("_", " "),))


def none() -> Swarm:
    """A world in which nothing goes wrong, though bytes still take their time."""
    return Swarm(False, dict.fromkeys(KINDS, 0.0))
