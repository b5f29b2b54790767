"""`odradek lab`: scenes come out as expected, and one that does not says so."""

from __future__ import annotations

import json

import pytest

from odradek.cli import app, errors
from odradek.cli.lab.scenes import SCENES
from odradek.cli.lab.workbench import Workbench


def test_a_scene_is_as_expected_and_differences_are_reported(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A second scene has a wrong expectation, as if there was a bug."""

    def wrong(bench: Workbench) -> None:
        """Brokers count to two."""
        bench.record("three brokers run", "2", str(len(bench.cluster.brokers)))

    monkeypatch.setitem(SCENES, "wrong", wrong)
    assert app.run(["lab", "--only", "in-sync-set", "--only", "wrong", "--json"]) == errors.FAILED
    found = json.loads(capsys.readouterr().out)
    assert not found["right"] and [each["right"] for each in found["scenes"]] == [True, False]
    right, differs = (each["steps"] for each in found["scenes"])
    assert {"did": "broker 3 is killed (kill -9)", "expected": "1, 2", "seen": "1, 2", "right": True} in right
    assert differs == [{"did": "three brokers run", "expected": "2", "seen": "3", "right": False}]


@pytest.mark.slow
def test_all_scenes_are_as_expected(capsys: pytest.CaptureFixture[str]) -> None:
    assert app.run(["lab"]) == errors.OK
    shown = capsys.readouterr().out
    assert f"All {len(SCENES)} scenes were as expected." in shown and "DIFFERENT" not in shown


def test_an_unknown_scene(capsys: pytest.CaptureFixture[str]) -> None:
    assert app.run(["lab", "--only", "nonsense"]) == errors.USAGE
    assert "the scenes are three-consumers, " in capsys.readouterr().err
