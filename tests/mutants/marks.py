"""Puts a mark into each block of statements of a module, by which a test's blocks are known, and writes its code."""

from __future__ import annotations

import ast
import marshal
from pathlib import Path

from tests.mutants.changes import number_blocks

# All marks of a process: a bytearray for each module, by its name, among the builtins.
MARKS = "__mutant_marks__"
OWN = "__marks__"


def with_marks(source: str) -> ast.Module:
    """The module, which notes every block of `number_blocks` when it is entered."""
    tree = ast.parse(source)
    blocks, _ = number_blocks(tree)
    for number, block in enumerate(blocks[1:], 1):
        block.insert(_after_docstring(block), _statement(f"{OWN}[{number}] = 1", block[0].lineno))
    start = _after_docstring(tree.body)
    while start < len(tree.body) and _is_future(tree.body[start]):
        start += 1
    all_marks = f"__import__('builtins').__dict__.setdefault('{MARKS}', {{}})"
    made = f"{OWN} = {all_marks}.setdefault(__name__, bytearray({len(blocks)}))"
    tree.body.insert(start, _statement(made, 1))
    return tree


def write_code(folder: Path, module: str, path: Path, tree: ast.Module) -> None:
    """Write the compiled module to the path where hook/sitecustomize.py looks for it."""
    code = compile(tree, str(path), "exec", dont_inherit=True)
    (folder / module).write_bytes(marshal.dumps(code))


def _after_docstring(body: list[ast.stmt]) -> int:
    match body:
        case [ast.Expr(value=ast.Constant(value=str())), *_]:
            return 1
    return 0


def _is_future(statement: ast.stmt) -> bool:
    return isinstance(statement, ast.ImportFrom) and statement.module == "__future__"


def _statement(text: str, line: int) -> ast.stmt:
    (made,) = ast.parse(text).body
    for node in ast.walk(made):
        if isinstance(node, ast.expr | ast.stmt):
            node.lineno = node.end_lineno = line
            node.col_offset = node.end_col_offset = 0
    return made
