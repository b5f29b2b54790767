"""AlterConfigs and IncrementalAlterConfigs: rules, refusals, written records."""

from __future__ import annotations

from typing import Any

import pytest

from odradek.common.errors import ErrorCode
from odradek.protocol.messages import alter_configs_request
from odradek.protocol.messages.incremental_alter_configs_request import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from tests.support.models.controller_harness import Harness

SET, DELETE, APPEND, SUBTRACT = range(4)
TOPIC, BROKER, LOGGER, METRICS, GROUP = 2, 4, 8, 16, 32


@pytest.fixture
def harness() -> Harness:
    harness = Harness()
    harness.brokers(1)
    harness.topic("t", [1])
    return harness


def alter(
    harness: Harness, kind: int, name: str, *changes: tuple[str, int, str | None], validate_only: bool = False
) -> int:
    entries = [AlterableConfig(name=key, config_operation=verb, value=value) for key, verb, value in changes]
    resource = AlterConfigsResource(resource_type=kind, resource_name=name, configs=entries)
    request = IncrementalAlterConfigsRequest(resources=[resource], validate_only=validate_only)
    answer = harness.do(harness.machine.configs.incremental_alter(request)).responses[0]
    assert (answer.resource_type, answer.resource_name) == (kind, name)
    assert bool(answer.error_code) == bool(answer.error_message)
    return int(answer.error_code)


def replace_all(harness: Harness, kind: int, name: str, **settings: Any) -> int:
    entries = [alter_configs_request.AlterableConfig(name=k.replace("_", "."), value=v) for k, v in settings.items()]
    resource = alter_configs_request.AlterConfigsResource(resource_type=kind, resource_name=name, configs=entries)
    request = alter_configs_request.AlterConfigsRequest(resources=[resource])
    return int(harness.do(harness.machine.configs.alter(request)).responses[0].error_code)


def test_set_and_delete(harness: Harness) -> None:
    assert alter(harness, TOPIC, "t", ("retention.ms", SET, "1"), ("x", SET, "2")) == 0
    assert harness.state.configs[(TOPIC, "t")] == {"retention.ms": "1", "x": "2"}
    assert alter(harness, TOPIC, "t", ("retention.ms", DELETE, None), ("never", DELETE, None)) == 0
    assert harness.state.configs[(TOPIC, "t")] == {"x": "2"}


def test_an_unchanged_setting_writes_no_record(harness: Harness) -> None:
    alter(harness, TOPIC, "t", ("x", SET, "2"))
    before = len(harness.log)
    assert alter(harness, TOPIC, "t", ("x", SET, "2")) == 0
    assert alter(harness, TOPIC, "t", ("x", SET, "3"), validate_only=True) == 0
    assert len(harness.log) == before


def test_append_and_subtract_start_from_the_default(harness: Harness) -> None:
    assert alter(harness, TOPIC, "t", ("cleanup.policy", APPEND, "compact")) == 0
    assert harness.state.configs[(TOPIC, "t")]["cleanup.policy"] == "delete,compact"
    assert alter(harness, TOPIC, "t", ("cleanup.policy", APPEND, "compact, compact")) == 0
    assert alter(harness, TOPIC, "t", ("cleanup.policy", SUBTRACT, "delete,none")) == 0
    assert harness.state.configs[(TOPIC, "t")]["cleanup.policy"] == "compact"


