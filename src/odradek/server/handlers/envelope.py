"""Envelope: key 58, version 0, on the controller's listener. A client's request that a broker forwards (KIP-590).

Behaviour: the handler of the inner request serves it, with the principal and address of the client. Only APIs that
brokers forward are accepted. If this node is not the active controller, the response of the envelope itself is
NOT_CONTROLLER, and the broker finds the active one.

The sender needs ClusterAction; the inner handler checks the permissions of the client.
"""

from __future__ import annotations

import inspect
from typing import Any

from odradek.common.errors import ApiError, ErrorCode, ProtocolError
from odradek.protocol.apis import ApiKey
from odradek.protocol.codec import decode
from odradek.protocol.framing import decode_request_header
from odradek.protocol.messages.envelope_request import EnvelopeRequest
from odradek.protocol.messages.envelope_response import EnvelopeResponse
from odradek.server.context import ForwardedContext, RequestContext
from odradek.server.envelope import decode_address, decode_principal, wrap_answer

# Source: the forwardable ones of Kafka's ApiKeys.
FORWARDED = frozenset(
    {
        ApiKey.CREATE_TOPICS,
        ApiKey.DELETE_TOPICS,
        ApiKey.CREATE_ACLS,
        ApiKey.DELETE_ACLS,
        ApiKey.ALTER_CONFIGS,
        ApiKey.CREATE_PARTITIONS,
        ApiKey.CREATE_DELEGATION_TOKEN,
        ApiKey.RENEW_DELEGATION_TOKEN,
        ApiKey.EXPIRE_DELEGATION_TOKEN,
        ApiKey.ELECT_LEADERS,
        ApiKey.INCREMENTAL_ALTER_CONFIGS,
        ApiKey.ALTER_PARTITION_REASSIGNMENTS,
        ApiKey.LIST_PARTITION_REASSIGNMENTS,
        ApiKey.ALTER_CLIENT_QUOTAS,
        ApiKey.ALTER_USER_SCRAM_CREDENTIALS,
        ApiKey.DESCRIBE_QUORUM,
        ApiKey.UPDATE_FEATURES,
        ApiKey.UNREGISTER_BROKER,
        ApiKey.ADD_RAFT_VOTER,
        ApiKey.REMOVE_RAFT_VOTER,
        ApiKey.UNREGISTER_CONTROLLER,
    }
)


async def handle(context: RequestContext, request: EnvelopeRequest) -> EnvelopeResponse:
    """Serve the inner request."""
    service = context.broker.controller.service
    if service is None or not service.active:
        return EnvelopeResponse(error_code=ErrorCode.NOT_CONTROLLER)
    try:
        inner, answer = await _serve(context, request)
    except ApiError as error:
        return EnvelopeResponse(error_code=error.code)
    return wrap_answer(answer, inner.api_key, inner.api_version, inner.correlation_id)


async def _serve(context: RequestContext, envelope: EnvelopeRequest) -> tuple[ForwardedContext, Any]:
    """
    Raises:
        ApiError: INVALID_REQUEST for an API that brokers do not forward, UNSUPPORTED_VERSION,
            PRINCIPAL_DESERIALIZATION_FAILURE; NOT_CONTROLLER if the inner response has no field for it.
    """
    principal = decode_principal(envelope.request_principal)
    client_address = decode_address(envelope.client_host_address)
    try:
        header, offset = decode_request_header(envelope.request_data)
        route = context.broker.routes["controller"].get(header.request_api_key)
        if route is None or header.request_api_key not in FORWARDED:
            raise ApiError(ErrorCode.INVALID_REQUEST, f"API key {header.request_api_key} is not forwarded")
        if header.request_api_version not in route.versions:
            raise ApiError(ErrorCode.UNSUPPORTED_VERSION, f"{route.name} {route.versions} are served")
        request = decode(route.request, envelope.request_data, header.request_api_version, offset)
    except ProtocolError as error:
        raise ApiError(ErrorCode.INVALID_REQUEST, str(error)) from None
    inner = ForwardedContext(context, header, principal, client_address)
    route.request_count += 1
    route.request_bytes += len(envelope.request_data)
    try:
        answer = route.handle(inner, request)
        if inspect.isawaitable(answer):
            answer = await answer
    except ApiError as error:
        answer = route.error_response(inner.api_version, error.code, error.message)
        if answer is None:
            raise
    return inner, answer
