"""Copies ACLs of the source that match a list of filters: additions and removals there are repeated here.

If the link has a prefix, ACLs of topics get the names of the mirrors, and ACLs of other topics are not changed.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from dataclasses import replace
from typing import TYPE_CHECKING

from odradek.client.acls import describe_acls
from odradek.client.cluster import check
from odradek.common.errors import OdradekError
from odradek.metadata.acl_messages import acl_creation, acls_from_description, describe_every_acl, filter_of_one
from odradek.metadata.acls import WILDCARD, AclFilter, AclOperation, AclResourceType, PatternType, PermissionType
from odradek.metadata.model import Acl
from odradek.protocol.messages.create_acls_request import CreateAclsRequest
from odradek.protocol.messages.create_acls_response import CreateAclsResponse
from odradek.protocol.messages.delete_acls_request import DeleteAclsRequest
from odradek.protocol.messages.delete_acls_response import DeleteAclsResponse
from odradek.settings.link_filters import AclWords, parse_acl_filters
from odradek.settings.link_names import mirror_name, source_name
from odradek.settings.link_settings import ACL_FILTERS, ACLS

if TYPE_CHECKING:
    from odradek.client.cluster import Cluster
    from odradek.link.topics import SendToController
    from odradek.metadata.image import MetadataImage
    from odradek.settings.links import Link

# The most ACLs in one request to the controller.
AT_ONCE = 200


class AclFollower:
    """Copies ACLs; one broker is responsible for this."""

    def __init__(self, image: Callable[[], MetadataImage | None], send: SendToController) -> None:
        """`image` is None on all other brokers."""
        self._image = image
        self._send = send

    async def follow(self, source: Cluster, present: Callable[[], Link]) -> None:
        """One round: removals come first, and an error does not stop the rest.

        Args:
            present: the link as it is now.
        Raises:
            OdradekError: the error of the source, or the first error of the controller here.
        """
        if not _filters(present()) or self._image() is None:
            return
        there = set(acls_from_description(await describe_acls(source, describe_every_acl())))
        image, filters, prefix = self._image(), _filters(present()), present().prefix
        if image is None:
            return

        def follows(acl: Acl | None) -> bool:
            return acl is not None and any(each.matches(acl) for each in filters)

        wanted = {acl_here(prefix, acl) for acl in there if follows(acl)}
        ours = {acl for acl in image.acls.values() if follows(acl_at_source(prefix, acl))}
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
        answer = await self._send(CreateAclsRequest(creations=creations), CreateAclsResponse)
        for result in answer.results:
            check(result.error_code, "an ACL", result.error_message)

    async def _delete(self, acls: list[Acl]) -> None:
        filters = [filter_of_one(acl) for acl in acls]
        answer = await self._send(DeleteAclsRequest(filters=filters), DeleteAclsResponse)
        for result in answer.filter_results:
            check(result.error_code, "an ACL", result.error_message)


def acl_here(prefix: str, acl: Acl) -> Acl:
    """The ACL here for an ACL of the source; an ACL of all topics becomes one of all mirrors of the prefix."""
    if not prefix or acl.resource_type != AclResourceType.TOPIC:
        return acl
    if acl.resource_name == WILDCARD and acl.pattern_type == PatternType.LITERAL:
        return replace(acl, resource_name=prefix, pattern_type=PatternType.PREFIXED)
    return replace(acl, resource_name=mirror_name(prefix, acl.resource_name))


def acl_at_source(prefix: str, acl: Acl) -> Acl | None:
    """The ACL of the source for an ACL here; None if there is none, as for topics that are no mirrors."""
    if not prefix or acl.resource_type != AclResourceType.TOPIC:
        return acl
    if acl.resource_name == prefix and acl.pattern_type == PatternType.PREFIXED:
        return replace(acl, resource_name=WILDCARD, pattern_type=PatternType.LITERAL)
    name = source_name(prefix, acl.resource_name)
    found = None if name is None else replace(acl, resource_name=name)
    return found if found is not None and acl_here(prefix, found) == acl else None


def _filters(link: Link) -> list[AclFilter]:
    """The filters; none if ACLs are not copied."""
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
