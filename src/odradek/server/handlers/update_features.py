"""UpdateFeatures: key 57, versions 0-2. Finalizes feature levels for the whole cluster (KIP-584).

The controller decides.

Versions: 0 a downgrade is a flag; 1 kinds of upgrade, validate_only (KIP-778); 2 one error for all, no single results.
"""

from __future__ import annotations

from odradek.common.errors import ApiError
from odradek.protocol.messages.update_features_request import UpdateFeaturesRequest
from odradek.protocol.messages.update_features_response import UpdateFeaturesResponse
from odradek.server.context import RequestContext


async def handle(context: RequestContext, request: UpdateFeaturesRequest) -> UpdateFeaturesResponse:
    """Apply all updates or none."""
    try:
        response = await context.broker.controller.request(request, UpdateFeaturesResponse, context)
    except ApiError as error:
        return UpdateFeaturesResponse(error_code=error.code, error_message=error.message or None)
    return response
