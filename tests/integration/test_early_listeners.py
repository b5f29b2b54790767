"""`early.start.listeners`: which listeners of a controller serve before the permissions are known."""

from __future__ import annotations

from pathlib import Path

import pytest

from odradek.protocol.apis import ApiKey
from odradek.protocol.messages.api_versions_request import ApiVersionsRequest
from tests.support.clients.wire import Wire
from tests.support.nodes.node import Node, silent_port
from tests.support.waiting import eventually

pytestmark = pytest.mark.only_ours

AUTHORIZER = {
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "super.users": "User:ANONYMOUS",
}


def guarded(directory: Path, settings: dict[str, object]) -> Node:
    node = Node(directory, AUTHORIZER | settings)
    # The order matters: a wait for the last one finds both.
    controller, plain = f"CONTROLLER://127.0.0.1:{node.controller_port}", f"PLAINTEXT://127.0.0.1:{node.port}"
    node.overrides["listeners"] = f"{controller},{plain}"
    return node


def is_served(port: int, patience_s: float) -> bool:
    with Wire(port, timeout_s=patience_s) as wire:
        try:
            return bool(wire.request(ApiKey.API_VERSIONS, 0, ApiVersionsRequest()).error_code == 0)
        except TimeoutError:
            return False


@pytest.mark.parametrize(("early", "served"), [({}, True), ({"early.start.listeners": "PLAINTEXT"}, False)])
def test_which_controllers_serve_before_they_have_a_leader(
    tmp_path: Path, early: dict[str, object], served: bool
) -> None:
    node = guarded(tmp_path, early)
    with silent_port() as other:
        # One of two voters is missing, so no metadata comes.
        node.overrides["controller.quorum.voters"] = f"1@127.0.0.1:{node.controller_port},2@127.0.0.1:{other}"
        with node:
            assert is_served(node.controller_port, 60 if served else 0.5) is served
            node.kill()  # it would wait for a leader that could take its leave


def test_a_late_controller_serves_once_the_permissions_are_known(tmp_path: Path) -> None:
    with guarded(tmp_path, {"early.start.listeners": "PLAINTEXT"}) as node:
        eventually(lambda: is_served(node.controller_port, 10))


def test_an_unknown_name_keeps_the_node_down(tmp_path: Path) -> None:
    node = Node(tmp_path, {"early.start.listeners": "CONTROLLER,NONE"})
    with pytest.raises(AssertionError, match=r"early\.start\.listeners: NONE is neither among the listeners"):
        node.start()
