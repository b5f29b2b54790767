"""The controller with the real tables of settings."""

from __future__ import annotations

import random

from odradek.common.errors import ErrorCode
from odradek.common.real_io import RealDisk
from odradek.controller.configs import ConfigSchema
from odradek.controller.machine import ControllerMachine
from odradek.protocol.messages.create_topics_request import CreatableTopicConfig
from odradek.security.sealing import SecretKeys
from odradek.settings.node import load_node_settings
from odradek.settings.resources import SettingRules
from odradek.statemachine.timeline import Timeline
from tests.support.models.controller_harness import CLUSTER, Harness, wanted


def harness() -> Harness:
    found = Harness()
    schema: ConfigSchema = SettingRules(load_node_settings(RealDisk(), None, environment={}), sealer=SecretKeys())
    found.machine = ControllerMachine(
        Timeline(), found.machine.topics.config, schema, random.Random(1), cluster_id=CLUSTER
    )
    found.log.clear()
    found.do(found.machine.activate(0))
    found.brokers(1)
    return found


def test_a_new_topic_answers_with_every_setting_and_where_it_comes_from() -> None:
    answer = harness().create(wanted("t", configs=[CreatableTopicConfig(name="retention.ms", value="5")]))[0]
    entries = {entry.name: entry for entry in answer.configs}
    assert len(entries) > 25
    assert (entries["retention.ms"].value, entries["retention.ms"].config_source) == ("5", 1)
    assert (entries["cleanup.policy"].value, entries["cleanup.policy"].config_source) == ("delete", 5)


def test_settings_out_of_kafkas_bounds_are_refused() -> None:
    node = harness()
    for name, value in (
        ("retention.ms", "soon"),
        ("cleanup.policy", "burn"),
        ("no.such.key", "1"),
        ("segment.ms", "0"),
    ):
        answer = node.create(wanted("t", configs=[CreatableTopicConfig(name=name, value=value)]))[0]
        assert answer.error_code == ErrorCode.INVALID_CONFIG and name in answer.error_message
