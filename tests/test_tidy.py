"""Rules that a reviewer need not repeat: sizes, banned calls, every handler tested, generated pages fresh."""

from __future__ import annotations

import ast
import functools
import gc
import re
import subprocess
import sys
import tokenize
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.sim.planted import ONE_NODE
from tests.sim.planted_cluster import MANY_NODES
from tools.determinism import findings

ROOT = Path(__file__).resolve().parent.parent
SOURCES = ROOT / "src"
MESSAGES = SOURCES / "odradek" / "protocol" / "messages"
MAX_FILE_LINES = 600
MAX_FUNCTION_LINES = 70

# Reaching for the world instead of taking a port would keep a module out of the simulator.
WORLD_CALLS = re.compile(
    r"\b(time\.(time|time_ns|monotonic|monotonic_ns|sleep|perf_counter)|random\.(random|randint|choice|shuffle|randrange)"
    r"|uuid\.?uuid[14]|secrets\.|os\.urandom|datetime\.(now|utcnow)|threading\.)"
)
# Rooms that are the edge of the world: tools, the real ports, the assembly of the node, and helpers for tests.
WORLD_ROOMS = (
    "common/real_https.py",
    "common/real_io.py",
    "common/real_kerberos.py",
    "common/real_threads.py",
    "common/real_tls.py",
    "common/real_worker.py",
    "server/startup/process.py",
    "admin/",
    "cli/",
    "capture/",
    "console/",
    "host/",
    "merge/",
    "security/client/",
    "testing/",
)
# Modules that start simulations and measure them run outside of them; the sandbox knows what it keeps out.
OUTSIDE_THE_BOX = ("sandbox.py", "__main__.py", "bugs.py", "coverage.py", "failures.py", "drawn.py")
# Fields of dataclasses that hold secrets, as their names say; a `repr` gets into logs and tracebacks.
NAMES_OF_SECRETS = re.compile(
    r"pass(word|phrase)|secret|token|credential|jaas|salt|hmac|(stored|server|private|client)_key"
    r"|^(explicit|properties|options|environment)$|scram"
)
TYPES_OF_SECRETS = re.compile(r"\b(str|bytes|Value)\b")
NO_SECRETS = {
    "DelegationToken.token_id",  # the id alone, which is the user's name in a login
    "MetadataImage.delegation_tokens",  # without their secrets
    "MetadataImage.scram",  # whose credentials hide themselves
    "Named.delegation_token",  # ids
}
# A comment that turns a check off without a reason behind it, as in `# type: ignore[code]  # why`.
BARE_IGNORE = re.compile(r"# *(type: *ignore(\[[^]]*])?|noqa(: *[A-Z]+[0-9]+(, *[A-Z]+[0-9]+)*)?) *$", re.MULTILINE)
BANNED = re.compile(r"raise NotImplementedError|except Exception:\s*pass|\b(TODO|FIXME|XXX)\b")
NO_PLACE_IN_A_PROJECT = re.compile(
    r"(?<![\w.])/work/|\.\./shared|pypi\.org|pythonhosted|registry\.npmjs|repo1?\.maven|proxy\.golang|crates\.io"
)


def python_files(folder: Path) -> Iterator[Path]:
    return (path for path in sorted(folder.rglob("*.py")) if MESSAGES not in path.parents)


@functools.cache
def tree_of(path: Path) -> ast.Module:
    """The syntax of a file, which several rules look at."""
    return ast.parse(path.read_text())


@pytest.fixture(scope="module", autouse=True)
def without_collection() -> Iterator[None]:
    """Run the rules without the garbage collector: millions of syntax nodes all live until the end."""
    gc.disable()
    yield
    tree_of.cache_clear()
    gc.enable()


def tracked_files() -> list[Path]:
    listed = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    return [ROOT / name for name in listed.stdout.splitlines() if (ROOT / name).is_file()]


