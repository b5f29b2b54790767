"""A request that is too large is refused to those who may not send it as any other: they learn nothing of its size."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from odradek.common.errors import ErrorCode
from odradek.metadata.acls import AclOperation, AclResourceType
from odradek.protocol.apis import ApiKey
from odradek.protocol.messages import alter_configs_request, incremental_alter_configs_request
from odradek.protocol.messages.create_partitions_request import CreatePartitionsRequest, CreatePartitionsTopic
from odradek.protocol.messages.create_topics_request import CreatableTopic, CreatableTopicConfig, CreateTopicsRequest
from odradek.protocol.messages.delete_topics_request import DeleteTopicsRequest
from odradek.testing.node_thread import NodeThread
from tests.support.clients.api_calls import Calls, error_codes
from tests.support.models.large_requests import BOUNDED
from tests.support.nodes.permissions import allow_rules, node_in_process, port_of

pytestmark = pytest.mark.only_ours

TOO_MANY = 10_001
TOPIC = 2
# The APIs that need a permission on each topic; the others need one on the cluster.
OF_TOPICS = {"AlterConfigs", "IncrementalAlterConfigs", "CreatePartitions", "DeleteTopics"}


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[NodeThread]:
    with node_in_process(tmp_path_factory.mktemp("node")) as node:
        yield node


def request_of(node: NodeThread, api_key: ApiKey, version: int, request: Any) -> Any:
    with Calls(port_of(node)) as calls:
        return calls.request(api_key, version, request)


@pytest.mark.parametrize("name", BOUNDED)
def test_each_entry_of_a_large_request_is_unauthorized(node: NodeThread, name: str) -> None:
    api_key, version, request = BOUNDED[name]
    allow_rules(node)
    codes = list(error_codes(request_of(node, api_key, version, request(TOO_MANY))))
    code = ErrorCode.TOPIC_AUTHORIZATION_FAILED if name in OF_TOPICS else ErrorCode.CLUSTER_AUTHORIZATION_FAILED
    assert set(codes) == {code}
    # All settings of AlterConfigs are of two resources.
    assert len(codes) >= (2 if name == "AlterConfigs" else TOO_MANY)


def alter(module: Any, request: type[Any]) -> Any:
    setting = module.AlterableConfig(name="retention.ms", value="1")
    return request(
        resources=[
            module.AlterConfigsResource(resource_type=TOPIC, resource_name=name, configs=[setting] * count)
            for name, count in (("mine", TOO_MANY), ("other", 1))
        ]
    )


NAMED = ["mine"] * TOO_MANY + ["other"]
PARTITIONS = [CreatePartitionsTopic(name=name, count=2, assignments=None) for name in NAMED]
SETTING = CreatableTopicConfig(name="retention.ms", value="1")
# Of each: the API, its version, the operation that it needs on a topic, and a request of too many entries of the topic
# "mine", and one of "other".
MIXED: dict[str, tuple[ApiKey, int, AclOperation, Any]] = {
    "AlterConfigs": (
        ApiKey.ALTER_CONFIGS,
        2,
        AclOperation.ALTER_CONFIGS,
        alter(alter_configs_request, alter_configs_request.AlterConfigsRequest),
    ),
    "IncrementalAlterConfigs": (
        ApiKey.INCREMENTAL_ALTER_CONFIGS,
        1,
        AclOperation.ALTER_CONFIGS,
        alter(incremental_alter_configs_request, incremental_alter_configs_request.IncrementalAlterConfigsRequest),
    ),
    "CreatePartitions": (
        ApiKey.CREATE_PARTITIONS,
        3,
        AclOperation.ALTER,
        CreatePartitionsRequest(topics=PARTITIONS, timeout_ms=60_000),
    ),
    "DeleteTopics": (
        ApiKey.DELETE_TOPICS,
        5,
        AclOperation.DELETE,
        DeleteTopicsRequest(topic_names=NAMED, timeout_ms=60_000),
    ),
    "CreateTopics": (
        ApiKey.CREATE_TOPICS,
        7,
        AclOperation.CREATE,
        CreateTopicsRequest(
            topics=[
                CreatableTopic(name="mine", num_partitions=1, replication_factor=1, configs=[SETTING] * TOO_MANY),
                CreatableTopic(name="other", num_partitions=1, replication_factor=1),
            ],
            timeout_ms=60_000,
        ),
    ),
}


def results_of(answer: Any) -> list[tuple[str, int]]:
    """The name and the error code of each entry."""
    (entries,) = (value for spec in type(answer).FIELDS if isinstance(value := getattr(answer, spec.name), list))
    return [(each.resource_name if hasattr(each, "resource_name") else each.name, each.error_code) for each in entries]


@pytest.mark.parametrize("name", MIXED)
def test_allowed_entries_are_too_many_and_others_refused(node: NodeThread, name: str) -> None:
    api_key, version, operation, request = MIXED[name]
    allow_rules(node, (operation, AclResourceType.TOPIC, "mine"))
    results = results_of(request_of(node, api_key, version, request))
    assert {each for each in results if each[0] == "mine"} == {("mine", ErrorCode.POLICY_VIOLATION)}
    assert [each for each in results if each[0] != "mine"] == [("other", ErrorCode.TOPIC_AUTHORIZATION_FAILED)]


@pytest.mark.parametrize("name", ["CreatePartitions", "DeleteTopics", "IncrementalAlterConfigs"])
def test_unauthorized_entries_do_not_count(node: NodeThread, name: str) -> None:
    """Of a request that is too large, the only entry that the client may send is decided."""
    api_key, version, request = BOUNDED[name]
    allow_rules(node, (MIXED[name][2], AclResourceType.TOPIC, "t7"))
    results = dict(results_of(request_of(node, api_key, version, request(TOO_MANY))))
    assert results.pop("t7") not in (ErrorCode.POLICY_VIOLATION, ErrorCode.TOPIC_AUTHORIZATION_FAILED)
    assert set(results.values()) == {ErrorCode.TOPIC_AUTHORIZATION_FAILED} and len(results) == TOO_MANY - 1
