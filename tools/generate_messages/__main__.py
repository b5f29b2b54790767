"""Rewrite the declarations, or with --check only show how they would change.

    python -m tools.generate_messages [--check] [--kafka VERSION]

Exit code 1 with --check where the committed files differ from Kafka's definitions.
"""

from __future__ import annotations

import argparse
import difflib
import subprocess
import sys
import tempfile
from pathlib import Path

from tools.generate_messages.index import api_key_source, index_source
from tools.generate_messages.jars import KAFKA_VERSION, fetch, read_definitions
from tools.generate_messages.write import module_source, snake_case

PROTOCOL = Path(__file__).resolve().parents[2] / "src" / "odradek" / "protocol"
PACKAGE = '"""One module for each message of Kafka\'s protocol and logs; import the module that you need."""\n'


def wanted_files(version: str) -> dict[Path, str]:
    """Every generated file with its text. Messages without versions (of APIs that Kafka removed) have none."""
    definitions = read_definitions(fetch(version))
    messages = PROTOCOL / "messages"
    files = {
        PROTOCOL / "api_key.py": api_key_source(definitions),
        messages / "__init__.py": PACKAGE,
        messages / "index.py": index_source(definitions),
    }
    for _, definition in definitions:
        if definition["validVersions"] != "none":
            files[messages / f"{snake_case(definition['name'])}.py"] = module_source(definition)
    return formatted(files)


def formatted(files: dict[Path, str]) -> dict[Path, str]:
    """The same files as `make format` would leave them."""
    with tempfile.TemporaryDirectory() as folder:
        names = {path: Path(folder, f"{number}.py") for number, path in enumerate(files)}
        for path, name in names.items():
            name.write_text(files[path])
        command = [sys.executable, "-m", "ruff", "format", "-q", "--no-cache", "--line-length", "120", folder]
        subprocess.run(command, check=True)
        return {path: name.read_text() for path, name in names.items()}


def main() -> int:
    """Compare, and write unless `--check` is given."""
    parser = argparse.ArgumentParser(prog="python -m tools.generate_messages")
    parser.add_argument("--check", action="store_true", help="write nothing; exit 1 if anything would change")
    parser.add_argument("--kafka", default=KAFKA_VERSION, help="the release to read (default: %(default)s)")
    options = parser.parse_args()
    wanted = wanted_files(options.kafka)
    present = {path: path.read_text() for path in (PROTOCOL / "messages").glob("*.py")}
    changed = 0
    for path in sorted(wanted.keys() | present.keys()):
        old = present.get(path) or (path.read_text() if path.exists() else "")
        new = wanted.get(path, "")
        if old == new:
            continue
        changed += 1
        name = str(path.relative_to(PROTOCOL))
        sys.stdout.writelines(difflib.unified_diff(old.splitlines(True), new.splitlines(True), name, name, n=1))
        if options.check:
            continue
        if new:
            path.write_text(new)
        else:
            path.unlink()
    print(f"{len(wanted)} files, {changed} {'would change' if options.check else 'changed'}")
    return 1 if options.check and changed else 0


if __name__ == "__main__":
    sys.exit(main())
