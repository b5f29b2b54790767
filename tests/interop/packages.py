"""The suites' needs of the machine: found, installed by `tools/packages.sh`, or a reason to skip."""

from __future__ import annotations

import contextlib
import fcntl
import shutil
import subprocess
from collections.abc import Iterator, Sequence
from pathlib import Path

from tests.support.nodes.apache_kafka import CACHE

INSTALL = Path(__file__).resolve().parents[2] / "tools" / "packages.sh"

BUILD_PACKAGES = (
    "gcc",
    "g++",
    "make",
    "pkg-config",
    "libssl-dev",
    "zlib1g-dev",
    "libzstd-dev",
    "liblz4-dev",
    "libsasl2-dev",
    "libcurl4-openssl-dev",
    "rapidjson-dev",
)


class MissingError(Exception):
    """Something that a suite needs is not available on this machine; the text says what, in one line."""


@contextlib.contextmanager
def cache_folder(name: str) -> Iterator[Path]:
    """A folder below `.cache`, held by one process at a time: two test runs must not build in each other's way."""
    folder = CACHE / name
    folder.mkdir(parents=True, exist_ok=True)
    with (CACHE / f".{name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield folder


def require_command(command: str, package: str | None = None) -> str:
    """The path of a command, after an attempt to install its Debian package; raises MissingError."""
    found = shutil.which(command)
    if found is None and package is not None:
        require_packages([package])
        found = shutil.which(command)
    if found is None:
        raise MissingError(f"{command} is not on PATH")
    return found


def require_packages(packages: Sequence[str]) -> None:
    """See to it that Debian packages are installed; raises MissingError where they are not and we may not."""
    if shutil.which("dpkg-query") is None:
        return  # not Debian: the build itself will say what it misses
    if all(map(_is_installed, packages)):
        return
    subprocess.run([INSTALL, *packages], stdin=subprocess.DEVNULL)
    missing = [package for package in packages if not _is_installed(package)]
    if missing:
        raise MissingError(f"Debian packages are missing: apt-get install {' '.join(missing)}")


def _is_installed(package: str) -> bool:
    done = subprocess.run(["dpkg-query", "-W", "-f", "${Status}", package], capture_output=True, text=True)
    return done.returncode == 0 and done.stdout.endswith(" installed")


def run_step(command: Sequence[str], folder: Path, output: Path, what: str) -> None:
    """Run one step of a build with its output in a file; raises MissingError with the last lines of it."""
    with output.open("ab") as log:
        done = subprocess.run(command, cwd=folder, stdout=log, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL)
    if done.returncode != 0:
        raise MissingError(f"{what} failed: {output.read_text(errors='replace')[-400:]}")
