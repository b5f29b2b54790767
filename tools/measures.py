"""Counts for a reviewer: `python -m tools.measures [--tree OTHER_CHECKOUT]` prints one table, a column for each tree.

Lines and functions of the product, functions above a cyclomatic complexity of 10 (with `and`, `or`, `if` in expressions
and comprehensions; without, as ruff's C901 counts), comments, assertions, lines with
`Any`, lines with words that the glossary replaces, and the files that a Produce of 1,000 records and the Fetch of it
pass, by a trace of a real broker; and the processor seconds of each tier of the tests in the last
`make test ARGS="-p tools.costs"`. Messages generated from Kafka's definitions are left out.
"""

from __future__ import annotations

import argparse
import ast
import io
import json
import os
import subprocess
import sys
import tokenize
from collections.abc import Iterator
from pathlib import Path

from tests.test_words import WORDS

ROOT = Path(__file__).resolve().parent.parent
COMPLEX = 10
SIX = (
    "server/network/requests.py",
    "server/handlers/produce.py",
    "replica/partition.py",
    "log/log.py",
    "log/segment.py",
    "server/handlers/fetch.py",
)
_BRANCHES = (ast.If, ast.For, ast.AsyncFor, ast.While, ast.ExceptHandler, ast.match_case)
# Runs with the tree's own `src` on the path: the files and the lines of the functions that each of the two passes.
_TRACE = """
import json, sys, threading
import odradek
from confluent_kafka import Consumer, Producer, TopicPartition
from odradek.testing import EmbeddedBroker

root = odradek.__file__.rpartition("/")[0] + "/"
ways = {"produce": {}, "fetch": {}}
lines = {}

def note(frame, event, argument):
    code = frame.f_code
    if event == "call" and code.co_filename.startswith(root) and "/messages/" not in code.co_filename:
        last = max((line for _, _, line in code.co_lines() if line), default=code.co_firstlineno)
        lines.setdefault(code.co_filename[len(root):], {})[code.co_firstlineno] = last

def set_hook(broker, hook):
    done = threading.Event()
    broker._node.on_loop(lambda: (sys.setprofile(hook), done.set()))
    done.wait()

with EmbeddedBroker() as broker:
    settings = {"bootstrap.servers": broker.bootstrap_servers, "enable.idempotence": True, "linger.ms": 100}
    producer = Producer(settings | {"log_level": 0})
    producer.produce("traced", b"first")
    producer.flush()
    reading = {"bootstrap.servers": broker.bootstrap_servers, "group.id": "traced", "enable.auto.commit": False}
    consumer = Consumer(reading | {"log_level": 0})
    # The group's topic is made, and its coordinator is known, before anything is noted.
    consumer.commit(offsets=[TopicPartition("traced", 0, 0)], asynchronous=False)
    lines = ways["produce"]
    set_hook(broker, note)
    for number in range(1000):
        producer.produce("traced", b"v" * 100)
    producer.flush()
    set_hook(broker, None)
    consumer.assign([TopicPartition("traced", 0, 0)])
    assert len(consumer.consume(1, 60)) == 1  # connected, and the session is made
    consumer.seek(TopicPartition("traced", 0, 0))
    lines = ways["fetch"]
    set_hook(broker, note)
    left = 1001
    while left > 0:
        left -= len(consumer.consume(left, 60))
    set_hook(broker, None)
    consumer.close()
print(json.dumps(ways))
"""


def sources(tree: Path) -> Iterator[Path]:
    """The product's modules, without generated messages."""
    messages = tree / "src" / "odradek" / "protocol" / "messages"
    return (path for path in sorted((tree / "src").rglob("*.py")) if messages not in path.parents)


def complexity(function: ast.AST) -> int:
    """McCabe's number with each `and`, `or`, `if` in an expression and comprehension, which ruff's C901 passes over;
    functions inside count for themselves."""
    count = branches(function)
    for node in _of_function(function):
        count += isinstance(node, ast.IfExp | ast.comprehension)
        if isinstance(node, ast.BoolOp):
            count += len(node.values) - 1
        if isinstance(node, ast.comprehension):
            count += len(node.ifs)
    return count


def branches(function: ast.AST) -> int:
    """McCabe's number of the statements alone."""
    return 1 + sum(isinstance(node, _BRANCHES) for node in _of_function(function))


def _of_function(function: ast.AST) -> Iterator[ast.AST]:
    """The syntax nodes of a function, without those of the functions inside it."""
    left = list(ast.iter_child_nodes(function))
    while left:
        node = left.pop()
        if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield node
            left += ast.iter_child_nodes(node)


