"""Both states that follow the metadata log take every kind of record, and refuse the same ones."""

from __future__ import annotations

from typing import Any
from uuid import UUID

import pytest

from odradek.controller.state import ControllerState
from odradek.metadata.delta import MetadataDelta
from odradek.metadata.image import MetadataImage
from odradek.metadata.replay import _METHODS, _WITHOUT_CHANGE, MetadataReplayer
from odradek.protocol.apis import message_class
from odradek.protocol.messages import index
from odradek.protocol.messages.broker_registration_change_record import BrokerRegistrationChangeRecord
from odradek.protocol.messages.config_record import ConfigRecord
from odradek.protocol.messages.feature_level_record import FeatureLevelRecord
from odradek.protocol.messages.fence_broker_record import FenceBrokerRecord
from odradek.protocol.messages.register_broker_record import RegisterBrokerRecord
from odradek.protocol.messages.register_controller_record import RegisterControllerRecord
from odradek.protocol.messages.unfence_broker_record import UnfenceBrokerRecord
from odradek.protocol.messages.unregister_broker_record import UnregisterBrokerRecord
from odradek.protocol.messages.unregister_controller_record import UnregisterControllerRecord
from odradek.statemachine.timeline import Timeline

BROKER = RegisterBrokerRecord(broker_id=1, incarnation_id=UUID(int=1), broker_epoch=5, fenced=True)


def both() -> tuple[MetadataDelta, ControllerState]:
    return MetadataDelta(MetadataImage()), ControllerState(Timeline())


def test_every_kind_of_metadata_record_is_taken() -> None:
    kinds = {message_class(module).__name__ for module in index.METADATA_RECORDS.values()}
    assert _METHODS.keys() | _WITHOUT_CHANGE == kinds


@pytest.mark.parametrize("kind", [MetadataDelta, ControllerState])
def test_a_state_without_one_of_the_methods_is_abstract(kind: type[MetadataReplayer]) -> None:
    assert not kind.__abstractmethods__
    assert MetadataReplayer.__abstractmethods__ < set(_METHODS.values()) | {"_changed"}


@pytest.mark.parametrize(
    "record",
    [
        FenceBrokerRecord(id=2, epoch=5),
        UnfenceBrokerRecord(id=1, epoch=4),
        BrokerRegistrationChangeRecord(broker_id=1, broker_epoch=4, fenced=1),
        UnregisterBrokerRecord(broker_id=2, broker_epoch=5),
        UnregisterControllerRecord(controller_id=3),
        object(),
    ],
    ids=lambda record: type(record).__name__,
)
def test_both_states_refuse_what_contradicts_them(record: Any) -> None:
    for state in both():
        state.apply_record(BROKER)
        with pytest.raises(ValueError, match=r"not registered|not a metadata record"):
            state.apply_record(record)


def test_both_states_agree_on_what_they_share() -> None:
    delta, state = both()
    for record in (
        BROKER,
        UnfenceBrokerRecord(id=1, epoch=5),
        RegisterControllerRecord(controller_id=3),
        ConfigRecord(resource_type=2, resource_name="t", name="a", value="1"),
        ConfigRecord(resource_type=2, resource_name="t", name="b", value="2"),
        ConfigRecord(resource_type=2, resource_name="t", name="a", value=None),
        ConfigRecord(resource_type=2, resource_name="gone", name="a", value="1"),
        ConfigRecord(resource_type=2, resource_name="gone", name="a", value=None),
        FeatureLevelRecord(name="metadata.version", feature_level=20),
        FeatureLevelRecord(name="gone", feature_level=1),
        FeatureLevelRecord(name="gone", feature_level=0),
    ):
        delta.replay(record)
        state.replay(record, 0)
    image = delta.apply(11, 1)
    assert image.brokers == dict(state.brokers) and not image.brokers[1].fenced
    assert image.controllers == dict(state.controllers) and list(image.controllers) == [3]
    assert image.configs == dict(state.configs) == {(2, "t"): {"b": "2"}}
    assert image.features == dict(state.features) == {"metadata.version": 20}
    assert delta.changed_brokers == {1} and delta.changed_configs == {(2, "t"), (2, "gone")}
    assert delta.changed_features == {"metadata.version", "gone"}
