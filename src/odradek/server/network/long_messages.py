"""Requests and responses of very many elements: decoded and encoded in steps, while others have their turns."""

from __future__ import annotations

import asyncio
from collections.abc import Generator
from typing import TYPE_CHECKING, Any

from odradek.common.errors import ApiError, ProtocolError
from odradek.common.turns import in_turns
from odradek.protocol.declare import Message
from odradek.protocol.framing import encode_response_in_steps
from odradek.server.network.request_failures import close_unencodable

if TYPE_CHECKING:
    from odradek.server.context import RequestContext
    from odradek.server.network.connection import Connection
    from odradek.server.network.dispatch import Route
    from odradek.server.network.response_order import ResponseSlot

# Requests of at least so many bytes, and responses of so many elements, may take more than a turn's time.
IN_STEPS_BYTES = 64 * 1024
IN_STEPS_ELEMENTS = 1000
# The results of `_lists_of`.
_LISTS: dict[type, tuple[str, ...]] = {}


def is_long(response: Message) -> bool:
    """Whether a response has lists of very many elements, in themselves or in their elements."""
    count = 0
    for name in _lists_of(type(response)):
        items = getattr(response, name)
        if not items:
            continue
        count += len(items)
        if count > IN_STEPS_ELEMENTS:
            return True
        for nested in _lists_of(type(items[0])):
            for item in items:
                count += len(getattr(item, nested) or ())
    return count > IN_STEPS_ELEMENTS


def _lists_of(kind: type) -> tuple[str, ...]:
    """The names of the fields of a message that are lists; () for other types."""
    found = _LISTS.get(kind)
    if found is None:
        fields = kind.FIELDS if issubclass(kind, Message) else ()
        found = _LISTS[kind] = tuple(spec.name for spec in fields if spec.wire_type == "array")
    return found


async def decode_and_handle(
    connection: Connection,
    context: RequestContext,
    route: Route,
    steps: Generator[None, None, tuple[Any, int]],
    frame_bytes: int,
) -> None:
    """Decode the rest of a request; nothing behind it is begun before it is decided."""
    try:
        request, _ = await in_turns(steps)
    except ProtocolError as error:
        connection.close_because(str(error))
        return
    finally:
        connection.requests.is_exclusive = False
    if connection.is_closing:
        return
    with connection.quotas.working_for(connection):
        task = connection.requests.handle(context, route, request, frame_bytes)
    connection.advance()
    if task is not None:
        await asyncio.wait([task])  # which keeps the request's memory


async def encode_and_send(
    connection: Connection, slot: ResponseSlot, context: RequestContext, route: Route, response: Message
) -> None:
    """Encode a response, and send it in its place."""
    if connection.is_silent:
        return
    if context.payer is not None:
        with connection.quotas.working_for(connection):
            connection.quotas.answered(context, context.payer, response)
    steps = encode_response_in_steps(context.api_key, context.api_version, context.correlation_id, response)
    try:
        chunks = await in_turns(steps)
    except (ValueError, ApiError) as error:
        close_unencodable(context, route, error)
        return
    if not connection.is_closing:
        connection.send(slot, chunks, context)
        connection.advance()
