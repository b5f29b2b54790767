"""ACLs on a node that runs in the test's own process, put in force at once."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from uuid import UUID

from odradek.metadata.acls import AclOperation, AclResourceType, PatternType, PermissionType
from odradek.metadata.model import Acl
from odradek.security.acl.authorizer import StandardAuthorizer
from odradek.server.context import ANONYMOUS
from odradek.testing.faults import NetworkLinks
from odradek.testing.node_thread import NodeThread
from tests.support.nodes.node import free_port

# An allowed operation, and the type and the name of its resource.
Rule = tuple[AclOperation, AclResourceType, str]


@contextmanager
def node_in_process(directory: Path, settings: Mapping[str, object] | None = None) -> Iterator[NodeThread]:
    """A node whose authorizer a test can replace."""
    node, port = NodeThread(1, NetworkLinks()), free_port()
    controller = f"127.0.0.1:{free_port()}"
    overrides = {
        "log.dirs": directory,
        "listeners": f"PLAINTEXT://127.0.0.1:{port},CONTROLLER://{controller}",
        "controller.quorum.bootstrap.servers": controller,
        **(settings or {}),
    }
    node.begin(None, [f"{key}={value}" for key, value in overrides.items()]).result(120)
    try:
        yield node
    finally:
        node.stop()


def allow_rules(node: NodeThread, *rules: Rule) -> None:
    """Let clients without a name do so much on this node, and nothing else."""
    literal, allowed = int(PatternType.LITERAL), int(PermissionType.ALLOW)
    acls = {
        UUID(int=number): Acl(int(kind), name, literal, ANONYMOUS, "*", int(operation), allowed)
        for number, (operation, kind, name) in enumerate(rules)
    }

    async def change() -> None:
        services = node.broker.services
        services.authorizer = services.authorizer or StandardAuthorizer()
        services.authorizer.update(acls)

    node.call(change())


def remove_authorizer(node: NodeThread) -> None:
    """Let everybody do everything, as without an authorizer."""

    async def remove() -> None:
        node.broker.services.authorizer = None

    node.call(remove())


def port_of(node: NodeThread, scope: str = "broker") -> int:
    """The port of the first listener for clients ("broker"), or for controllers ("controller")."""
    return next(spec.port for spec in node.broker.specs.values() if spec.scope == scope)
