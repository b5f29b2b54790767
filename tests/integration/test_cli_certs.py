"""`odradek certs dev`: what it makes works with the settings that it prints."""

from __future__ import annotations

import stat
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient
from typer.testing import CliRunner

from odradek.cli.certs import app
from odradek.cli.errors import CliError
from tests.integration.test_tls import TlsNode
from tests.support.clients.cli import odradek


def certs_dev(directory: Path) -> list[dict[str, str]]:
    """Run it; the settings that it prints, by section: node, librdkafka, Java, Spark."""
    ran = CliRunner().invoke(app, ["dev", "--directory", str(directory)], catch_exceptions=False)
    parts = [part.splitlines() for part in ran.output.strip().split("\n\n")]
    return [dict(line.split("=", 1) for line in part if not line.startswith("#")) for part in parts]


def test_the_printed_settings_make_a_node_and_its_clients(tmp_path: Path) -> None:
    node_settings, librdkafka, java, spark = certs_dev(tmp_path / "certs")
    keys = {key: value for key, value in node_settings.items() if key.startswith("ssl.")}
    with TlsNode(tmp_path, keys | {"listener.name.external.ssl.client.auth": "required"}) as node:
        assert AdminClient({"bootstrap.servers": node.tls_address, **librdkafka}).list_topics(timeout=60).brokers
        properties = tmp_path / "client.properties"
        properties.write_text("".join(f"{key}={value}\n" for key, value in java.items()))
        odradek(node.tls_address, "topics", "create", "--topic", "made", "--command-config", properties)
    assert spark["kafka.ssl.truststore.location"] == java["ssl.truststore.location"]


def test_keys_are_for_their_owner_alone_and_are_not_overwritten(tmp_path: Path) -> None:
    certs_dev(tmp_path)
    assert stat.S_IMODE((tmp_path / "node.pem").stat().st_mode) == 0o600
    with pytest.raises(CliError, match="exists; remove it"):
        certs_dev(tmp_path)
