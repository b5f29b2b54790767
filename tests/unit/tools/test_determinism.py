"""The check for what makes two runs of one seed differ: what it must find, and what it must let pass."""

from __future__ import annotations

from pathlib import Path

import pytest

from tools.determinism import findings

WRONG = [
    "import time",
    "import random",
    "from random import choice",
    "from uuid import uuid4",
    "import secrets",
    "import threading",
    "from concurrent.futures import ThreadPoolExecutor",
    "import os\nos.urandom(8)",
    "import asyncio\nasync def f(): await asyncio.to_thread(print)",
    "for each in {1, 2}: pass",
    "for each in set('ab'): pass",
    "seen = {each for each in 'ab'}\nfor each in seen: pass",
    "def f(names: set[str]) -> list[str]: return list(names)",
    "def f(names: frozenset[str] | None) -> str: return ','.join(names)",
    "def f(a: set[int], b: set[int]) -> None:\n    for each in a - b: pass",
    "def f(a: dict[int, int], b: dict[int, int]) -> None:\n    for each in a.keys() - b: pass",
    "class A:\n    def __init__(self) -> None: self.ids: set[int] = set()\n    def f(self) -> None: print(*self.ids)",
    "class A:\n    names: frozenset[str]\ndef f(a: A) -> dict[str, int]: return dict.fromkeys(a.names)",
    "def names() -> set[str]: return set()\nfor each in names(): pass",
    "def f(names: set[str]) -> str: return names.pop()",
    "def f(names: set[str]) -> list[str]: return [each for each in names]",
    "def f(names: set[str]) -> None:\n    first, second = names",
    "def f(names: set[str]) -> str: return max(names, key=len)",
    "def f(names: set[str]) -> list[str]: return sorted(g(list(names)) for each in 'a')",
    "import _thread",
    "from _thread import allocate_lock",
    "import _random",
    "hash('x')",
    "def f(name: str) -> int: return hash(name) % 8",
    "def f(loop): return loop.run_in_executor(None, print)",
    "import asyncio\nasyncio.get_running_loop().run_in_executor(None, print)",
    "import importlib\nimportlib.import_module('time')",
    "from importlib import import_module\nimport_module('random')",
    "__import__('threading')",
    "import datetime\ndatetime.date.today()",
    "from datetime import date\ndate.today()",
    "import datetime\ndatetime.datetime.now()",
    "from datetime import datetime\ndatetime.now()",
    "from datetime import datetime\ndatetime.today()",
    "import os\nos.getrandom(8)",
    "def f(names: dict[str, set[str]]) -> None:\n    for each in names['a']: pass",
    "def f(names: dict[str, set[str]]) -> list[str]: return list(names.get('a', set()))",
    "def f(names: dict[str, set[str]]) -> None:\n    for found in names.values():\n        for each in found: pass",
    "def f(names: dict[str, set[str]]) -> None:\n    for key, found in names.items():\n        print(*found)",
    "def f(a: dict[str, set[str]]) -> list[str]: return [each for found in a.values() for each in found]",
    "def f(names: dict[str, set[str]]) -> str: return names.setdefault('a', set()).pop()",
    "from collections import defaultdict\nnames = defaultdict(set)\nfor each in names['a']: pass",
    "names = {'a': {each for each in 'ab'}}\nfor each in names['a']: pass",
    "names = {key: {key} for key in 'ab'}\nfor each in names['a']: pass",
    "class A:\n    def __init__(self) -> None: self.a: dict[str, set[int]] = {}\n    def f(self): print(*self.a['a'])",
    "def names() -> dict[str, set[str]]: return {}\nfor each in names()['a']: pass",
    "def f(names: set[str]) -> str: return ','.join({each.lower() for each in names})",
    "def f(a: str) -> None:\n    found = {each for each in a} | {'b'}\n    for each in found: pass",
    "def f(a: str) -> list[str]: return [*{each for each in a}]",
    "def f(names: set[str]) -> None:\n    for each in names.copy(): pass",
]
RIGHT = [
    "from random import Random",
    "from uuid import UUID",
    "for each in sorted({1, 2}): pass",
    "def f(names: set[str]) -> list[str]: return sorted(names)",
    "def f(names: set[str]) -> bool: return 'a' in names and any(len(each) > 3 for each in names)",
    "def f(names: set[str]) -> set[str]: return {each.lower() for each in names}",
    "def f(names: set[str]) -> list[str]: return sorted(each.lower() for each in names)",
    "def f(names: set[str], more: dict[str, int]) -> bool: return names.isdisjoint(each for each in more)",
    "def f(names: list[str]) -> str: return names.pop()",
    "def f(names: dict[str, None]) -> list[str]: return list(names)",
    "def f(names: set[str]) -> str: return max(names)",
    "class A:\n    def __hash__(self) -> int: return hash(self.name)",
    "import importlib\nimportlib.import_module('odradek.log')",
    "from datetime import datetime\ndatetime.fromtimestamp(0)",
    "def f(names: dict[str, set[str]]) -> None:\n    for each in names: pass",
    "def f(names: dict[str, set[str]]) -> None:\n    for found in names.values(): found.add('a')",
    "def f(names: dict[str, set[str]]) -> list[str]: return sorted(names['a'])",
    "def f(names: dict[str, list[str]]) -> None:\n    for each in names['a']: pass",
    "def f(a: dict[str, set[str]]) -> None:\n    for key, found in a.items():\n        for each in sorted(found): pass",
]


def found_in(tmp_path: Path, source: str) -> list[str]:
    path = tmp_path / "sample.py"
    path.write_text(source + "\n")
    return [text for _, _, text in findings([path])]


@pytest.mark.parametrize("source", WRONG)
def test_what_makes_runs_differ_is_found(tmp_path: Path, source: str) -> None:
    assert found_in(tmp_path, source)


@pytest.mark.parametrize("source", RIGHT)
def test_what_does_not_is_let_pass(tmp_path: Path, source: str) -> None:
    assert not found_in(tmp_path, source)


def test_a_name_that_another_class_gives_to_a_list_is_not_taken_for_a_set(tmp_path: Path) -> None:
    source = "class A:\n    names: set[str]\nclass B:\n    names: list[str]\ndef f(b: B) -> None:\n    print(*b.names)"
    assert not found_in(tmp_path, source)
