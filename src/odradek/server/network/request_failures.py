"""Responses to requests that could not be handled, and the lines of the log about them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from odradek.common.errors import ApiError, ErrorCode, ProtocolError, StorageError
from odradek.common.log_lines import get_logger
from odradek.protocol.declare import Message

if TYPE_CHECKING:
    from odradek.server.context import RequestContext
    from odradek.server.network.dispatch import Dispatcher, Route

_log = get_logger("server.network.request_failures")


def failure_response(context: RequestContext, route: Route, error: BaseException) -> Message | None:
    """The response to a request whose handler raised; None if the connection was closed, as some APIs have no field for
    an error."""
    route.error_count += 1
    if isinstance(error, ProtocolError):
        context.connection.close_because(str(error))
        return None
    if isinstance(error, ApiError):
        code, text = error.code, error.message
    elif isinstance(error, StorageError):
        alike = f"{route.name} {error}"
        _log.error("storage failed", alike=alike, api=route.name, log_dir=error.log_dir, error=error)
        code, text = ErrorCode.KAFKA_STORAGE_ERROR, "the broker's disk failed"
    else:
        alike, version, client = f"{route.name} {type(error).__name__}", context.api_version, context.client_id
        _log.bug("a handler failed", error, alike=alike, api=route.name, version=version, client=client)
        code, text = ErrorCode.UNKNOWN_SERVER_ERROR, ""
    response = route.error_response(context.api_version, code, text)
    if response is None:
        context.connection.close_because(f"{route.name} failed with {code.name} {text}".rstrip())
    return response


def refused_version(dispatcher: Dispatcher, context: RequestContext, route: Route) -> Message | None:
    """The response to a version that is not served, in version 0; None where the connection was closed."""
    answer = dispatcher.unsupported_version_response(context)
    if answer is None:
        context.connection.close_because(
            f"{route.name} version {context.api_version} is not supported, {route.versions} are"
        )
    context.api_version = 0
    return answer


def close_unencodable(context: RequestContext, route: Route, error: Exception) -> None:
    """A response that no version of its API can carry: the connection ends."""
    api = route.name
    _log.bug("an answer cannot be encoded", error, alike=api, api=api, version=context.api_version)
    context.connection.close()
