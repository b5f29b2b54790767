"""The small wrong changes that can be made to a module, in the order of its source.

It leaves out what no test should look at: annotations, decorators, docstrings and texts, log lines, assertions,
`__repr__`, declarations of protocols, `if TYPE_CHECKING`, the instant of a real clock, a `continue` at the end of a
loop, points of `buggify`. Assignments in `__init__` are not removed either.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

COMPARISONS: dict[type[ast.cmpop], type[ast.cmpop]] = {
    ast.Lt: ast.LtE,
    ast.LtE: ast.Lt,
    ast.Gt: ast.GtE,
    ast.GtE: ast.Gt,
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
    ast.In: ast.NotIn,
    ast.NotIn: ast.In,
    ast.Is: ast.IsNot,
    ast.IsNot: ast.Is,
}
OPERATORS: dict[type[ast.operator], type[ast.operator]] = {
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
    ast.Mult: ast.FloorDiv,
    ast.FloorDiv: ast.Mult,
    ast.Div: ast.Mult,
    ast.Mod: ast.FloorDiv,
    ast.LShift: ast.RShift,
    ast.RShift: ast.LShift,
    ast.BitAnd: ast.BitOr,
    ast.BitOr: ast.BitAnd,
}
FUNCTIONS = {"min": "max", "max": "min", "any": "all", "all": "any"}
LOGGERS = {"log", "logger", "_log", "_logger"}
LEVELS = {"debug", "info", "warning", "error", "exception", "critical", "log"}
# Arguments that say how something is checked or shown, not what it is.
UNSEEN_ARGUMENTS = {"strict", "init", "repr", "kw_only", "slots", "frozen", "exc_info", "stacklevel"}
# Units: a thousandth more or less is nothing that anyone can see. A number above the largest small one is doubled.
UNITS = {1000, 1024, 1_000_000}
LARGEST_SMALL = 16
UNSEEN_FUNCTIONS = {"__repr__", "__str__"}
FUNCTION = (ast.FunctionDef, ast.AsyncFunctionDef)
BLOCKS = ("body", "orelse", "finalbody")


@dataclass(slots=True)
class Change:
    """One change that can be made to the tree in which it was found.

    Attributes:
        function: the function that contains it, with its classes; empty at the level of the module.
        block: the number of its run of statements (see `number_blocks`).
        shown: the texts before and after the change, for people.
        make: changes the tree.
    """

    line: int
    function: str
    block: int
    shown: ast.AST
    make: Callable[[], ast.AST]


@dataclass(frozen=True, slots=True)
class Mutant:
    """A tree with one change made."""

    tree: ast.Module
    line: int
    function: str
    block: int
    before: str
    after: str


def number_blocks(tree: ast.Module) -> tuple[list[list[ast.stmt]], dict[int, int]]:
    """Every run of statements in a function, and the number of that run for the id of each statement.

    Number 0 is all that runs when the module is imported.
    """
    blocks: list[list[ast.stmt]] = [[]]
    number_of: dict[int, int] = {}

    def visit(statements: list[ast.stmt], inside: bool) -> None:
        if inside:
            blocks.append(statements)
        number = len(blocks) - 1 if inside else 0
        for statement in statements:
            number_of[id(statement)] = number
            for inner in inner_blocks(statement):
                visit(inner, inside or isinstance(statement, FUNCTION))

    visit(tree.body, False)
    return blocks, number_of


def inner_blocks(statement: ast.AST) -> Iterator[list[ast.stmt]]:
    for name in BLOCKS:
        if inner := getattr(statement, name, None):
            yield inner
    for part in (*getattr(statement, "handlers", ()), *getattr(statement, "cases", ())):
        yield part.body


def idle_jumps(tree: ast.Module) -> set[int]:
    """The ids of `continue` and bare `return` where the loop or the function goes on or ends without them, too."""
    found: set[int] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.For | ast.AsyncFor | ast.While):
            found.update(id(each) for each in _last(node.body) if isinstance(each, ast.Continue))
        elif isinstance(node, FUNCTION):
            found.update(id(each) for each in _last(node.body) if isinstance(each, ast.Return) and each.value is None)
    return found


def _last(body: list[ast.stmt]) -> Iterator[ast.stmt]:
    """The statements behind which nothing more comes in this body."""
    yield body[-1]
    match body[-1]:
        case ast.If(body=first, orelse=second):
            parts = [first, second]
        case ast.With(body=first) | ast.AsyncWith(body=first):
            parts = [first]
        case ast.Try(body=first, orelse=second, handlers=handlers):
            parts = [second or first, *(handler.body for handler in handlers)]
        case ast.Match(cases=cases):
            parts = [case.body for case in cases]
        case _:
            parts = []
    for part in parts:
        if part:
            yield from _last(part)


def changes(tree: ast.Module) -> list[Change]:
    """All possible changes of a module, in the order of its source."""
    found = _Finder(number_blocks(tree)[1], idle_jumps(tree))
    found.statements(tree.body)
    return found.changes


def mutant(source: str, number: int) -> Mutant:
    """The module with the change of this number (an index into `changes`)."""
    tree = ast.parse(source)
    change = changes(tree)[number]
    before = ast.unparse(change.shown)
    after = ast.unparse(change.make())
    ast.fix_missing_locations(tree)
    return Mutant(tree, change.line, change.function, change.block, before, after)


@dataclass
class _Finder:
    number_of: dict[int, int]
    idle: set[int]
    changes: list[Change] = field(default_factory=list)
    _names: list[str] = field(default_factory=list)
    _block: int = 0
    _in_function: int = 0

    def statements(self, body: list[ast.stmt]) -> None:
        for index, statement in enumerate(body):
            self._block = self.number_of[id(statement)]
            if id(statement) not in self.idle and not _is_left_alone(statement):
                self._statement(statement, body, index)

    def _add(self, node: ast.stmt | ast.expr, shown: ast.AST, make: Callable[[], ast.AST]) -> None:
        self.changes.append(Change(node.lineno, ".".join(self._names), self._block, shown, make))

    def _statement(self, node: ast.stmt, body: list[ast.stmt], index: int) -> None:
        if isinstance(node, (*FUNCTION, ast.ClassDef)):
            self._definition(node)
            return
        if self._can_be_removed(node):

            def remove() -> ast.AST:
                body[index] = ast.copy_location(ast.Pass(), node)
                return body[index]

            self._add(node, node, remove)
        match node:
            case ast.Return(value=ast.expr() as value) if not _is_constant(value, None, False):

                def return_none() -> ast.AST:
                    node.value = ast.copy_location(ast.Constant(None), value)
                    return node

                self._add(node, node, return_none)
            case ast.AugAssign():
                self._operator(node)
            case ast.If() | ast.While():
                self._condition(node, "test")
        self._expressions(node)
        for inner in inner_blocks(node):
            self.statements(inner)

    def _definition(self, node: ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef) -> None:
        self._names.append(node.name)
        if isinstance(node, FUNCTION):
            for default in (*node.args.defaults, *node.args.kw_defaults):
                if default is not None:
                    self._expression(default, node.args, "")
            self._in_function += 1
        self.statements(node.body)
        self._in_function -= isinstance(node, FUNCTION)
        self._names.pop()

    def _can_be_removed(self, node: ast.stmt) -> bool:
        match node:
            case ast.Expr(value=ast.Call() | ast.Await(value=ast.Call())):
                return True
            case ast.Assign(targets=targets):
                places = all(isinstance(target, ast.Attribute | ast.Subscript) for target in targets)
                return places and self._names[-1:] not in (["__init__"], ["__post_init__"]) and bool(self._in_function)
            case ast.Return(value=None):
                return True
            case ast.AugAssign() | ast.Raise() | ast.Continue() | ast.Break() | ast.Delete():
                return True
        return False

    def _expressions(self, node: ast.AST) -> None:
        """Add the changes of the expressions in this node, without statements in it, annotations and patterns."""
        for name, value in ast.iter_fields(node):
            if name in ("annotation", "returns", "decorator_list", "pattern"):
                continue
            for each in value if isinstance(value, list) else [value]:
                if isinstance(each, ast.expr):
                    self._expression(each, node, name)
                elif isinstance(each, ast.AST) and not isinstance(each, ast.stmt):
                    self._part(each)

    def _part(self, node: ast.AST) -> None:
        if isinstance(node, ast.ExceptHandler):
            return  # its body is a block
        if isinstance(node, ast.match_case):
            if node.guard is not None:
                self._condition(node, "guard")
                self._expression(node.guard, node, "guard")
            return
        if isinstance(node, ast.comprehension):
            for index in range(len(node.ifs)):
                self._condition(node, "ifs", index)
        if isinstance(node, ast.keyword) and node.arg in UNSEEN_ARGUMENTS:
            return
        self._expressions(node)

    def _expression(self, node: ast.expr, parent: ast.AST, name: str) -> None:  # noqa: C901 - a case for each expression
        match node:
            case ast.JoinedStr():
                return
            case ast.Call() if _logs(node) or _is_isinstance(node):
                return
            case ast.Call(func=ast.Name(id=called) as function) if called in FUNCTIONS:
                self._rename(node, function, FUNCTIONS[called])
            case ast.Compare() if not _asks_clock(node):
                for index in range(len(node.ops)):
                    self._comparison(node, index)
            case ast.BoolOp():
                self._boolean(node)
            case ast.BinOp() if _is_arithmetic(node) and (self._in_function or not isinstance(node.op, ast.BitOr)):
                self._operator(node)
            case ast.UnaryOp(op=ast.Not()) if name:
                self._without_not(node, parent, name)
            case ast.Constant(value=bool() | int()) if not isinstance(parent, ast.While) and node.value not in UNITS:
                self._constant(node, parent)
            case ast.IfExp():
                self._condition(node, "test")
        self._expressions(node)

    def _rename(self, node: ast.Call, function: ast.Name, other: str) -> None:
        def make() -> ast.AST:
            function.id = other
            return node

        self._add(node, node, make)

    def _comparison(self, node: ast.Compare, index: int) -> None:
        def make() -> ast.AST:
            node.ops[index] = COMPARISONS[type(node.ops[index])]()
            return node

        self._add(node, node, make)

    def _boolean(self, node: ast.BoolOp) -> None:
        def make() -> ast.AST:
            node.op = ast.And() if isinstance(node.op, ast.Or) else ast.Or()
            return node

        self._add(node, node, make)

    def _operator(self, node: ast.BinOp | ast.AugAssign) -> None:
        if type(node.op) not in OPERATORS:
            return

        def make() -> ast.AST:
            node.op = OPERATORS[type(node.op)]()
            return node

        self._add(node, node, make)

    def _constant(self, node: ast.Constant, parent: ast.AST) -> None:
        shown = parent if isinstance(parent, ast.expr | ast.keyword | ast.Assign | ast.AnnAssign) else node

        def make() -> ast.AST:
            number = node.value
            assert isinstance(number, int)
            node.value = (
                not number if isinstance(number, bool) else number + 1 if number <= LARGEST_SMALL else 2 * number
            )
            return shown

        self._add(node, shown, make)

    def _without_not(self, node: ast.UnaryOp, parent: ast.AST, name: str) -> None:
        def make() -> ast.AST:
            _put(parent, name, node, node.operand)
            return node.operand

        self._add(node, node, make)

    def _condition(self, holder: ast.AST, name: str, index: int | None = None) -> None:
        """The condition turned round, unless a change of its comparison or its `not` says the same."""
        test: ast.expr = getattr(holder, name) if index is None else getattr(holder, name)[index]
        if isinstance(test, ast.Compare | ast.Constant) or (
            isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not)
        ):
            return

        def make() -> ast.AST:
            turned = ast.copy_location(ast.UnaryOp(ast.Not(), test), test)
            _put(holder, name, test, turned)
            return turned

        self._add(test, test, make)


def _put(parent: ast.AST, name: str, old: ast.expr, new: ast.expr) -> None:
    value = getattr(parent, name)
    if isinstance(value, list):
        value[next(index for index, each in enumerate(value) if each is old)] = new
    else:
        setattr(parent, name, new)


def _is_left_alone(node: ast.stmt) -> bool:
    match node:
        case ast.Assert() | ast.Import() | ast.ImportFrom():
            return True
        case ast.Expr(value=ast.Constant()):
            return True
        case ast.Expr(value=ast.Call() as call):
            return _logs(call)
        case ast.Expr(value=ast.Await(value=ast.Call(func=ast.Name(id="buggify")))):
            return True
        case ast.If(test=test):
            return "TYPE_CHECKING" in ast.unparse(test)
        case ast.FunctionDef(name=name):
            return name in UNSEEN_FUNCTIONS or any("abstract" in ast.unparse(each) for each in node.decorator_list)
        case ast.ClassDef(bases=bases):
            return any("Protocol" in ast.unparse(base) for base in bases)
    return False


def _logs(call: ast.Call) -> bool:
    match call.func:
        case ast.Attribute(attr=level, value=ast.Name(id=receiver) | ast.Attribute(attr=receiver)):
            return level in LEVELS and receiver.lower() in LOGGERS
    return False


def _asks_clock(node: ast.Compare) -> bool:
    """Whether the time of the machine is compared: the instant of a deadline itself is no other answer."""
    return any(ast.unparse(side).startswith("time.monotonic()") for side in (node.left, *node.comparators))


def _is_isinstance(call: ast.Call) -> bool:
    return isinstance(call.func, ast.Name) and call.func.id in ("isinstance", "issubclass", "cast", "TypeVar")


def _is_constant(node: ast.expr, *values: object) -> bool:
    return isinstance(node, ast.Constant) and any(node.value is value for value in values)


def _is_arithmetic(node: ast.BinOp) -> bool:
    """Whether an operation is one of numbers: with texts and lists another operator only raises TypeError."""
    return not any(
        isinstance(side, ast.JoinedStr | ast.List | ast.Tuple | ast.ListComp)
        or (isinstance(side, ast.Constant) and isinstance(side.value, str | bytes))
        for side in (node.left, node.right)
    )
