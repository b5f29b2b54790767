"""UnregisterBroker: key 64, version 0. Forgets a broker that will not come back (KIP-631).

Its replicas stay assigned to it until they are moved; it leads nothing and is in no in-sync set. The answer waits until
this broker knows.
"""

from __future__ import annotations

from odradek.common.errors import ApiError
from odradek.protocol.messages.unregister_broker_request import UnregisterBrokerRequest
from odradek.protocol.messages.unregister_broker_response import UnregisterBrokerResponse
from odradek.server.auto_topic_creation import wait_until_seen
from odradek.server.context import RequestContext


async def handle(context: RequestContext, request: UnregisterBrokerRequest) -> UnregisterBrokerResponse:
    """Remove the registration."""
    try:
        response = await context.broker.controller.request(request, UnregisterBrokerResponse, context)
    except ApiError as error:
        return UnregisterBrokerResponse(error_code=error.code, error_message=error.message or None)
    await wait_until_seen(context.broker.publisher, lambda image: request.broker_id not in image.brokers)
    return response
