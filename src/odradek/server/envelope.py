"""The envelope in which a broker forwards a client's request to the controller (KIP-590).

It has the whole request with its header, the principal (serialized as by Kafka's default builder) and the address of
the client. The response is wrapped in the same way: a whole response with its header.
"""

from __future__ import annotations

import ipaddress
from typing import TYPE_CHECKING, Any, TypeVar

from odradek.common.errors import ApiError, ErrorCode, ProtocolError
from odradek.common.ports import Buffer
from odradek.protocol.codec import decode, encode
from odradek.protocol.declare import Message
from odradek.protocol.framing import LENGTH_BYTES, decode_response_header, encode_request, encode_response
from odradek.protocol.messages.default_principal_data import DefaultPrincipalData
from odradek.protocol.messages.envelope_request import EnvelopeRequest
from odradek.protocol.messages.envelope_response import EnvelopeResponse

if TYPE_CHECKING:
    from odradek.server.context import RequestContext

M = TypeVar("M", bound=Message)

PRINCIPAL_VERSION = 0
_VERSION_BYTES = 2


def encode_principal(principal: str) -> bytes:
    """`User:alice` as Kafka writes principals: the version as int16, then the message."""
    kind, _, name = principal.partition(":")
    data = encode(DefaultPrincipalData(type=kind, name=name), PRINCIPAL_VERSION)
    return PRINCIPAL_VERSION.to_bytes(_VERSION_BYTES, "big") + data


def decode_principal(data: Buffer | None) -> str:
    """The reverse of `encode_principal`.

    Raises:
        ApiError: PRINCIPAL_DESERIALIZATION_FAILURE.
    """
    try:
        if data is None or int.from_bytes(data[:_VERSION_BYTES], "big", signed=True) != PRINCIPAL_VERSION:
            raise ProtocolError("no principal of a known version")
        read = decode(DefaultPrincipalData, data, PRINCIPAL_VERSION, _VERSION_BYTES)
    except ProtocolError as error:
        raise ApiError(ErrorCode.PRINCIPAL_DESERIALIZATION_FAILURE, str(error)) from None
    return f"{read.type}:{read.name}"


def encode_address(host: str) -> bytes:
    """An IP address as 4 or 16 bytes; any other text (in a simulation) becomes 0.0.0.0."""
    try:
        return ipaddress.ip_address(host.partition("%")[0]).packed
    except ValueError:
        return bytes(4)


def decode_address(data: Buffer) -> str:
    """The reverse of `encode_address`.

    Raises:
        ApiError: INVALID_REQUEST for any other number of bytes.
    """
    try:
        return str(ipaddress.ip_address(bytes(data)))
    except ValueError:
        raise ApiError(ErrorCode.INVALID_REQUEST, f"an address of {len(data)} bytes") from None


def wrap(request: Message, context: RequestContext) -> EnvelopeRequest:
    """A client's request, on its way from this broker to the controller."""
    pieces = encode_request(
        context.api_key, context.api_version, context.correlation_id, context.client_id or None, request
    )
    return EnvelopeRequest(
        request_data=b"".join(pieces)[LENGTH_BYTES:],
        request_principal=encode_principal(context.principal),
        client_host_address=encode_address(context.client_address),
    )


def wrap_answer(response: Message, api_key: int, api_version: int, correlation_id: int) -> EnvelopeResponse:
    """The controller's response to a request in an envelope; only the error code if it is NOT_CONTROLLER.

    The broker then retries with the active controller, and its client does not notice.
    """
    if names_error(response, ErrorCode.NOT_CONTROLLER):
        return EnvelopeResponse(error_code=ErrorCode.NOT_CONTROLLER)
    pieces = encode_response(api_key, api_version, correlation_id, response)
    return EnvelopeResponse(response_data=b"".join(pieces)[LENGTH_BYTES:])


def unwrap_answer(answer: EnvelopeResponse, response: type[M], context: RequestContext) -> M:
    """The controller's response to the request in `context`.

    Raises:
        ApiError: the error of the envelope itself; as in Kafka, clients get UNKNOWN_SERVER_ERROR for everything except
            NOT_CONTROLLER, because these errors are between broker and controller.
    """
    if answer.error_code or answer.response_data is None:
        code = ErrorCode.UNKNOWN_SERVER_ERROR
        if answer.error_code in (ErrorCode.NOT_CONTROLLER, ErrorCode.UNSUPPORTED_VERSION):
            code = ErrorCode(answer.error_code)
        raise ApiError(code, f"the controller answered the envelope with error {answer.error_code}")
    data = answer.response_data
    try:
        _, offset = decode_response_header(context.api_key, context.api_version, data)
        return decode(response, data, context.api_version, offset)
    except ProtocolError as error:
        raise ApiError(ErrorCode.UNKNOWN_SERVER_ERROR, f"the controller's answer cannot be read: {error}") from None


def names_error(message: Any, code: ErrorCode) -> bool:
    """Whether a response names an error, at its top or in any of its parts."""
    if getattr(message, "error_code", 0) == code:
        return True
    for spec in message.FIELDS:
        value = getattr(message, spec.name)
        if isinstance(value, list) and value and isinstance(value[0], Message):
            if any(names_error(each, code) for each in value):
                return True
        elif isinstance(value, Message) and names_error(value, code):
            return True
    return False
