"""The process of one broker: start, watch, restart after a crash, clean stop."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import sys
import time
from collections.abc import Callable
from enum import StrEnum
from pathlib import Path
from typing import Any

from odradek.common.backoff import Backoff
from odradek.common.log_lines import get_logger
from odradek.host.http_get import DRAIN_PATIENCE_S, get_json
from odradek.host.lines import forward
from odradek.host.plan import BrokerPlan

_log = get_logger("host")

FIRST_PAUSE_MS, LAST_PAUSE_MS = 1_000, 60_000
# One that has lived for so long and dies starts the pauses from the first again.
HEALTHY_S = 300.0
POLL_S = 0.1
DRAIN_S = 30.0
LAST_LINES_S = 1.0
# Exit codes after which a restart is useless, as in the units: an invalid command line or configuration.
HOPELESS = (2, 5)
_BEGIN = Path(__file__).with_name("begin.py")


class State(StrEnum):
    """The state of a broker, as the host knows it."""

    STARTING = "starting"
    READY = "ready"
    NOT_READY = "not ready"
    PAUSING = "waits to start again"
    STOPPING = "stopping"
    STOPPED = "stopped"
    REFUSED = "refused"


class BrokerProcess:
    """Keeps one broker running until it is stopped.

    Attributes:
        plan: of the present process.
        next_plan: of its next start.
        core: the number of the core that it is bound to; None if the system chooses.
        restarts: the number of restarts after a crash.
        why: the present problem in one line; empty if there is none.
    """

    def __init__(self, plan: BrokerPlan, core: int | None, on_line: Callable[[int, bytes], None]) -> None:
        self.plan = self.next_plan = plan
        self.core = core
        self.restarts = 0
        self.since_s = time.time()
        self.why = ""
        self._state = State.STOPPED
        self._on_line = on_line
        self._process: asyncio.subprocess.Process | None = None
        self._keeping: asyncio.Task[None] | None = None
        self._stop_asked = False
        self._last_line = b""
        self._umask = _umask()

    @property
    def state(self) -> State:
        return self._state

    @property
    def pid(self) -> int | None:
        return None if self._process is None else self._process.pid

    def start(self) -> None:
        """Start it, and again whenever it dies. It must not be kept already."""
        assert self._keeping is None or self._keeping.done()
        self._stop_asked = False
        self._set(State.STARTING)
        self._keeping = asyncio.get_running_loop().create_task(self._run_repeatedly())

    async def stop(self) -> None:
        """Let it end in good order, and wait for that."""
        self._stop_asked = True
        if self._state is State.PAUSING and self._keeping is not None:
            self._keeping.cancel()
        self.signal(signal.SIGTERM)
        if self._keeping is not None:
            if self._process is not None:
                self._set(State.STOPPING)
            await asyncio.gather(self._keeping, return_exceptions=True)
        self._set(State.STOPPED)

    async def drain(self) -> None:
        """Drain the broker, as `odradek drain --process` does; gives up after a timeout."""
        if self._state not in (State.READY, State.NOT_READY):  # the signal would end a process that begins
            return
        self.signal(signal.SIGUSR1)
        deadline = time.monotonic() + DRAIN_S
        while self._process is not None and time.monotonic() < deadline:
            said = await get_json(self.plan.pages, "/drained", patience_s=DRAIN_PATIENCE_S)
            if said is None or said.get("drained"):
                return
            await asyncio.sleep(POLL_S)

    async def check(self) -> State:
        """The present state; a running process is probed for readiness."""
        if self._process is None or self._state is State.STOPPING:
            return self._state
        said = await get_json(self.plan.pages, "/readyz")
        if self._process is None or self._stop_asked:
            return self._state
        if said is not None and said.get("ready"):
            self.why = ""
            self._set(State.READY)
        elif self._state is not State.STARTING:
            failing = [] if said is None else said.get("failing", [])
            self.why = f"not {', '.join(failing)}" if failing else "its pages do not answer"
            self._set(State.NOT_READY)
        return self._state

    async def await_ready(self, *, deaths: int | None = None) -> bool:
        """Wait until the broker is ready, without a timeout; False if it needs an administrator.

        Args:
            deaths: the allowed number of crashes meanwhile; None: any number.
        """
        most = None if deaths is None else self.restarts + deaths
        while (state := await self.check()) is not State.READY:
            if state in (State.STOPPED, State.STOPPING, State.REFUSED):
                return False
            if most is not None and self.restarts > most:
                return False
            await asyncio.sleep(POLL_S)
        return True

    def signal(self, number: int) -> None:
        """Send a signal to the process, if it runs."""
        if self._process is not None:
            with contextlib.suppress(ProcessLookupError):
                self._process.send_signal(number)

    def usage(self) -> tuple[float | None, int | None]:
        """(processor seconds, bytes of memory) of the process, if the system has them."""
        if self.pid is None:
            return None, None
        try:
            fields = Path(f"/proc/{self.pid}/stat").read_text().rpartition(")")[2].split()
            pages = int(Path(f"/proc/{self.pid}/statm").read_text().split()[1])
        except (OSError, IndexError, ValueError):
            return None, None
        ticks = int(fields[11]) + int(fields[12])
        return ticks / os.sysconf("SC_CLK_TCK"), pages * os.sysconf("SC_PAGE_SIZE")

    def describe(self) -> dict[str, Any]:
        """The state of the broker for pages."""
        cpu_s, memory = self.usage()
        return {
            "node": self.plan.broker_id,
            "pid": self.pid,
            "state": str(self._state),
            "why": self.why or None,
            "listeners": dict(self.plan.listeners),
            "pages": f"{self.plan.pages[0]}:{self.plan.pages[1]}",
            "controller": self.plan.votes,
            "core": self.core,
            "cpu_seconds": cpu_s,
            "memory_bytes": memory,
            "since_ms": int(self.since_s * 1000),
            "restarts": self.restarts,
            "directories": list(map(str, self.plan.directories)),
        }

    def _set(self, state: State) -> None:
        if state is not self._state:
            self._state, self.since_s = state, time.time()

    async def _run_repeatedly(self) -> None:
        """Run the process repeatedly, until it is stopped, or a restart is useless."""
        backoff = Backoff(FIRST_PAUSE_MS, LAST_PAUSE_MS)
        while True:
            began_s = time.monotonic()
            try:
                code = await self._run()
            except OSError as error:  # no process, memory or descriptor is left: later there may be
                if self._stop_asked:
                    return
                self._last_line, how = b"", f"cannot be started: {error.strerror or error}"
            else:
                if self._ends_for_good(code):
                    return
                how = f"{_how(code)} after {time.monotonic() - began_s:.0f} s"
            if time.monotonic() - began_s > HEALTHY_S:
                backoff.reset()
            self.restarts += 1
            self.why = how
            _log.error(
                "broker died",
                node_id=self.plan.broker_id,
                how=self.why,
                last_line=self._last_line.decode(errors="replace"),
                again_in_ms=int(backoff.pause_ms),
            )
            self._set(State.PAUSING)
            await backoff.sleep()

    def _ends_for_good(self, code: int) -> bool:
        """Whether the process that has ended with this code stays away."""
        if self._stop_asked:
            return True
        if code in HOPELESS:
            self.why = self._last_line.decode(errors="replace") or _how(code)
            _log.error("broker refused to start; `odradek host roll` tries again", node_id=self.plan.broker_id)
            self._set(State.REFUSED)
        elif code == 0:
            _log.info("broker was stopped and stays away; `odradek host roll` starts it", node_id=self.plan.broker_id)
            self._set(State.STOPPED)
        return code in (0, *HOPELESS)

    async def _run(self) -> int:
        """Run the process once; returns its exit code."""
        self.plan = self.next_plan
        self._set(State.STARTING)
        core = "-" if self.core is None else str(self.core)
        broker = [sys.executable, "-m", "odradek", "broker", "--config", str(self.plan.config)]
        # The manager of the host's process waits for that one's word, not for a broker's.
        environment = {name: value for name, value in os.environ.items() if name != "NOTIFY_SOCKET"}
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-I", "-S", str(_BEGIN), core, str(os.getpid()), *broker),
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.DEVNULL,  # a greeting for people, which would come once for each broker
            stderr=asyncio.subprocess.PIPE,
            env=environment,
            umask=self._umask,  # a thread that writes properties may have another one at this moment
            process_group=0,  # Ctrl-C in a terminal reaches the host alone, which stops the brokers in order
        )
        self._process, self._last_line = process, b""
        _log.info("broker started", node_id=self.plan.broker_id, pid=process.pid, core=core)
        if self._stop_asked:  # while the process was being made
            self.signal(signal.SIGTERM)
        assert process.stderr is not None
        forwarding = asyncio.get_running_loop().create_task(forward(process.stderr, self._forward_line))
        try:
            return await process.wait()
        finally:
            self._process = None
            # Its output is complete; a worker of a killed broker may keep the pipe open for longer.
            await asyncio.wait([forwarding], timeout=LAST_LINES_S)
            forwarding.cancel()

    def _forward_line(self, line: bytes) -> None:
        self._last_line = line or self._last_line
        self._on_line(self.plan.broker_id, line)


def _umask() -> int:
    found = os.umask(0o077)
    os.umask(found)
    return found


def _how(code: int) -> str:
    if code >= 0:
        return f"ended with {code}"
    with contextlib.suppress(ValueError):
        return f"was killed by {signal.Signals(-code).name}"
    return f"was killed by signal {-code}"
