"""Finds what would make two runs of one seed differ: the world's clocks, chance and threads, and walks over sets.

The order of a set of strings depends on PYTHONHASHSEED, that of a set of objects on where they lie in memory. So what
runs inside the simulator walks over sets in `sorted` order, or keeps what it walks over in dicts. The check reads the
source alone: it knows a set by how it is made or annotated, which the type checker makes everybody write down.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

# Modules that reach past the ports; `Random` may be named, for it is passed with its seed, and types of the rest too.
WORLD_MODULES = {
    "time": frozenset[str](),
    "random": frozenset({"Random"}),
    "secrets": frozenset[str](),
    "threading": frozenset[str](),
    "multiprocessing": frozenset[str](),
    "concurrent": frozenset[str](),
    "subprocess": frozenset[str](),
    "uuid": frozenset({"UUID", "SafeUUID"}),
}
WORLD_CALLS = frozenset({"os.urandom", "os.getpid", "asyncio.to_thread", "datetime.now", "datetime.utcnow"})
SET_TYPES = frozenset({"set", "frozenset", "AbstractSet", "MutableSet", "Set"})
SET_METHODS = frozenset({"union", "intersection", "difference", "symmetric_difference"})
SET_OPERATORS = (ast.BitOr, ast.BitAnd, ast.Sub, ast.BitXor)
# What takes its argument in any order and gives the same.
ORDERLESS = frozenset({"sorted", "set", "frozenset", "len", "sum", "any", "all", "min", "max", "bool"})
ORDERLESS_METHODS = SET_METHODS | {"isdisjoint", "issubset", "issuperset"}
ORDERED = frozenset({"list", "tuple", "enumerate", "iter", "zip", "map", "filter", "reversed", "deque", "OrderedDict"})
ORDERED_METHODS = frozenset({"extend", "fromkeys", "join", "writelines", "gather", "chain", "from_iterable"})


@dataclass
class Known:
    """What is known to be a set, over all files.

    Attributes:
        attributes: name -> whether every class that annotates it says that it is a set.
        returns: name of a function or method -> the same of what it returns.
    """

    attributes: dict[str, bool] = field(default_factory=dict)
    returns: dict[str, bool] = field(default_factory=dict)

    def learn(self, tree: ast.Module) -> None:
        for node in ast.walk(tree):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                self._note(self.returns, node.name, _is_set_type(node.returns))
                if any(isinstance(each, ast.Name) and each.id == "property" for each in node.decorator_list):
                    self._note(self.attributes, node.name, _is_set_type(node.returns))
            elif isinstance(node, ast.ClassDef):
                for line in node.body:
                    if isinstance(line, ast.AnnAssign) and isinstance(line.target, ast.Name):
                        self._note(self.attributes, line.target.id, _is_set_type(line.annotation))
            elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Attribute):
                self._note(self.attributes, node.target.attr, _is_set_type(node.annotation))
            elif isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Attribute):
                if isinstance(node.value, ast.List | ast.Dict | ast.Tuple | ast.ListComp | ast.DictComp | ast.Constant):
                    self._note(self.attributes, node.targets[0].attr, False)
                elif _is_made_as_set(node.value):
                    self._note(self.attributes, node.targets[0].attr, True)

    @staticmethod
    def _note(known: dict[str, bool], name: str, is_set: bool) -> None:
        known[name] = known.get(name, True) and is_set


def findings(paths: Iterable[Path]) -> Iterator[tuple[Path, int, str]]:
    """(file, line, what is wrong) for everything that would make runs differ."""
    trees = {path: ast.parse(path.read_text()) for path in paths}
    known = Known()
    for tree in trees.values():
        known.learn(tree)
    for path, tree in trees.items():
        for line, text in sorted([*world(tree), *walks(tree, known)]):
            yield path, line, text


def world(tree: ast.Module) -> Iterator[tuple[int, str]]:
    """Imports and calls that reach for the world."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for name in node.names:
                root = name.name.split(".")[0]
                if root in WORLD_MODULES:
                    yield node.lineno, f"import {name.name}"
        elif isinstance(node, ast.ImportFrom) and node.level == 0:
            root = (node.module or "").split(".")[0]
            for name in node.names:
                if root in WORLD_MODULES and name.name not in WORLD_MODULES[root]:
                    yield node.lineno, f"from {node.module} import {name.name}"
        elif isinstance(node, ast.Attribute):
            text = ast.unparse(node)
            if text in WORLD_CALLS:
                yield node.lineno, text


def walks(tree: ast.Module, known: Known) -> Iterator[tuple[int, str]]:
    """Places that walk over a set in its own order."""
    for scope in ast.walk(tree):
        if isinstance(scope, ast.Module | ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda | ast.ClassDef):
            names = _set_names(scope, known)
            for node in _own_nodes(scope):
                for walked in _walked(node):
                    if _is_set(walked, names, known):
                        yield walked.lineno, f"walks over the set {ast.unparse(walked)}"


