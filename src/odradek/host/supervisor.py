"""All brokers of a machine: started together, restarted one by one, stopped in order."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import time
from collections.abc import Callable, Sequence
from typing import Any

from odradek.common.errors import ConfigError
from odradek.common.log_lines import get_logger
from odradek.host.broker_process import BrokerProcess, State
from odradek.host.lines import marked
from odradek.host.plan import HostPlan

_log = get_logger("host")

POLL_S = 0.5


class Host:
    """Runs the brokers of a plan.

    Attributes:
        state: starting, running, rolling or stopping.
        rolls: the number of rolling restarts that have ended; `roll_failure`: the error of the last one.
    """

    def __init__(self, plan: HostPlan, *, cores: Sequence[int], reload: Callable[[], HostPlan]) -> None:
        """
        Args:
            cores: the core of each broker, in order; if empty, the system chooses.
            reload: reads the configuration again, writes the properties of all brokers, returns the plan; it blocks.
        """
        self.plan = plan
        self.state = "starting"
        self.since_s = time.time()
        self.rolls = 0
        self.roll_failure: str | None = None
        self._reload = reload
        self._rolling: asyncio.Task[None] | None = None
        self.brokers = [
            BrokerProcess(broker, cores[place % len(cores)] if cores else None, _write)
            for place, broker in enumerate(plan.brokers)
        ]

    def start(self) -> None:
        """Start all brokers at once: in a new cluster they wait for each other."""
        for broker in self.brokers:
            broker.start()

    async def await_ready(self) -> bool:
        """Wait until each broker is ready; False if one cannot start."""
        ready = await asyncio.gather(*(broker.await_ready() for broker in self.brokers))
        self._set("running")
        return all(ready)

    def roll(self) -> None:
        """Begin to restart one broker after the other, with the configuration as it is now."""
        if self.state == "stopping":
            return
        if self._rolling is not None and not self._rolling.done():
            _log.warning("a roll is under way already")
            return
        self._rolling = asyncio.get_running_loop().create_task(self._roll())

    async def stop(self) -> None:
        """Stop all in good order: brokers first, then those that are controllers, so that the others can hand over."""
        self._set("stopping")
        if self._rolling is not None:
            self._rolling.cancel()
            await asyncio.gather(self._rolling, return_exceptions=True)
        for votes in (False, True):
            await asyncio.gather(*(each.stop() for each in self.brokers if each.plan.votes is votes))

    def skip_controlled_shutdown(self) -> None:
        """A second wish to stop: do not wait until others have taken over."""
        for broker in self.brokers:
            broker.signal(signal.SIGTERM)

    async def describe(self) -> dict[str, Any]:
        """All of it as it is now."""
        await asyncio.gather(*(broker.check() for broker in self.brokers))
        return {
            "pid": os.getpid(),
            "state": self.state,
            "since_ms": int(self.since_s * 1000),
            "bootstrap_servers": self.plan.bootstrap,
            "rolls": self.rolls,
            "roll_failure": self.roll_failure,
            "brokers": [broker.describe() for broker in self.brokers],
        }

    async def _roll(self) -> None:
        self._set("rolling")
        failure: str | None = "the host stops"
        try:
            failure = await self._roll_all()
        except Exception as error:
            # The caller waits for the end of the rolling restart, successful or not.
            _log.bug("a roll failed", error)
            failure = f"{type(error).__name__}: {error}"
        finally:
            self.roll_failure = failure
            self.rolls += 1
            self._set("running")
        if self.roll_failure is None:
            _log.info("rolled", brokers=len(self.brokers))
        else:
            _log.error("the roll ended early", why=self.roll_failure)

    async def _roll_all(self) -> str | None:
        """Restart all, those that are controllers last; returns why it went no further."""
        try:
            self.plan = await asyncio.to_thread(self._reload)
        except ConfigError as error:
            return str(error)
        # The files are new already: a broker that crashes now restarts with them before its turn.
        for broker, plan in zip(self.brokers, self.plan.brokers, strict=True):
            broker.next_plan = plan
        for broker in sorted(self.brokers, key=lambda each: each.plan.votes):
            if (dead := await self._first_that_dies()) is not None:
                return f"broker {dead.plan.broker_id} is {dead.state}: {dead.why or 'it died'}"
            if not await self._restart(broker):
                return f"broker {broker.plan.broker_id} is {broker.state}: {broker.why or 'it was stopped'}"
        return None

    async def _first_that_dies(self) -> BrokerProcess | None:
        """Wait until no partition here is without a copy of its own: only then another broker may go.

        Returns one that dies meanwhile, and dies again with the configuration as it is now.
        """
        running = [each for each in self.brokers if each.state not in (State.REFUSED, State.STOPPED)]

        async def wait(broker: BrokerProcess) -> BrokerProcess | None:
            is_ready = await broker.await_ready(deaths=1)
            return None if is_ready or broker.state in (State.REFUSED, State.STOPPED) else broker

        waits = [asyncio.get_running_loop().create_task(wait(each)) for each in running]
        try:
            for ended in asyncio.as_completed(waits):
                if (dead := await ended) is not None:
                    return dead
            return None
        finally:
            for task in waits:
                task.cancel()
            await asyncio.gather(*waits, return_exceptions=True)

    async def _restart(self, broker: BrokerProcess) -> bool:
        """Stop a broker once others lead, and start it; whether it is ready again."""
        await broker.drain()
        await broker.stop()
        broker.start()
        return await broker.await_ready(deaths=0)

    def _set(self, state: str) -> None:
        if self.state != "stopping":
            self.state, self.since_s = state, time.time()


def _write(broker_id: int, line: bytes) -> None:
    """Write a line to the stream of all brokers; they continue if nothing reads it."""
    try:
        sys.stderr.buffer.write(marked(broker_id, line))
        sys.stderr.buffer.flush()
    except OSError:
        pass
