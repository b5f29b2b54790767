"""The host's own process: it starts the brokers, serves their pages, and handles signals."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import sys
from collections.abc import Callable, Sequence

from odradek.common.log_lines import get_logger, write_log_lines
from odradek.host.pages import HostPages
from odradek.host.plan import HostPlan
from odradek.host.running import Claim
from odradek.host.supervisor import Host
from odradek.server.startup.service_manager import notify_manager

_log = get_logger("host")

BAD_CONFIG = 5


def run(
    plan: HostPlan,
    *,
    claim: Claim,
    cores: Sequence[int],
    reload: Callable[[], HostPlan],
    when_ready: Sequence[str] = (),
) -> int:
    """Run the brokers until SIGTERM or SIGINT; SIGUSR1 and SIGHUP roll them. Returns the exit code.

    Args:
        claim: of the disks, by which others find the host.
        cores, reload: see `Host`.
        when_ready: a command that is run once all brokers are ready.
    Raises:
        OSError: the pages cannot be served.
    """
    write_log_lines()
    claim.publish(plan.pages)
    return asyncio.run(_serve(Host(plan, cores=cores, reload=reload), when_ready))


async def _serve(host: Host, when_ready: Sequence[str]) -> int:
    loop = asyncio.get_running_loop()
    stop_asked = asyncio.Event()

    def on_stop() -> None:
        if stop_asked.is_set():
            host.skip_controlled_shutdown()
        stop_asked.set()

    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, on_stop)
    loop.add_signal_handler(signal.SIGUSR1, host.roll)  # of `odradek host roll`
    if signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN:  # nohup
        # A terminal that closes sends it, too: that is the wish to stop, not to restart.
        loop.add_signal_handler(signal.SIGHUP, on_stop if _has_terminal() else host.roll)
    pages = HostPages(host)
    await pages.start()
    host.start()
    stopping = loop.create_task(stop_asked.wait())
    starting = loop.create_task(_start(host, when_ready))
    try:
        await asyncio.wait({stopping, starting}, return_when=asyncio.FIRST_COMPLETED)
        refused = starting.done() and not starting.result()
        if not refused:
            await stopping
        return BAD_CONFIG if refused else 0
    finally:
        notify_manager("STOPPING=1")
        for task in (starting, stopping):
            task.cancel()
        await asyncio.gather(starting, stopping, return_exceptions=True)
        await host.stop()
        await pages.stop()
        _log.info("stopped", brokers=len(host.brokers))


def _has_terminal() -> bool:
    try:
        return os.isatty(0)
    except OSError:  # closed
        return False


async def _start(host: Host, when_ready: Sequence[str]) -> bool:
    """Wait until all brokers are ready; False if none is, and none will be."""
    all_ready = await host.await_ready()
    if not any(broker.pid for broker in host.brokers):
        return False
    notify_manager("READY=1")
    _log.info("ready", brokers=len(host.brokers), all_ready=all_ready, bootstrap=host.plan.bootstrap)
    with contextlib.suppress(OSError):
        sys.stdout.write(f"The host is ready: {len(host.brokers)} brokers at {host.plan.bootstrap}\n")
        sys.stdout.flush()
    if when_ready and all_ready:
        await _run_beside(when_ready)
    return True


async def _run_beside(command: Sequence[str]) -> None:
    """Run a command of ours to its end, with its output among ours; it ends with us."""
    process = await asyncio.create_subprocess_exec(*command, stdin=asyncio.subprocess.DEVNULL)
    try:
        code = await process.wait()
    except asyncio.CancelledError:
        with contextlib.suppress(ProcessLookupError):
            process.terminate()
        await process.wait()
        raise
    if code:
        _log.error("a command failed", command=" ".join(command), code=code)
