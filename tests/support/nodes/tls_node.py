"""A node with a TLS listener, and the certificate that a connection to it sees."""

from __future__ import annotations

import socket
import ssl
from collections.abc import Mapping
from pathlib import Path

from tests.support.nodes.certificates import Certificates
from tests.support.nodes.node import Node, free_port


class TlsNode(Node):
    """A node with a plaintext listener, and one with TLS beside it."""

    def __init__(self, directory: Path, settings: Mapping[str, object]) -> None:
        super().__init__(directory)
        self.tls_port = free_port()
        self.overrides |= {
            # The order matters: they are bound one after the other, and a start waits for the plain one.
            "listeners": f"EXTERNAL://127.0.0.1:{self.tls_port},{self.overrides['listeners']}",
            "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT,EXTERNAL:SSL",
            "inter.broker.listener.name": "PLAINTEXT",
            **settings,
        }

    @property
    def tls_address(self) -> str:
        return f"127.0.0.1:{self.tls_port}"


def connected(node: TlsNode, context: ssl.SSLContext) -> ssl.SSLSocket:
    raw = socket.create_connection(("127.0.0.1", node.tls_port), 30)
    return context.wrap_socket(raw, server_hostname="127.0.0.1")


def shown(node: TlsNode, certificates: Certificates) -> str:
    """The common name of the certificate that a new connection sees."""
    context = ssl.create_default_context(cafile=str(certificates.ca))
    with connected(node, context) as secured:
        certificate = secured.getpeercert()
    assert certificate is not None
    return dict(part[0] for part in certificate["subject"])["commonName"]  # type: ignore[misc]  # the stub's type is any nesting of tuples
