"""The HTTP pages of the host for all its brokers.

`/targets` is a list for Prometheus' `http_sd_configs`: each broker is a separate target, as elsewhere, so that rules
and dashboards work without changes. `/metrics` has metrics that the brokers do not have.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from odradek.common.metrics import Family, Sample
from odradek.host.broker_process import BrokerProcess, State
from odradek.server.metrics_text import metrics_text
from odradek.server.network.http_pages import JSON, OK, UNAVAILABLE, HttpConnection, Page, Pages
from odradek.settings.listeners import WILDCARDS

if TYPE_CHECKING:
    from odradek.host.supervisor import Host

MAX_DESCRIPTOR = 1 << 20


class HostPages:
    """Serves them while the host runs."""

    def __init__(self, host: Host) -> None:
        self._host = host
        self._server: asyncio.Server | None = None
        self._making: set[asyncio.Task[Page]] = set()

    async def start(self) -> None:
        """Listen at the host's address. Raises OSError."""
        address, port = self._host.plan.pages
        self._server = await asyncio.get_running_loop().create_server(
            lambda: HttpConnection(self._pages(), MAX_DESCRIPTOR), address or None, port
        )

    async def stop(self) -> None:
        """Answer no more."""
        for task in self._making:
            task.cancel()
        await asyncio.gather(*self._making, return_exceptions=True)
        if self._server is not None:
            # Without a wait: since Python 3.12 it waits for connections of peers, which may stay open.
            self._server.close()

    def _pages(self) -> Pages:
        return {
            b"/status": lambda: self._made(_json),
            b"/targets": lambda: _json(_targets(self._host)),
            b"/metrics": lambda: self._made(lambda found: _metrics(self._host.brokers)),
            b"/livez": lambda: _json({"live": True}),
            b"/readyz": lambda: self._made(_ready),
        }

    def _made(self, page: Callable[[dict[str, Any]], Page]) -> asyncio.Task[Page]:
        """Build a page from the present responses of all brokers."""

        async def make() -> Page:
            return page(await self._host.describe())

        task = asyncio.get_running_loop().create_task(make())
        self._making.add(task)
        task.add_done_callback(self._making.discard)
        return task


def _metrics(brokers: list[BrokerProcess]) -> Page:
    return Page(metrics_text(families(brokers)).encode())


def families(brokers: list[BrokerProcess]) -> list[Family]:
    """The metrics of the host about its brokers."""

    def family(name: str, kind: str, text: str, value: Callable[[BrokerProcess], float | None]) -> Family:
        samples = [(each, value(each)) for each in brokers]
        labelled = [
            Sample(found, (("node", str(each.plan.broker_id)),)) for each, found in samples if found is not None
        ]
        return Family(name, kind, text, tuple(labelled))

    return [
        family(
            "odradek_host_broker_up",
            "gauge",
            "Whether the broker's process runs.",
            lambda each: int(each.pid is not None),
        ),
        family(
            "odradek_host_broker_ready", "gauge", "Whether it is ready.", lambda each: int(each.state is State.READY)
        ),
        family("odradek_host_broker_restarts", "counter", "Starts because it died.", lambda each: each.restarts),
        family("odradek_host_broker_cpu_seconds", "counter", "Processor time.", lambda each: each.usage()[0]),
        family("odradek_host_broker_resident_bytes", "gauge", "Resident memory.", lambda each: each.usage()[1]),
    ]


def _targets(host: Host) -> list[dict[str, Any]]:
    """The brokers as Prometheus is to scrape them; one on all interfaces by the name that clients use."""
    found = []
    for each in host.brokers:
        address, port = each.plan.pages
        if address in WILDCARDS:
            address = each.plan.advertised.rpartition(":")[0]
        found.append({"targets": [f"{address}:{port}"], "labels": {"node": str(each.plan.broker_id)}})
    return found


def _ready(found: dict[str, Any]) -> Page:
    """Whether all brokers of this machine are ready."""
    not_ready = {each["node"]: each["why"] or each["state"] for each in found["brokers"] if each["state"] != "ready"}
    return _json({"ready": not not_ready, "failing": not_ready}, OK if not not_ready else UNAVAILABLE)


def _json(value: Any, status: str = OK) -> Page:
    return Page(json.dumps(value).encode() + b"\n", status, JSON)
