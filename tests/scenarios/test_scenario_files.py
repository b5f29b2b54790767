"""Every scenario file prints its expected output."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.scenarios.script import ScriptError, Words, parse, play, render
from tests.scenarios.words_controller import ControllerWords
from tests.scenarios.words_group import GroupWords
from tests.scenarios.words_isr import IsrWords
from tests.scenarios.words_raft import RaftWords
from tests.scenarios.words_txn import TxnWords

FOLDER = Path(__file__).parent
WORDS: dict[str, Callable[[], Words]] = {
    "raft": RaftWords,
    "isr": IsrWords,
    "controller": ControllerWords,
    "group": GroupWords,
    "txn": TxnWords,
}
FILES = sorted(FOLDER.glob("*.txt"))
HINT = "If this is what it should be: .venv/bin/python -m tests.scenarios --rewrite, and look at the difference"


def words_of(path: Path) -> Callable[[], Words]:
    return WORDS[path.name.partition("_")[0]]


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_a_scenario(path: Path) -> None:
    text, wrong = play(path.read_text(), words_of(path))
    assert not wrong, "\n".join([*wrong, HINT])
    assert text == path.read_text(), "the file is not as it would be written"


def test_each_decider_has_scenarios() -> None:
    assert {path.name.partition("_")[0] for path in FILES} == set(WORDS)


def test_a_wrong_expectation_is_reported_and_rewritten() -> None:
    text = "leader end=5 hw=3 isr=1\n----\nhw=4 end=5\n"
    corrected, wrong = play(text, IsrWords)
    assert len(wrong) == 1 and "hw=4" in wrong[0]
    assert corrected == text.replace("hw=4", "hw=5")


def test_a_command_that_makes_no_sense_is_reported_with_its_line() -> None:
    for text in ("# x\nfly 1\n----\nok\n", "fetch 9 offset=1\n----\nok\n", "leader end=1\n----\nok\n"):
        with pytest.raises(ScriptError, match="line "):
            play(text, IsrWords)
    with pytest.raises(ScriptError, match="not followed"):
        play("append 1\nok\n", IsrWords)


def test_a_file_is_written_as_it_was_read() -> None:
    for path in FILES:
        assert render(*parse(path.read_text())) == path.read_text()
