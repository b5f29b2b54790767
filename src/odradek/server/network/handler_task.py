"""The task of a handler that is a coroutine: it also sends the response, without another iteration of the loop.

A coroutine may return a `PendingResponse`: what must be in the order of the requests is done, and the connection begins
the next request while this one waits.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from odradek.server.network.long_messages import encode_and_send, is_long
from odradek.server.network.request_failures import failure_response
from odradek.server.pending_response import PendingResponse

if TYPE_CHECKING:
    from collections.abc import Awaitable

    from odradek.server.context import RequestContext
    from odradek.server.network.connection import Connection
    from odradek.server.network.dispatch import Dispatcher, Route
    from odradek.server.network.response_order import ResponseSlot


async def run_and_respond(
    connection: Connection,
    dispatcher: Dispatcher,
    slot: ResponseSlot,
    context: RequestContext,
    route: Route,
    outcome: Awaitable[Any],
) -> None:
    """Await what a handler returned, and send the response in its place. A cancelled one leaves its place empty."""
    requests = connection.requests
    try:
        response = await outcome
    except asyncio.CancelledError:
        slot.chunks = []
        raise
    except Exception as error:
        response = failure_response(context, route, error)
    finally:
        if not route.overlapping:
            requests.is_exclusive = False
    if isinstance(response, PendingResponse):
        requests.wait_for(slot, context, route, response)
    elif response is not None and is_long(response) and not connection.is_closing:
        # A task of its own: with the end of this one the memory of the request is free.
        dispatcher.start_task(encode_and_send(connection, slot, context, route, response))
    else:
        requests.respond_later(slot, context, route, response)
