"""The check for code that makes two runs of one seed differ: code that it must find, and code that it must accept."""

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
    "import asyncio\nasync def f():\n    async with asyncio.TaskGroup() as tasks: tasks.create_task(g())",
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
    "def f(random): return random.expovariate(2.0)",
    "def f(random): return random.gauss(0.0, 1.0)",
    "import math\nmath.log(2.0)",
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
    "NAMES = {'a', 'b'}\ndef f() -> list[str]: return list(NAMES)",
    "NAMES = frozenset('ab')\nclass A:\n    def f(self) -> str: return ','.join(NAMES)",
    "from typing import Final\nNAMES: Final = frozenset('ab')\ndef f() -> list[str]: return list(NAMES)",
    "SEEN = set()\ndef f() -> None:\n    global SEEN\n    print(*SEEN)\n    SEEN = g()",
    "def f(names: set[str]) -> None:\n    def g() -> list[str]: return list(names)",
    "def f(a: str) -> None:\n    found = set(a)\n    print(lambda: list(found))",
    "class A:\n    names = {'a', 'b'}\n    def f(self) -> list[str]: return list(self.names)",
    "from typing import ClassVar\nclass A:\n    a: ClassVar[set[str]] = set()\ndef f() -> list[str]: return list(A.a)",
    "import asyncio\nasync def f(a):\n    done, rest = await asyncio.wait(a)\n    for each in rest: each.cancel()",
    "import asyncio\nasync def f(a): return list((await asyncio.wait(a))[0])",
    "import asyncio\nasync def f(a):\n    done, _ = await asyncio.wait(a)\n    return done.pop()",
    "from weakref import WeakSet\nseen = WeakSet()\nfor each in seen: pass",
    "import weakref\nclass A:\n    def __init__(self): self.a = weakref.WeakSet()\n    def f(self): print(*self.a)",
    "def f(seen: WeakSet[str]) -> list[str]: return list(seen)",
    "def f(a: list[object]) -> list[object]: return sorted(a, key=id)",
    "def f(a: list[object]) -> None: a.sort(key=lambda each: id(each))",
    "def f(a: list[str]) -> str: return min(a, key=hash)",
    "import numpy\nnumpy.random.rand()",
    "import numpy as np\nnp.random.default_rng()",
    "import numpy.random",
    "from numpy import random",
    "from numpy.random import default_rng",
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
    "NAMES = {'a', 'b'}\ndef f() -> list[str]: return sorted(NAMES)",
    "names = {'a', 'b'}\ndef f(names) -> list[str]: return list(names)",
    "names = {'a', 'b'}\ndef f() -> None:\n    names = ['a']\n    print(*names)",
    "names = {'a', 'b'}\nf = lambda names: list(names)",
    "names = ['a']\nclass A:\n    names = {'a'}\n    def f(self) -> list[str]: return list(names)",
    "import asyncio\nasync def f(a):\n    done, _ = await asyncio.wait(a)\n    return [b for b in a if b in done]",
    "def f(a: list[str]) -> list[str]: return sorted(a, key=lambda each: each.id)",
    "import numpy\nnumpy.zeros(3)",
]


def found_in(tmp_path: Path, source: str) -> list[str]:
    path = tmp_path / "sample.py"
    path.write_text(source + "\n")
    return [text for _, _, text in findings([path])]


@pytest.mark.parametrize("source", WRONG)
def test_nondeterministic_code_is_found(tmp_path: Path, source: str) -> None:
    assert found_in(tmp_path, source)


@pytest.mark.parametrize("source", RIGHT)
def test_deterministic_code_passes(tmp_path: Path, source: str) -> None:
    assert not found_in(tmp_path, source)


def test_a_set_is_known_where_its_name_is_imported(tmp_path: Path) -> None:
    (tmp_path / "one.py").write_text("NAMES = frozenset('ab')\n")
    (tmp_path / "two.py").write_text("from one import NAMES as SOME\ndef f() -> list[str]: return list(SOME)\n")
    found = list(findings(sorted(tmp_path.iterdir())))
    assert found == [(tmp_path / "two.py", 2, "walks over the set SOME")]


@pytest.mark.slow
def test_a_name_that_another_class_gives_to_a_list_is_not_taken_for_a_set(tmp_path: Path) -> None:
    source = "class A:\n    names: set[str]\nclass B:\n    names: list[str]\ndef f(b: B) -> None:\n    print(*b.names)"
    assert not found_in(tmp_path, source)
