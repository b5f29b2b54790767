"""Envelopes: a written one is read back, and an error that only concerns the controller does not reach the client."""

from __future__ import annotations

from typing import Any

import pytest

from odradek.common.errors import ApiError, ErrorCode
from odradek.protocol.apis import ApiKey
from odradek.protocol.framing import decode_request_header
from odradek.protocol.messages.create_topics_request import CreatableTopic, CreateTopicsRequest
from odradek.protocol.messages.create_topics_response import CreatableTopicResult, CreateTopicsResponse
from odradek.protocol.messages.envelope_response import EnvelopeResponse
from odradek.protocol.messages.request_header import RequestHeader
from odradek.protocol.messages.update_features_response import UpdateFeaturesResponse
from odradek.server.context import ForwardedContext, RequestContext
from odradek.server.envelope import (
    decode_address,
    decode_principal,
    encode_address,
    encode_principal,
    unwrap_answer,
    wrap,
    wrap_answer,
)


def context(version: int = 7) -> RequestContext:
    """A client's request, on no connection."""
    nothing: Any = None
    header = RequestHeader(
        request_api_key=ApiKey.CREATE_TOPICS, request_api_version=version, correlation_id=42, client_id="me"
    )
    return ForwardedContext(RequestContext(nothing, nothing, 58, 0, 1, ""), header, "User:alice", "10.1.2.3")


def test_a_principal_is_written_as_kafka_writes_it() -> None:
    assert encode_principal("User:alice") == b"\0\0" + b"\x05User" + b"\x06alice" + b"\0" + b"\0"


@pytest.mark.parametrize("principal", ["User:ANONYMOUS", "User:CN=a,OU=b:c", "Group:x", "User:"])
def test_a_principal_is_read_as_it_was_written(principal: str) -> None:
    assert decode_principal(encode_principal(principal)) == principal


@pytest.mark.parametrize(
    ("host", "read"), [("10.1.2.3", None), ("::1", None), ("fe80::1%eth0", "fe80::1"), ("sim", "0.0.0.0")]
)
def test_an_address_is_read_as_it_was_written(host: str, read: str | None) -> None:
    assert decode_address(encode_address(host)) == (read or host)


def test_the_request_inside_is_whole() -> None:
    request = CreateTopicsRequest(topics=[CreatableTopic(name="t", num_partitions=1, replication_factor=1)])
    sealed = wrap(request, context())
    header, _ = decode_request_header(sealed.request_data)
    assert (header.request_api_key, header.request_api_version, header.correlation_id) == (19, 7, 42)
    assert (header.client_id, decode_address(sealed.client_host_address)) == ("me", "10.1.2.3")


@pytest.mark.parametrize("version", range(2, 8))
def test_the_answer_inside_is_whole(version: int) -> None:
    result = CreatableTopicResult(name="t", error_code=ErrorCode.TOPIC_ALREADY_EXISTS)
    sealed = wrap_answer(CreateTopicsResponse(topics=[result]), ApiKey.CREATE_TOPICS, version, 42)
    answer = unwrap_answer(sealed, CreateTopicsResponse, context(version))
    assert (answer.topics[0].name, answer.topics[0].error_code) == ("t", ErrorCode.TOPIC_ALREADY_EXISTS)


def test_no_client_is_reported_that_a_controller_was_not_the_active_one() -> None:
    nested = CreateTopicsResponse(topics=[CreatableTopicResult(name="t", error_code=ErrorCode.NOT_CONTROLLER)])
    at_the_top = UpdateFeaturesResponse(error_code=ErrorCode.NOT_CONTROLLER)
    for response, key, version in ((nested, ApiKey.CREATE_TOPICS, 7), (at_the_top, ApiKey.UPDATE_FEATURES, 2)):
        sealed = wrap_answer(response, key, version, 42)
        assert (sealed.error_code, sealed.response_data) == (ErrorCode.NOT_CONTROLLER, None)
        with pytest.raises(ApiError) as caught:
            unwrap_answer(sealed, CreateTopicsResponse, context())
        assert caught.value.code is ErrorCode.NOT_CONTROLLER, "the gateway tries again"


@pytest.mark.parametrize(
    ("sealed", "code"),
    [
        (EnvelopeResponse(error_code=ErrorCode.CLUSTER_AUTHORIZATION_FAILED), ErrorCode.UNKNOWN_SERVER_ERROR),
        (EnvelopeResponse(error_code=ErrorCode.UNSUPPORTED_VERSION), ErrorCode.UNSUPPORTED_VERSION),
        (EnvelopeResponse(response_data=b"\0\0\0\x2a\0garbage"), ErrorCode.UNKNOWN_SERVER_ERROR),
        (EnvelopeResponse(), ErrorCode.UNKNOWN_SERVER_ERROR),
    ],
)
def test_errors_between_broker_and_controller_are_hidden_from_clients(
    sealed: EnvelopeResponse, code: ErrorCode
) -> None:
    with pytest.raises(ApiError) as caught:
        unwrap_answer(sealed, CreateTopicsResponse, context())
    assert caught.value.code is code
