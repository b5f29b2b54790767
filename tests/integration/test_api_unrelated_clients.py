"""APIs of transactions, groups, brokers and the quorum, called by a client that has no part in them."""

from __future__ import annotations

import pytest

from odradek.common.errors import ErrorCode
from odradek.protocol.apis import ApiKey
from odradek.server.handlers import HANDLERS
from tests.support.clients.api_calls import error_codes
from tests.support.clients.unauthorized_requests import ON_THE_BROKERS_LISTENER, ON_THE_CONTROLLERS_LISTENER, Asked
from tests.support.clients.wire import Wire
from tests.support.nodes.node import Node


def check(port: int, api_key: ApiKey, asked: Asked, scope: str) -> None:
    make, allowed = asked
    handler = next(each for each in HANDLERS if each.api_key == api_key and scope in each.listeners)
    with Wire(port) as wire:
        for version in range(handler.min_version, handler.max_version + 1):
            answer = wire.request(api_key, version, make(version))
            codes = {ErrorCode(each) for each in error_codes(answer)}
            failures = codes - {ErrorCode.NONE} or {ErrorCode.NONE}
            assert failures <= allowed, (version, failures, answer)


@pytest.mark.parametrize("api_key", ON_THE_BROKERS_LISTENER, ids=lambda key: key.name)
def test_an_unknown_client_asks_a_broker(node: Node, api_key: ApiKey) -> None:
    check(node.port, api_key, ON_THE_BROKERS_LISTENER[api_key], "broker")


@pytest.mark.parametrize("api_key", ON_THE_CONTROLLERS_LISTENER, ids=lambda key: key.name)
def test_an_unknown_client_asks_a_controller(node: Node, api_key: ApiKey) -> None:
    check(node.controller_port, api_key, ON_THE_CONTROLLERS_LISTENER[api_key], "controller")
