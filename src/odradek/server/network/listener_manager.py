"""The bound listeners of a node: bound at its start, and added, removed and moved when settings change (KIP-226).

A change is checked before it is stored, and its addresses are bound on trial. When it is in force, the listeners follow
one after the other: removed ones first, as their ports may be wanted. A listener that cannot be bound is tried again
every RETRY_S; the others serve meanwhile. Connections of a removed or moved listener end once the responses under way
are sent.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import cast

from odradek.common.errors import ConfigError
from odradek.common.log_lines import get_logger
from odradek.common.ports import Listener, Network, ProtocolFactory
from odradek.server.network.listeners import ListenerSpec, bind, listener_specs
from odradek.settings.broker import BrokerSettings
from odradek.settings.listener_changes import (
    LISTENERS,
    PROTOCOL_MAP,
    fixed_key_problems,
    listener_change_problems,
    unusable_listeners,
)

RETRY_S = 5.0
_log = get_logger("server.network.listeners")


class _Refused(asyncio.Protocol):
    """A connection that arrives amid a trial: no request of it would be read."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        cast("asyncio.Transport", transport).abort()


class ListenerManager:
    """The listeners of one node.

    Attributes:
        specs: the listeners by name, in the order of the settings; those that a change adds are in it once they are
            bound.
    """

    def __init__(
        self,
        settings: BrokerSettings,
        network: Network,
        make_protocol: Callable[[ListenerSpec], ProtocolFactory],
        *,
        backlog: Callable[[], int],
        on_removed: Callable[[ListenerSpec], None],
        on_changed: Callable[[], None],
    ) -> None:
        """
        Args:
            settings: those of the file.
            make_protocol: returns what accepts the connections of a listener; raises ConfigError.
            backlog: returns the length of the queue of a listening socket.
            on_removed: called with a listener that has ended, while its connections are open.
            on_changed: called after each change of `specs`.
        """
        self.specs = listener_specs(settings)
        self._settings = settings
        self._network = network
        self._make_protocol = make_protocol
        self._backlog = backlog
        self._on_removed = on_removed
        self._on_changed = on_changed
        self._bound: dict[str, Listener] = {}
        self._configured = {name: (spec.host, spec.port) for name, spec in self.specs.items()}
        self._problems: list[str] = []
        self._failures: dict[str, str] = {}
        self._reported: dict[str, str] = {}
        # A trial would find the ports in use that a change binds at the time, and the change those of a trial.
        self._binding = asyncio.Lock()
        self._due = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Bind all.

        Raises:
            ConfigError, OSError: an address cannot be bound.
        """
        for spec in self.specs.values():
            self._bound[spec.name] = listener = await self._bind(spec)
            spec.port = listener.port

    async def check(self, settings: BrokerSettings, changed: Mapping[str, str | None]) -> None:
        """Check a change of settings before it is stored.

        Args:
            settings: as they would be after it.
            changed: the changed settings of this node; None deletes one.
        Raises:
            ConfigError: a line for each problem.
        """
        problems = fixed_key_problems(self._settings, settings, changed)
        if LISTENERS in changed or PROTOCOL_MAP in changed:
            problems += listener_change_problems(self._settings, settings)
            problems = problems or await self._trials(settings)
        if problems:
            raise ConfigError(problems)

    def change(self, settings: BrokerSettings) -> BrokerSettings:
        """Follow the settings that are in force now, and return them.

        Those with listeners that the node cannot have, which is logged, are returned with the present listeners.
        """
        problems = unusable_listeners(self._settings, settings)
        if problems and problems != self._problems:
            _log.error("changed listeners are invalid: the present ones remain", reason="; ".join(problems))
        self._problems = problems
        if problems:
            return replace(settings, listeners=self._settings.listeners, advertised=self._settings.advertised)
        has_changed = settings.listeners != self._settings.listeners
        self._settings = settings
        if has_changed:
            self._due.set()
            if self._task is None or self._task.done():
                self._task = asyncio.get_running_loop().create_task(self._follow())
        return settings

    async def stop(self) -> None:
        """Follow no changes any more."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    def close(self) -> None:
        """Accept no connections any more; those that are open stay."""
        for listener in self._bound.values():
            listener.close()
        self._bound.clear()

    async def _follow(self) -> None:
        """Apply the present settings until every listener is bound."""
        while self._due.is_set() or self._failures:
            self._due.clear()
            async with self._binding:
                was_bound = await self._apply(listener_specs(self._settings))
            if not self._failures or was_bound:
                continue  # where one was bound, a port may be free now that another one wants
            self._report()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(RETRY_S):
                    await self._due.wait()
        self._reported = {}

    def _report(self) -> None:
        """Log the listeners that cannot be bound, once for the same reasons."""
        if self._failures != self._reported:
            _log.error(
                f"listeners cannot be bound: trying again every {RETRY_S:.0f} s",
                listeners=",".join(self._failures),
                reason="; ".join(self._failures.values()),
            )
        self._reported = self._failures

    async def _apply(self, wanted: Mapping[str, ListenerSpec]) -> bool:
        """Remove, add and move listeners. Returns whether one was bound; `_failures` has those that were not."""
        self._failures = {}
        removed = [name for name in self.specs if self._is_in_the_way(name, wanted)]
        for name in removed:
            self._remove(name)
        was_bound = False
        for name, spec in wanted.items():
            present = self.specs.get(name)
            if present is not None:
                present.is_internal = spec.is_internal
            if not self._is_new(spec):
                continue
            try:
                await (self._add(spec) if present is None else self._move(present, spec))
            except (OSError, ConfigError) as error:
                self._failures[name] = _reason(error)
            else:
                was_bound = True
        for name in wanted:
            if name in self.specs:
                self.specs[name] = self.specs.pop(name)
        if removed or was_bound or self._failures:
            self._on_changed()
        return was_bound

    def _is_in_the_way(self, name: str, wanted: Mapping[str, ListenerSpec]) -> bool:
        """Whether a listener must end before others are bound: it is not wanted, or with another protocol.

        One that moves to the port of another one that moves, too, also ends: the two may exchange their ports.
        """
        spec = wanted.get(name)
        if spec is None or spec.security_protocol != self.specs[name].security_protocol:
            return True
        holder = self._holder(spec.port)
        return holder != name and holder in wanted and self._is_new(wanted[holder])

    def _holder(self, port: int) -> str:
        """The listener of this node that has a port; "" for none."""
        return next((each.name for each in self.specs.values() if each.port == port), "")

    def _is_new(self, wanted: ListenerSpec) -> bool:
        """Whether a listener is not bound where it should be. Port 0 stands for the port that it has got."""
        present = self.specs.get(wanted.name)
        if present is None:
            return True
        return (wanted.host, wanted.port) not in (self._configured[wanted.name], (present.host, present.port))

    async def _trials(self, settings: BrokerSettings) -> list[str]:
        """One line for each address that is not in the present settings and cannot be bound."""
        wanted, present = listener_specs(settings), set(self._settings.listeners)
        added = [wanted[each.name] for each in settings.listeners if each.name in wanted and each not in present]
        async with self._binding:
            found = [await self._trial(each, wanted) for each in added if self._is_new(each)]
        return [each for each in found if each]

    async def _trial(self, spec: ListenerSpec, wanted: Mapping[str, ListenerSpec]) -> str:
        """Why an address cannot be bound; "" where it can. Of an address whose port this node leaves, the host is."""
        holder = self._holder(spec.port)
        is_left = bool(holder) and (holder not in wanted or self._is_new(wanted[holder]))
        try:
            await self._bind_on_trial(spec, any_port=is_left)
        except (OSError, ConfigError) as error:
            return _reason(error, spec)
        return ""

    async def _bind_on_trial(self, spec: ListenerSpec, *, any_port: bool) -> None:
        name = f"listeners: {spec.name}"
        (await bind(self._network, _Refused, name, spec.host, spec.port, any_port=any_port)).close()

    async def _add(self, spec: ListenerSpec) -> None:
        self._serve(spec, await self._bind(spec))

    async def _move(self, present: ListenerSpec, wanted: ListenerSpec) -> None:
        """Serve at another address, where that can be bound. The present connections end: their clients have metadata
        with the old address."""
        if wanted.port == present.port:
            await self._bind_on_trial(wanted, any_port=True)
            self._remove(present.name)  # both addresses may include the other, as that of all interfaces does
            await self._add(wanted)
        else:
            listener = await self._bind(wanted)
            self._remove(present.name)
            self._serve(wanted, listener)

    def _remove(self, name: str) -> None:
        self._bound.pop(name).close()
        del self._configured[name]
        self._on_removed(self.specs.pop(name))
        _log.info("listener removed", listener=name)

    async def _bind(self, spec: ListenerSpec) -> Listener:
        make, name = self._make_protocol(spec), f"listeners: {spec.name}"
        return await bind(self._network, make, name, spec.host, spec.port, backlog=self._backlog())

    def _serve(self, spec: ListenerSpec, listener: Listener) -> None:
        self.specs[spec.name], self._bound[spec.name] = spec, listener
        self._configured[spec.name] = (spec.host, spec.port)
        spec.port = listener.port
        _log.info("listener added", listener=spec.name, address=f"{spec.host}:{spec.port}")


def _reason(error: OSError | ConfigError, spec: ListenerSpec | None = None) -> str:
    """One line; with the listener where the error does not name it."""
    if isinstance(error, ConfigError):
        return "; ".join(error.problems)
    where = "" if spec is None else f"listeners: {spec.name}://{spec.host}:{spec.port}: "
    return f"{where}{error.strerror or error}"
