"""Controllers register their listeners and supported features (KIP-919). A registration has no session."""

from __future__ import annotations

from typing import Any

from odradek.common.errors import ApiError, ErrorCode
from odradek.controller.state import ControllerState
from odradek.metadata.features import CONTROLLER_REGISTRATION
from odradek.protocol.messages.controller_registration_request import ControllerRegistrationRequest
from odradek.protocol.messages.controller_registration_response import ControllerRegistrationResponse
from odradek.protocol.messages.register_controller_record import (
    ControllerEndpoint,
    ControllerFeature,
    RegisterControllerRecord,
)
from odradek.statemachine.machine import Result


def register_controller(
    state: ControllerState, request: ControllerRegistrationRequest
) -> Result[Any, ControllerRegistrationResponse]:
    """Register a controller.

    Raises:
        ApiError: UNSUPPORTED_VERSION while metadata.version has no such record, or if the controller does not
            support a finalized feature level; INVALID_REGISTRATION.
    """
    if state.metadata_version < CONTROLLER_REGISTRATION:
        raise ApiError(ErrorCode.UNSUPPORTED_VERSION, "The current MetadataVersion is too old to support controllers")
    if request.controller_id < 0 or request.incarnation_id.int == 0 or not request.listeners:
        raise ApiError(
            ErrorCode.INVALID_REGISTRATION, "a controller has an id, an incarnation id and at least one listener"
        )
    ranges = {each.name: (each.min_supported_version, each.max_supported_version) for each in request.features}
    for name, level in state.features.items():
        low, high = ranges.get(name, (0, 0))
        if not low <= level <= high:
            raise ApiError(
                ErrorCode.UNSUPPORTED_VERSION,
                f"Unable to register because the controller does not support finalized version {level} of {name}. "
                f"The controller wants a version between {low} and {high}, inclusive.",
            )
    record = RegisterControllerRecord(
        controller_id=request.controller_id,
        incarnation_id=request.incarnation_id,
        zk_migration_ready=request.zk_migration_ready,
        end_points=[
            ControllerEndpoint(name=each.name, host=each.host, port=each.port, security_protocol=each.security_protocol)
            for each in request.listeners
        ],
        features=[
            ControllerFeature(
                name=each.name,
                min_supported_version=each.min_supported_version,
                max_supported_version=each.max_supported_version,
            )
            for each in request.features
        ],
    )
    return Result([record], ControllerRegistrationResponse(error_message=None))
