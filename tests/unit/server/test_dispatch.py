"""The prepared table of handlers, responses that are only an error, and limits of connections by address."""

from __future__ import annotations

from typing import Any, cast

import pytest

from odradek.common.errors import ErrorCode
from odradek.protocol import codec
from odradek.protocol.apis import API, ApiKey
from odradek.server.handlers import HANDLERS
from odradek.server.network.connection import Connection
from odradek.server.network.dispatch import Handler, make_routes
from odradek.server.network.listeners import ConnectionConfig, Connections
from odradek.settings.formats import per_ip_overrides


class TestRoutes:
    def test_every_handler_is_on_its_listeners(self) -> None:
        broker, controller = make_routes(HANDLERS, "broker"), make_routes(HANDLERS, "controller")
        assert set(broker) == {handler.api_key for handler in HANDLERS if "broker" in handler.listeners}
        assert set(controller) == {handler.api_key for handler in HANDLERS if "controller" in handler.listeners}
        assert all(API[ApiKey(key)].listeners & {"controller"} for key in controller)

    def test_versions_are_inclusive(self) -> None:
        route = make_routes(HANDLERS, "broker")[ApiKey.PRODUCE]
        assert [version in route.versions for version in (2, 3, 13, 14)] == [False, True, True, False]
        assert route.advertised_min == 0
        assert route.name == "Produce"

    def test_a_table_that_cannot_be_right_stops_the_start(self) -> None:
        good = next(handler for handler in HANDLERS if handler.api_key == ApiKey.METADATA)
        with pytest.raises(AssertionError, match="two handlers"):
            make_routes([good, good], "broker")
        with pytest.raises(AssertionError):
            make_routes([Handler(ApiKey.METADATA, good.handle, 0, 99)], "broker")

    @pytest.mark.parametrize("handler", HANDLERS, ids=lambda handler: handler.api_key.name)
    def test_an_error_can_be_reported_in_a_version_or_not_at_all(self, handler: Handler) -> None:
        route = make_routes([handler], next(iter(handler.listeners)))[handler.api_key]
        for version in range(handler.min_version, handler.max_version + 1):
            answer = route.error_response(version, ErrorCode.UNKNOWN_SERVER_ERROR, "a reason")
            if answer is not None:
                reported: Any = codec.decode(route.response, codec.encode(answer, version), version)
                assert reported.error_code == ErrorCode.UNKNOWN_SERVER_ERROR

    def test_versions_without_a_top_level_error_have_no_place_for_one(self) -> None:
        routes = make_routes(HANDLERS, "broker")
        places = {
            key: [
                version for version in range(11) if routes[key].error_response(version, ErrorCode.REQUEST_TIMED_OUT, "")
            ]
            for key in (ApiKey.FIND_COORDINATOR, ApiKey.OFFSET_FETCH, ApiKey.PRODUCE)
        }
        assert places == {
            ApiKey.FIND_COORDINATOR: [0, 1, 2, 3],
            ApiKey.OFFSET_FETCH: [2, 3, 4, 5, 6, 7],
            ApiKey.PRODUCE: [],
        }


class TestOverrides:
    @pytest.mark.parametrize(
        ("text", "expected"),
        [
            ("", {}),
            ("10.0.0.1:5", {"10.0.0.1": 5}),
            (" 10.0.0.1:5 , 10.0.0.2:0 ,", {"10.0.0.1": 5, "10.0.0.2": 0}),
            ("[::1]:7,fe80:0::1:9", {"::1": 7, "fe80::1": 9}),
            ("[::ffff:10.0.0.1]:7", {"10.0.0.1": 7}),
        ],
    )
    def test_addresses_and_counts(self, text: str, expected: dict[str, int]) -> None:
        assert per_ip_overrides(text) == expected

    @pytest.mark.parametrize("host", ["10.0.0.1", "::ffff:10.0.0.1"])
    def test_an_address_has_its_own_limit_in_each_of_its_forms(self, host: str) -> None:
        connections, connection = Connections(ConnectionConfig()), cast("Connection", object())
        connections.change_limits(ConnectionConfig(max_connections_per_ip_overrides="10.0.0.1:1"))
        assert connections.admit(connection, host, -1) is None
        assert connections.admit(connection, host, -1) == f"max.connections.per.ip=1 are open from {host}"

    @pytest.mark.parametrize("text", ["10.0.0.1", "10.0.0.1:many", "10.0.0.1:5,oops", ":5", "host:5", "10.0.0.1:-1"])
    def test_malformed_connection_overrides_change_no_limit(self, text: str) -> None:
        connections = Connections(ConnectionConfig())
        with pytest.raises(ValueError):
            connections.change_limits(ConnectionConfig(max_connections=1, max_connections_per_ip_overrides=text))
        assert connections.limits.max_connections > 1