def functions(tree: ast.Module) -> Iterator[ast.FunctionDef | ast.AsyncFunctionDef]:
    return (node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef))


def name_of(path: Path) -> str:
    return str(path.relative_to(ROOT))


def test_files_and_functions_stay_readable() -> None:
    too_long = []
    for folder in ("src", "tests", "bench", "tools", "examples"):
        for path in python_files(ROOT / folder):
            text = path.read_text()
            lines = text.count("\n")
            if lines > MAX_FILE_LINES:
                too_long.append(f"{name_of(path)}: {lines} lines")
            for function in functions(tree_of(path)):
                length = (function.end_lineno or 0) - function.lineno + 1
                if length > MAX_FUNCTION_LINES:
                    too_long.append(f"{name_of(path)}:{function.lineno} {function.name}: {length} lines")
    assert not too_long, "split by concept:\n" + "\n".join(too_long)


def test_the_world_is_reached_through_ports() -> None:
    reaching = []
    for path in python_files(SOURCES / "odradek"):
        room = str(path.relative_to(SOURCES / "odradek"))
        if room.startswith(WORLD_ROOMS):
            continue
        text = path.read_text()
        for number, line in enumerate(text.splitlines(), 1):
            code = line.split("#", 1)[0]
            if "random." in code and "import random" not in text:
                continue  # a `random.Random` that was passed, by its usual name
            if WORLD_CALLS.search(code) and '"""' not in code and not code.lstrip().startswith("*"):
                reaching.append(f"{name_of(path)}:{number}: {line.strip()}")
    assert not reaching, "take a port as an argument:\n" + "\n".join(reaching)


def test_a_seed_gives_the_same_run_each_time() -> None:
    product = [
        path
        for path in python_files(SOURCES / "odradek")
        if not str(path.relative_to(SOURCES / "odradek")).startswith(WORLD_ROOMS)
    ]
    box = [path for path in sorted((ROOT / "tests" / "sim").glob("*.py")) if path.name not in OUTSIDE_THE_BOX]
    found = [f"{name_of(path)}:{line}: {text}" for path, line, text in findings([*product, *box])]
    assert not found, "these make two runs of one seed differ:\n" + "\n".join(found)


def is_of_fields(node: ast.AST) -> bool:
    """Whether this is a dataclass, or one of settings."""
    decorators = [ast.unparse(each) for each in node.decorator_list] if isinstance(node, ast.ClassDef) else []
    return any(each == "config" or each.startswith(("dataclass", "dataclasses.dataclass")) for each in decorators)


def is_shown_secret(field: ast.AnnAssign) -> bool:
    """Whether a field of a dataclass holds a secret by its name and type, and its `repr` shows it."""
    name, kind = ast.unparse(field.target), ast.unparse(field.annotation)
    if not NAMES_OF_SECRETS.search(name) or not TYPES_OF_SECRETS.search(kind) or "Callable" in kind:
        return False
    value = "" if field.value is None else ast.unparse(field.value)
    return "repr=False" not in value and not value.startswith("option(")  # which hides them by Kafka's table


def test_secrets_are_in_the_repr_of_no_dataclass() -> None:
    shown = [
        f"{name_of(path)}:{field.lineno} {node.name}.{ast.unparse(field.target)}"
        for path in python_files(SOURCES)
        for node in ast.walk(tree_of(path))
        if isinstance(node, ast.ClassDef) and is_of_fields(node)
        for field in node.body
        if isinstance(field, ast.AnnAssign) and is_shown_secret(field)
    ]
    shown = [each for each in shown if each.rpartition(" ")[2] not in NO_SECRETS]
    assert not shown, "field(repr=False), or a line in NO_SECRETS:\n" + "\n".join(shown)


