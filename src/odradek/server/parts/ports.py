"""The machine that a node runs on, real or simulated."""

from __future__ import annotations

from dataclasses import dataclass
from random import Random

from odradek.common.ports import NO_LIMITS, Clock, Disk, MachineLimits, Network


@dataclass(frozen=True, slots=True, kw_only=True)
class Ports:
    """What every part of a node reaches the world through.

    Attributes:
        hostname: what other nodes get for a listener that is bound to all interfaces.
    """

    clock: Clock
    disk: Disk
    network: Network
    random: Random
    hostname: str = "localhost"
    machine: MachineLimits = NO_LIMITS
