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

from odradek.common.errors import ConfigError
from odradek.common.log_lines import get_logger
from odradek.common.ports import Listener, Network, ProtocolFactory
from odradek.server.network.listeners import ListenerSpec, bind, listener_specs
from odradek.settings.broker import BrokerSettings
from odradek.settings.listener_changes import fixed_key_problems, listener_change_problems

RETRY_S = 5.0
_log = get_logger("server.network.listeners")


class ListenerManager:
    """The listeners of one node.

    Attributes:
        specs: the listeners by name; those that a change adds are in it once they are bound.
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
        problems = listener_change_problems(self._settings, settings)
        problems += fixed_key_problems(self._settings, settings, changed)
        if not problems:
            problems = [await self._trial(each) for each in listener_specs(settings).values() if self._is_new(each)]
        if any(problems):
            raise ConfigError([each for each in problems if each])

    def change(self, settings: BrokerSettings) -> None:
        """Follow the settings that are in force now. Settings that break a rule change nothing, which is logged."""
        problems = listener_change_problems(self._settings, settings)
        if problems and problems != self._problems:
            _log.error("changed listeners are invalid: the present ones remain", reason="; ".join(problems))
        self._problems = problems
        if problems or settings.listeners == self._settings.listeners:
            return
        self._settings = settings
        self._due.set()
        if self._task is None or self._task.done():
            self._task = asyncio.get_running_loop().create_task(self._follow())

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
            await self._apply(listener_specs(self._settings))
            if self._failures:
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(RETRY_S):
                        await self._due.wait()

    async def _apply(self, wanted: Mapping[str, ListenerSpec]) -> None:
        failures: dict[str, str] = {}
        # A name whose protocol differs was removed and added again before this loop saw the first of the two changes.
        removed = [
            name
            for name, spec in self.specs.items()
            if name not in wanted or wanted[name].security_protocol != spec.security_protocol
        ]
        for name in removed:
            self._remove(name)
        has_changed = bool(removed)
        for name, spec in wanted.items():
            present = self.specs.get(name)
            if present is not None:
                present.is_internal = spec.is_internal
            if not self._is_new(spec):
                continue
            try:
                await (self._add(spec) if present is None else self._move(present, spec))
            except (OSError, ConfigError) as error:
                failures[name] = _reason(error)
            has_changed = True
        if failures and failures != self._failures:
            _log.error(
                f"listeners cannot be bound: trying again every {RETRY_S:.0f} s",
                listeners=",".join(failures),
                reason="; ".join(failures.values()),
            )
        self._failures = failures
        if has_changed:
            self._on_changed()

    def _is_new(self, wanted: ListenerSpec) -> bool:
        """Whether a listener is not bound where it should be. Port 0 stands for the port that it has got."""
        present = self.specs.get(wanted.name)
        if present is None:
            return True
        return (wanted.host, wanted.port) not in (self._configured[wanted.name], (present.host, present.port))

    async def _trial(self, spec: ListenerSpec) -> str:
        """Why an address cannot be bound; "" where it can. Of an address whose port this node has now, the host is."""
        port = 0 if any(each.port == spec.port for each in self.specs.values()) else spec.port
        try:
            await self._bind_on_trial(spec, port)
        except (OSError, ConfigError) as error:
            return _reason(error, spec)
        return ""

    async def _bind_on_trial(self, spec: ListenerSpec, port: int) -> None:
        (await bind(self._network, asyncio.Protocol, f"listeners: {spec.name}", spec.host, port)).close()

    async def _add(self, spec: ListenerSpec) -> None:
        self._serve(spec, await self._bind(spec))

    async def _move(self, present: ListenerSpec, wanted: ListenerSpec) -> None:
        """Serve at another address, where that can be bound. The present connections end: their clients have metadata
        with the old address."""
        if wanted.port == present.port:
            await self._bind_on_trial(wanted, 0)
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