def waits_or_reaches_out(node: ast.AST) -> bool:
    """Whether this sleeps for a time, or imports what opens sockets and starts processes."""
    match node:
        case ast.Import(names=names):
            return any(name.name.partition(".")[0] in {"socket", "subprocess"} for name in names)
        case ast.ImportFrom(module=str(module)):
            return module.partition(".")[0] in {"socket", "subprocess"}
        case ast.Call(func=ast.Attribute(value=ast.Name(id="time"), attr="sleep")):
            return True
        case ast.Call(func=ast.Attribute(value=ast.Name(id="asyncio"), attr="sleep"), args=[delay, *_]):
            return not (isinstance(delay, ast.Constant) and delay.value == 0)
    return False


def test_unit_tests_neither_wait_nor_reach_out() -> None:
    found = [
        f"{name_of(path)}:{getattr(node, 'lineno', 0)}: {ast.unparse(node)}"
        for path in python_files(ROOT / "tests" / "unit")
        for node in ast.walk(tree_of(path))
        if waits_or_reaches_out(node)
    ]
    assert not found, "their place is tests/component:\n" + "\n".join(found)


def test_every_planted_bug_has_its_line() -> None:
    gone = []
    for bug in (*ONE_NODE, *MANY_NODES):
        try:
            with bug.planted():
                pass
        except (LookupError, AttributeError) as error:
            gone.append(str(error))
    assert not gone, "update the planted bugs:\n" + "\n".join(gone)


def test_no_source_has_a_todo_or_a_stub() -> None:
    found = [
        f"{name_of(path)}: {match.group(0)!r}"
        for path in python_files(SOURCES)
        for match in BANNED.finditer(path.read_text())
    ]
    assert not found, "\n".join(found)


def bare_ignores(path: Path) -> Iterator[int]:
    """The lines of a file that turn a check off without a reason; strings of programs may have such a comment."""
    if not BARE_IGNORE.search(path.read_text()):
        return
    with path.open("rb") as file:
        for token in tokenize.tokenize(file.readline):
            if token.type == tokenize.COMMENT and BARE_IGNORE.search(token.string):
                yield token.start[0]


def test_a_check_that_is_turned_off_has_a_reason() -> None:
    found = [
        f"{name_of(path)}:{line}"
        for folder in ("src", "tests", "tools", "bench", "examples")
        for path in python_files(ROOT / folder)
        for line in bare_ignores(path)
    ]
    assert not found, "`# type: ignore[code]  # why`, or `# noqa: X1 - why`:\n" + "\n".join(found)


@pytest.mark.parametrize(
    ("comment", "is_bare"),
    [
        ("# type: ignore", True),
        ("# type: ignore[a-b, c-d]", True),
        ("# noqa", True),
        ("# noqa: B023, E731", True),
        ("# type: ignore[override]  # noqa: N802", True),
        ("# type: ignore[arg-type]  # it only reads", False),
        ("# noqa: S603 - our own interpreter", False),
        ("# noqa: A002  # ssl's name", False),
        ("# type: ignore[override]  # noqa: N802 - Spark's name", False),
    ],
)
def test_ignores_without_a_reason_are_found(tmp_path: Path, comment: str, is_bare: bool) -> None:
    module = tmp_path / "module.py"
    module.write_text(f"pass  {comment}\n")
    assert list(bare_ignores(module)) == ([1] if is_bare else [])


def test_the_project_speaks_of_the_project_alone() -> None:
    found = []
    for path in tracked_files():
        if path.suffix in {".gz", ".xz", ".png", ".zst", ".zip"} or path == Path(__file__).resolve():
            continue
        for number, line in enumerate(path.read_text(errors="replace").splitlines(), 1):
            if NO_PLACE_IN_A_PROJECT.search(line):
                found.append(f"{name_of(path)}:{number}: {line.strip()[:120]}")
    assert not found, "\n".join(found)


def test_every_public_module_says_what_it_owns() -> None:
    silent = [
        name_of(path)
        for path in python_files(SOURCES)
        if path.read_text().strip() and not ast.get_docstring(tree_of(path))
    ]
    assert not silent, "no module docstring:\n" + "\n".join(silent)


