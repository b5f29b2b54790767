"""A node in a process of its own: the real clock, disk, network and randomness, signals, and the line that it is up."""

from __future__ import annotations

import asyncio
import contextlib
import resource
import signal
import socket
import sys
import time
from typing import Any, cast

from odradek.common.errors import OdradekError, StorageError
from odradek.common.log_lines import get_logger, sum_up, write_log_lines
from odradek.common.real_io import (
    RealClock,
    RealDisk,
    RealNetwork,
    RealRandom,
    machine_id,
    machine_limits,
    open_descriptors,
)
from odradek.security.client.documents import read_document
from odradek.server.background.garbage_collection import GarbageCollection
from odradek.server.broker import Broker
from odradek.server.lifecycle.drain import drain
from odradek.server.network.slow_requests import JSON, LogLinesConfig
from odradek.server.startup.internal_topics import warn_of_internal_topics
from odradek.server.startup.service_manager import notify_manager
from odradek.settings.broker import BrokerSettings

_log = get_logger("server.broker")


def run(settings: BrokerSettings) -> int:
    """Run one node on the real machine until it is stopped; returns the exit code of the process."""
    write_log_lines(as_json=settings.build(LogLinesConfig).line_format == JSON)
    for line in settings.warnings:
        _log.warning("configuration", note=line)
    try:
        with asyncio.Runner(loop_factory=new_event_loop) as runner:
            return runner.run(_serve(settings))
    except KeyboardInterrupt:
        return 0
    finally:
        sum_up()


def new_event_loop() -> asyncio.AbstractEventLoop:
    """uvloop's event loop if it is installed, else asyncio's."""
    try:
        import uvloop
    except ImportError:
        return asyncio.new_event_loop()
    return cast("asyncio.AbstractEventLoop", uvloop.new_event_loop())


async def _serve(settings: BrokerSettings) -> int:
    loop = asyncio.get_running_loop()
    stop_requested = asyncio.Event()
    started: list[Broker] = []

    def on_signal() -> None:
        """Once: stop in good order. Twice: and do not wait for the rest of the cluster."""
        if stop_requested.is_set() and started:
            started[0].lifecycle.skip_controlled_shutdown()
        stop_requested.set()

    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, on_signal)
    drain_signalled = asyncio.Event()
    loop.add_signal_handler(signal.SIGUSR1, drain_signalled.set)
    _raise_descriptor_limit()
    clock = RealClock()
    began_ms = clock.monotonic_ms()
    disk = RealDisk()
    try:
        broker = Broker(
            settings,
            clock=clock,
            disk=disk,
            network=RealNetwork(),
            random=RealRandom(),
            hostname=socket.gethostname(),
            machine_id=machine_id(),
            machine=machine_limits(),
            fetch=read_document,
            timer=time.perf_counter_ns,
            cpu_timer=time.thread_time_ns,
        )
        long_lived = GarbageCollection(lambda: broker.log_manager.log_count)
        long_lived.begin()
        if not await _start(broker, stop_requested):
            _log.info("stopped before the start was complete", node_id=settings.node_id)
            return 0
        started.append(broker)
        long_lived.freeze()
        warn_of_internal_topics(broker)
        _log_listeners(broker)
        _announce(broker, clock.monotonic_ms() - began_ms)
        notify_manager("READY=1")
        tasks = [loop.create_task(step) for step in (stop_requested.wait(), broker.stop_requested.wait())]
        helpers = [loop.create_task(_drain_on_signal(broker, drain_signalled)), loop.create_task(long_lived.run())]
        waits: set[asyncio.Future[Any]] = {*tasks, broker.failure}
        await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
        for task in (*tasks, *helpers):
            task.cancel()
        await asyncio.gather(*tasks, *helpers, return_exceptions=True)
        failure = broker.failure.result() if broker.failure.done() else None
        if failure is not None:
            _log.error("fatal error: the node stops", error=failure)
        notify_manager("STOPPING=1")
        await broker.stop(clean=failure is None)
        _log.info("stopped", node_id=settings.node_id)
        return 0 if failure is None else 1
    except StorageError as error:
        _log.error("storage failed", log_dir=error.log_dir, error=error)
        return 1
    finally:
        disk.close()


async def _start(broker: Broker, stop_requested: asyncio.Event) -> bool:
    """Start a node; returns False if a stop was requested before the end. Raises as `Broker.start`."""
    starting = asyncio.ensure_future(broker.start())
    stopping = asyncio.ensure_future(stop_requested.wait())
    await asyncio.wait((starting, stopping), return_when=asyncio.FIRST_COMPLETED)
    stopping.cancel()
    if starting.done():
        starting.result()
        return True
    starting.cancel()  # which stops what has started
    with contextlib.suppress(asyncio.CancelledError):
        await starting
    return False


async def _drain_on_signal(broker: Broker, signalled: asyncio.Event) -> None:
    """Drain at SIGUSR1, as for the notice of a spot machine: other brokers take over before SIGTERM."""
    while True:
        await signalled.wait()
        signalled.clear()
        try:
            await drain(broker.gateway, broker.settings.node_id)
            _log.info("draining", node_id=broker.settings.node_id)
        except OdradekError as error:
            _log.error("drain request failed", error=error)


def _raise_descriptor_limit() -> None:
    """Raise the soft limit of open files to the hard limit."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        with contextlib.suppress(ValueError, OSError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


def _log_listeners(broker: Broker) -> None:
    connections = broker.dispatcher.connections
    descriptors, wanted = connections.descriptors, connections.limits.max_connections
    if descriptors.limit is None:
        return
    allowed = max(0, descriptors.clients_below - open_descriptors())
    _log.info(
        "descriptors",
        limit=descriptors.limit,
        kept_for_logs_and_peers=descriptors.limit - descriptors.clients_below,
        max_connections=min(wanted, allowed),
        note="as max.connections says" if wanted <= allowed else "as the limit allows; ulimit -n raises it",
    )


def _announce(broker: Broker, start_ms: int) -> None:
    """One line for people on standard output, one event for the log."""
    address = broker.bootstrap_address()
    node_id, roles = broker.settings.node_id, ",".join(sorted(broker.settings.roles))
    _log.info("ready", node_id=node_id, roles=roles, bootstrap=address, start_ms=start_ms)
    if address:
        listener, to = broker.bootstrap_listener(), f"--bootstrap-server {address}"
        if listener is not None and listener.security_protocol:
            to += " --command-config client.properties"
        sys.stdout.write(
            f"Odradek is ready at {address} after {start_ms} ms. Try, in another terminal:\n"
            f"  odradek topics create --topic hello {to}\n"
            f"  odradek produce --topic hello {to}\n"
            f"  odradek consume --topic hello --from-beginning {to}\n"
            "Ctrl-C stops it.\n"
        )
        sys.stdout.flush()
