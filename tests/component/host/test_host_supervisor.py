"""A host starts, rolls and stops brokers that cannot start, that die, or that hang."""

from __future__ import annotations

import asyncio
import contextlib
import sys
from collections.abc import Callable, Coroutine
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from odradek.common.errors import ConfigError
from odradek.host.broker_process import BrokerProcess, State
from odradek.host.http_get import BROKER_PATIENCE_S, HOST_PATIENCE_S, get_json
from odradek.host.pages import HostPages
from odradek.host.plan import HostPlan, plan_host, without_a_file
from odradek.host.supervisor import Host
from tests.support.nodes.node import free_port
from tests.support.waiting import eventually_async, some_turns


@pytest.fixture
def plan(tmp_path: Path) -> HostPlan:
    shared = {**without_a_file(1, 9092), "odradek.metrics.listener": f"127.0.0.1:{min(free_port(), 65000)}"}
    return plan_host(shared, {1: [tmp_path / "broker-1"]}, first_id=1, votes=1)


@pytest.fixture
def interpreter(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
    """A function that makes the processes of brokers run lines of a shell instead of a broker."""

    def replace(lines: str) -> None:
        script = tmp_path / "python"
        script.write_text(f"#!/bin/sh\n{lines}\n")
        script.chmod(0o700)
        monkeypatch.setattr(sys, "executable", str(script))

    return replace


def run(plan: HostPlan, test: Callable[[Host], Coroutine[Any, Any, None]]) -> None:
    """Run a test with a host that reads the same plan again, and stop what it has started."""

    async def all_of_it() -> None:
        host = Host(plan, cores=[], reload=lambda: plan)
        try:
            await test(host)
        finally:
            await host.stop()
            assert not any(broker.pid for broker in host.brokers)

    asyncio.run(all_of_it())


def test_a_broker_that_cannot_be_started_is_tried_again(
    plan: HostPlan, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, interpreter: Callable[[str], None]
) -> None:
    monkeypatch.setattr("odradek.host.broker_process.FIRST_PAUSE_MS", 1)

    async def test(host: Host) -> None:
        broker: BrokerProcess = host.brokers[0]
        monkeypatch.setattr(sys, "executable", str(tmp_path / "missing"))
        host.start()
        await eventually_async(lambda: broker.restarts >= 2)
        assert broker.why.startswith("cannot be started: No such file")
        interpreter("exec sleep 600")
        await eventually_async(lambda: broker.pid is not None)

    run(plan, test)


def test_a_roll_ends_at_a_broker_that_dies_again_and_again(
    plan: HostPlan, monkeypatch: pytest.MonkeyPatch, interpreter: Callable[[str], None]
) -> None:
    monkeypatch.setattr("odradek.host.broker_process.FIRST_PAUSE_MS", 1)
    interpreter("exit 1")

    async def test(host: Host) -> None:
        host.start()
        await eventually_async(lambda: host.brokers[0].restarts >= 1)
        host.roll()
        await eventually_async(lambda: host.rolls == 1)
        assert host.roll_failure is not None and "ended with 1 after" in host.roll_failure

    run(plan, test)


def test_a_restart_within_a_roll_fails_at_the_first_death(plan: HostPlan, interpreter: Callable[[str], None]) -> None:
    interpreter("exit 5")

    async def test(host: Host) -> None:
        host.start()
        await eventually_async(lambda: host.brokers[0].state is State.REFUSED)
        interpreter("exit 1")
        host.roll()
        await eventually_async(lambda: host.rolls == 1)
        assert host.roll_failure is not None and "broker 1 is waits to start again: ended with 1" in host.roll_failure

    run(plan, test)


@pytest.mark.parametrize(("error", "said"), [(ConfigError(["no"]), "no"), (RuntimeError("x"), "RuntimeError: x")])
def test_a_roll_that_fails_in_any_way_is_counted(plan: HostPlan, error: Exception, said: str) -> None:
    def reload() -> HostPlan:
        raise error

    async def test() -> None:
        host = Host(plan, cores=[], reload=reload)
        host.roll()
        await eventually_async(lambda: host.rolls == 1)
        assert (host.roll_failure, host.state) == (said, "running")

    asyncio.run(test())


def test_a_roll_that_is_asked_for_while_the_host_stops_starts_nothing(
    plan: HostPlan, interpreter: Callable[[str], None]
) -> None:
    interpreter("exec sleep 600")

    async def test(host: Host) -> None:
        host.start()
        await eventually_async(lambda: host.brokers[0].pid is not None)
        await host.stop()
        before = asyncio.all_tasks()
        host.roll()
        assert asyncio.all_tasks() <= before
        assert (host.state, host.rolls, host.brokers[0].state) == ("stopping", 0, State.STOPPED)

    run(plan, test)


def test_a_roll_takes_the_plan_over_before_the_turn_of_a_broker(
    plan: HostPlan, interpreter: Callable[[str], None]
) -> None:
    interpreter("exit 5")
    (broker,) = plan.brokers
    changed = replace(plan, brokers=[replace(broker, advertised="a:1")])

    async def test() -> None:
        host = Host(plan, cores=[], reload=lambda: changed)
        host.start()
        await eventually_async(lambda: host.brokers[0].state is State.REFUSED)
        host.roll()
        await eventually_async(lambda: host.rolls == 1)
        assert host.plan is changed and host.brokers[0].plan is changed.brokers[0]
        assert (await host.describe())["bootstrap_servers"] == "a:1"
        await host.stop()

    asyncio.run(test())


def test_a_host_answers_while_one_of_its_brokers_does_not(plan: HostPlan, interpreter: Callable[[str], None]) -> None:
    interpreter("exec sleep 600")

    async def never(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(ConnectionError):
            await reader.read()
        writer.transport.abort()

    async def test() -> None:
        hung = await asyncio.start_server(never, "127.0.0.1", 0)
        address = hung.sockets[0].getsockname()
        host = Host(replace(plan, brokers=[replace(plan.brokers[0], pages=address)]), cores=[], reload=lambda: plan)
        pages = HostPages(host)
        await pages.start()
        host.start()
        try:
            await eventually_async(lambda: host.brokers[0].pid is not None)
            found = await get_json(plan.pages, "/status", patience_s=HOST_PATIENCE_S)
            assert found is not None and found["brokers"][0]["state"] == "starting"
        finally:
            await host.stop()
            await pages.stop()
            hung.close()
            await some_turns()

    asyncio.run(test())
    assert HOST_PATIENCE_S > 5 * BROKER_PATIENCE_S
