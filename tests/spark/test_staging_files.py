"""Files that tasks leave for the driver: written, found, read and removed, and the errors if that fails."""

from __future__ import annotations

import os
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from pyspark_odradek.errors import OptionError, StagingError
from pyspark_odradek.micro_batch.staging import StagedFile, Staging, StagingFile, open_place


def test_the_driver_reads_the_files_of_tasks(tmp_path: Path) -> None:
    staging = Staging(str(tmp_path))
    first, second = (staging.create("run/7", "part-0") for _ in range(2))
    first.write([b"abc", b"", b"de"])
    first.write([b"f"])
    second.write([])
    staged = first.close()
    assert staged.size_bytes == 6 and second.close().size_bytes == 0
    with staging.open(staged) as stream:
        assert stream.read() == b"abcdef"
    names = sorted(path.name for path in (tmp_path / "run" / "7").iterdir())
    assert len(names) == 2, "two tries of a task have two files"
    assert all(name.startswith("part-0-") and len(name) == len("part-0-") + 12 for name in names)


def test_folders_are_listed_and_removed(tmp_path: Path) -> None:
    staging = Staging(f"file://{tmp_path}")
    assert staging.folders("run") == []
    for folder in ("run/b", "run/a"):
        staging.create(folder, "x").close()
    (tmp_path / "run" / "file").write_text("no folder")
    assert staging.folders("run") == ["a", "b"]
    staging.remove("run/a")
    staging.remove("run/none")
    staging.remove("run/file")
    assert staging.folders("run") == ["b"]
    assert (tmp_path / "run" / "file").exists()


def test_a_file_that_is_not_wanted_is_gone(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    file = Staging(str(tmp_path)).create("run", "x")
    file.write([b"abc"])
    file.discard()
    assert list((tmp_path / "run").iterdir()) == []
    assert not caplog.records


class FullStream:
    """A stream on a disk without space."""

    def __init__(self, *, at_close: bool) -> None:
        self._at_close = at_close

    def write(self, piece: bytes) -> None:
        if not self._at_close:
            raise OSError(28, "No space left on device")

    def close(self) -> None:
        if self._at_close:
            raise OSError(28, "No space left on device")


@pytest.mark.parametrize("at_close", [False, True])
def test_a_task_without_space_says_what_to_do(at_close: bool) -> None:
    file = StagingFile("/place", None, "/place/run/x", FullStream(at_close=at_close))
    with pytest.raises(StagingError, match=r"cannot stage its records in /place: .*No space.*Make room there"):
        file.write([b"a"])
        file.close()


def test_a_failed_removal_is_logged_and_no_error(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    system, _ = open_place(str(tmp_path))
    path = tmp_path / "x"
    path.write_text("abc")
    StagingFile(str(tmp_path), system, str(path), FullStream(at_close=True)).discard()
    assert not path.exists(), "the failed end does not keep it"
    assert [f"{path} could not be removed" in each.getMessage() for each in caplog.records] == [True]


def test_places_that_cannot_be_written_or_read(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("no folder")
    with pytest.raises(StagingError, match="cannot stage its records"):
        Staging(str(tmp_path / "file")).create("run", "x")
    with pytest.raises(StagingError, match=r"what a task staged in .*/gone cannot be read: .*stagingLocation must"):
        Staging(str(tmp_path)).open(StagedFile(str(tmp_path / "gone"), 3))
    for option in ("stagingLocation", "checkpointLocation"):
        with pytest.raises(OptionError, match=f"{option}=nowhere://x: "):
            open_place("nowhere://x", option)
    with pytest.raises(OptionError, match="stagingLocation=nowhere://x"):
        Staging("nowhere://x")


@pytest.mark.parametrize(
    ("place", "path"), [("/a/b", "/a/b"), ("file:/a/b", "/a/b"), ("file:///a/b", "/a/b"), ("/a/../b", "/b")]
)
def test_local_places(place: str, path: str) -> None:
    system: Any
    system, found = open_place(place)
    assert (type(system).__name__, found) == ("LocalFileSystem", path)


def test_staged_files_of_a_decided_batch_are_on_the_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    flushed: list[str] = []
    monkeypatch.setattr(os, "fsync", lambda descriptor: flushed.append(os.readlink(f"/proc/self/fd/{descriptor}")))
    file = Staging(str(tmp_path)).create("query/run/7", "x")
    file.write([b"abc"])
    staged = file.close(durable=True)
    folders = [str(tmp_path / name) for name in ("query/run/7", "query/run", "query", "")]
    assert flushed == [staged.path, *folders], "each may be new in the one above it"
    still_open = [link for each in Path("/proc/self/fd").iterdir() if (link := os.path.realpath(each))]
    assert not [link for link in still_open if link.startswith(str(tmp_path))]


def test_files_that_the_driver_writes_are_not_flushed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A batch whose commit did not happen is staged again; and a store that is not this machine's has no files here."""
    flushed: list[int] = []
    monkeypatch.setattr(os, "fsync", flushed.append)
    Staging(str(tmp_path)).create("run", "x").close()
    elsewhere = SimpleNamespace(type_name="s3")
    staged = StagingFile("s3://bucket", elsewhere, "bucket/run/x", FullStream(at_close=False)).close(durable=True)
    assert staged == ("bucket/run/x", 0) and not flushed
