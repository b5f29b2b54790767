"""UpdateFeatures: key 57, versions 0-2. Finalizes feature levels for the whole cluster (KIP-584).

The controller decides.

Versions: 0 a downgrade is a flag; 1 kinds of upgrade, validate_only (KIP-778); 2 one error for all, no single results.
"""

from __future__ import annotations

from odradek.protocol.messages.update_features_request import UpdateFeaturesRequest
from odradek.protocol.messages.update_features_response import UpdateFeaturesResponse
from odradek.server.context import RequestContext
from odradek.server.handlers.shared import code_of


async def handle(context: RequestContext, request: UpdateFeaturesRequest) -> UpdateFeaturesResponse:
    """All updates or none."""
    try:
        response: UpdateFeaturesResponse = await context.broker.controller.update_features(request, context)
    except Exception as error:
        code, text = code_of(error)
        return UpdateFeaturesResponse(error_code=code, error_message=text)
    return response
