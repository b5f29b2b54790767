"""The last lines of a program that ends by an error of ours."""

from __future__ import annotations

import sys

import pytest

from pyspark_odradek.last_words import is_fenced, print_at_the_end, reason

SPARKS = """[STREAM_FAILED] Query [id = 1] terminated with exception: Traceback (most recent call last):
  File "readers.py", line 137, in initialOffset
pyspark_odradek.errors.ClusterError: no such topic: words. Create it, or correct the option subscribe or assign.
 SQLSTATE: 38000
=== Streaming Query ===
Logical Plan:
+- StreamingDataSourceV2ScanRelation[key#0, value#1] odradek"""
OURS = "no such topic: words. Create it, or correct the option subscribe or assign."


def test_the_sentence_stands_behind_the_trace(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "excepthook", sys.__excepthook__)
    print_at_the_end()
    print_at_the_end()
    sys.excepthook(RuntimeError, RuntimeError(SPARKS), None)
    printed = capsys.readouterr().err
    assert printed.endswith(f"odradek\n\nodradek: {OURS}\n") and printed.count(f"odradek: {OURS}") == 1
    sys.excepthook(ValueError, ValueError("of somebody else"), None)
    assert capsys.readouterr().err == "ValueError: of somebody else\n"


def test_an_error_of_somebody_else_has_no_reason_of_ours() -> None:
    assert reason(RuntimeError(SPARKS)) == OURS
    assert reason(ValueError("x")) is None
    assert reason(None) is None


def test_a_fenced_driver_is_known_by_its_error() -> None:
    assert is_fenced(RuntimeError(SPARKS.replace("ClusterError", "FencedError")))
    assert not is_fenced(RuntimeError(SPARKS.replace("ClusterError", "AttemptFencedError")))
    assert not is_fenced(RuntimeError(SPARKS)) and not is_fenced(None)
