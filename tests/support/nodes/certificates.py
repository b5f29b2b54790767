"""An authority for a test, and its certificates, as files and as settings of nodes and clients."""

from __future__ import annotations

import datetime
from collections.abc import Sequence
from pathlib import Path

from odradek.security.tls.development import Authority, make_authority

YEAR = datetime.timedelta(days=365)


class Certificates:
    """Files below a directory: `ca.pem` is the authority's certificate."""

    def __init__(self, directory: Path, name: str = "Test authority") -> None:
        self.directory = directory
        directory.mkdir(parents=True, exist_ok=True)
        self.authority: Authority = make_authority(name, now=datetime.datetime.now(datetime.UTC))
        self.ca = directory / "ca.pem"
        self.ca.write_text(self.authority.pem)

    def issue(
        self, name: str, hosts: Sequence[str] = ("127.0.0.1",), *, valid: datetime.timedelta = YEAR, file: str = ""
    ) -> Path:
        """A PEM file with the certificate and the key of a name."""
        path = self.directory / f"{file or name}.pem"
        now = datetime.datetime.now(datetime.UTC)
        path.write_bytes(self.authority.issue(name, hosts, now=now, valid=valid).to_pem())
        return path

    def server(self, prefix: str = "", keystore: Path | None = None) -> dict[str, object]:
        """Settings of a node that shows `keystore`, by default one for 127.0.0.1, and trusts this authority."""
        return {
            f"{prefix}ssl.keystore.type": "PEM",
            f"{prefix}ssl.keystore.location": keystore or self.issue("node"),
            f"{prefix}ssl.truststore.type": "PEM",
            f"{prefix}ssl.truststore.location": self.ca,
        }

    def client(self, identity: Path | None = None) -> dict[str, str]:
        """Settings of a librdkafka client that trusts this authority."""
        settings = {"security.protocol": "ssl", "ssl.ca.location": str(self.ca)}
        if identity is not None:
            settings |= {"ssl.certificate.location": str(identity), "ssl.key.location": str(identity)}
        return settings
