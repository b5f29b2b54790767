"""`odradek certs dev`: its certificates work with the settings that it prints."""

from __future__ import annotations

import json
import stat
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient
from typer.testing import CliRunner

from odradek.cli.certs import app
from odradek.cli.errors import CliError
from pyspark_odradek.client.cluster import ClientSettings, Cluster
from tests.support.clients.cli import odradek
from tests.support.nodes.tls_node import TlsNode


def certs_dev(directory: Path, *more: str) -> str:
    ran = CliRunner().invoke(app, ["dev", "--directory", str(directory), *more], catch_exceptions=False)
    return ran.output


def test_the_printed_settings_make_a_node_and_its_clients(tmp_path: Path) -> None:
    settings = json.loads(certs_dev(tmp_path / "certs", "--json"))
    keys = {key: value for key, value in settings["node"].items() if key.startswith("ssl.")}
    with TlsNode(tmp_path, keys | {"listener.name.external.ssl.client.auth": "required"}) as node:
        assert (
            AdminClient({"bootstrap.servers": node.tls_address, **settings["librdkafka"]})
            .list_topics(timeout=60)
            .brokers
        )
        properties = tmp_path / "client.properties"
        properties.write_text("".join(f"{key}={value}\n" for key, value in settings["java"].items()))
        odradek(node.tls_address, "topics", "create", "--topic", "made", "--command-config", properties)


def test_the_printed_options_of_spark_reach_the_node(tmp_path: Path) -> None:
    settings = json.loads(certs_dev(tmp_path / "certs", "--json"))
    options = {name.removeprefix("kafka."): value for name, value in settings["spark"].items()}
    with TlsNode(tmp_path, {key: value for key, value in settings["node"].items() if key.startswith("ssl.")}) as node:
        odradek(node.bootstrap, "topics", "create", "--topic", "made")
        cluster = Cluster(ClientSettings.parse({"bootstrap.servers": node.tls_address, **options}))
        assert cluster.partitions(["made"]) == {"made": [0]}
        cluster.close()


def test_settings_are_printed_as_properties(tmp_path: Path) -> None:
    printed = certs_dev(tmp_path).splitlines()
    assert f"ssl.keystore.location={tmp_path / 'node.pem'}" in printed
    assert f"kafka.ssl.truststore.location={tmp_path / 'ca.pem'}" in printed


def test_keys_are_for_their_owner_alone_and_are_not_overwritten(tmp_path: Path) -> None:
    certs_dev(tmp_path)
    assert stat.S_IMODE((tmp_path / "node.pem").stat().st_mode) == 0o600
    with pytest.raises(CliError, match="exists; remove it"):
        certs_dev(tmp_path)