def _own_nodes(scope: ast.AST) -> Iterator[ast.AST]:
    """The nodes of a scope without those of the functions and classes inside; orderless consumers hide their walks."""
    pending = list(ast.iter_child_nodes(scope))
    while pending:
        node = pending.pop()
        yield node
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda | ast.ClassDef):
            continue
        children = list(ast.iter_child_nodes(node))
        if isinstance(node, ast.Call) and _is_orderless(node.func):
            # `sorted(f(x) for x in some_set)`: only what is inside the generator's parts counts.
            children = [
                part
                for child in children
                for part in (
                    [grandchild for grandchild in ast.walk(child) if isinstance(grandchild, ast.Call)]
                    if isinstance(child, ast.GeneratorExp | ast.ListComp | ast.SetComp)
                    else [child]
                )
            ]
        pending.extend(children)


def _is_orderless(function: ast.expr) -> bool:
    if isinstance(function, ast.Attribute):
        return function.attr in ORDERLESS_METHODS
    return isinstance(function, ast.Name) and function.id in ORDERLESS


def _walked(node: ast.AST) -> Iterator[ast.expr]:
    """The expressions whose order a node goes by."""
    if isinstance(node, ast.For | ast.AsyncFor):
        yield node.iter
    elif isinstance(node, ast.ListComp | ast.DictComp | ast.GeneratorExp):
        yield from (generator.iter for generator in node.generators)
    elif isinstance(node, ast.Starred | ast.YieldFrom) or _unpacks(node):
        yield node.value  # type: ignore[attr-defined]
    elif isinstance(node, ast.Call):
        function = node.func
        if isinstance(function, ast.Name) and function.id in ORDERED:
            yield from node.args
        elif isinstance(function, ast.Name) and function.id in ("min", "max") and node.keywords:
            yield from node.args  # of two that are equal by the key, the first wins
        elif isinstance(function, ast.Attribute) and function.attr in ORDERED_METHODS:
            yield from node.args
        elif isinstance(function, ast.Attribute) and function.attr == "pop" and not node.args:
            yield function.value


def _unpacks(node: ast.AST) -> bool:
    return isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Tuple | ast.List)


def _set_names(scope: ast.AST, known: Known) -> Mapping[str, bool]:
    names: dict[str, bool] = {}
    if isinstance(scope, ast.FunctionDef | ast.AsyncFunctionDef):
        arguments = scope.args
        for argument in [*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs]:
            names[argument.arg] = _is_set_type(argument.annotation)
    for _ in range(2):  # names may be made from names that are made further down
        for node in _own_nodes(scope):
            if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
                names[node.target.id] = _is_set_type(node.annotation)
            elif isinstance(node, ast.Assign | ast.NamedExpr):
                target = node.targets[0] if isinstance(node, ast.Assign) else node.target
                if isinstance(target, ast.Name) and _is_set(node.value, names, known):
                    names[target.id] = True
    return names


def _is_set(node: ast.expr, names: Mapping[str, bool], known: Known) -> bool:
    if isinstance(node, ast.Name):
        return names.get(node.id, False)
    if isinstance(node, ast.Attribute):
        return known.attributes.get(node.attr, False)
    if isinstance(node, ast.BinOp):
        if not isinstance(node.op, SET_OPERATORS):
            return False
        return any(_is_set(side, names, known) or _is_view(side) for side in (node.left, node.right))
    if isinstance(node, ast.IfExp):
        return _is_set(node.body, names, known) or _is_set(node.orelse, names, known)
    if isinstance(node, ast.BoolOp):
        return any(_is_set(value, names, known) for value in node.values)
    if isinstance(node, ast.Await):
        return _is_set(node.value, names, known)
    if isinstance(node, ast.Call):
        if isinstance(node.func, ast.Attribute):
            if node.func.attr in SET_METHODS:
                return _is_set(node.func.value, names, known)
            return known.returns.get(node.func.attr, False)
        if isinstance(node.func, ast.Name):
            return _is_made_as_set(node) or known.returns.get(node.func.id, False)
    return _is_made_as_set(node)


def _is_made_as_set(node: ast.expr) -> bool:
    if isinstance(node, ast.Set | ast.SetComp):
        return True
    function = node.func if isinstance(node, ast.Call) else None
    if isinstance(function, ast.Subscript):
        function = function.value
    return isinstance(function, ast.Name) and function.id in ("set", "frozenset")


def _is_view(node: ast.expr) -> bool:
    """`mapping.keys()` and `.items()`: with an operator they become sets."""
    return isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in ("keys", "items")


def _is_set_type(annotation: ast.expr | None) -> bool:
    if isinstance(annotation, ast.Subscript):
        annotation = annotation.value
    if isinstance(annotation, ast.BinOp):  # `set[int] | None`
        return _is_set_type(annotation.left) or _is_set_type(annotation.right)
    if isinstance(annotation, ast.Attribute):
        return annotation.attr in SET_TYPES
    return isinstance(annotation, ast.Name) and annotation.id in SET_TYPES
