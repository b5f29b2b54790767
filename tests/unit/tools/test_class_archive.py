"""Class archives of the JVMs in tests: made once for a Java and a class path, never waited for, and never needed."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.nodes.class_archive import archives, fingerprint, read_options, write_options


def write_one(folder: Path) -> None:
    (folder / "tools.jsa").write_bytes(b"classes")


def test_an_archive_is_made_once_for_each_name(tmp_path: Path) -> None:
    made: list[Path] = []

    def make(folder: Path) -> None:
        made.append(folder)
        write_one(folder)

    first = archives(tmp_path, "first", make)
    assert first is not None and archives(tmp_path, "first", make) == first
    assert len(made) == 1 and not made[0].exists(), "it is moved into its place when it is whole"
    assert read_options(first / "tools.jsa")[-1] == f"-XX:SharedArchiveFile={first / 'tools.jsa'}"
    second = archives(tmp_path, "second", make)
    assert second is not None and second.exists() and not first.exists()


def test_others_go_without_while_one_is_made(tmp_path: Path) -> None:
    meanwhile: list[Path | None] = []

    def make(folder: Path) -> None:
        write_one(folder)
        meanwhile.append(archives(tmp_path, "name", make))

    assert archives(tmp_path, "name", make) is not None
    assert meanwhile == [None]
    assert read_options(None) == ()


def test_a_failure_leaves_its_reason(tmp_path: Path) -> None:
    tries: list[Path] = []

    def make(folder: Path) -> None:
        tries.append(folder)
        write_one(folder)
        raise AssertionError("the broker did not start")

    folder = archives(tmp_path, "name", make)
    assert folder is not None and archives(tmp_path, "name", make) == folder
    assert len(tries) == 1
    assert "did not start" in (folder / "why-not.txt").read_text()
    assert read_options(folder / "tools.jsa") == ()


def test_an_interrupted_archive_is_made_again(tmp_path: Path) -> None:
    def interrupted(folder: Path) -> None:
        write_one(folder)
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        archives(tmp_path, "name", interrupted)
    folder = archives(tmp_path, "name", write_one)
    assert folder is not None and (folder / "tools.jsa").exists()
    assert [path.name for path in tmp_path.glob("classes-*")] == ["classes-name"]


def test_another_java_or_class_path_is_another_name(tmp_path: Path) -> None:
    java = tmp_path / "java" / "bin" / "java"
    java.parent.mkdir(parents=True)
    java.touch()
    jar = tmp_path / "one.jar"
    jar.write_bytes(b"one")
    names = [fingerprint(java, [jar])]
    assert fingerprint(java, [jar]) == names[0]
    names.append(fingerprint(java, [jar], "another program"))
    jar.write_bytes(b"another")
    names.append(fingerprint(java, [jar]))
    (tmp_path / "java" / "release").write_text("JAVA_VERSION=1")
    names.append(fingerprint(java, [jar]))
    names.append(fingerprint(java, []))
    assert len(set(names)) == len(names)


def test_a_jvm_with_an_archive_prints_nothing_about_it(tmp_path: Path) -> None:
    write_one(tmp_path)
    for options in (write_options(tmp_path / "new.jsa"), read_options(tmp_path / "tools.jsa")):
        assert "-Xlog:disable" in options
