"""ACLs follow those of the source within a list of filters: added there, added here; removed there, removed here."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from typing import TYPE_CHECKING

from odradek.client.acls import describe_acls
from odradek.client.cluster import check
from odradek.common.errors import OdradekError
from odradek.metadata.acl_messages import acl_creation, acls_from_description, describe_every_acl, filter_of_one
from odradek.metadata.acls import AclFilter, AclOperation, AclResourceType, PatternType, PermissionType
from odradek.metadata.model import Acl
from odradek.protocol.messages.create_acls_request import CreateAclsRequest
from odradek.protocol.messages.create_acls_response import CreateAclsResponse
from odradek.protocol.messages.delete_acls_request import DeleteAclsRequest
from odradek.protocol.messages.delete_acls_response import DeleteAclsResponse
from odradek.settings.link_filters import AclWords, parse_acl_filters
from odradek.settings.link_settings import ACL_FILTERS, ACLS

if TYPE_CHECKING:
    from odradek.client.cluster import Cluster
    from odradek.link.topics import AskController
    from odradek.metadata.image import MetadataImage
    from odradek.settings.links import Link

# Of one request to our controller.
AT_ONCE = 200


class AclFollower:
    """What the one broker does that looks after the mirrors' topics."""

    def __init__(self, image: Callable[[], MetadataImage | None], ask: AskController) -> None:
        """`image` is None on all other brokers."""
        self._image = image
        self._ask = ask

    async def follow(self, source: Cluster, present: Callable[[], Link]) -> None:
        """One round: what was revoked goes first, and nothing that fails keeps the rest.

        Args:
            present: the link as it is now.
        Raises:
            OdradekError: what the source refuses, or the first that our own controller does.
        """
        if not _filters(present()) or self._image() is None:
            return
        there = set(acls_from_description(await describe_acls(source, describe_every_acl())))
        image, filters = self._image(), _filters(present())
        if image is None:
            return
        wanted = {acl for acl in there if any(each.matches(acl) for each in filters)}
        ours = {acl for acl in image.acls.values() if any(each.matches(acl) for each in filters)}
        failures: list[OdradekError] = []
        for change, acls in ((self._delete, ours - wanted), (self._create, wanted - ours)):
            for some in _parts(acls):
                try:
                    await change(some)
                except OdradekError as error:
                    failures.append(error)
        if failures:
            raise failures[0]

    async def _create(self, acls: list[Acl]) -> None:
        creations = [acl_creation(acl) for acl in acls]
        answer = await self._ask(CreateAclsRequest(creations=creations), CreateAclsResponse)
        for result in answer.results:
            check(result.error_code, "an ACL", result.error_message)

    async def _delete(self, acls: list[Acl]) -> None:
        filters = [filter_of_one(acl) for acl in acls]
        answer = await self._ask(DeleteAclsRequest(filters=filters), DeleteAclsResponse)
        for result in answer.filter_results:
            check(result.error_code, "an ACL", result.error_message)


def _filters(link: Link) -> list[AclFilter]:
    """None where ACLs do not follow."""
    if ACLS.interval_ms(link.settings) is None:
        return []
    return [_filter(each) for each in parse_acl_filters(link.settings.get(ACL_FILTERS, ""))]


def _filter(words: AclWords) -> AclFilter:
    return AclFilter(
        AclResourceType[words.resource_type],
        words.name,
        PatternType[words.pattern_type],
        words.principal,
        words.host,
        AclOperation[words.operation],
        PermissionType[words.permission_type],
    )


def _parts(acls: Collection[Acl]) -> Iterator[list[Acl]]:
    ordered = sorted(acls, key=lambda acl: (acl.resource_type, acl.resource_name, acl.principal, acl.operation))
    for start in range(0, len(ordered), AT_ONCE):
        yield ordered[start : start + AT_ONCE]
