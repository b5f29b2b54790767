"""The metadata log stays bounded: twenty thousand changes of settings, a kill -9, and all are there in seconds."""

from __future__ import annotations

from pathlib import Path

import pytest

from odradek.protocol.apis import ApiKey
from odradek.protocol.messages import describe_configs_request
from odradek.protocol.messages.incremental_alter_configs_request import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from tests.support.clients.wire import Wire
from tests.support.nodes.node import Node

CHANGES = 20_000
A_REQUEST = 200
GROUP = 32
KEY = "consumer.session.timeout.ms"
SNAPSHOT_BYTES = 100_000
KEPT_BYTES = 2_000_000


def value_of(number: int) -> str:
    return str(45_000 + number % 15_000)


@pytest.mark.slow  # the controller alone: tests/scenarios/test_controller_restart.py
def test_twenty_thousand_changes_survive_a_kill_and_leave_a_small_log(tmp_path: Path) -> None:
    settings = {
        "metadata.log.max.record.bytes.between.snapshots": SNAPSHOT_BYTES,
        "metadata.max.retention.bytes": KEPT_BYTES,
    }
    with Node(tmp_path / "node", settings) as node:
        with Wire(node.port) as wire:
            for start in range(0, CHANGES, A_REQUEST):
                resources = [
                    AlterConfigsResource(
                        resource_type=GROUP,
                        resource_name=f"group-{number}",
                        configs=[AlterableConfig(name=KEY, config_operation=0, value=value_of(number))],
                    )
                    for number in range(start, start + A_REQUEST)
                ]
                answer = wire.request(
                    ApiKey.INCREMENTAL_ALTER_CONFIGS, 1, IncrementalAlterConfigsRequest(resources=resources)
                )
                assert not [each for each in answer.responses if each.error_code]
        node.kill()
        node.start()  # and fails where it hangs
        with Wire(node.port) as wire:
            for start in range(0, CHANGES, 1000):
                wanted = [
                    describe_configs_request.DescribeConfigsResource(
                        resource_type=GROUP, resource_name=f"group-{number}", configuration_keys=[KEY]
                    )
                    for number in range(start, start + 1000)
                ]
                request = describe_configs_request.DescribeConfigsRequest(resources=wanted)
                results = wire.request(ApiKey.DESCRIBE_CONFIGS, 4, request).results
                reported = {result.resource_name: result.configs[0].value for result in results}
                assert reported == {f"group-{number}": value_of(number) for number in range(start, start + 1000)}
        files = list((node.data_dir / "__cluster_metadata-0").iterdir())
        assert any(file.suffix == ".checkpoint" for file in files)
        assert sum(file.stat().st_size for file in files) < 3 * KEPT_BYTES
