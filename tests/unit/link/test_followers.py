"""A link copies offsets, settings and ACLs while topics are promoted, recreated at the source, or refused."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping
from typing import Any
from uuid import UUID

import pytest

from odradek.client.groups import CommittedOffset
from odradek.common.errors import ApiError, ErrorCode
from odradek.link.acls import AclFollower, acl_at_source, acl_here
from odradek.link.offsets import OffsetFollower
from odradek.link.topic_settings import TopicSettingsFollower
from odradek.metadata.acls import AclOperation, AclResourceType, PatternType, PermissionType
from odradek.metadata.image import MetadataImage
from odradek.metadata.model import Acl, ResourceType, TopicImage
from odradek.protocol.messages.create_acls_request import CreateAclsRequest
from odradek.protocol.messages.create_acls_response import AclCreationResult, CreateAclsResponse
from odradek.protocol.messages.delete_acls_request import DeleteAclsRequest
from odradek.protocol.messages.delete_acls_response import DeleteAclsFilterResult, DeleteAclsResponse
from odradek.protocol.messages.incremental_alter_configs_response import (
    AlterConfigsResourceResponse,
    IncrementalAlterConfigsResponse,
)
from odradek.settings.links import Link, Mirror, MirrorState
from tests.support.models.link_source import AnsweringSource

ID, ANOTHER = UUID(int=7), UUID(int=8)
EVERYTHING = {
    "consumer.offset.sync.enable": "true",
    "consumer.offset.group.filters": '{"groupFilters": [{"name": "*"}]}',
    "topic.config.sync.enable": "true",
    "acl.sync.enable": "true",
    "acl.filters": '{"aclFilters": [{"accessFilter": {"operation": "any"}}]}',
}


class Groups:
    """Groups of this cluster that have no members."""

    def __init__(self) -> None:
        self.offsets: dict[str, dict[str, int]] = {}
        self.is_asked = asyncio.Event()
        self.may_answer = asyncio.Event()
        self.may_answer.set()

    async def coordinates(self, group_id: str) -> bool:
        return True

    async def committed(self, group_id: str) -> Mapping[tuple[str, int], CommittedOffset]:
        return {(topic, 0): CommittedOffset(offset) for topic, offset in self.offsets.get(group_id, {}).items()}

    async def commit(self, group_id: str, offsets: Mapping[tuple[str, int], CommittedOffset]) -> None:
        of_group = self.offsets.setdefault(group_id, {})
        of_group.update({topic: each.offset for (topic, _), each in offsets.items()})

    async def ends(self, keys: Iterable[tuple[str, int]]) -> Mapping[tuple[str, int], int]:
        self.is_asked.set()
        await self.may_answer.wait()
        return dict.fromkeys(keys, 1000)


def link_with(*topics: str, prefix: str = "") -> Link:
    """`topics` are those of the source."""
    found = [Mirror("west", f"{prefix}{topic}", MirrorState.ACTIVE, ID, source_topic=topic) for topic in topics]
    settings = EVERYTHING | ({"cluster.link.prefix": prefix} if prefix else {})
    return Link("west", "source:9092", {mirror.topic: mirror for mirror in found}, settings)


def source_with(*topics: str) -> AnsweringSource:
    source = AnsweringSource()
    source.ids = dict.fromkeys(topics, ID)
    return source


@pytest.mark.parametrize(
    "change",
    [
        lambda link: link.mirrors.pop("t"),
        lambda link: link.settings.pop("consumer.offset.sync.enable"),
        lambda link: link.settings.pop("consumer.offset.group.filters"),
    ],
    ids=["promoted", "switched off", "no filter"],
)
async def test_a_commit_here_outlives_a_round_that_began_before(change: Any) -> None:
    groups, source, links = Groups(), source_with("t"), [link_with("t")]
    source.committed = {"g": {"t": 300}}
    groups.may_answer.clear()
    round_ = asyncio.create_task(OffsetFollower(groups).follow(source, lambda: links[-1]))
    await groups.is_asked.wait()
    links.append(link_with("t"))
    change(links[-1])
    groups.offsets["g"] = {"t": 500}
    groups.may_answer.set()
    await round_
    assert groups.offsets == {"g": {"t": 500}}


async def test_offsets_of_a_topic_made_again_at_the_source_do_not_follow() -> None:
    groups, source, link = Groups(), source_with("t", "kept"), link_with("t", "kept")
    source.committed = {"g": {"t": 3, "kept": 4}}
    source.ids["t"] = ANOTHER
    await OffsetFollower(groups).follow(source, lambda: link)
    assert groups.offsets == {"g": {"kept": 4}}


async def test_offsets_follow_to_the_names_of_the_mirrors() -> None:
    """The source has a topic with the name of the mirror, too, which is mirrored or not."""
    groups, source = Groups(), source_with("t", "west.t")
    source.committed = {"g": {"t": 3, "west.t": 4}}
    await OffsetFollower(groups).follow(source, lambda: link_with("t", prefix="west."))
    assert groups.offsets == {"g": {"west.t": 3}}
    await OffsetFollower(groups).follow(source, lambda: link_with("t", "west.t", prefix="west."))
    assert groups.offsets == {"g": {"west.t": 3, "west.west.t": 4}}


async def test_a_group_that_is_refused_keeps_no_others() -> None:
    groups, source, link = Groups(), source_with("t"), link_with("t")
    source.committed = {"a": ErrorCode.GROUP_AUTHORIZATION_FAILED, "b": {"t": 3}}
    with pytest.raises(ApiError) as caught:
        await OffsetFollower(groups).follow(source, lambda: link)
    assert caught.value.code is ErrorCode.GROUP_AUTHORIZATION_FAILED
    assert groups.offsets == {"b": {"t": 3}}


async def test_settings_of_a_topic_made_again_do_not_follow() -> None:
    source, link = source_with("t", "kept"), link_with("t", "kept")
    changed: list[str] = []
    source.settings = {"t": {"retention.ms": "1000"}, "kept": {"retention.ms": "2000"}}
    source.ids["t"] = ANOTHER

    async def send(request: Any, _: object) -> Any:
        changed.extend(each.resource_name for each in request.resources)
        return IncrementalAlterConfigsResponse(
            responses=[
                AlterConfigsResourceResponse(resource_type=ResourceType.TOPIC, resource_name=each.resource_name)
                for each in request.resources
            ]
        )

    image = MetadataImage(topics_by_name={name: TopicImage(name, UUID(int=1), {}) for name in ("t", "kept")})
    await TopicSettingsFollower(lambda: image, send).follow(source, lambda: link)
    assert changed == ["kept"]


async def test_settings_follow_to_the_names_of_the_mirrors() -> None:
    source, link = source_with("t"), link_with("t", prefix="west.")
    source.settings = {"t": {"retention.ms": "1000"}}
    changed: list[tuple[str, dict[str, str]]] = []

    async def send(request: Any, _: object) -> Any:
        for each in request.resources:
            changed.append((each.resource_name, {config.name: config.value for config in each.configs}))
        return IncrementalAlterConfigsResponse()

    topics = {name: TopicImage(name, UUID(int=1), {}) for name in ("t", "west.t")}
    await TopicSettingsFollower(lambda: MetadataImage(topics_by_name=topics), send).follow(source, lambda: link)
    assert changed == [("west.t", {"retention.ms": "1000"})]


def rule(name: str, pattern: int = PatternType.LITERAL, kind: int = AclResourceType.TOPIC) -> Acl:
    return Acl(
        kind,
        name,
        pattern,
        "User:bob",
        "*",
        AclOperation.READ,
        PermissionType.ALLOW,
    )


async def test_a_revoked_acl_is_deleted_though_another_cannot_be_created() -> None:
    source, link = AnsweringSource(), link_with("t")
    deleted: list[str | None] = []
    source.acls = [rule("new")]

    async def send(request: Any, _: object) -> Any:
        if isinstance(request, CreateAclsRequest):
            return CreateAclsResponse(results=[AclCreationResult(error_code=ErrorCode.INVALID_REQUEST)])
        assert isinstance(request, DeleteAclsRequest)
        deleted.extend(each.resource_name_filter for each in request.filters)
        return DeleteAclsResponse(filter_results=[DeleteAclsFilterResult()])

    image = MetadataImage(acls={UUID(int=1): rule("revoked")})
    with pytest.raises(ApiError) as caught:
        await AclFollower(lambda: image, send).follow(source, lambda: link)
    assert (caught.value.code, deleted) == (ErrorCode.INVALID_REQUEST, ["revoked"])


@pytest.mark.parametrize(
    ("there", "here"),
    [
        (rule("t"), rule("west.t")),
        (rule("t", PatternType.PREFIXED), rule("west.t", PatternType.PREFIXED)),
        (rule("*"), rule("west.", PatternType.PREFIXED)),
        (rule("west.t"), rule("west.west.t")),
        (rule("g", kind=AclResourceType.GROUP), rule("g", kind=AclResourceType.GROUP)),
    ],
)
def test_acls_of_topics_are_of_the_names_of_the_mirrors(there: Acl, here: Acl) -> None:
    assert (acl_here("west.", there), acl_at_source("west.", here)) == (here, there)
    assert (acl_here("", there), acl_at_source("", here)) == (there, here)


@pytest.mark.parametrize(
    "other", [rule("t"), rule("*"), rule("west."), rule("west.*"), rule("w", PatternType.PREFIXED)]
)
def test_acls_of_other_topics_here_are_not_the_links(other: Acl) -> None:
    assert acl_at_source("west.", other) is None


async def test_a_link_with_a_prefix_changes_acls_of_its_mirrors_only() -> None:
    source, changed = AnsweringSource(), list[tuple[str, str | None]]()
    source.acls = [rule("t")]

    async def send(request: Any, _: object) -> Any:
        if isinstance(request, CreateAclsRequest):
            changed.extend(("created", each.resource_name) for each in request.creations)
            return CreateAclsResponse()
        changed.extend(("deleted", each.resource_name_filter) for each in request.filters)
        return DeleteAclsResponse()

    image = MetadataImage(acls={UUID(int=1): rule("t"), UUID(int=2): rule("west.gone"), UUID(int=3): rule("own")})
    await AclFollower(lambda: image, send).follow(source, lambda: link_with("t", prefix="west."))
    assert changed == [("deleted", "west.gone"), ("created", "west.t")]
