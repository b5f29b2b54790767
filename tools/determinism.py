"""Finds code that would make two runs of one seed differ: the world's clocks, chance and threads, hashes of strings,
and walks over sets.

The order of a set of strings depends on PYTHONHASHSEED, that of a set of objects on their addresses. So code inside the
simulator walks over sets in `sorted` order, or uses dicts instead. The check reads the source alone: it knows a set by
its creation or its annotation, which the type checker requires, in the same function, around it, or in a module from
which its name is imported; the elements of a dict or list of sets are sets, too. It does not see a set that is reached
through a module (`module.NAMES`), an alias of a type, or a name that classes use for different things.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path
from typing import TypeGuard

# Modules that reach past the ports; `Random` may be named, for it is passed with its seed, and types of the rest too.
WORLD_MODULES = {
    "time": frozenset[str](),
    "random": frozenset({"Random"}),
    "secrets": frozenset[str](),
    "threading": frozenset[str](),
    "_thread": frozenset[str](),
    "_random": frozenset[str](),
    "multiprocessing": frozenset[str](),
    "concurrent": frozenset[str](),
    "subprocess": frozenset[str](),
    "uuid": frozenset({"UUID", "SafeUUID"}),
}
WORLD_CALLS = frozenset(
    {"os.urandom", "os.getrandom", "os.getpid", "os.times", "asyncio.to_thread", "numpy.random", "np.random"}
)
# It cancels in the order of a set of tasks; see `common.tasks.together`.
WORLD_CALLS |= {"asyncio.TaskGroup"}
# The wall clock, however the class was imported.
CLOCK_CALLS = frozenset(f"{owner}.{name}" for owner in ("datetime", "date") for name in ("now", "utcnow", "today"))
# Methods of event loops that start a thread.
WORLD_METHODS = frozenset({"run_in_executor", "set_default_executor"})
# The C library's logarithm, exponential and sine, and draws by them, have another last bit on another processor.
WORLD_METHODS |= {"expovariate", "gauss", "normalvariate", "lognormvariate", "gammavariate", "betavariate"}
WORLD_METHODS |= {"paretovariate", "weibullvariate", "vonmisesvariate"}
WORLD_CALLS |= {
    f"math.{name}" for name in ("log", "log2", "log10", "log1p", "exp", "expm1", "pow", "sin", "cos", "tanh")
}
IMPORTS = frozenset({"import_module", "__import__"})
# Functions whose results depend on the address of an object, or on PYTHONHASHSEED.
HASHES = frozenset({"hash"})
KEYS = frozenset({"id", "hash"})
SET_MAKERS = frozenset({"set", "frozenset", "WeakSet"})
SET_TYPES = SET_MAKERS | {"AbstractSet", "MutableSet", "Set"}
# Generic types that wrap the type of an annotation.
WRAPPERS = frozenset({"ClassVar", "Final"})
HOLDER_TYPES = frozenset(
    {"dict", "defaultdict", "OrderedDict", "Mapping", "MutableMapping", "list", "deque", "Sequence"}
)
SET_METHODS = frozenset({"union", "intersection", "difference", "symmetric_difference"})
SET_OPERATORS = (ast.BitOr, ast.BitAnd, ast.Sub, ast.BitXor)
# Functions whose results do not depend on the order of their argument.
ORDERLESS = frozenset({"sorted", "set", "frozenset", "len", "sum", "any", "all", "min", "max", "bool"})
ORDERLESS_METHODS = SET_METHODS | {"isdisjoint", "issubset", "issuperset"}
ORDERED = frozenset({"list", "tuple", "enumerate", "iter", "zip", "map", "filter", "reversed", "deque", "OrderedDict"})
ORDERED_METHODS = frozenset({"extend", "fromkeys", "join", "writelines", "gather", "chain", "from_iterable"})


class Kind(Enum):
    """The known facts of an expression."""

    OTHER = 0
    SET = 1
    # A dict or sequence of sets.
    HOLDER = 2


@dataclass
class Known:
    """The names that are known to be sets, or to contain sets, over all files.

    Attributes:
        attributes: name of an attribute -> its kind, if all classes that annotate it agree; OTHER if they differ.
        returns: name of a function or method -> the kind of its value, in the same way.
        modules: name at the top of modules -> its kind, in the same way.
    """

    attributes: dict[str, Kind] = field(default_factory=dict)
    returns: dict[str, Kind] = field(default_factory=dict)
    modules: dict[str, Kind] = field(default_factory=dict)

    def collect(self, tree: ast.Module) -> None:  # noqa: C901 - a case for each statement
        for line in tree.body:
            if isinstance(line, ast.AnnAssign) and isinstance(line.target, ast.Name):
                self._record(self.modules, line.target.id, _declared(line))
            elif isinstance(line, ast.Assign) and isinstance(line.targets[0], ast.Name):
                self._record(self.modules, line.targets[0].id, Kind.SET if _is_made_as_set(line.value) else Kind.OTHER)
        for node in ast.walk(tree):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                self._record(self.returns, node.name, _type_kind(node.returns))
                if any(isinstance(each, ast.Name) and each.id == "property" for each in node.decorator_list):
                    self._record(self.attributes, node.name, _type_kind(node.returns))
            elif isinstance(node, ast.ClassDef):
                for line in node.body:
                    if isinstance(line, ast.AnnAssign) and isinstance(line.target, ast.Name):
                        self._record(self.attributes, line.target.id, _declared(line))
                    elif isinstance(line, ast.Assign) and isinstance(line.targets[0], ast.Name):
                        self._record_value(line.targets[0].id, line.value)
            elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Attribute):
                self._record(self.attributes, node.target.attr, _type_kind(node.annotation))
            elif isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Attribute):
                self._record_value(node.targets[0].attr, node.value)

    def _record_value(self, name: str, value: ast.expr) -> None:
        """The value that an attribute without annotation is given."""
        if isinstance(value, ast.List | ast.Dict | ast.Tuple | ast.ListComp | ast.DictComp | ast.Constant):
            self._record(self.attributes, name, Kind.OTHER)
        elif _is_made_as_set(value):
            self._record(self.attributes, name, Kind.SET)

    @staticmethod
    def _record(known: dict[str, Kind], name: str, kind: Kind) -> None:
        if known.setdefault(name, kind) is not kind:
            known[name] = Kind.OTHER


def findings(paths: Iterable[Path]) -> Iterator[tuple[Path, int, str]]:
    """(file, line, problem) for all code that would make runs differ."""
    trees = {path: ast.parse(path.read_text()) for path in paths}
    known = Known()
    for tree in trees.values():
        known.collect(tree)
    for path, tree in trees.items():
        for line, text in sorted([*world(tree), *walks(tree, known)]):
            yield path, line, text


def world(tree: ast.Module) -> Iterator[tuple[int, str]]:  # noqa: C901 - a case for each node
    """Imports and calls that reach for the world."""
    hashing = [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef) and node.name == "__hash__"]
    # There `hash` makes what a dict looks up by, and no order.
    allowed = {id(part) for function in hashing for part in ast.walk(function)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for name in node.names:
                root = name.name.split(".")[0]
                if root in WORLD_MODULES or name.name == "numpy.random":
                    yield node.lineno, f"import {name.name}"
        elif isinstance(node, ast.ImportFrom) and node.level == 0:
            root = (node.module or "").split(".")[0]
            for name in node.names:
                is_chance = f"{node.module}.{name.name}.".startswith("numpy.random.")
                if is_chance or (root in WORLD_MODULES and name.name not in WORLD_MODULES[root]):
                    yield node.lineno, f"from {node.module} import {name.name}"
        elif isinstance(node, ast.Attribute):
            text = ast.unparse(node)
            if text in WORLD_CALLS or ".".join(text.split(".")[-2:]) in CLOCK_CALLS or node.attr in WORLD_METHODS:
                yield node.lineno, text
        elif isinstance(node, ast.Call) and id(node) not in allowed:
            yield from _bad_call(node)


def _bad_call(node: ast.Call) -> Iterator[tuple[int, str]]:
    """Calls of builtins that reach for the world, or give another answer in another process."""
    function = node.func
    name = (
        function.id if isinstance(function, ast.Name) else function.attr if isinstance(function, ast.Attribute) else ""
    )
    if isinstance(function, ast.Name) and name in HASHES:
        yield node.lineno, f"{name}() of a string or object"
    for keyword in node.keywords:
        if keyword.arg == "key" and any(isinstance(p, ast.Name) and p.id in KEYS for p in ast.walk(keyword.value)):
            yield node.lineno, f"{name}() in the order of {ast.unparse(keyword.value)}"
    if name in IMPORTS and node.args and isinstance(node.args[0], ast.Constant):
        root = str(node.args[0].value).split(".")[0]
        if root in WORLD_MODULES:
            yield node.lineno, f"{name}({root!r})"


def walks(tree: ast.Module, known: Known) -> Iterator[tuple[int, str]]:
    """Places that walk over a set in its own order."""
    for scope, names in _scopes(tree, {}, known):
        for node in _own_nodes(scope):
            for walked in _walked(node):
                if _kind(walked, names, known) is Kind.SET:
                    yield walked.lineno, f"walks over the set {ast.unparse(walked)}"


def _scopes(node: ast.AST, outer: Mapping[str, Kind], known: Known) -> Iterator[tuple[ast.AST, Mapping[str, Kind]]]:
    """The scopes in a module, each with its own names and those that it sees around it."""
    if isinstance(node, ast.Module | ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda | ast.ClassDef):
        names = _names(node, outer, known)
        yield node, names
        if not isinstance(node, ast.ClassDef):  # its methods see its names as attributes
            outer = names
    for child in ast.iter_child_nodes(node):
        yield from _scopes(child, outer, known)


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
        yield node.value
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


def _unpacks(node: ast.AST) -> TypeGuard[ast.Assign]:
    return isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Tuple | ast.List)


def _names(scope: ast.AST, outer: Mapping[str, Kind], known: Known) -> Mapping[str, Kind]:  # noqa: C901 - a case for each statement
    names = dict(outer)
    elsewhere = {
        name for node in _own_nodes(scope) if isinstance(node, ast.Global | ast.Nonlocal) for name in node.names
    }
    for node in _own_nodes(scope):
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store) and node.id not in elsewhere:
            names[node.id] = Kind.OTHER  # hides what is called so around it
        elif isinstance(node, ast.ImportFrom):
            for each in node.names:
                names[each.asname or each.name] = known.modules.get(each.name, Kind.OTHER)
    if isinstance(scope, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
        arguments = scope.args
        for argument in [*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs]:
            names[argument.arg] = _type_kind(argument.annotation)
    for _ in range(2):  # names may be made from names that are made further down
        for node in _own_nodes(scope):
            if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
                names[node.target.id] = _declared(node)
            elif isinstance(node, ast.Assign | ast.NamedExpr):
                target = node.targets[0] if isinstance(node, ast.Assign) else node.target
                kind = _kind(node.value, names, known)
                if isinstance(target, ast.Name) and kind is not Kind.OTHER:
                    names[target.id] = kind
                elif isinstance(target, ast.Tuple) and _is_wait(node.value):
                    names.update({each.id: Kind.SET for each in target.elts if isinstance(each, ast.Name)})
            elif isinstance(node, ast.For | ast.AsyncFor | ast.comprehension):
                held = _held_by(node.target, node.iter, names, known)
                if held is not None:
                    names[held] = Kind.SET
    return names


def _held_by(target: ast.expr, walked: ast.expr, names: Mapping[str, Kind], known: Known) -> str | None:
    """The name that a walk over a dict or list of sets gives to each set."""
    if isinstance(walked, ast.Call) and isinstance(walked.func, ast.Name) and walked.func.id in ("list", "sorted"):
        walked = walked.args[0] if walked.args else walked
    if isinstance(walked, ast.Call) and isinstance(walked.func, ast.Attribute) and not walked.args:
        if _kind(walked.func.value, names, known) is not Kind.HOLDER:
            return None
        if walked.func.attr == "items" and isinstance(target, ast.Tuple):
            target = target.elts[-1]
        elif walked.func.attr != "values":
            return None
        return target.id if isinstance(target, ast.Name) else None
    return None  # a walk over a dict gives its keys


def _kind(node: ast.expr, names: Mapping[str, Kind], known: Known) -> Kind:
    if isinstance(node, ast.Name):
        return names.get(node.id, Kind.OTHER)
    if isinstance(node, ast.Attribute):
        return known.attributes.get(node.attr, Kind.OTHER)
    if isinstance(node, ast.Subscript):
        is_holder = _kind(node.value, names, known) is Kind.HOLDER
        return Kind.SET if is_holder and not isinstance(node.slice, ast.Slice) else Kind.OTHER
    if isinstance(node, ast.BinOp):
        sides = (node.left, node.right)
        is_set = any(_kind(side, names, known) is Kind.SET or _is_view(side) for side in sides)
        return Kind.SET if is_set and isinstance(node.op, SET_OPERATORS) else Kind.OTHER
    if isinstance(node, ast.IfExp):
        return _first((node.body, node.orelse), names, known)
    if isinstance(node, ast.BoolOp):
        return _first(node.values, names, known)
    if isinstance(node, ast.Await):
        return _kind(node.value, names, known)
    if isinstance(node, ast.Dict | ast.DictComp | ast.List | ast.ListComp):
        values = node.values if isinstance(node, ast.Dict) else node.elts if isinstance(node, ast.List) else []
        values = (
            [node.value] if isinstance(node, ast.DictComp) else [node.elt] if isinstance(node, ast.ListComp) else values
        )
        holds = any(value is not None and _kind(value, names, known) is Kind.SET for value in values)
        return Kind.HOLDER if holds else Kind.OTHER
    if isinstance(node, ast.Call):
        return _call_kind(node, names, known)
    return Kind.SET if _is_made_as_set(node) else Kind.OTHER


def _first(values: Iterable[ast.expr], names: Mapping[str, Kind], known: Known) -> Kind:
    kinds = [_kind(value, names, known) for value in values]
    return next((kind for kind in kinds if kind is not Kind.OTHER), Kind.OTHER)


def _call_kind(node: ast.Call, names: Mapping[str, Kind], known: Known) -> Kind:
    function = node.func
    if _is_wait(node):
        return Kind.HOLDER
    if isinstance(function, ast.Attribute):
        owner = _kind(function.value, names, known)
        if function.attr in SET_METHODS:
            return owner if owner is Kind.SET else Kind.OTHER
        if owner is Kind.HOLDER and function.attr in ("get", "setdefault", "pop", "popleft"):
            return Kind.SET
        if function.attr == "copy":
            return owner
        return known.returns.get(function.attr, Kind.OTHER)
    if isinstance(function, ast.Name):
        if function.id == "defaultdict" and node.args and ast.unparse(node.args[0]) in ("set", "frozenset"):
            return Kind.HOLDER
        return Kind.SET if _is_made_as_set(node) else known.returns.get(function.id, Kind.OTHER)
    return Kind.SET if _is_made_as_set(node) else Kind.OTHER


def _is_made_as_set(node: ast.expr) -> bool:
    if isinstance(node, ast.Set | ast.SetComp):
        return True
    function = node.func if isinstance(node, ast.Call) else None
    if isinstance(function, ast.Subscript):
        function = function.value
    name = (
        function.attr if isinstance(function, ast.Attribute) else function.id if isinstance(function, ast.Name) else ""
    )
    return name in SET_MAKERS


def _is_wait(node: ast.expr) -> bool:
    """`asyncio.wait`, which gives two sets of tasks."""
    if isinstance(node, ast.Await):
        node = node.value
    return isinstance(node, ast.Call) and ast.unparse(node.func) == "asyncio.wait"


def _is_view(node: ast.expr) -> bool:
    """`mapping.keys()` and `.items()`: with an operator they become sets."""
    return isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in ("keys", "items")


def _declared(line: ast.AnnAssign) -> Kind:
    kind = _type_kind(line.annotation)
    is_made = kind is Kind.OTHER and line.value is not None and _is_made_as_set(line.value)
    return Kind.SET if is_made else kind


def _type_kind(annotation: ast.expr | None) -> Kind:
    if annotation is None:
        return Kind.OTHER
    if isinstance(annotation, ast.Subscript) and ast.unparse(annotation.value).split(".")[-1] in WRAPPERS:
        return _type_kind(annotation.slice)
    if _is_set_type(annotation):
        return Kind.SET
    return Kind.HOLDER if _is_holder_type(annotation) else Kind.OTHER


def _is_holder_type(annotation: ast.expr) -> bool:
    """`dict[str, set[int]]` and the like."""
    if isinstance(annotation, ast.BinOp):
        return _is_holder_type(annotation.left) or _is_holder_type(annotation.right)
    if not isinstance(annotation, ast.Subscript):
        return False
    name = annotation.value.attr if isinstance(annotation.value, ast.Attribute) else ast.unparse(annotation.value)
    held = (
        annotation.slice.elts[-1]
        if isinstance(annotation.slice, ast.Tuple) and annotation.slice.elts
        else annotation.slice
    )
    return name in HOLDER_TYPES and _is_set_type(held)


def _is_set_type(annotation: ast.expr | None) -> bool:
    if isinstance(annotation, ast.Subscript):
        annotation = annotation.value
    if isinstance(annotation, ast.BinOp):  # `set[int] | None`
        return _is_set_type(annotation.left) or _is_set_type(annotation.right)
    if isinstance(annotation, ast.Attribute):
        return annotation.attr in SET_TYPES
    return isinstance(annotation, ast.Name) and annotation.id in SET_TYPES
