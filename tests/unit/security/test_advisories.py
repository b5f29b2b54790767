"""Vulnerabilities of Kafka: the page that lists them names existing tests, and settings that no other test checks."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from odradek.cli.connect import target
from odradek.metadata.image import MetadataImage
from odradek.security.sealing import SecretKeys
from odradek.server.dynamic_settings import DynamicSettings
from odradek.settings.broker import resolve
from odradek.settings.config_providers import Sources
from odradek.settings.node import zero_config
from pyspark_odradek.client.cluster import ClientSettings

ROOT = Path(__file__).resolve().parents[3]
ROWS = re.findall(r"^\| (CVE-.*) \|$", (ROOT / "docs" / "security-advisories.md").read_text(), re.MULTILINE)


@pytest.mark.parametrize("row", ROWS, ids=[row.partition(" ")[0].rstrip(",") for row in ROWS])
def test_each_advisory_names_tests_that_exist(row: str) -> None:
    named = re.findall(r"`(tests/\S+\.py)::(test_\w+)`", row.rpartition(" | ")[2])
    assert named
    for file, test in named:
        assert re.search(rf"^ *(async )?def {test}\(", (ROOT / file).read_text(), re.MULTILINE), (file, test)


def test_the_advisories_of_the_last_years_are_listed() -> None:
    years = {int(each) for row in ROWS for each in re.findall(r"CVE-(\d{4})-\d+", row)}
    assert years >= set(range(2021, 2027))


def test_variables_are_replaced_in_the_file_of_a_node_alone(tmp_path: Path) -> None:
    """CVE-2024-31141: whose settings come from elsewhere could read each file of the machine."""
    secret, variable = tmp_path / "secrets", f"${{file:{tmp_path}/secrets:password}}"
    secret.write_text("password=geheim\n")
    provider = {
        "config.providers": "file",
        "config.providers.file.class": "org.apache.kafka.common.config.provider.FileConfigProvider",
    }
    sources = Sources({}, lambda path: path.read_text())
    node = resolve(zero_config(provider | {"ssl.key.password": variable}), sources)
    assert node.values["ssl.key.password"] == "geheim"

    of_client = provider | {"bootstrap.servers": "h:1", "sasl.password": variable}
    file = tmp_path / "client.properties"
    file.write_text("".join(f"{name}={text}\n" for name, text in of_client.items()))
    assert target("h:1", file).properties["sasl.password"] == variable
    assert "geheim" not in str(vars_of(ClientSettings.parse(of_client)))
    changed = {"listener.name.x.ssl.keystore.location": variable, "listener.name.x.ssl.key.password": variable}
    found = DynamicSettings(node, SecretKeys()).after(MetadataImage(), changed)
    assert [found.explicit[name] for name in changed] == [variable, variable]


def vars_of(settings: ClientSettings) -> list[object]:
    return [getattr(settings, name) for name in settings.__dataclass_fields__]
