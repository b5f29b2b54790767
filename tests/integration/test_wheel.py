"""The wheel builds, and runs a broker on every version of Python that the package claims.

An interpreter is looked for on the path and where pyenv and uv put theirs. Dependencies come from pip as it is set up
here. A version that is not on the machine skips, and so does a machine whose pip reaches no index.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tomllib
import zipfile
from collections.abc import Sequence
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
VERSIONS = ("3.11", "3.12", "3.13")
PATIENCE_S = 900
# Run in the new environment: a broker, a record through each end of it by the command line, one by librdkafka.
PROGRAM = """
import importlib.util
import subprocess
import sys
from pathlib import Path

from odradek.testing import EmbeddedBroker

command = Path(sys.executable).with_name("odradek")
assert "site-packages" in importlib.util.find_spec("odradek").origin
assert importlib.util.find_spec("pyspark_odradek") is not None


def run(*words, text=None):
    done = subprocess.run([command, *words], input=text, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, (words, done.stdout, done.stderr)
    return done.stdout


with EmbeddedBroker() as broker:
    server = ["--bootstrap-server", broker.bootstrap_servers]
    run("produce", "letters", "--compression-codec", "zstd", *server, text="a\\nb\\nc\\n")
    print(run("consume", "letters", "--from-beginning", "--max-messages", "3", *server).split())
    print(run("groups", "list", *server) is not None)
"""


def interpreter(version: str) -> Path | None:
    """A Python of a minor version; the one that runs the tests is one of them."""
    if f"{sys.version_info.major}.{sys.version_info.minor}" == version:
        return Path(sys.executable)
    pyenv = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv")) / "versions"
    uv = Path(os.environ.get("UV_PYTHON_INSTALL_DIR", Path.home() / ".local" / "share" / "uv" / "python"))
    found = [
        *(Path(each) for each in [shutil.which(f"python{version}")] if each),
        *sorted(pyenv.glob(f"{version}.*/bin/python")),
        *sorted(uv.glob(f"cpython-{version}.*/bin/python{version}")),
    ]
    return next((path for path in found if _is(path, version)), None)


def _is(path: Path, version: str) -> bool:
    """Whether it is that Python: a command of pyenv may be a script that knows no such version."""
    asked = "import sys, venv, ensurepip; print('%d.%d' % sys.version_info[:2])"
    done = subprocess.run([path, "-c", asked], capture_output=True, text=True, timeout=PATIENCE_S)
    return done.returncode == 0 and done.stdout.strip() == version


def run(words: Sequence[str | Path], cwd: Path) -> subprocess.CompletedProcess[str]:
    clean = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "VIRTUAL_ENV")}
    return subprocess.run(words, cwd=cwd, env=clean, capture_output=True, text=True, timeout=PATIENCE_S)


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("wheel")
    done = run([sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", folder], ROOT)
    assert done.returncode == 0, done.stderr
    (built,) = folder.glob("*.whl")
    return built


def test_the_classifiers_claim_what_is_tested() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    language = "Programming Language :: Python :: "
    claimed = tuple(each.removeprefix(language) for each in project["classifiers"] if each.startswith(language))
    assert claimed == VERSIONS
    assert project["requires-python"] == f">={VERSIONS[0]}"


def test_the_wheel_has_every_file_of_the_packages(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        inside = set(archive.namelist())
    listed = run(["git", "ls-files", "src"], ROOT)
    if listed.returncode:
        pytest.skip(f"not a clone of git: {listed.stderr.strip()}")
    files = {name.removeprefix("src/") for name in listed.stdout.splitlines() if (ROOT / name).is_file()}
    assert files <= inside, sorted(files - inside)


@pytest.mark.slow
@pytest.mark.timeout(PATIENCE_S)
@pytest.mark.parametrize("version", VERSIONS)
def test_the_wheel_runs(wheel: Path, version: str, tmp_path: Path) -> None:
    python = interpreter(version)
    if python is None:
        pytest.skip(f"no Python {version} on the path, and none of pyenv or uv")
    made = run([python, "-m", "venv", tmp_path / "venv"], tmp_path)
    assert made.returncode == 0, made.stderr
    own = tmp_path / "venv" / "bin" / "python"
    pip: list[str | Path] = [own, "-m", "pip", "--disable-pip-version-check", "--no-input"]
    reached = run([*pip, "download", "-q", "--no-deps", "-d", tmp_path / "probe", "rich"], tmp_path)
    if reached.returncode:
        pytest.skip(f"pip reaches no index: {reached.stderr.strip().splitlines()[-1]}")
    installed = run([*pip, "install", "-q", wheel], tmp_path)
    assert installed.returncode == 0, installed.stderr
    (tmp_path / "program.py").write_text(PROGRAM)
    done = run([own, "-W", "error", tmp_path / "program.py"], tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.splitlines() == ["['a', 'b', 'c']", "True"]
