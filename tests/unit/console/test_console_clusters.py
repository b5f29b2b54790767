"""The file of clusters is parsed, and each error in it gets a line."""

from __future__ import annotations

from pathlib import Path

import pytest

from odradek.common.errors import ConfigError
from odradek.console.clusters import Right, read_clusters, single_cluster


def write(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "console.toml"
    path.write_text(text)
    return path


def test_rights_by_cluster(tmp_path: Path) -> None:
    (tmp_path / "private.properties").write_text("security.protocol=SASL_SSL\nsasl.jaas.config=secret\n")
    (tmp_path / "order.avsc").write_text('"long"')
    path = write(
        tmp_path,
        """
        [clusters.public]
        bootstrap = "one:9092,two:9092"
        [clusters.private]
        bootstrap = "three:9093"
        properties = "private.properties"
        see = ["alice", "bob"]
        read = ["alice"]
        change = ["alice", "carol"]
        avro = { orders = "order.avsc" }
        """,
    )
    clusters = read_clusters(path)
    assert list(clusters) == ["public", "private"]
    public, private = clusters.values()
    assert [public.allows("any", right) for right in Right] == [True, True, False]
    assert [private.allows("alice", right) for right in Right] == [True, True, True]
    assert [private.allows("bob", right) for right in Right] == [True, False, False]
    # A user who may not see a cluster may change nothing there.
    assert [private.allows("carol", right) for right in Right] == [False, False, False]
    assert (public.is_read_only, private.is_read_only) == (True, False)
    assert private.schemas == {"orders": '"long"'}
    assert private.properties["security.protocol"] == "SASL_SSL"
    assert "secret" not in repr(clusters)


def test_one_cluster_of_the_command_is_read_only() -> None:
    (cluster,) = single_cluster("here:9092", {}, may_change=False).values()
    assert [cluster.allows("", right) for right in Right] == [True, True, False]
    (cluster,) = single_cluster("here:9092", {}, may_change=True).values()
    assert cluster.allows("", Right.CHANGE)
    with pytest.raises(ConfigError, match="is not a host:port"):
        single_cluster("here:port", {}, may_change=False)


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("", "no cluster"),
        ("x = [", "this is no TOML"),
        ("y = 1\n[clusters.a]\nbootstrap='a:1'", "unknown: y"),
        ("[clusters.a]", "no host:port is given"),
        ("[clusters.a]\nbootstrap=3", "bootstrap is not a text"),
        ("[clusters.a]\nbootstrap='a:1'\nwrite=['x']", "unknown: write; there are avro, bootstrap, change"),
        ("[clusters.a]\nbootstrap='a:1'\nsee='x'", "see is a list of names"),
        ("[clusters.a]\nbootstrap='a:1'\nproperties='gone'", "properties gone: No such file"),
        ("[clusters.a]\nbootstrap='a:1'\nproperties=[1]", "properties is the name of a file"),
        ("[clusters.a]\nbootstrap='a:1'\n[clusters.a.avro]\nt='gone.avsc'", "avro t: gone.avsc"),
        ("[clusters.'a b']\nbootstrap='a:1'", "a name has letters"),
    ],
)
def test_a_wrong_file_gets_one_line(tmp_path: Path, text: str, line: str) -> None:
    with pytest.raises(ConfigError) as refused:
        read_clusters(write(tmp_path, text))
    assert line in str(refused.value)


def test_a_line_of_properties_that_is_wrong_is_not_printed(tmp_path: Path) -> None:
    (tmp_path / "bad.properties").write_text("password=hunter2\\u12\n")
    with pytest.raises(ConfigError) as refused:
        read_clusters(write(tmp_path, "[clusters.a]\nbootstrap='a:1'\nproperties='bad.properties'"))
    assert "hunter2" not in str(refused.value)
    with pytest.raises(ConfigError, match="name a file that can be read"):
        read_clusters(tmp_path / "gone.toml")
