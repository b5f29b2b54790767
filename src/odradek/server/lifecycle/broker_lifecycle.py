"""The broker's membership of the cluster: registration, heartbeats, and controlled shutdown.

A broker is fenced, that is unknown to clients, until it has applied its own registration; a fenced broker leads
nothing. It sends a heartbeat every broker.heartbeat.interval.ms. Before it stops, the controller moves its leaders to
other brokers (controlled shutdown). Source: KIP-631, KIP-858.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from odradek.common.buggify import buggify
from odradek.common.errors import ApiError, ErrorCode, OdradekError
from odradek.common.log_lines import get_logger
from odradek.metadata.publisher import MetadataPublisher
from odradek.protocol.extras import full_log_dirs_field
from odradek.protocol.messages.broker_heartbeat_request import BrokerHeartbeatRequest
from odradek.protocol.messages.broker_heartbeat_response import BrokerHeartbeatResponse
from odradek.protocol.messages.broker_registration_request import BrokerRegistrationRequest
from odradek.protocol.messages.broker_registration_request import Listener as RegisteredListener
from odradek.protocol.messages.broker_registration_response import BrokerRegistrationResponse
from odradek.raft.wire import CLUSTER_ACTION_HINT
from odradek.server.auto_topic_creation import wait_until_seen
from odradek.settings.options import config, option

if TYPE_CHECKING:
    from odradek.log.log_dir import LogDir
    from odradek.metadata.delta import MetadataDelta
    from odradek.metadata.image import MetadataImage
    from odradek.server.controller_gateway import Controller

RETRY_MS = 100
# The interval of heartbeats during a controlled shutdown, until the controller has moved the leaders.
LEAVE_POLL_MS = 20
LEAVE_TIMEOUT_MS = 10_000
_RETRIED = {
    ErrorCode.NOT_CONTROLLER,
    ErrorCode.DUPLICATE_BROKER_REGISTRATION,
    ErrorCode.REQUEST_TIMED_OUT,
    ErrorCode.KAFKA_STORAGE_ERROR,  # the controller's disk is full
}
# Errors of heartbeats after which the broker cannot continue: it is unregistered, or another process has its id.
_NOT_THIS_BROKER = {
    ErrorCode.BROKER_ID_NOT_REGISTERED,
    ErrorCode.STALE_BROKER_EPOCH,
    ErrorCode.DUPLICATE_BROKER_REGISTRATION,
}
_log = get_logger("server.lifecycle.broker_lifecycle")


@config
class BrokerLifecycleConfig:
    """The settings of a broker's registration and heartbeats."""

    heartbeat_interval_ms: int = option(
        "broker.heartbeat.interval.ms",
        default=2000,
        unit="ms",
        doc="Interval between a broker's heartbeats to the controller.",
    )
    registration_timeout_ms: int = option(
        "initial.broker.registration.timeout.ms",
        default=60_000,
        unit="ms",
        doc="How long a starting broker tries to register before it exits.",
    )
    controlled_shutdown_enable: bool = option(
        "controlled.shutdown.enable", default=True, doc="Move leadership to other brokers before a clean stop."
    )
    cordoned_log_dirs: tuple[str, ...] = option(
        "cordoned.log.dirs", default=(), doc="Log directories, or *, that take no new replicas."
    )
    host: str | None = option(
        "broker.host",
        default=None,
        doc="Machine of the broker, by default the machine's id: replicas are spread over racks, then over machines.",
    )


def cordon(directories: Iterable[LogDir], config: BrokerLifecycleConfig) -> None:
    """Mark the directories that take no new replicas (KIP-1066): those that are named, or all by `*`."""
    named = config.cordoned_log_dirs
    paths = {Path(name.strip()).absolute() for name in named}
    known = {Path("*").absolute()}
    for each in directories:
        known.add(each.path.absolute())
        each.cordoned = "*" in named or each.path.absolute() in paths
    for path in sorted(paths - known):
        _log.warning("cordoned.log.dirs has a path that is not a log directory", path=path)


