"""The identity of a batch among others of its number, by Spark's checkpoint."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest

from pyspark_odradek.micro_batch import checkpoint, staging
from pyspark_odradek.micro_batch.checkpoint import plan_of, planned_ms
from pyspark_odradek.micro_batch.staging import open_place


@pytest.fixture(autouse=True)
def fresh() -> None:
    checkpoint._FAILED.clear()


def test_a_plan_is_the_batchs_own_and_stays(tmp_path: Path) -> None:
    (tmp_path / "offsets").mkdir()
    for number, text in enumerate(("v1\n{}\n1", "v1\n{}\n2")):
        (tmp_path / "offsets" / str(number)).write_text(text)
    first, second = plan_of(str(tmp_path), 0), plan_of(str(tmp_path), 1)
    assert first and second and first != second
    assert plan_of(f"file://{tmp_path}", 0) == first


@pytest.mark.parametrize("place", ["", "/no/such/place", "nowhere://x", "dbfs:/x"])
def test_a_checkpoint_that_cannot_be_read_has_no_plans(place: str, caplog: pytest.LogCaptureFixture) -> None:
    assert [plan_of(place, number) for number in range(5)] == [""] * 5
    lines = [record.getMessage() for record in caplog.records if record.levelno == logging.WARNING]
    assert len(lines) == bool(place) and all(f"the checkpoint {place} cannot be read here" in each for each in lines)
    assert not any("stagingLocation" in each for each in lines)


def test_a_failure_that_passes_leaves_the_next_batches_known(tmp_path: Path) -> None:
    offsets = tmp_path / "offsets"
    for last in (2, 5):
        assert [plan_of(str(tmp_path), number) for number in range(last - 2, last)] == ["", ""]
        offsets.mkdir(exist_ok=True)
        (offsets / str(last)).write_text("v1\n{}\n1")
        assert plan_of(str(tmp_path), last)


def test_one_that_is_not_to_be_had_is_asked_no_more(tmp_path: Path) -> None:
    for number in range(checkpoint.TRIES):
        assert plan_of(str(tmp_path), number) == ""
    (tmp_path / "offsets").mkdir()
    (tmp_path / "offsets" / "9").write_text("v1\n{}\n1")
    assert plan_of(str(tmp_path), 9) == ""


def test_a_store_has_one_client_in_a_process(monkeypatch: pytest.MonkeyPatch) -> None:
    """A client costs a connection or more; a fork does not use its parent's."""
    monkeypatch.setattr(staging, "_OPEN", {})
    place = "s3://bucket/checkpoint?region=eu-central-1&endpoint_override=127.0.0.1:1"
    system, path = open_place(place)
    assert path == "bucket/checkpoint" and open_place(place)[0] is system
    monkeypatch.setattr("os.getpid", lambda: -1)
    assert open_place(place)[0] is not system


def write_offsets(root: Path, number: int, text: str) -> None:
    (root / "offsets").mkdir(exist_ok=True)
    (root / "offsets" / str(number)).write_text(text)


def test_a_plan_is_the_same_in_every_version_since_markers_keep_it(tmp_path: Path) -> None:
    write_offsets(tmp_path, 3, "v1\n{}\n1")
    assert plan_of(str(tmp_path), 3) == "b4a7ef4b292ca61b"


def test_failures_count_that_come_one_after_the_other(tmp_path: Path) -> None:
    for _ in range(3):
        for number in range(1, checkpoint.TRIES):
            assert plan_of(str(tmp_path), number) == ""
        write_offsets(tmp_path, 0, "v1")
        assert plan_of(str(tmp_path), 0)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ('v1\n{"batchTimestampMs": 1700000000123, "conf": {}}\n{"t": {"0": 1}}', 1_700_000_000_123),
        ('v1\n{"batchTimestampMs": "17"}\n1', 17),
        ("v1", None),
        ("v1\nno json\n1", None),
        ("v1\n{}\n1", None),
        ('v1\n{"batchTimestampMs": null}\n1', None),
        ("v1\n[]\n1", None),
    ],
)
def test_when_a_batch_was_planned_stands_in_its_second_line(tmp_path: Path, text: str, expected: int | None) -> None:
    write_offsets(tmp_path, 3, text)
    assert planned_ms(str(tmp_path), 3) == expected
    assert planned_ms(str(tmp_path), 4) is None


def test_an_unreadable_checkpoint_has_no_planning_times(tmp_path: Path) -> None:
    write_offsets(tmp_path, 3, '{}\n{"batchTimestampMs": 5}')
    assert planned_ms("", 3) is None
    assert planned_ms(str(tmp_path), 3) == 5
    assert plan_of(str(tmp_path), 4) == ""
    assert planned_ms(str(tmp_path), 3) is None
    assert plan_of(str(tmp_path), 3)
    assert planned_ms(str(tmp_path), 3) == 5
