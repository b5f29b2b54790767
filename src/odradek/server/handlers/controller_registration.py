"""ControllerRegistration: key 70, version 0, on the controller's listener. A controller's endpoints (KIP-919).

Every controller, active or not, registers when it starts.
"""

from __future__ import annotations

from odradek.common.errors import ApiError
from odradek.protocol.messages.controller_registration_request import ControllerRegistrationRequest
from odradek.protocol.messages.controller_registration_response import ControllerRegistrationResponse
from odradek.server.context import RequestContext


async def handle(context: RequestContext, request: ControllerRegistrationRequest) -> ControllerRegistrationResponse:
    """Register the endpoints and features of a controller."""
    try:
        return await context.broker.controller.request(request, ControllerRegistrationResponse, context)
    except ApiError as error:
        return ControllerRegistrationResponse(error_code=error.code, error_message=error.message or None)