def test_every_handler_has_a_test_and_a_row_in_kips() -> None:
    from odradek.protocol.apis import ApiKey
    from odradek.server.handlers import HANDLERS

    tests = "\n".join(path.read_text() for path in (ROOT / "tests").rglob("*.py"))
    kips = (ROOT / "docs" / "kips.md").read_text()
    missing = []
    for handler in HANDLERS:
        key = ApiKey(handler.api_key)
        name = "".join(part.capitalize() for part in key.name.split("_"))
        if f"{key.name.lower()}_request" not in tests and name not in tests:
            missing.append(f"{key.name}: no test names {key.name.lower()}_request")
        if name not in kips:
            missing.append(f"{name}: no row in docs/kips.md")
    assert not missing, "\n".join(missing)


@pytest.mark.parametrize("module", ["tools.generate_docs"])
def test_generated_pages_are_fresh(module: str) -> None:
    done = subprocess.run([sys.executable, "-m", module, "--check"], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr + "\nrun `make docs`"


def test_files_that_pages_name_exist() -> None:
    """Files, folders and patterns of files."""
    named = re.compile(
        r"(?<=`)(?:src|tests|tools|bench|examples|deploy|docs)/[\w/.*-]+(?=[`:])"
        r"|\b(?:src|tests|tools|bench)/[\w/.-]+\.(?:py|txt|toml|tsv)\b"
    )
    pages = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
    gone = [
        f"{name_of(page)}: {file}"
        for page in pages
        for file in named.findall(page.read_text())
        if next(ROOT.glob(file), None) is None
    ]
    assert not gone, "\n".join(gone)


def test_tests_that_pages_name_exist() -> None:
    """A page names tests as `test_x.py::TestClass::test_name`, with or without the folder and the class."""
    named = re.compile(r"\b(?:tests/[\w/]+/)?(test_\w+\.py)::(?:(Test\w+)(?:::)?)?(test_\w+)?")
    texts = {path.name: path.read_text() for path in python_files(ROOT / "tests")}
    gone = [
        f"{name_of(page)}: {found.group(0)}"
        for page in [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
        for found in named.finditer(page.read_text())
        if not all(
            re.search(rf"(?:def|class) {name}\b", texts.get(found.group(1), "")) for name in found.groups()[1:] if name
        )
    ]
    assert not gone, "\n".join(gone)


@pytest.mark.parametrize("folder", ["docs", "docs/adr", "docs/examples"])
def test_an_index_of_pages_has_each_once(folder: str) -> None:
    linked = re.findall(r"\]\(([\w-]+\.md)\)", (ROOT / folder / "README.md").read_text())
    assert sorted(linked) == sorted({page.name for page in (ROOT / folder).glob("*.md")} - {"README.md"})


def test_the_decision_on_layers_has_those_that_are_checked() -> None:
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"]
    checked = ["\n".join(each["layers"]).replace("odradek.", "") for each in contracts if each["type"] == "layers"]
    assert re.findall(r"```\n(.*?)\n```", (ROOT / "docs/adr/0004-layers.md").read_text(), re.DOTALL) == checked


def test_every_changelog_entry_is_under_a_version() -> None:
    text = (ROOT / "CHANGELOG.md").read_text()
    assert text.startswith("# Changelog\n")
    first_entry, first_version = text.find("\n- "), text.find("\n## ")
    assert 0 < first_version < first_entry


def test_commands_in_the_readme_exist() -> None:
    makefile = (ROOT / "Makefile").read_text()
    targets = set(re.findall(r"^([a-z-]+):", makefile, re.MULTILINE))
    named = set()
    for page in (ROOT / "README.md", ROOT / "docs" / "HACKING.md"):
        named |= set(re.findall(r"`make ([a-z-]+)", page.read_text()))
    assert named <= targets, f"no such target: {sorted(named - targets)}"
