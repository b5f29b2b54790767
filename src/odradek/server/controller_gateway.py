"""Sends requests of a node to the active controller: the local one, or one on another node.

One method handles all APIs. If this node is the active controller, its own `ControllerService` handles the request.
Otherwise a client's request is forwarded in an Envelope with the client's principal and address (KIP-590), and a
request of the broker itself is sent unchanged. NOT_CONTROLLER, a lost connection and a missing leader are retried until
the timeout, so that clients do not notice a change of the controller.

A request from the controller's own listener is never forwarded: its sender finds the active controller itself.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from typing import TYPE_CHECKING, Protocol, TypeVar

from odradek.client.controller_channel import RETRY_S, ControllerChannel
from odradek.common.buggify import buggify
from odradek.common.errors import ApiError, ErrorCode
from odradek.common.ports import Clock
from odradek.controller.bounds import check_size
from odradek.controller.service import ControllerService
from odradek.controller.topics import free
from odradek.protocol.declare import Message
from odradek.protocol.messages.envelope_response import EnvelopeResponse
from odradek.security.quota.config import MutationQuotaConfig
from odradek.server.envelope import unwrap_answer, wrap
from odradek.server.mutation_quotas import MutationQuotas
from odradek.settings.options import config, option

if TYPE_CHECKING:
    from odradek.server.context import RequestContext

M = TypeVar("M", bound=Message)

# The timeout of forwarded requests, as in Kafka.
FORWARDING_TIMEOUT_MS = 60_000
_RETRIED = (ErrorCode.NOT_CONTROLLER, ErrorCode.NOT_LEADER_OR_FOLLOWER)


@config
class ChannelConfig:
    """The timeouts for connections to the controller's host."""

    connect_timeout_ms: int = option(
        "socket.connection.setup.timeout.ms",
        default=10_000,
        unit="ms",
        doc="Timeout of a connection attempt to the controller.",
    )
    answer_timeout_ms: int = option(
        "controller.socket.timeout.ms",
        default=30_000,
        unit="ms",
        doc="Timeout of requests to the controller.",
    )


class Controller(Protocol):
    """Handles the controller's APIs: the gateway, or an active service."""

    async def request(self, request: Message, response: type[M], /) -> M:
        """Answer `request`; `response` is the class of its API's answer."""


class ControllerGateway:
    """The way to the active controller."""

    def __init__(
        self,
        service: ControllerService | None,
        own: ControllerChannel,
        forwarding: ControllerChannel,
        clock: Clock,
        leads: Callable[[], bool],
        mutations: MutationQuotas | None = None,
    ) -> None:
        """
        Args:
            service: of this node, if it is a controller.
            own, forwarding: the channels for requests of this node, and for forwarded requests of clients.
            leads: whether this node leads the quorum, ready or not.
            mutations: the quotas of controller mutations, which are enforced at the active controller.
        """
        self._service = service
        self._own = own
        self._forwarding = forwarding
        self._clock = clock
        self._leads = leads
        self.mutations = mutations or MutationQuotas(MutationQuotaConfig())

    @property
    def service(self) -> ControllerService | None:
        """This node's own controller, active or not; None on a node that is only a broker."""
        return self._service

    def leader_changed(self) -> None:
        """The quorum has another leader."""
        self._own.leader_changed()
        self._forwarding.leader_changed()

    async def close(self) -> None:
        """Send nothing any more; waiting requests get that there is no controller."""
        await self._own.close()
        await self._forwarding.close()

    async def request(
        self,
        request: Message,
        response: type[M],
        context: RequestContext | None = None,
        *,
        timeout_ms: int = FORWARDING_TIMEOUT_MS,
    ) -> M:
        """Send a request to the active controller and return its response.

        Args:
            context: of the client whose request it is; None for a request of this node.
        Raises:
            ApiError: the error of the service; POLICY_VIOLATION, as `check_size`, before it is sent; or
                REQUEST_TIMED_OUT if no active controller was found in time.
        """
        check_size(request)
        if context is not None and context.on_controller_listener:
            return await self._handle_locally(request, response, context)
        deadline_ms = self._clock.monotonic_ms() + timeout_ms
        while True:
            await buggify("server: before the controller is asked")
            try:
                if self._leads():
                    return await self._handle_locally(request, response, context)
                left_ms = max(1, deadline_ms - self._clock.monotonic_ms())
                if context is None:
                    return _raise_top_level_error(await self._own.request(request, response, timeout_ms=left_ms))
                return await self._forward(request, response, context, left_ms)
            except ApiError as error:
                if error.code not in _RETRIED:
                    raise
                if self._own.closed or self._clock.monotonic_ms() >= deadline_ms:
                    raise ApiError(ErrorCode.REQUEST_TIMED_OUT, error.message) from None
            await self._pause()

    async def _pause(self) -> None:
        """Wait for a short time, or until the leader changes or this node, as the leader, is ready."""
        if self._service is None or not self._leads():
            await self._own.pause()
            return
        if self._service.is_ready:
            # It refuses requests although it leads, as after an error: no event reports the end of this.
            await asyncio.sleep(RETRY_S)
            return
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(RETRY_S):
                await self._service.wait_active()

    async def _forward(self, request: Message, response: type[M], context: RequestContext, timeout_ms: int) -> M:
        sealed = wrap(request, context)
        answer = await self._forwarding.request(sealed, EnvelopeResponse, timeout_ms=timeout_ms)
        return unwrap_answer(answer, response, context)

    async def _handle_locally(self, request: Message, response: type[M], context: RequestContext | None) -> M:
        if self._service is None:
            raise ApiError(ErrorCode.NOT_CONTROLLER, "this node is not a controller")
        if context is None:
            return await self._service.request(request, response)
        charge = self.mutations.charge_of(context)
        answer = await self._service.request(
            request, response, context.api_version, context.principal, free if charge is None else charge
        )
        if charge is not None and charge.throttle_ms:
            # Each answer to a mutation has the field; that of all answers, of which M is one, has not.
            answer.throttle_time_ms = charge.throttle_ms  # type: ignore[attr-defined]  # it has the field, see above
        return answer


def _raise_top_level_error(answer: M) -> M:
    """Raise the top-level error of a response over the wire, as the service itself does."""
    code = getattr(answer, "error_code", 0)
    if code:
        raise ApiError(_code(code), getattr(answer, "error_message", None) or "")
    return answer


def _code(number: int) -> ErrorCode:
    try:
        return ErrorCode(number)
    except ValueError:
        return ErrorCode.UNKNOWN_SERVER_ERROR
