"""The tool behind `make mutants`: the changes that it makes, the code that it leaves alone, and tests that notice."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from tests.mutants.changes import changes, mutant
from tests.mutants.marks import with_marks
from tests.mutants.rooms import ROOMS, Room
from tests.mutants.runs import Clean, RunError, clean_run, verdict_of
from tests.mutants.samples import equivalents, of_line, places, sample, stale_equivalents, unentered
from tests.mutants.simulated import Boxes, boxes, unseen, verdict_of_worlds

SUMS = '''"""Sums."""

def clipped(value: int) -> int:
    if value > 10:
        return 10
    return value

def doubled(value: int) -> int:
    return value * 2

def unused(value: int) -> int:
    return value + 1
'''
TESTS = """
import subprocess, sys
from sums import clipped

def test_clipped():
    assert clipped(20) == 10 and clipped(3) == 3

def test_in_another_process():
    from sums import doubled
    doubled(1)
    said = subprocess.run([sys.executable, "-c", "import sums; print(sums.doubled(7))"], capture_output=True, text=True)
    assert said.stdout == "14\\n"
"""


def texts(source: str) -> list[str]:
    made = [mutant(source, number) for number in range(len(changes(ast.parse(source))))]
    return [f"{each.before} -> {each.after}" for each in made]


def test_the_mutants_of_a_function() -> None:
    source = """
def f(self, a, b=3):
    if a < b and not a:
        self.x = a + 1
    while self.g():
        log.append(min(a, b))
        a -= 100 * 1000
    return [c for c in a if c.ok]
"""
    assert texts(source) == [
        "3 -> 4",
        "a < b and (not a) -> not (a < b and (not a))",
        "a < b and (not a) -> a < b or not a",
        "a < b -> a <= b",
        "not a -> a",
        "self.x = a + 1 -> pass",
        "a + 1 -> a - 1",
        "a + 1 -> a + 2",
        "self.g() -> not self.g()",
        "log.append(min(a, b)) -> pass",
        "min(a, b) -> max(a, b)",
        "a -= 100 * 1000 -> pass",
        "a -= 100 * 1000 -> a += 100 * 1000",
        "100 * 1000 -> 100 // 1000",
        "100 * 1000 -> 200 * 1000",
        "return [c for c in a if c.ok] -> return None",
        "c.ok -> not c.ok",
    ]


def test_code_without_mutants() -> None:
    source = '''
"""A text."""
from typing import TYPE_CHECKING, Literal
if TYPE_CHECKING:
    import 1 > 2
@dataclass(frozen=True)
class A(Protocol[int]):
    x: int = 3
class B:
    """Another."""
    x: Literal[1] | None
    def __init__(self, x):
        self.x = x
    @cached(1)
    def f(self, y: Literal[2]) -> Literal[3]:
        """A third."""
        assert y > 1, f"{y + 1}"
        LOG.warning("%d", y + 1)
        self._logger.debug("%d", y + 1)
        await buggify("a point")
        while time.monotonic() < y:
            z = "a" + f"{y + 1}"
        return None
    def __repr__(self):
        return self.x + 1
    def g(self):
        for each in self.all:
            try:
                yield each
            except OSError:
                continue
        with self.x:
            return
'''.replace("import 1 > 2", "pass")
    assert texts(source) == []


def test_a_module_with_marks_notes_which_statements_run() -> None:
    source = """
'Text.'
from __future__ import annotations
def f(a):
    'Text.'
    if a:
        return 1
    return 2
