"""The permissions that a connection caches for its client, and for how long."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest

from odradek.common.log_lines import ROOT, change_level
from odradek.metadata.acls import AclOperation, AclResourceType
from odradek.protocol.apis import ApiKey
from odradek.security.acl.audit import AUDIT_LOGGER
from odradek.security.acl.authorizer import KeptPermissions, StandardAuthorizer
from odradek.server.context import RequestContext

READ, WRITE = AclOperation.READ, AclOperation.WRITE
TOPIC, GROUP = AclResourceType.TOPIC, AclResourceType.GROUP
LOGGER = f"{ROOT}.{AUDIT_LOGGER}"


class Lines(logging.Handler):
    def __init__(self) -> None:
        super().__init__()
        self.count = 0

    def emit(self, record: logging.LogRecord) -> None:
        self.count += 1


@pytest.fixture
def lines() -> Iterator[Lines]:
    """The lines of the audit log."""
    handler = Lines()
    logging.getLogger(LOGGER).addHandler(handler)
    yield handler
    logging.getLogger(LOGGER).removeHandler(handler)
    change_level(LOGGER, "WARN")


def test_a_request_keeps_the_set_of_topics_that_it_began_with() -> None:
    kept, first, second = KeptPermissions(), object(), object()
    for operation, kind, name in ((READ, TOPIC, "a"), (WRITE, TOPIC, "b"), (READ, GROUP, "c")):
        kept.add(first, operation, kind, name)
    under_way = kept.readable
    assert under_way == {"a"}
    kept.add(second, READ, TOPIC, "d")
    assert (under_way, kept.readable) == ({"a"}, {"d"})
    kept.clear()
    assert not kept.readable


@pytest.mark.parametrize("level", ["DEBUG", None])
def test_a_kept_permission_is_audited_once_the_level_changes(lines: Lines, level: str | None) -> None:
    """An audit log without a level of its own has the level of the node's log."""
    authorizer = StandardAuthorizer(allow_if_no_acl=True)
    authorizer.update({})
    broker: Any = SimpleNamespace(authorizer=authorizer)
    connection: Any = SimpleNamespace(permissions=KeptPermissions(), principal="User:alice", peer_host="10.0.0.1")
    context = RequestContext(broker, connection, ApiKey.FETCH, 12, 1, "app")
    change_level(ROOT, "DEBUG")
    assert all(context.authorize(READ, TOPIC, "a") for _ in range(2))
    assert (context.readable_topics(authorizer), lines.count) == ({"a"}, 0)
    change_level(LOGGER, level)
    assert all(context.authorize(READ, TOPIC, "a") for _ in range(2))
    assert (context.readable_topics(authorizer), lines.count) == (frozenset(), 2)
    change_level(LOGGER, "WARN")
    assert (context.readable_topics(authorizer), lines.count) == ({"a"}, 2)
    authorizer.update({})
    assert context.readable_topics(authorizer) == frozenset(), "nothing is kept for another epoch"
