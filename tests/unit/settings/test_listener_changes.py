"""The changes of listeners that a running node refuses, and the settings that it accepts with a new listener."""

from __future__ import annotations

import pytest

from odradek.settings.broker import BrokerSettings, resolve
from odradek.settings.config_providers import Sources
from odradek.settings.listener_changes import fixed_key_problems, listener_change_problems, unusable_listeners
from odradek.settings.resources import BrokerLayers, with_dynamic

MAP = "listener.security.protocol.map"
MAX_RECEIVE = "sasl.server.max.receive.size"
NODE = {
    "node.id": "1",
    "process.roles": "broker,controller",
    "controller.listener.names": "CONTROLLER",
    "controller.quorum.voters": "1@localhost:3",
    "listeners": "IN://:1,OUT://:2,CONTROLLER://:3",
    "inter.broker.listener.name": "IN",
    MAP: "IN:PLAINTEXT,OUT:PLAINTEXT,NEW:PLAINTEXT,CONTROLLER:PLAINTEXT",
}


def node(**given: str) -> BrokerSettings:
    return resolve(NODE | {key.replace("_", "."): text for key, text in given.items()}, Sources({}, lambda path: ""))


def changed(before: BrokerSettings, stored: dict[str, str]) -> BrokerSettings:
    return with_dynamic(before, BrokerLayers(stored, {}))


@pytest.mark.parametrize(
    "listeners",
    [
        "IN://:1,OUT://:2,NEW://:4,CONTROLLER://:3",
        "IN://:1,CONTROLLER://:3",
        "NEW://:2,IN://127.0.0.1:4,CONTROLLER://:3",
    ],
)
def test_listeners_of_clients_come_go_and_move(listeners: str) -> None:
    before = node()
    after = changed(before, {"listeners": listeners})
    assert listener_change_problems(before, after) == []
    assert [str(each) for each in after.listeners] == listeners.split(",")
    assert changed(before, {}).listeners == before.listeners


@pytest.mark.parametrize(
    ("stored", "reason"),
    [
        ({"listeners": "OUT://:2,CONTROLLER://:3"}, "inter.broker.listener.name=IN: must be the name of one of the"),
        ({"listeners": "IN://:1"}, "a controller needs one of controller.listener.names"),
        ({"listeners": "IN://:1,CONTROLLER://:4"}, "listeners: CONTROLLER is a controller's listener"),
        ({MAP: "IN:PLAINTEXT,OUT:SSL,CONTROLLER:PLAINTEXT"}, "Security protocol cannot be updated for existing"),
        ({MAP: "IN:PLAINTEXT,CONTROLLER:PLAINTEXT"}, "listener OUT has no entry in listener.security.protocol.map"),
        ({"listeners": "IN"}, "listeners: 'IN' must be NAME://host:port"),
    ],
)
def test_listeners_that_nodes_connect_by_stay(stored: dict[str, str], reason: str) -> None:
    before = node()
    problems = listener_change_problems(before, changed(before, stored))
    assert any(reason in each for each in problems), problems


def test_a_starting_node_takes_another_protocol_of_a_client_listener() -> None:
    """The listener was removed and added again, in two steps, before the restart: the file has its old protocol."""
    before = node()
    secured = changed(before, {MAP: "IN:PLAINTEXT,OUT:SSL,CONTROLLER:PLAINTEXT"})
    assert unusable_listeners(before, secured) == []
    for name in ("IN", "CONTROLLER"):
        map_text = str(before[MAP]).replace(f"{name}:PLAINTEXT", f"{name}:SSL")
        reason = f"Security protocol cannot be updated for existing listener {name}"
        assert unusable_listeners(before, changed(before, {MAP: map_text})) == [reason]
        assert listener_change_problems(before, changed(before, {MAP: map_text})) == [reason]


def test_another_listener_does_not_become_the_one_of_brokers() -> None:
    """The default of inter.broker.listener.name is the first listener with security.inter.broker.protocol."""
    given = dict(NODE)
    del given["inter.broker.listener.name"]
    before = resolve(given, Sources({}, lambda path: ""))
    assert before.inter_broker_listener_name == "IN"
    first = changed(before, {"listeners": "NEW://:4,IN://:1,OUT://:2,CONTROLLER://:3"})
    assert listener_change_problems(before, first) == [
        "listeners: brokers connect to each other by IN, which must stay"
    ]


def test_the_protocol_of_controllers_elsewhere_stays() -> None:
    before = node(process_roles="broker", listeners="IN://:1", **{"controller.quorum.voters": "2@localhost:3"})
    after = changed(before, {MAP: "IN:PLAINTEXT,CONTROLLER:SSL"})
    reason = "Security protocol cannot be updated for existing listener CONTROLLER"
    assert listener_change_problems(before, after) == [reason]


def test_values_that_cannot_be_parsed_leave_the_listeners_of_the_file() -> None:
    before = node()
    assert changed(before, {"listeners": "nonsense"}).listeners == before.listeners


def test_settings_read_at_the_bind_are_set_with_a_new_listener() -> None:
    before = node()
    of_new, of_out = f"listener.name.new.{MAX_RECEIVE}", f"listener.name.out.{MAX_RECEIVE}"
    added = {"listeners": "IN://:1,OUT://:2,NEW://:4,CONTROLLER://:3", of_new: "1000", of_out: "1000"}
    after = changed(before, added)
    assert after.of_listener("NEW")[MAX_RECEIVE] == 1000
    assert after.of_listener("OUT")[MAX_RECEIVE] == before[MAX_RECEIVE], "a listener of the file keeps the file's"
    (problem,) = fixed_key_problems(before, after, added)
    assert problem.startswith(f"{of_out} cannot be updated dynamically for existing listener OUT")
    assert fixed_key_problems(after, after, {of_new: "1000"}) == []
    (problem,) = fixed_key_problems(after, after, {of_new: None})
    assert "existing listener NEW" in problem
    assert fixed_key_problems(after, before, {"listeners": None, of_new: None}) == [], "it ends with its listener"
