"""Secrets of settings that are changed at run time: in force on the broker, and nowhere to be read."""

from __future__ import annotations

import base64
import os
import re
from collections.abc import Mapping
from pathlib import Path

import pytest
from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource

from odradek.cli.app import run
from tests.support.clients.cli import odradek
from tests.support.nodes.certificates import Certificates
from tests.support.nodes.tls_node import TlsNode, shown
from tests.support.waiting import eventually

pytestmark = pytest.mark.only_ours

OF_LISTENER = "listener.name.external."
KEY, CHAIN = f"{OF_LISTENER}ssl.keystore.key", f"{OF_LISTENER}ssl.keystore.certificate.chain"
KEY_FILE = "odradek.secret.key.file"


def keystore(certificates: Certificates, name: str) -> dict[str, str]:
    """The certificate of a name, as settings that hold it."""
    blocks = re.findall(r"-----BEGIN ([A-Z ]+)-----(.*?)-----END", certificates.issue(name).read_text(), re.DOTALL)
    pem = [(kind, f"-----BEGIN {kind}-----{text}-----END {kind}-----\n") for kind, text in blocks]
    return {
        KEY: "".join(text for kind, text in pem if kind == "PRIVATE KEY"),
        CHAIN: "".join(text for kind, text in pem if kind == "CERTIFICATE"),
    }


def alter(node: TlsNode, settings: Mapping[str, str | None]) -> None:
    """Change settings of the broker; None takes one away."""
    entries = [
        ConfigEntry(
            key,
            value,
            incremental_operation=AlterConfigOpType.DELETE if value is None else AlterConfigOpType.SET,
        )
        for key, value in settings.items()
    ]
    resource = ConfigResource(ConfigResource.Type.BROKER, "1", incremental_configs=entries)
    client = AdminClient({"bootstrap.servers": node.bootstrap})  # one that is collected gives up
    for future in client.incremental_alter_configs([resource]).values():
        future.result(60)


def key_file(directory: Path, *keys: bytes) -> Path:
    path = directory / "secrets.keys"
    path.write_text("".join(f"{base64.b64encode(key).decode()}\n" for key in keys))
    return path


def secret_lines(settings: Mapping[str, str]) -> list[bytes]:
    """The lines of a private key that no one else has."""
    return [line.encode() for line in settings[KEY].splitlines() if line and not line.startswith("-----")]


def files_with(directory: Path, secrets: list[bytes]) -> list[str]:
    files = [path for path in directory.rglob("*") if path.is_file()]
    return [path.name for path in files if any(secret in path.read_bytes() for secret in secrets)]


def test_a_secret_is_in_force_over_restarts_and_nowhere_to_be_read(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    certificates = Certificates(tmp_path / "certificates")
    first, second = keystore(certificates, "first"), keystore(certificates, "second")
    store = {**certificates.server(OF_LISTENER), **first, "ssl.allow.dn.changes": "true"}
    del store[f"{OF_LISTENER}ssl.keystore.location"]
    node = TlsNode(tmp_path / "node", store)
    node.overrides["metadata.log.max.record.bytes.between.snapshots"] = 1
    key, another = os.urandom(32), os.urandom(32)
    with node:
        with pytest.raises(KafkaException, match=f"set {KEY_FILE} on all nodes"):
            alter(node, second)
        assert shown(node, certificates) == "first"
    node.overrides[KEY_FILE] = key_file(tmp_path, key)
    with node:
        alter(node, second)
        eventually(lambda: shown(node, certificates) == "second")
        described = odradek(node.bootstrap, "configs", "describe", "--broker", "1", "--json").json[0]["configs"]
        assert {each["name"]: each["value"] for each in described if each["name"] in second} == {KEY: None, CHAIN: None}
        snapshots = node.data_dir / "__cluster_metadata-0"
        eventually(lambda: any(b"odradek.sealed" in each.read_bytes() for each in snapshots.glob("*.checkpoint")))
        assert run(["dump-log", str(snapshots)]) == 0
        dumped = capsys.readouterr().out
        assert KEY in dumped and not any(line.decode() in dumped for line in secret_lines(second))
        assert files_with(tmp_path / "node", secret_lines(second)) == []
    node.overrides[KEY_FILE] = key_file(tmp_path, another)
    with node:
        assert shown(node, certificates) == "first"
        said = [
            line for line in node.log_text().splitlines() if "secrets of dynamic settings cannot be decrypted" in line
        ]
        assert len(said) == 1 and KEY in said[0] and "has no key" in said[0]
    node.overrides[KEY_FILE] = key_file(tmp_path, another, key)
    with node:
        assert shown(node, certificates) == "second"
        alter(node, {KEY: None, CHAIN: None})
        eventually(lambda: shown(node, certificates) == "first")
