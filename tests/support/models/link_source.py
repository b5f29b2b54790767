"""The source of a link, by what it answers: a client's view of a cluster whose requests a test answers."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any
from uuid import UUID

from odradek.client.cluster import Cluster
from odradek.common.errors import ErrorCode
from odradek.common.real_io import RealClock, RealNetwork
from odradek.metadata.model import Acl
from odradek.protocol.messages import (
    describe_acls_response,
    describe_configs_response,
    list_groups_response,
    metadata_response,
    offset_fetch_response,
)
from odradek.protocol.messages.describe_acls_request import DescribeAclsRequest
from odradek.protocol.messages.describe_configs_request import DescribeConfigsRequest
from odradek.protocol.messages.list_groups_request import ListGroupsRequest
from odradek.protocol.messages.metadata_request import MetadataRequest
from odradek.protocol.messages.offset_fetch_request import OffsetFetchRequest
from odradek.settings.resources import ConfigSource


class AnsweringSource(Cluster):
    """
    Attributes:
        ids: of topics.
        committed: by group: of partition 0 of each topic; an error code for a group that is refused.
        settings: those that were set on topics.
    """

    def __init__(self) -> None:
        super().__init__(RealNetwork(), RealClock(), [("source.invalid", 9092)], timeout_ms=1)
        self.ids: dict[str, UUID] = {}
        self.committed: dict[str, dict[str, int] | ErrorCode] = {}
        self.settings: dict[str, dict[str, str]] = {}
        self.acls: list[Acl] = []

    async def connection_to(self, node_id: int) -> Any:
        return SimpleNamespace(versions={})

    async def coordinator(self, group_id: str) -> int:
        return 1

    async def request(self, request: Any, response: Any, **_: Any) -> Any:
        answers: dict[Any, Any] = {
            MetadataRequest: self._topics,
            ListGroupsRequest: self._groups,
            OffsetFetchRequest: self._offsets,
            DescribeConfigsRequest: self._configs,
            DescribeAclsRequest: self._rules,
        }
        return answers[type(request)](request)

    def _topics(self, request: MetadataRequest) -> Any:
        return metadata_response.MetadataResponse(
            brokers=[metadata_response.MetadataResponseBroker(node_id=1, host="source.invalid", port=9092)],
            topics=[
                metadata_response.MetadataResponseTopic(name=each.name, topic_id=self.ids[each.name or ""])
                for each in request.topics or []
            ],
        )

    def _groups(self, _: ListGroupsRequest) -> Any:
        groups = [list_groups_response.ListedGroup(group_id=name, group_type="classic") for name in self.committed]
        return list_groups_response.ListGroupsResponse(groups=groups)

    def _offsets(self, request: OffsetFetchRequest) -> Any:
        found = self.committed[request.group_id]
        if isinstance(found, ErrorCode):
            return offset_fetch_response.OffsetFetchResponse(error_code=found)
        topics = [
            offset_fetch_response.OffsetFetchResponseTopic(
                name=topic,
                partitions=[
                    offset_fetch_response.OffsetFetchResponsePartition(partition_index=0, committed_offset=offset)
                ],
            )
            for topic, offset in found.items()
        ]
        return offset_fetch_response.OffsetFetchResponse(topics=topics)

    def _configs(self, request: DescribeConfigsRequest) -> Any:
        return describe_configs_response.DescribeConfigsResponse(
            results=[
                describe_configs_response.DescribeConfigsResult(
                    resource_name=each.resource_name,
                    configs=[
                        describe_configs_response.DescribeConfigsResourceResult(
                            name=name, value=text, config_source=ConfigSource.DYNAMIC_TOPIC_CONFIG
                        )
                        for name, text in self.settings[each.resource_name].items()
                    ],
                )
                for each in request.resources
            ]
        )

    def _rules(self, _: DescribeAclsRequest) -> Any:
        resources = [
            describe_acls_response.DescribeAclsResource(
                resource_type=acl.resource_type,
                resource_name=acl.resource_name,
                pattern_type=acl.pattern_type,
                acls=[
                    describe_acls_response.AclDescription(
                        principal=acl.principal,
                        host=acl.host,
                        operation=acl.operation,
                        permission_type=acl.permission_type,
                    )
                ],
            )
            for acl in self.acls
        ]
        return describe_acls_response.DescribeAclsResponse(resources=resources)