"""
    names: dict[str, object] = {"__name__": "of_marks"}
    exec(compile(with_marks(source), "<marks>", "exec"), names)
    marks = names["__marks__"]
    assert isinstance(marks, bytearray)
    function = names["f"]
    assert callable(function) and function.__doc__ == names["__doc__"] == "Text."
    assert function(0) == 2 and list(marks) == [0, 1, 0]
    assert function(1) == 1 and list(marks) == [0, 1, 1]


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Clean]:
    folder = tmp_path_factory.mktemp("small")
    (folder / "sums.py").write_text(SUMS)
    (folder / "test_sums.py").write_text(TESTS)
    return folder, clean_run([("sums", folder / "sums.py")], ["test_sums.py"], root=folder)


def outcome(small: tuple[Path, Clean], change: str) -> tuple[str, str]:
    folder, clean = small
    verdict = verdict_of(clean, "sums", folder / "sums.py", mutant(SUMS, texts(SUMS).index(change)), root=folder)
    return verdict.outcome, verdict.by


def test_a_change_that_a_test_looks_at_is_killed(small: tuple[Path, Clean]) -> None:
    assert outcome(small, "return value -> return None") == ("killed", "test_sums.py::test_clipped")


def test_a_change_that_no_test_looks_at_survives(small: tuple[Path, Clean]) -> None:
    assert outcome(small, "value > 10 -> value >= 10") == ("survived", "")


def test_a_change_is_in_processes_that_a_test_starts(small: tuple[Path, Clean]) -> None:
    assert outcome(small, "value * 2 -> value // 2") == ("killed", "test_sums.py::test_in_another_process")


def test_a_change_that_no_test_enters_is_not_run(small: tuple[Path, Clean]) -> None:
    assert outcome(small, "value + 1 -> value - 1") == ("no test", "")
    assert (small[0] / "sums.py").read_text() == SUMS


def test_statements_that_no_test_enters_are_listed_if_they_can_be_changed() -> None:
    space = Room(("odradek/raft/space.py",), ())
    found = unentered(space, Clean({"a test": 1.0}, {}, set()))
    functions = {each.function for each in found}
    assert "Space.watch" in functions and "" not in functions, "what runs on import is entered"
    assert not any(each.startswith("Host.") for each in functions), "a protocol only declares"
    blocks = {change.block for change in changes(ast.parse(next(space.sources())[1].read_text()))}
    entered = {("odradek.raft.space", block): {"a test"} for block in blocks}
    assert unentered(space, Clean({"a test": 1.0}, entered, set())) == []


@pytest.mark.slow  # the tests above are the short form, of a module of their own
def test_a_module_of_the_product_is_changed() -> None:
    room = ROOMS["record"]
    clean = clean_run(list(room.sources()), ["tests/unit/record/test_recompression.py"])
    drawn = of_line("record", "record/compression.py")
    unpacks = [each for each in drawn if each[1].function == "unpack" and each[1].after == "return None"]
    place, made = unpacks[-1]
    assert verdict_of(clean, place.module, place.path, made).outcome == "killed"


def test_tests_that_fail_by_themselves_give_no_verdict(tmp_path: Path) -> None:
    (tmp_path / "test_it.py").write_text("def test_it():\n    assert False\n")
    with pytest.raises(RunError, match="without a mutant"):
        clean_run([], ["test_it.py"], root=tmp_path)


def test_a_seed_draws_the_same_sample_each_time() -> None:
    first, again, other = (
        [(place.path, place.number) for place, _ in sample("record", 20, seed)] for seed in (1, 1, 2)
    )
    assert first == again != other and len(set(first)) == 20


@pytest.mark.parametrize("name", ROOMS)
def test_a_room_has_modules_and_tests(name: str) -> None:
    room = ROOMS[name]
    assert len(places(room)) > 400
    assert room.arguments() and not any(each.endswith(("_bugs.py", "_planted.py")) for each in room.arguments())


@pytest.mark.slow  # makes the mutants of all modules that the list names
def test_every_equivalent_mutant_exists() -> None:
    assert stale_equivalents(equivalents()) == set()


def test_a_list_may_name_the_line_of_a_change() -> None:
    """The line is needed if a function has the same change twice, or if the change is a single word."""
    (found,) = [each for each in of_line("replica", "replica/isolation.py") if each[1].before == "return"]
    bare, with_line = sorted(found[0].keys(found[1]))
    assert bare == "src/odradek/replica/isolation.py: Isolation.update: return -> pass"
    assert with_line == bare + " @ if not silent and not self.topics: return"
    assert stale_equivalents({bare, with_line}) == set()
    twice = "src/odradek/log/epoch_cache.py: EpochCache.assign: -1 -> -2"
    assert stale_equivalents({twice, bare + " @ return"}) == {twice, bare + " @ return"}


def test_every_change_that_no_client_can_see_exists() -> None:
    assert stale_equivalents(unseen()) == set()
    assert not unseen() & equivalents()


@pytest.mark.slow  # runs a world twice
def test_a_world_notices_what_its_clients_see() -> None:
    """A transaction does not begin with its first batch, and other batches begin one."""
    clean = boxes("log", 1, worlds=("transactions",))
    assert list(clean.seconds) == ["transactions 1"]
    drawn = of_line("log", "log/producer_state.py")
    seen = next(each for each in drawn if each[1].after.startswith("not (header.is_transactional and"))
    verdict = verdict_of_worlds(clean, *seen)
    assert verdict.noticed and verdict.by.startswith("transactions 1: ")


def test_mutants_that_no_world_reaches_are_not_run() -> None:
    place, made = next(each for each in of_line("log", "log/producer_state.py") if each[1].block)
    assert verdict_of_worlds(Boxes({"transactions 1": 1.0}, {}), place, made).outcome == "no world"
