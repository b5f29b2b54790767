"""Write `tests/protocol/golden/kafka.jsonl.xz`: bytes of Kafka's own classes for every message and version.

    python -m tools.golden_java

Values are made here, go through Kafka's JsonConverter classes (Golden.java), and come back as bytes. Needs a JDK and
Maven.
"""

from __future__ import annotations

import json
import lzma
import shutil
import subprocess
import sys
from collections import Counter
from pathlib import Path

from tests.protocol.kafka_json import to_json
from tests.protocol.values import STYLES, all_messages, sample, structs_within

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
GOLDEN = ROOT / "tests" / "protocol" / "golden" / "kafka.jsonl.xz"
CLASSPATH = ROOT / ".cache" / "golden.classpath"


def classpath() -> str:
    """The class path of Kafka's jars and their dependencies, as Maven resolves them."""
    mvn = shutil.which("mvn")
    if mvn is None:
        raise SystemExit("Maven is missing: install it (Debian: apt-get install maven) and try again")
    CLASSPATH.parent.mkdir(exist_ok=True)
    command = [mvn, "-q", "-B", "-f", str(HERE / "pom.xml"), "dependency:build-classpath"]
    subprocess.run([*command, f"-Dmdep.outputFile={CLASSPATH}"], check=True)
    return CLASSPATH.read_text().strip()


def java_name(name: str, kind: str) -> str:
    """The name of Kafka's class for a message."""
    return f"{name}Data" if kind in ("request", "response", "header") else name


def cases() -> list[tuple[str, int, str, str]]:
    """(message, version, Kafka's class, JSON) of every case."""
    found = []
    for cls in all_messages():
        for version in cls.VERSIONS.versions():
            for style, seed in (*((style, 0) for style in STYLES), ("random", 1), ("random", 2)):
                message = sample(cls, version, style, seed)
                shown = json.dumps(to_json(message, version, version in cls.FLEXIBLE), separators=(",", ":"))
                found.append((cls.__name__, version, java_name(cls.__name__, cls.KIND), shown))
            for part, name in ((cls, ""), *((part, f"${part.__name__}") for part in structs_within(cls, version))):
                found.append(
                    (f"{cls.__name__}/{part.__name__}", version, java_name(cls.__name__, cls.KIND) + name, "null")
                )
    return found


def main() -> int:
    """Make the values, have them encoded, keep both."""
    java = shutil.which("java")
    if java is None:
        raise SystemExit("a JDK is missing: install one of version 17 or newer")
    wanted = cases()
    lines = "".join(f"{java_class}\t{version}\t{shown}\n" for _, version, java_class, shown in wanted)
    command = [java, "-cp", classpath(), str(HERE / "Golden.java")]
    answered = subprocess.run(command, input=lines.encode(), stdout=subprocess.PIPE, check=True).stdout.decode()
    answers = answered.splitlines()
    assert len(answers) == len(wanted), f"{len(wanted)} cases, {len(answers)} answers"
    # records that must not be null have no default that can be encoded
    failed = Counter(
        answer
        for answer, (*_, shown) in zip(answers, wanted, strict=True)
        if answer.startswith("error") and not (shown == "null" and 'ecords" is null' in answer)
    )
    for why, count in failed.most_common(20):
        print(f"{count} times {why[:160]}")
    rows = [
        f'{{"message":"{name}","version":{version},"value":{shown},"bytes":"{answer}"}}\n'
        for (name, version, _, shown), answer in zip(wanted, answers, strict=True)
        if not answer.startswith("error")
    ]
    GOLDEN.parent.mkdir(exist_ok=True)
    GOLDEN.write_bytes(lzma.compress("".join(rows).encode(), preset=9 | lzma.PRESET_EXTREME))
    print(f"{len(rows)} cases, {failed.total()} failed, {GOLDEN.stat().st_size:,} bytes")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
