"""tools/packages.sh installs missing packages in one call for root on Debian; no error in it ends a run."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]
POLICY = "/usr/sbin/policy-rc.d"
DAY_S = 24 * 3600
RELEASE = Path("/etc/os-release")
pytestmark = pytest.mark.skipif(
    not RELEASE.exists() or "ID=debian" not in RELEASE.read_text().split(), reason="the script is for Debian"
)


class Machine:
    """Programs that replace Debian's, first on the path, and the arguments of their calls."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.calls = folder / "calls"
        self.policy = folder / "policy-rc.d"
        self.failed = folder / "project" / ".cache" / "packages"
        self.script = folder / "project" / "tools" / "packages.sh"
        self.script.parent.mkdir(parents=True)
        text = (ROOT / "tools" / "packages.sh").read_text()
        assert POLICY in text
        self.script.write_text(text.replace(POLICY, str(self.policy)))
        self.script.chmod(0o755)
        shutil.copy(ROOT / "tools" / "apt.sh", self.script.parent)
        self.program("id", "echo 0")
        self.program("sleep", "")
        self.program(
            "dpkg-query", f'case "$*" in *there*) echo installed ;; *) cat {folder}/is-"$4" 2>/dev/null ;; esac'
        )
        self.program("apt-cache", 'case "$*" in *unknown*) exit 100 ;; esac')
        self.apt("")

    def apt(self, script: str) -> None:
        """Replace apt-get by a program that runs this script and then installs the packages of its command."""
        installs = f'for each; do echo installed > {self.folder}/is-"$each"; done'
        self.program("apt-get", f'echo "$*" >> {self.calls}\n{script}\n{installs}')

    def program(self, name: str, script: str) -> None:
        file = self.folder / name
        file.write_text(f"#!/bin/sh\n{script}\n")
        file.chmod(0o755)

    def run(self, *packages: str, **variables: str) -> str:
        """Run packages.sh, which never fails, and return its messages."""
        variables = {"PATH": f"{self.folder}:{os.environ['PATH']}"} | variables
        done = subprocess.run([self.script, *packages], env=os.environ | variables, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        return done.stderr

    @property
    def installed(self) -> list[str]:
        """The packages of each call that installs, in one text."""
        lines = self.calls.read_text().splitlines() if self.calls.exists() else []
        return [line.partition(" install ")[2] for line in lines if " install " in line]


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    return Machine(tmp_path)


def test_missing_packages_are_installed_in_one_call(machine: Machine) -> None:
    said = machine.run("first", "is-there", "second", "unknown")
    assert machine.installed == ["first second"]
    assert said.splitlines()[0] == "Installing with apt-get what tests need: first second unknown"
    assert "does not know unknown" in said


def test_apt_is_not_called_where_all_packages_are_installed(machine: Machine) -> None:
    assert machine.run("is-there") == ""
    assert not machine.calls.exists()


def test_only_root_installs(machine: Machine) -> None:
    machine.program("id", "echo 1000")
    assert machine.run("first") == ""
    assert not machine.calls.exists()


def test_packages_that_cannot_be_had_end_no_run(machine: Machine) -> None:
    machine.program("apt-get", "exit 100")
    assert "could not install first: tests that need it are skipped" in machine.run("first")


def test_root_can_have_nothing_installed(machine: Machine) -> None:
    assert machine.run("first", PACKAGES="no") == ""
    assert not machine.calls.exists()


def test_a_package_that_cannot_be_had_is_asked_for_once_a_day(machine: Machine) -> None:
    assert "Not tried again for a day" in machine.run("first", "unknown")
    calls = machine.calls.read_text()
    assert machine.run("first", "unknown") == ""
    assert machine.calls.read_text() == calls
    (stamp,) = machine.failed.iterdir()
    os.utime(stamp, (stamp.stat().st_mtime - DAY_S - 60,) * 2)
    assert "does not know unknown" in machine.run("first", "unknown")
    assert machine.calls.read_text() != calls


def test_one_package_that_cannot_be_installed_keeps_none_away(machine: Machine) -> None:
    machine.apt('case "$*" in *bad*) exit 100 ;; esac')
    said = machine.run("first", "bad", "second")
    assert "could not install bad: tests that need it are skipped" in said
    assert machine.installed == ["first bad second", "first", "bad", "second"]
    assert [each.name for each in machine.failed.iterdir()] == ["bad"]


def test_services_are_forbidden_while_packages_are_installed(machine: Machine) -> None:
    machine.apt(f'case "$*" in *install*) {machine.policy}; echo "policy $?" >> {machine.calls} ;; esac')
    machine.run("first")
    assert machine.calls.read_text().splitlines()[-1] == "policy 101"
    assert not machine.policy.exists()


def test_a_policy_of_services_that_is_there_stays(machine: Machine) -> None:
    machine.policy.write_text("the administrator's")
    machine.run("first")
    assert machine.installed == ["first"]
    assert machine.policy.read_text() == "the administrator's"


def test_another_apt_get_that_reads_lists_is_waited_for(machine: Machine) -> None:
    held = machine.folder / "held"
    held.touch()
    machine.apt(f'case "$*" in *update) rm {held} 2>/dev/null && exit 100 ;; esac')
    machine.run("first")
    assert [line.split()[-1] for line in machine.calls.read_text().splitlines()] == ["update", "update", "first"]


def test_headers_are_looked_for_in_the_environment_that_is_named(machine: Machine) -> None:
    python = machine.folder / "elsewhere" / "bin" / "python"
    python.parent.mkdir(parents=True)
    machine.program("elsewhere/bin/python", f"echo {machine.folder}")
    (machine.folder / "Python.h").touch()
    said = machine.run(VENV=str(python.parents[1]))
    assert "python3-dev" not in said
    assert "not found" not in said


def test_kerberos_is_built_from_any_folder(machine: Machine) -> None:
    """The environment is the caller's, the locked packages are the project's."""
    asked = machine.folder / "asked"
    (machine.folder / "venv" / "bin").mkdir(parents=True)
    machine.program("krb5-config", "")
    machine.program("venv/bin/pip", f'for file; do :; done; [ -f "$file" ] && echo "$file" > {asked}')
    path = {"PATH": f"{machine.folder}:{os.environ['PATH']}"}
    subprocess.run([ROOT / "tools" / "kerberos.sh", "venv"], cwd=machine.folder, env=os.environ | path, check=True)
    assert asked.read_text() == "requirements/kerberos.txt\n"


@pytest.mark.parametrize("taken", [True, False])
def test_pictures_fail_where_none_was_taken(tmp_path: Path, taken: bool) -> None:
    (tmp_path / "docs" / "pictures").mkdir(parents=True)
    old = tmp_path / "docs" / "pictures" / "old.png"
    old.touch()
    os.utime(old, (0, 0))
    python = tmp_path / "python"
    python.write_text("#!/bin/sh\n" + ('touch -d 2100-01-01 "$CONSOLE_PICTURES/new.png"\n' if taken else ""))
    python.chmod(0o755)
    # The targets that it depends on count as done.
    there = ["-o", ".venv/.installed", "-o", "ready-packages"]
    command = ["make", "-f", str(ROOT / "Makefile"), *there, "pictures", f"PYTHON={python}"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
    assert (done.returncode == 0) == taken, done.stderr
    assert ("no picture was taken" in done.stderr) != taken
