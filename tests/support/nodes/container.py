"""Runs what a Containerfile declares without a container engine, in namespaces with read-only mounts and a user.

The paths are those of the file: they are mounted in the namespace of the process alone. Needs root and util-linux.
"""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

import dockerfile

from tests.support.waiting import PATIENCE_S

ROOT = Path(__file__).resolve().parents[3]
CONTAINERFILE = ROOT / "deploy" / "container" / "Containerfile"
PROGRAMS = ("ip", "nsenter", "setpriv", "unshare")
HOME = Path("/root")  # which other users cannot look into, though Python may be in it


def why_not() -> str:
    """The reason why this machine cannot run it; "" if it can."""
    missing = [name for name in PROGRAMS if shutil.which(name) is None]
    if missing:
        return f"{', '.join(missing)} are not installed"
    done = subprocess.run(["unshare", "--mount", "--net", "ip", "link", "set", "lo", "up"], capture_output=True)
    return "" if done.returncode == 0 else "this user may not make namespaces"


class Containerfile:
    """The instructions of the file, in order.

    Attributes:
        stages: the instructions of each stage, without its FROM.
    """

    def __init__(self) -> None:
        self.commands = dockerfile.parse_file(str(CONTAINERFILE))
        self.stages: list[list[dockerfile.Command]] = []
        for command in self.commands:
            if command.cmd.upper() == "FROM":
                self.stages.append([])
            else:
                self.stages[-1].append(command)

    def last(self, name: str) -> tuple[str, ...]:
        """The words of the last instruction of that name."""
        return tuple([each.value for each in self.stages[-1] if each.cmd.upper() == name][-1])

    @property
    def user(self) -> int:
        (user,) = self.last("USER")
        return int(user.partition(":")[0])

    @property
    def environment(self) -> dict[str, str]:
        words = [word.strip('"') for word in self.last("ENV")]
        return dict(zip(words[::3], words[1::3], strict=True))  # name, value, "="

    @property
    def command(self) -> list[str]:
        return [*self.last("ENTRYPOINT"), *self.last("CMD")]

    @property
    def health_check(self) -> list[str]:
        (check,) = [each for each in self.stages[-1] if each.cmd.upper() == "HEALTHCHECK"]
        words = check.value
        return list(words[words.index("CMD") + 1 :] if "CMD" in words else words)


class Namespace:
    """The namespace in which the commands of a Containerfile run.

    Args:
        folder: holds `opt` and `lib`, which are mounted at /opt and /var/lib.
        user: the user id of the commands.
    """

    def __init__(self, folder: Path, user: int) -> None:
        self.folder = folder
        self.user = user
        for name in ("opt", "lib/odradek", "keep/python", "keep/project"):
            (folder / name).mkdir(parents=True, exist_ok=True)
        for name in ("opt", "lib", "lib/odradek"):
            os.chown(folder / name, user, user)

    def command(
        self, words: Sequence[str], environment: Mapping[str, str], *, venv: Path | None = None, writable: str = ""
    ) -> list[str]:
        """The command line of a process that mounts what is needed and becomes these words.

        Args:
            venv: is mounted at /opt/odradek.
            writable: a folder that is writable beside /var/lib/odradek.
        """
        python, project = Path(sys.base_prefix), ROOT
        lines = ["set -e", "ip link set lo up", "mount --make-rprivate /"]
        kept = [(name, path) for name, path in (("python", python), ("project", project)) if path.is_relative_to(HOME)]
        lines += [f"mount --bind {path} {self.folder}/keep/{name}" for name, path in kept]
        if venv is not None:
            (self.folder / "opt" / "odradek").mkdir(exist_ok=True)
            lines.append(f"mount --bind {venv} {self.folder}/opt/odradek")
        lines += [f"mount --rbind {self.folder}/opt /opt", f"mount --rbind {self.folder}/lib /var/lib"]
        if kept:
            lines.append(f"mount -t tmpfs -o mode=755 tmpfs {HOME}")
            for name, path in kept:
                lines += [f"mkdir -p {path}", f"mount --bind {self.folder}/keep/{name} {path}"]
            lines += [f"mount -o remount,bind,ro {path}" for _, path in kept]
        lines += [f"mount -o remount,bind,ro {path}" for path in ("/", "/opt", "/var/lib") if path != writable]
        lines += ["mount --bind /var/lib/odradek /var/lib/odradek", "mount -o remount,bind,rw /var/lib/odradek"]
        lines.append("cd /var/lib/odradek")
        drop = ["setpriv", f"--reuid={self.user}", f"--regid={self.user}", "--clear-groups", "--bounding-set=-all"]
        drop += ["--no-new-privs", "env", "-i", *(f"{key}={value}" for key, value in environment.items())]
        lines.append(f"exec {shlex.join([*drop, *words])}")
        return ["unshare", "--mount", "--net", "sh", "-c", "\n".join(lines)]

    def enter(self, pid: int, words: Sequence[str], environment: Mapping[str, str]) -> subprocess.CompletedProcess[str]:
        """Run a command beside a process, as `podman exec` does."""
        command = ["nsenter", "--mount", "--net", "-t", str(pid), "setpriv", f"--reuid={self.user}"]
        command += [f"--regid={self.user}", "--clear-groups", *words]
        return subprocess.run(command, env=dict(environment), capture_output=True, text=True, timeout=PATIENCE_S)
