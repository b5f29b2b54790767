"""GetTelemetrySubscriptions: key 71, version 0. The metrics that a client should push, and the interval (KIP-714).

ApiVersions has this API only if the node shows the pushed metrics, as Kafka has it only with a receiver.
"""

from __future__ import annotations

from typing import TYPE_CHECKING
from uuid import UUID

from odradek.common.errors import ErrorCode
from odradek.protocol.messages.get_telemetry_subscriptions_request import GetTelemetrySubscriptionsRequest
from odradek.protocol.messages.get_telemetry_subscriptions_response import GetTelemetrySubscriptionsResponse
from odradek.record.compression import GZIP, LZ4, SNAPPY, ZSTD
from odradek.server.telemetry.subscriptions import Subscription, selectors_of

if TYPE_CHECKING:
    from odradek.server.context import RequestContext

ACCEPTED_CODECS = (ZSTD, LZ4, GZIP, SNAPPY)
NO_INSTANCE = UUID(int=0)


def subscription(context: RequestContext, instance: UUID) -> Subscription:
    """The subscription of this client."""
    connection = context.connection
    client = selectors_of(
        instance, context.client_id, connection.software, context.client_address, connection.peer_port
    )
    return context.broker.telemetry.subscription(context.broker.image, client)


def handle(context: RequestContext, request: GetTelemetrySubscriptionsRequest) -> GetTelemetrySubscriptionsResponse:
    """The subscription; a client without an id gets one."""
    telemetry, now_ms = context.broker.telemetry, context.broker.clock.monotonic_ms()
    instance = request.client_instance_id
    if instance == NO_INSTANCE:
        instance = telemetry.new_instance()
    client = telemetry.client(instance, context.client_id)
    if not client.may_subscribe(now_ms):
        return GetTelemetrySubscriptionsResponse(
            error_code=ErrorCode.THROTTLING_QUOTA_EXCEEDED, throttle_time_ms=0, client_instance_id=instance
        )
    found = subscription(context, instance)
    client.last_get_ms, client.interval_ms, client.last_error = now_ms, found.interval_ms, 0
    return GetTelemetrySubscriptionsResponse(
        client_instance_id=instance,
        subscription_id=found.subscription_id,
        accepted_compression_types=list(ACCEPTED_CODECS),
        push_interval_ms=found.interval_ms,
        telemetry_max_bytes=telemetry.config.max_bytes,
        delta_temporality=True,
        requested_metrics=list(found.metrics),
    )
