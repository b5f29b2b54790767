"""DeleteAcls at a broker whose image still has what the controller no longer finds."""

from __future__ import annotations

from uuid import UUID

import pytest

from odradek.metadata.acls import AclFilter
from odradek.metadata.image import MetadataImage
from odradek.metadata.model import Acl
from odradek.protocol.messages.delete_acls_request import DeleteAclsFilter, DeleteAclsRequest
from odradek.protocol.messages.delete_acls_response import DeleteAclsFilterResult, DeleteAclsResponse
from odradek.server.handlers.delete_acls import _already_deleted

TOPIC, LITERAL, READ, ALLOW, ANY = 2, 3, 3, 3, 1


async def test_equal_filters_are_compared_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """A request may have 10,000 of them, and they match nothing at the controller."""
    acls = {UUID(int=number): Acl(TOPIC, f"t{number}", LITERAL, "User:a", "*", READ, ALLOW) for number in range(1, 4)}
    image = MetadataImage(acls=acls)
    each = DeleteAclsFilter(
        resource_type_filter=TOPIC,
        resource_name_filter="t1",
        pattern_type_filter=LITERAL,
        principal_filter=None,
        host_filter=None,
        operation=ANY,
        permission_type=ANY,
    )
    compared: list[Acl] = []

    def matches(self: AclFilter, acl: Acl) -> bool:
        compared.append(acl)
        return self.resource_name == acl.resource_name

    monkeypatch.setattr(AclFilter, "matches", matches)
    results = [DeleteAclsFilterResult(error_message=None) for _ in range(100)]
    found = await _already_deleted(
        image, DeleteAclsRequest(filters=[each] * 100), DeleteAclsResponse(filter_results=results)
    )
    assert found == {acls[UUID(int=1)]}
    assert compared == list(acls.values())
