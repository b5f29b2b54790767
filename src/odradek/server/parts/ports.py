"""The machine that a node runs on, real or simulated."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from random import Random

from odradek.common.ports import NO_LIMITS, Clock, Disk, MachineLimits, Network, Timer, no_timer

# A document over HTTPS, by its address and settings of TLS (`ssl.truststore.location`); it blocks, and raises OSError.
Fetch = Callable[[str, Mapping[str, str]], bytes]


def no_fetch(url: str, options: Mapping[str, str]) -> bytes:
    """Refuse each fetch, for nodes that reach no web. Raises OSError."""
    raise OSError(f"{url}: no web is reached from here")


@dataclass(frozen=True, slots=True, kw_only=True)
class Ports:
    """The interfaces of a node to the operating system.

    Attributes:
        hostname: the advertised host of listeners that are bound to all interfaces.
        machine_id: the id of the machine, which several nodes may share; None if unknown.
        fetch: reads a document over HTTPS.
        timer: measures work on the event loop.
        cpu_timer: the processor time of the loop's thread.
    """

    clock: Clock
    disk: Disk
    network: Network
    random: Random
    hostname: str = "localhost"
    machine_id: str | None = None
    machine: MachineLimits = NO_LIMITS
    fetch: Fetch = no_fetch
    timer: Timer = no_timer
    cpu_timer: Timer = no_timer