@pytest.mark.parametrize(
    ("kind", "name", "change", "expected"),
    [
        (TOPIC, "missing", ("x", SET, "1"), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        (TOPIC, "", ("x", SET, "1"), ErrorCode.INVALID_REQUEST),
        (BROKER, "7", ("x", SET, "1"), ErrorCode.BROKER_ID_NOT_REGISTERED),
        (BROKER, "one", ("x", SET, "1"), ErrorCode.INVALID_REQUEST),
        (LOGGER, "1", ("x", SET, "1"), ErrorCode.INVALID_REQUEST),
        (0, "t", ("x", SET, "1"), ErrorCode.INVALID_REQUEST),
        (99, "t", ("x", SET, "1"), ErrorCode.INVALID_REQUEST),
        (GROUP, "", ("x", SET, "1"), ErrorCode.INVALID_REQUEST),
        (TOPIC, "t", ("x", 9, "1"), ErrorCode.INVALID_REQUEST),
        (TOPIC, "t", ("x", SET, None), ErrorCode.INVALID_REQUEST),
        (TOPIC, "t", ("cleanup.policy", APPEND, None), ErrorCode.INVALID_REQUEST),
        (TOPIC, "t", ("x", APPEND, "1"), ErrorCode.INVALID_CONFIG),
        (TOPIC, "t", ("x", SUBTRACT, "1"), ErrorCode.INVALID_CONFIG),
        (TOPIC, "t", ("no.such", SET, "1"), ErrorCode.INVALID_CONFIG),
        (TOPIC, "t", ("retention.ms", SET, "long"), ErrorCode.INVALID_CONFIG),
        (TOPIC, "t", ("x", SET, "v" * 32768), ErrorCode.INVALID_CONFIG),
        (TOPIC, "t", ("x", SET, "ü" * 16384), ErrorCode.INVALID_CONFIG),
        (TOPIC, "t", ("x", SET, "v" * 32767), ErrorCode.NONE),
        (BROKER, "", ("x", SET, "1"), ErrorCode.NONE),
        (BROKER, "1", ("x", SET, "1"), ErrorCode.NONE),
        (GROUP, "g", ("x", SET, "1"), ErrorCode.NONE),
        (METRICS, "m", ("x", SET, "1"), ErrorCode.NONE),
    ],
)
def test_each_refusal(
    harness: Harness, kind: int, name: str, change: tuple[str, int, str | None], expected: ErrorCode
) -> None:
    before = len(harness.log)
    assert alter(harness, kind, name, change) == expected
    assert expected is ErrorCode.NONE or len(harness.log) == before


def test_a_key_or_a_resource_twice(harness: Harness) -> None:
    assert alter(harness, TOPIC, "t", ("x", SET, "1"), ("x", DELETE, None)) == ErrorCode.INVALID_REQUEST
    resources = [AlterConfigsResource(resource_type=TOPIC, resource_name="t")] * 2
    answer = harness.do(harness.machine.configs.incremental_alter(IncrementalAlterConfigsRequest(resources=resources)))
    assert [response.error_code for response in answer.responses] == [0, ErrorCode.INVALID_REQUEST]


def test_one_bad_change_spoils_its_resource_and_no_other(harness: Harness) -> None:
    harness.topic("u", [1])
    good = AlterConfigsResource(
        resource_type=TOPIC, resource_name="u", configs=[AlterableConfig(name="x", config_operation=SET, value="1")]
    )
    bad = AlterConfigsResource(
        resource_type=TOPIC,
        resource_name="t",
        configs=[
            AlterableConfig(name="x", config_operation=SET, value="1"),
            AlterableConfig(name="no.such", config_operation=SET, value="1"),
        ],
    )
    request = IncrementalAlterConfigsRequest(resources=[bad, good])
    answer = harness.do(harness.machine.configs.incremental_alter(request))
    assert [response.error_code for response in answer.responses] == [ErrorCode.INVALID_CONFIG, 0]
    assert (TOPIC, "t") not in harness.state.configs and harness.state.configs[(TOPIC, "u")] == {"x": "1"}


def test_the_older_api_replaces_everything(harness: Harness) -> None:
    alter(harness, TOPIC, "t", ("x", SET, "1"))
    assert replace_all(harness, TOPIC, "t", retention_ms="5") == 0
    assert harness.state.configs[(TOPIC, "t")] == {"retention.ms": "5"}
    assert replace_all(harness, TOPIC, "t", retention_ms=None) == ErrorCode.INVALID_REQUEST
    assert replace_all(harness, TOPIC, "none", x="1") == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert replace_all(harness, TOPIC, "t") == 0
    assert (TOPIC, "t") not in harness.state.configs


def test_elr_requires_min_insync_replicas_for_the_whole_cluster(harness: Harness) -> None:
    key = "min.insync.replicas"
    assert alter(harness, BROKER, "1", (key, SET, "2")) == ErrorCode.INVALID_CONFIG
    assert alter(harness, BROKER, "", (key, DELETE, None)) == ErrorCode.INVALID_CONFIG
    assert alter(harness, BROKER, "", (key, SET, "2")) == 0
    assert type(harness.log[-1]).__name__ == "ClearElrRecord" and harness.log[-1].topic_name == ""
    assert alter(harness, TOPIC, "t", (key, SET, "1")) == 0
    assert harness.log[-1].topic_name == "t"
