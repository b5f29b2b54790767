"""PushTelemetry: key 72, version 0. A client's own metrics, shown with the node's (KIP-714)."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from odradek.common.errors import ApiError, ErrorCode
from odradek.common.real_threads import off_loop
from odradek.protocol.messages.push_telemetry_request import PushTelemetryRequest
from odradek.protocol.messages.push_telemetry_response import PushTelemetryResponse
from odradek.record.compression import NONE, unpack
from odradek.server.handlers.get_telemetry_subscriptions import ACCEPTED_CODECS, NO_INSTANCE, subscription
from odradek.server.telemetry.otlp import OtlpError, Point, read_points

if TYPE_CHECKING:
    from odradek.common.ports import Buffer
    from odradek.server.context import RequestContext
    from odradek.server.telemetry.store import Client

# The limit of the decompressed size, as a multiple of the compressed limit.
_MAX_RATIO = 8


async def handle(context: RequestContext, request: PushTelemetryRequest) -> PushTelemetryResponse:
    """Store the metrics, or return an error."""
    telemetry = context.broker.telemetry
    client = telemetry.client(request.client_instance_id, context.client_id)
    try:
        _check(context, request, client)
        client.last_push_ms = context.broker.clock.monotonic_ms()
        config = telemetry.config
        work = partial(
            _read, request.compression_type, bytes(request.metrics), config.max_bytes * _MAX_RATIO, config.max_series
        )
        telemetry.store(client, await off_loop(work))
        client.is_terminating = request.terminating
        client.last_error = 0
    except ApiError as error:
        telemetry.refused_pushes += 1
        client.last_error = error.code
        return PushTelemetryResponse(error_code=error.code)
    return PushTelemetryResponse()


def _check(context: RequestContext, request: PushTelemetryRequest, client: Client) -> None:
    """
    Raises:
        ApiError: as Kafka refuses a push, in its order.
    """
    if request.client_instance_id == NO_INSTANCE:
        raise ApiError(ErrorCode.INVALID_REQUEST, "the client has no instance id")
    if client.is_terminating:
        raise ApiError(ErrorCode.INVALID_REQUEST, "the client has said that it ends")
    if not request.terminating and not client.may_push(context.broker.clock.monotonic_ms()):
        raise ApiError(ErrorCode.THROTTLING_QUOTA_EXCEEDED, "the interval is not over")
    if request.subscription_id != subscription(context, request.client_instance_id).subscription_id:
        raise ApiError(ErrorCode.UNKNOWN_SUBSCRIPTION_ID, "another subscription is in force")
    if request.compression_type not in (NONE, *ACCEPTED_CODECS):
        raise ApiError(ErrorCode.UNSUPPORTED_COMPRESSION_TYPE, f"no codec has number {request.compression_type}")
    if len(request.metrics) > context.broker.telemetry.config.max_bytes:
        raise ApiError(ErrorCode.TELEMETRY_TOO_LARGE, "the push is larger than telemetry.max.bytes")


def _read(codec: int, data: Buffer, max_bytes: int, limit: int) -> list[Point]:
    """
    Raises:
        ApiError: INVALID_RECORD.
    """
    try:
        return read_points(unpack(codec, data, max_bytes), limit)
    except (ApiError, OtlpError) as error:
        raise ApiError(ErrorCode.INVALID_RECORD, str(error)) from None
