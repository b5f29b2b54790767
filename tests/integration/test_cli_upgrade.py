"""`odradek cluster upgrade` raises the levels of features of a running cluster, and never lowers one."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.support.clients.cli import odradek
from tests.support.nodes.node import free_port
from tests.support.nodes.quorum_processes import QuorumProcess
from tests.support.waiting import eventually


@pytest.fixture(scope="module")
def bootstrap(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A node that was formatted by an older release."""
    port, voting = free_port(), free_port()
    properties: dict[str, object] = {
        "listeners": f"PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{voting}",
        "controller.quorum.bootstrap.servers": f"127.0.0.1:{voting}",
    }
    node = QuorumProcess(tmp_path_factory.mktemp("upgrade"), 1, "broker,controller", properties, port)
    with node.format("--standalone", "--release-version", "4.0"):
        yield f"127.0.0.1:{port}"


def levels(bootstrap: str) -> dict[str, int]:
    found = odradek(bootstrap, "cluster", "features", "--json").json["features"]
    return {each["feature"]: each["level"] for each in found}


@pytest.mark.parametrize(
    ("arguments", "code", "line"),
    [
        ((), 2, "name a --release, or a --feature or more"),
        (("--release", "4.3", "--feature", "group.version=1"), 2, "name a --release, or a --feature or more"),
        (("--release", "9.9", "--yes"), 2, "--release: unknown metadata.version 9.9: known are "),
        (("--feature", "metadata.version", "--yes"), 2, "give NAME=LEVEL, such as metadata.version=30"),
        (("--feature", "metadata.version=99999", "--yes"), 2, "give NAME=LEVEL, such as metadata.version=30"),
        (("--release", "4.3"), 2, "metadata.version from 25 to 30"),
        (("--feature", "share.version=1", "--yes"), 1, "Invalid update version 1 for feature share.version"),
        (("--feature", "metadata.version=24", "--yes"), 1, "metadata.version"),
    ],
)
def test_a_bad_upgrade_gets_a_line_and_changes_nothing(
    bootstrap: str, arguments: tuple[str, ...], code: int, line: str
) -> None:
    before = levels(bootstrap)
    refused = odradek(bootstrap, "cluster", "upgrade", *arguments, code=code)
    assert line in refused.err and refused.err.count("\n") == 1
    assert levels(bootstrap) == before


def test_a_release_raises_the_features_that_it_has_and_lowers_none(bootstrap: str) -> None:
    assert levels(bootstrap)["metadata.version"] == 25
    raised = odradek(bootstrap, "cluster", "upgrade", "--release", "4.3", "--yes").out
    assert "metadata.version from 25 to 30" in raised and "eligible.leader.replicas.version from 0 to 1" in raised
    eventually(lambda: levels(bootstrap)["metadata.version"] == 30)
    assert levels(bootstrap)["eligible.leader.replicas.version"] == 1
    for release in ("4.3", "4.1"):
        again = odradek(bootstrap, "cluster", "upgrade", "--release", release, "--yes").out
        assert again == f"All features are at the levels of {release} already.\n"
    assert levels(bootstrap)["metadata.version"] == 30
    assert odradek(bootstrap, "cluster", "upgrade", "--feature", "metadata.version=30", "--yes", "--json").json == [
        {"feature": "metadata.version", "before": 30, "level": 30}
    ]
