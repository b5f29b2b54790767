"""One target under Atheris, which is libFuzzer for Python: it keeps and mutates inputs that reach new edges of the
product's bytecode, while our own engine knows only lines, and only for some of its inputs.

libFuzzer ends the process at the first input that fails: `under_atheris.py` starts one for each turn of a target. Half
of the changes are those of our engine, which knows the words of a target.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from random import Random

import atheris

with atheris.instrument_imports(include=["odradek", "pyspark_odradek"]):
    from tests.fuzz.engine import CORPUS, corpus_of, mutate, run_one
    from tests.fuzz.targets import TARGETS

# Well-formed inputs to begin with, beside those that are kept.
GENERATED = 200
MAX_INPUT_BYTES = 1 << 16
MEMORY_MB = 1536


def main() -> None:
    """Run until time is up; never returns."""
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz.guided")
    parser.add_argument("--target", choices=[target.name for target in TARGETS], required=True)
    parser.add_argument("--seconds", type=int, default=60)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--folder", type=Path, required=True, help="gets inputs that reach more, and one that fails")
    options = parser.parse_args()
    target = next(target for target in TARGETS if target.name == options.target)
    kept = corpus_of(target.name)

    def change(data: bytes, max_size: int, seed: int) -> bytes:
        random = Random(seed)
        if random.random() < 0.5:
            return bytes(atheris.Mutate(data, max_size))
        return mutate(data, kept, target.words, random)[:max_size]

    found = options.folder / "found"
    found.mkdir()
    for number in range(GENERATED):
        (found / f"generated-{number}").write_bytes(target.generate(Random(f"{options.seed} {number}")))
    arguments = [
        sys.argv[0],
        str(found),
        *([str(CORPUS / target.name)] if kept else []),
        f"-max_total_time={options.seconds}",
        f"-seed={options.seed}",
        f"-artifact_prefix={options.folder}/",
        f"-max_len={MAX_INPUT_BYTES}",
        f"-rss_limit_mb={MEMORY_MB}",
        "-timeout=30",
        "-print_final_stats=1",
    ]
    atheris.Setup(arguments, lambda data: run_one(target, data), custom_mutator=change)
    atheris.Fuzz()


if __name__ == "__main__":
    main()