class BrokerLifecycle:
    """One broker's session with the controller."""

    def __init__(
        self,
        config: BrokerLifecycleConfig,
        controller: Controller,
        *,
        broker_id: int,
        metadata_offset: Callable[[], int],
        directories: Callable[[], Sequence[LogDir]],
        on_failed: Callable[[BaseException], None],
        on_answered: Callable[[], None] = lambda: None,
    ) -> None:
        """
        Args:
            controller: sends requests to the active controller.
            metadata_offset: of the present image.
            directories: every log directory of this broker.
            on_failed: called when the cluster refuses this broker permanently.
            on_answered: called whenever the controller reports this broker as unfenced.
        """
        self._config = config
        self._controller = controller
        self._broker_id = broker_id
        self._metadata_offset = metadata_offset
        self._directories = directories
        self._reported_cordoned = False
        self._heartbeat_due = asyncio.Event()
        self._on_failed = on_failed
        self._on_answered = on_answered
        self._duplicate = ""
        self._registration: BrokerRegistrationRequest | None = None
        self._listeners: list[RegisteredListener] | None = None  # of the last change
        self._has_new_listeners = False
        self._publisher: MetadataPublisher | None = None
        self._heartbeat_task: asyncio.Task[None] | None = None
        self._shutdown_wait_skipped = asyncio.Event()
        self.broker_epoch = -1

    async def register(self, registration: BrokerRegistrationRequest, publisher: MetadataPublisher) -> None:
        """Register, and wait until our own view of the cluster has the registration.

        Raises:
            ApiError: the registration is refused, or no controller answers in time.
        """
        registration.listeners = registration.listeners if self._listeners is None else self._listeners
        self._registration, self._publisher = registration, publisher
        try:
            async with asyncio.timeout(self._config.registration_timeout_ms / 1000):
                self.broker_epoch = await self._register(registration)
                while not await wait_until_seen(publisher, lambda image: image.offset >= self.broker_epoch):
                    _log.info("waiting for the cluster's metadata", at=publisher.image.offset, to=self.broker_epoch)
        except TimeoutError:
            if self._duplicate:
                raise ApiError(ErrorCode.DUPLICATE_BROKER_REGISTRATION, self._duplicate) from None
            raise ApiError(
                ErrorCode.REQUEST_TIMED_OUT, self._timeout_message("no active controller was found")
            ) from None

    async def join(self, publisher: MetadataPublisher) -> None:
        """Wait until the controller and this broker's own image report that it has caught up; heartbeats continue.

        A metadata response must have a broker as soon as this node serves: without any, librdkafka sends no more
            requests.

        Raises:
            ApiError: no controller responds in time, or this broker was unregistered.
        """
        try:
            async with asyncio.timeout(self._config.registration_timeout_ms / 1000):
                await self._unfenced()
                self._heartbeat_task = asyncio.get_running_loop().create_task(self._heartbeat_loop())
                while not await wait_until_seen(publisher, self._is_unfenced):
                    _log.info("waiting for the cluster's metadata", at=publisher.image.offset)
        except TimeoutError:
            raise ApiError(
                ErrorCode.REQUEST_TIMED_OUT, self._timeout_message("the controller keeps this broker fenced")
            ) from None

    async def _unfenced(self) -> None:
        """Send heartbeats until this broker is unfenced; retriable errors of the controller are retried. Raises
        ApiError."""
        while True:
            try:
                answer = await self._heartbeat_or_register()
                if answer is not None and not answer.is_fenced:
                    return
            except ApiError as error:
                if error.code not in _RETRIED:
                    raise
            await asyncio.sleep(RETRY_MS / 1000)

    def _is_unfenced(self, image: MetadataImage) -> bool:
        own = image.brokers.get(self._broker_id)
        return own is not None and own.broker_epoch == self.broker_epoch and not own.fenced

    def _timeout_message(self, why: str) -> str:
        limit_ms = self._config.registration_timeout_ms
        return (
            f"{why} within initial.broker.registration.timeout.ms ({limit_ms}): is the quorum up?"
            "; check that a majority of its voters runs, and that this node reaches them"
        )

    def skip_controlled_shutdown(self) -> None:
        """Shut down without waiting from now on: if the whole cluster stops, there is no other broker to wait for."""
        self._shutdown_wait_skipped.set()

    async def shut_down(self) -> None:
        """Controlled shutdown: resign all leaderships, stop the heartbeats. Never raises: the broker stops anyway."""
        if self._heartbeat_task is None:
            return
        await self.stop()
        if not self._config.controlled_shutdown_enable:
            return
        loop = asyncio.get_running_loop()
        shutdown, skipped = (
            loop.create_task(self._await_controlled_shutdown()),
            loop.create_task(self._shutdown_wait_skipped.wait()),
        )
        await asyncio.wait({shutdown, skipped}, return_when=asyncio.FIRST_COMPLETED)
        for task in (shutdown, skipped):
            task.cancel()
        await asyncio.gather(shutdown, skipped, return_exceptions=True)

    async def _await_controlled_shutdown(self) -> None:
        """Return when the controller allows the shutdown, or after the timeout."""
        try:
            async with asyncio.timeout(LEAVE_TIMEOUT_MS / 1000):
                answer = await self._heartbeat(want_shut_down=True)
                while not answer.should_shut_down:
                    await asyncio.sleep(LEAVE_POLL_MS / 1000)
                    answer = await self._heartbeat(want_shut_down=True)
        except (OdradekError, TimeoutError) as error:
            _log.warning("controlled shutdown failed", error=error)

    async def stop(self) -> None:
        """Stop the heartbeats, without a controlled shutdown."""
        if self._heartbeat_task is not None:
            self._heartbeat_task.cancel()
            await asyncio.gather(self._heartbeat_task, return_exceptions=True)
            self._heartbeat_task = None

    def heartbeat_now(self) -> None:
        """There is news for the controller that others wait for, as a directory that failed."""
        self._heartbeat_due.set()

    def change_listeners(self, listeners: list[RegisteredListener]) -> None:
        """Register other endpoints with the next heartbeat; the broker keeps its epoch, and is not fenced."""
        self._listeners = listeners
        if self._registration is not None and listeners != self._registration.listeners:
            self._registration.listeners = listeners
            self._has_new_listeners = True
            self.heartbeat_now()

    def on_metadata(self, delta: MetadataDelta, image: MetadataImage) -> None:
        """Another broker stops: it waits until all unfenced brokers know (see `Brokers.heartbeat`)."""
        changed = (
            image.brokers.get(broker_id) for broker_id in sorted(delta.changed_brokers) if broker_id != self._broker_id
        )
        if any(broker is not None and broker.in_controlled_shutdown and not broker.fenced for broker in changed):
            self._heartbeat_due.set()

    async def _register(self, registration: BrokerRegistrationRequest) -> int:
        while True:
            await buggify("server: before a registration")
            try:
                answer = await self._controller.request(registration, BrokerRegistrationResponse)
            except ApiError as error:
                if error.code is ErrorCode.CLUSTER_AUTHORIZATION_FAILED:
                    raise ApiError(error.code, f"the controller refuses this broker; {CLUSTER_ACTION_HINT}") from None
                if error.code not in _RETRIED:
                    raise
                self._log_duplicate(error)
                await asyncio.sleep(RETRY_MS / 1000)
            else:
                return answer.broker_epoch

    def _log_duplicate(self, error: ApiError) -> None:
        """Log at once that another process has this id; it may have died, and its session then ends soon."""
        duplicate = error.code is ErrorCode.DUPLICATE_BROKER_REGISTRATION
        if duplicate and not self._duplicate:
            self._duplicate = (
                f"another broker with node.id={self._broker_id} serves in this cluster: give this one another id and "
                "directories of its own, or stop the other"
            )
            _log.warning("registration refused; retrying", reason=error.code.name, hint=self._duplicate)
        elif not duplicate:
            self._duplicate = ""

    async def _heartbeat_loop(self) -> None:
        while True:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(self._config.heartbeat_interval_ms / 1000):
                    await self._heartbeat_due.wait()
            self._heartbeat_due.clear()
            await buggify("server: before a heartbeat")
            try:
                await self._heartbeat_or_register()
            except OdradekError as error:
                if isinstance(error, ApiError) and error.code in _NOT_THIS_BROKER:
                    _log.error("this broker was unregistered", error=error)
                    self._on_failed(error)
                    return
                _log.warning("heartbeat failed", error=error)

    async def _heartbeat_or_register(self) -> BrokerHeartbeatResponse | None:
        """One heartbeat; None where this broker had to register again. Raises as the controller refuses either."""
        try:
            answer = await self._heartbeat()
        except ApiError as error:
            if error.code is not ErrorCode.STALE_BROKER_EPOCH:
                raise
            await self._register_again(error)
            return None
        # After the heartbeat: a broker that was unregistered must not come back by its listeners.
        if self._has_new_listeners:
            await self._register_listeners()
        return answer

    async def _register_again(self, stale: ApiError) -> None:
        """Register again, since another registration has replaced this one: the delayed request of an earlier, killed
        process of this node. Another node with the same id has other directories, and the controller then refuses this
        one.

        Raises:
            ApiError: `stale`, where the broker was unregistered; as the registration is refused.
        """
        assert self._registration is not None and self._publisher is not None, "registered before"

        def is_seen(image: MetadataImage) -> bool:
            own = image.brokers.get(self._broker_id)
            return own is None or own.broker_epoch > self.broker_epoch

        if not await wait_until_seen(self._publisher, is_seen):
            return  # the responding controller may not have the registration yet: retry
        if self._broker_id not in self._publisher.image.brokers:
            raise stale
        _log.warning("another registration replaced this broker's: registering again")
        self._leave_out_offline(self._registration)
        answer = await self._controller.request(self._registration, BrokerRegistrationResponse)
        self.broker_epoch = answer.broker_epoch
        self.heartbeat_now()

    async def _register_listeners(self) -> None:
        """Register the present listeners. A refusal is logged, and the next heartbeat tries again: it is due anyway."""
        assert self._registration is not None, "registered before"
        self._has_new_listeners = False
        self._leave_out_offline(self._registration)
        try:
            await self._controller.request(self._registration, BrokerRegistrationResponse)
        except OdradekError as error:
            self._has_new_listeners = True
            _log.warning("changed listeners are not registered yet: trying again", error=error)
        else:
            self.heartbeat_now()  # the controller takes no directory for full until it hears of it again

    def _leave_out_offline(self, registration: BrokerRegistrationRequest) -> None:
        """Leave out the directories that have failed since the start: the controller would take them for online."""
        offline = {each.directory_id for each in self._directories() if each.offline}
        registration.log_dirs = [each for each in registration.log_dirs if each not in offline]

    async def _heartbeat(self, *, want_shut_down: bool = False) -> BrokerHeartbeatResponse:
        directories = self._directories()
        cordoned = [each.directory_id for each in directories if each.cordoned]
        full = [each.directory_id for each in directories if each.full and not each.offline]
        # An older controller has no place for them, and a new registration begins with none.
        self._reported_cordoned = self._reported_cordoned or bool(cordoned)
        request = BrokerHeartbeatRequest(
            broker_id=self._broker_id,
            broker_epoch=self.broker_epoch,
            current_metadata_offset=self._metadata_offset(),
            want_shut_down=want_shut_down,
            offline_log_dirs=[each.directory_id for each in directories if each.offline],
            cordoned_log_dirs=cordoned if self._reported_cordoned else None,
        )
        if full:
            request.unknown_tagged_fields = (full_log_dirs_field(full),)
        answer = await self._controller.request(request, BrokerHeartbeatResponse)
        if not answer.is_fenced:
            self._on_answered()
        return answer
