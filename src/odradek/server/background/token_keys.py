"""Refreshes the public keys that verify tokens: off the event loop, at a limited rate.

While they cannot be read, the last keys stay in use. A token with an unknown key id triggers an early refresh, since
the issuer may have rotated its keys.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from odradek.common.backoff import Backoff
from odradek.common.log_lines import get_logger
from odradek.common.ports import Clock, Disk, read_file
from odradek.security.sasl.tokens import TokenChecks, read_keys

# Tokens with unknown keys trigger no refresh sooner than this: anyone can send them.
UNKNOWN_PAUSE_MS = 2000
LOOK_S = 0.5
_FILE = "file://"
_log = get_logger("server.background.token_keys")


@dataclass(frozen=True, slots=True)
class _Followed:
    """Keys that are refreshed periodically.

    Attributes:
        task: None for unsigned tokens, which have no keys.
        tried: whether there was an attempt to read them.
    """

    checks: TokenChecks
    task: asyncio.Task[None] | None
    tried: asyncio.Event


class TokenKeys:
    """The keys of all listeners with OAUTHBEARER."""

    def __init__(
        self, checks: Iterable[TokenChecks], disk: Disk, fetch: Callable[[str, Mapping[str, str]], bytes], clock: Clock
    ) -> None:
        self._checks = list(checks)
        self._disk = disk
        self._fetch = fetch
        self._clock = clock
        self._runs = False
        self._followed: list[_Followed] = []

    def start(self) -> None:
        """Read them now, and from then on."""
        self._runs = True
        self.follow(self._checks)

    def follow(self, checks: Iterable[TokenChecks]) -> None:
        """Read the keys of these, and no longer those of others."""
        self._checks = list(checks)
        if not self._runs:
            return
        kept = [each for each in self._followed if any(each.checks is wanted for wanted in self._checks)]
        for each in self._followed:
            if each not in kept and each.task is not None:
                each.task.cancel()
        new = [wanted for wanted in self._checks if not any(each.checks is wanted for each in kept)]
        self._followed = [*kept, *map(self._begin, new)]

    def _begin(self, checks: TokenChecks) -> _Followed:
        tried = asyncio.Event()
        if checks.unsigned:
            _log.warning("unsigned tokens are accepted: anyone can log in as any user", listener=checks.listener)
            tried.set()
            return _Followed(checks, None, tried)
        return _Followed(checks, asyncio.get_running_loop().create_task(self._follow(checks, tried)), tried)

    @property
    def are_awaited(self) -> bool:
        """Whether there are keys without an attempt to read them."""
        return not all(each.tried.is_set() for each in self._followed)

    async def tried(self) -> None:
        """Return once all were read, or could not be: before that, good tokens would be refused."""
        for each in list(self._followed):
            await each.tried.wait()

    async def stop(self) -> None:
        """Read no more."""
        self._runs = False
        tasks = [each.task for each in self._followed if each.task is not None]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _follow(self, checks: TokenChecks, tried: asyncio.Event) -> None:
        backoff = Backoff(checks.settings.retry_ms, checks.settings.retry_max_ms)
        while True:
            was_read = await self._read(checks)
            tried.set()
            if was_read:
                backoff = Backoff(checks.settings.retry_ms, checks.settings.retry_max_ms)
                await self._until_due(checks)
            else:
                await asyncio.sleep(backoff.next_ms() / 1000)

    async def _until_due(self, checks: TokenChecks) -> None:
        began_ms = self._clock.monotonic_ms()
        while True:
            await asyncio.sleep(LOOK_S)
            passed_ms = self._clock.monotonic_ms() - began_ms
            if passed_ms >= checks.settings.refresh_ms:
                return
            if checks.keys.asked_for_unknown and passed_ms >= UNKNOWN_PAUSE_MS:
                return

    async def _read(self, checks: TokenChecks) -> bool:
        url = checks.settings.jwks_url or ""
        try:
            keys = read_keys(await self._disk.run_blocking(self._reader(url, checks.tls)))
        except (OSError, ValueError) as error:
            reason = str(error)
            _log.warning("keys of tokens cannot be read", alike=url + reason, listener=checks.listener, reason=reason)
            return False
        if len(keys) != len(checks.keys.keys):
            _log.info("keys of tokens loaded", listener=checks.listener, keys=len(keys))
        checks.keys.replace(keys)
        return True

    def _reader(self, url: str, options: Mapping[str, str]) -> Callable[[], bytes]:
        if url.startswith(_FILE):
            return lambda: read_file(self._disk, Path(url.removeprefix(_FILE)))
        return lambda: self._fetch(url, options)
