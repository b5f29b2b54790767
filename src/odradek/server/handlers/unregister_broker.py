"""UnregisterBroker: key 64, version 0. Forgets a broker that will not come back (KIP-631).

Its replicas stay assigned to it until they are moved; it leads nothing and is in no in-sync set. The answer waits until
this broker knows.
"""

from __future__ import annotations

from odradek.protocol.messages.unregister_broker_request import UnregisterBrokerRequest
from odradek.protocol.messages.unregister_broker_response import UnregisterBrokerResponse
from odradek.server.auto_topic_creation import wait_until_seen
from odradek.server.context import RequestContext
from odradek.server.handlers.shared import code_of


async def handle(context: RequestContext, request: UnregisterBrokerRequest) -> UnregisterBrokerResponse:
    """Remove the registration."""
    try:
        response: UnregisterBrokerResponse = await context.broker.controller.unregister_broker(request, context)
    except Exception as error:
        code, text = code_of(error)
        return UnregisterBrokerResponse(error_code=code, error_message=text)
    await wait_until_seen(context.broker.publisher, lambda image: request.broker_id not in image.brokers)
    return response