def of_code(tree: Path) -> dict[str, str]:
    """The measures that the sources alone give."""
    lines = comments = assertions = with_any = functions = complex_ones = by_branches = 0
    for path in sources(tree):
        text = path.read_text()
        lines += text.count("\n")
        with_any += sum("Any" in line for line in text.splitlines())
        comments += sum(
            token.type == tokenize.COMMENT for token in tokenize.generate_tokens(io.StringIO(text).readline)
        )
        for node in ast.walk(ast.parse(text)):
            assertions += isinstance(node, ast.Assert)
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                functions += 1
                complex_ones += complexity(node) > COMPLEX
                by_branches += branches(node) > COMPLEX
    with_expressions = f"complexity above {COMPLEX}, with and/or/if in expressions"
    return {
        "lines": f"{lines:,}",
        "functions": f"{functions:,}",
        with_expressions: f"{complex_ones} ({complex_ones / functions:.1%})",
        "  by branches alone, about as ruff counts": f"{by_branches} ({by_branches / functions:.1%})",
        "comments": f"{comments:,} ({comments / lines:.1%} of the lines)",
        "assertions": f"{assertions}",
        "lines with Any": f"{with_any}",
    }


def of_words(tree: Path) -> dict[str, str]:
    """Lines with words that the glossary replaces, in the folders that people read."""
    found: dict[str, str] = {}
    for folder, ending in (("src", "*.py"), ("tests", "*.py"), ("docs", "*.md"), ("examples", "*.py")):
        texts = [
            path.read_text()
            for path in (tree / folder).rglob(ending)
            if path.name not in ("test_words.py", "glossary.md")
        ]
        found[f"replaced words, {folder}"] = str(
            sum(bool(WORDS.search(line)) for text in texts for line in text.splitlines())
        )
    return found


def of_the_way(tree: Path) -> dict[str, str]:
    """The files and lines that a Produce of 1,000 records and a Fetch of them pass; the six count shared ones once."""
    environment = {**os.environ, "PYTHONPATH": str(tree / "src")}
    done = subprocess.run([sys.executable, "-c", _TRACE], env=environment, capture_output=True, text=True, timeout=300)
    if done.returncode != 0:
        return {"produce, files": f"no trace: {done.stderr.strip().splitlines()[-1]}"}
    # The first and the last line of each function, by way and file.
    ways: dict[str, dict[str, dict[str, int]]] = json.loads(done.stdout)
    package = tree / "src" / "odradek"
    found: dict[str, str] = {}
    for way, passed in ways.items():
        whole = sum(_line_count(package / file) for file in passed)
        found |= {
            f"{way}, files": str(len(passed)),
            f"{way}, lines of these files": f"{whole:,}",
            f"{way}, lines of its functions": f"{sum(map(_passed_count, passed.values())):,}",
        }
    files = [file for file in SIX if (package / file).exists()]
    six = sum(_line_count(package / file) for file in files)
    both = {file: {line: last for way in ways.values() for line, last in way.get(file, {}).items()} for file in files}
    in_six = sum(map(_passed_count, both.values()))
    return found | {
        "the six files, lines": f"{six:,}",
        "the six files, on the way": f"{in_six:,} ({in_six / six:.0%})",
        **{f"  {file}": f"{_passed_count(both[file])} of {_line_count(package / file)}" for file in files},
    }


def of_tests(tree: Path) -> dict[str, str]:
    """The processor seconds of each tier of tests in the last run with `-p tools.costs`, from its `build/costs.tsv`."""
    costs = tree / "build" / "costs.tsv"
    tiers: dict[str, list[float]] = {}
    for line in costs.read_text().splitlines() if costs.exists() else []:
        _, used, test = line.split("\t", 2)
        tiers.setdefault(test.split("::")[0].split("/")[1], []).append(float(used))
    rows = {f"tests/{tier}, processor seconds": used for tier, used in sorted(tiers.items())}
    return {name: f"{sum(used):,.1f} ({len(used):,} tests)" for name, used in rows.items()}


def _line_count(path: Path) -> int:
    return path.read_text().count("\n")


def _passed_count(functions: dict[str, int]) -> int:
    """The lines of functions, by their first and last ones; those of one inside another count once."""
    return len({line for first, last in functions.items() for line in range(int(first), last + 1)})


def main() -> int:
    """Print the table; returns the exit code."""
    parser = argparse.ArgumentParser(description="Measures of the code, of this checkout or of several.")
    parser.add_argument("--tree", action="append", type=Path, help="a checkout; may be repeated; this one by default")
    trees = [tree.resolve() for tree in parser.parse_args().tree or [ROOT]]
    columns = [{**of_code(tree), **of_words(tree), **of_the_way(tree), **of_tests(tree)} for tree in trees]
    for name in dict.fromkeys(name for column in columns for name in column):
        print(f"{name:45}", *(f"{column.get(name, ''):>28}" for column in columns))
    return 0


if __name__ == "__main__":
    sys.exit(main())
