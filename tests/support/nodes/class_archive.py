"""Class archives: classes that one JVM has loaded and verified, in a file that later JVMs map (class data sharing).

A JVM that lives for a second spends most of it on loading classes. An archive is valid for one Java and one class path,
so its folder has both in its name; the first process that needs it creates it, and others start without it until it is
there: a test never waits for an archive of another process, and never fails because there is none.
"""

from __future__ import annotations

import fcntl
import hashlib
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Iterable
from pathlib import Path

# A JVM that cannot use its archive says so on the standard output, which belongs to its program.
_SILENT = ("-Xshare:auto", "-Xlog:disable", "-Xlog:all=error:stderr")
_WHY_NOT = "why-not.txt"


def fingerprint(java: Path, jars: Iterable[Path], *more: object) -> str:
    """A name for a Java, the files of a class path and other inputs of an archive; it changes when they do."""
    home = java.resolve().parents[1]
    facts = [str(home), *(str(fact) for fact in more)]
    for file in (home / "release", home / "lib" / "modules", *sorted(jars)):
        if file.exists():
            stat = file.stat()
            facts.append(f"{file} {stat.st_size} {stat.st_mtime_ns}")
    return hashlib.sha256("\n".join(facts).encode()).hexdigest()[:16]


def found(home: Path, name: str) -> Path | None:
    """The folder of the archives of a name; None where they are not made."""
    folder = home / f"classes-{name}"
    return folder if folder.exists() else None


def archives(home: Path, name: str, make: Callable[[Path], None]) -> Path | None:
    """The folder of the archives of a name, made first where it is missing; None while another process makes it.

    Args:
        home: the parent of this folder and of those with other names, which are removed when this one is made.
        name: the result of `fingerprint`.
        make: fills the folder. If it fails, the folder has the reason and no archives, and it is not tried again. It
            may request the same archives, and gets none.
    """
    folder = home / f"classes-{name}"
    if folder.exists():
        return folder
    home.mkdir(parents=True, exist_ok=True)
    with (home / ".classes.lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            return None
        if not folder.exists():
            others = list(home.glob("classes-*"))
            try:
                filled = _fill(home, make)
            except subprocess.TimeoutExpired:
                return None  # a busy machine: the next one tries again
            filled.rename(folder)
            for other in others:
                shutil.rmtree(other, ignore_errors=True)
    return folder


def _fill(home: Path, make: Callable[[Path], None]) -> Path:
    filled = Path(tempfile.mkdtemp(dir=home, prefix="classes-being-made-"))
    try:
        make(filled)
    except (AssertionError, OSError, subprocess.CalledProcessError) as error:
        for file in filled.glob("*.jsa"):
            file.unlink()
        (filled / _WHY_NOT).write_text(f"{type(error).__name__}: {error}\n")
    except BaseException:
        shutil.rmtree(filled, ignore_errors=True)
        raise
    return filled


def write_options(archive: Path) -> tuple[str, ...]:
    """The options of a JVM that, when it ends, writes an archive of all classes that it has loaded."""
    return (*_SILENT, f"-XX:ArchiveClassesAtExit={archive}")


def read_options(archive: Path | None) -> tuple[str, ...]:
    """The options of a JVM that uses an archive; none if there is no archive."""
    return (*_SILENT, f"-XX:SharedArchiveFile={archive}") if archive is not None and archive.exists() else ()
