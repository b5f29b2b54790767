"""Reloads renewed certificates while the node runs, and warns of those that expire soon.

Files are checked every CHECK_S; reading and checking them is fast, and no connection waits for it.
"""

from __future__ import annotations

import asyncio
import datetime
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING

from odradek.common.log_lines import get_logger
from odradek.common.metrics import Family, Sample
from odradek.common.ports import Clock

if TYPE_CHECKING:
    from odradek.security.tls.listener import RenewableContext

CHECK_S = 1.0
# A warning a day, from so long before the end.
WARN_BEFORE = datetime.timedelta(days=30)
WARN_EVERY_MS = 86_400_000
_log = get_logger("server.background.certificates")


class CertificateRenewal:
    """Renews the certificates of one node."""

    def __init__(self, contexts: Callable[[], Iterable[RenewableContext]], clock: Clock) -> None:
        """`contexts` returns the present ones: a listener may be added while the node runs."""
        self._contexts = contexts
        self._clock = clock
        self._task: asyncio.Task[None] | None = None
        self._next_warning_ms = 0

    def start(self) -> None:
        """Begin if there is a certificate; again after a listener was added."""
        if self._task is None and any(True for _ in self._contexts()):
            self._task = asyncio.get_running_loop().create_task(self._run())

    async def stop(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    async def _run(self) -> None:
        while True:
            self.renew_or_warn()
            await asyncio.sleep(CHECK_S)

    def renew_or_warn(self) -> None:
        """Reload changed files; warn of certificates that expire soon."""
        renewed = [context.renew() for context in self._contexts()]
        now_ms = self._clock.now_ms()
        if now_ms < self._next_warning_ms and not any(renewed):
            return
        self._next_warning_ms = now_ms + WARN_EVERY_MS
        now = datetime.datetime.fromtimestamp(now_ms / 1000, datetime.UTC)
        for each in self._contexts():
            if each.not_after is not None and each.not_after - now < WARN_BEFORE:
                left = "has expired" if each.not_after <= now else "expires soon"
                _log.warning(f"a certificate {left}: renew it", listener=each.name, expires=each.not_after)


def certificate_families(contexts: Iterable[RenewableContext]) -> Iterator[Family]:
    """When certificates expire."""
    samples = tuple(
        Sample(each.not_after.timestamp(), (("listener", each.name),))
        for each in contexts
        if each.not_after is not None
    )
    yield Family(
        "odradek_certificate_expiry_seconds", "gauge", "When a listener's certificate expires (Unix time).", samples
    )
