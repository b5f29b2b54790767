"""BrokerRegistration: key 62, versions 0-4, on the controller's listener. A broker joins the cluster (KIP-631).

Versions: 1 migration from ZooKeeper, which is refused elsewhere; 2 ids of log directories (KIP-858); 3 the epoch
before, which shows a clean stop (KIP-966); 4 features may begin at level 0 (KIP-1022).
"""

from __future__ import annotations

from odradek.common.errors import ApiError
from odradek.protocol.messages.broker_registration_request import BrokerRegistrationRequest
from odradek.protocol.messages.broker_registration_response import BrokerRegistrationResponse
from odradek.server.context import RequestContext


async def handle(context: RequestContext, request: BrokerRegistrationRequest) -> BrokerRegistrationResponse:
    """Register a broker, fenced until it has caught up."""
    try:
        return await context.broker.controller.request(request, BrokerRegistrationResponse, context)
    except ApiError as error:
        return BrokerRegistrationResponse(error_code=error.code, broker_epoch=-1)
