"""The rooms whose tests are tried, and which tests those are."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
SOURCES = ROOT / "src"
SCENARIO = "tests/scenarios/test_scenario_files.py::test_a_scenario"
# Whether planted bugs are found says nothing of a mutant; where steps are counted, so are the marks of the first run.
# Every default of a setting is in Kafka's table, or in the one of our own settings.
DEFAULTS = "unit/settings/test_broker_settings.py"
LEFT_OUT = ("_planted.py", "_bugs.py", "test_log_many_segments.py")


@dataclass(frozen=True, slots=True)
class Room:
    """Modules, and the tests that run against their mutants.

    Attributes:
        modules: files and folders below src.
        tests: files and folders below tests.
        scenarios: prefixes of the files in tests/scenarios.
    """

    modules: tuple[str, ...]
    tests: tuple[str, ...]
    scenarios: tuple[str, ...] = ()

    def sources(self) -> Iterator[tuple[str, Path]]:
        """The name and the file of each module."""
        for each in self.modules:
            path = SOURCES / each
            for file in [path] if path.is_file() else sorted(path.rglob("*.py")):
                parts = file.relative_to(SOURCES).with_suffix("").parts
                yield ".".join(parts[:-1] if parts[-1] == "__init__" else parts), file

    def arguments(self) -> list[str]:
        """The arguments of pytest."""
        files = []
        for each in self.tests:
            path = ROOT / "tests" / each
            found = [path] if path.is_file() else sorted(path.rglob("test_*.py"))
            files += [str(file.relative_to(ROOT)) for file in found if not file.name.endswith(LEFT_OUT)]
        scenarios = sorted((ROOT / "tests" / "scenarios").glob("*.txt"))
        return files + [
            f"{SCENARIO}[{file.stem}]" for file in scenarios if file.stem.startswith(self.scenarios or ("/",))
        ]


def _of(name: str, *scenarios: str) -> Room:
    return Room((f"odradek/{name}",), (f"unit/{name}", f"component/{name}", DEFAULTS), scenarios)


COMMIT = (
    "topic_sink/transaction",
    "standby/commit",
    "standby/batches",
    "micro_batch/checkpoint",
    "micro_batch/staging",
    "topic_sink/marker_topic",
    "client/offsets",
)
ROOMS = {
    "record": _of("record"),
    "log": Room(
        ("odradek/log",),
        (
            "unit/log",
            "component/log",
            "unit/replica/test_log_dir_moves.py",
            "unit/replica/test_promotion.py",
            "unit/replica/test_failback.py",
            "component/replica/test_repair_service.py",
            DEFAULTS,
        ),
    ),
    "replica": Room(
        ("odradek/replica",),
        (
            "unit/replica",
            "component/replica",
            "integration/test_replication.py",
            "integration/test_repair.py",
            DEFAULTS,
        ),
        ("isr_",),
    ),
    "raft": Room(
        ("odradek/raft",), ("unit/raft", "component/raft", "scenarios/test_controller_restart.py", DEFAULTS), ("raft_",)
    ),
    "controller": Room(
        ("odradek/controller",),
        ("unit/controller", "scenarios/test_controller_restart.py", "scenarios/test_metadata_dump.py", DEFAULTS),
        ("controller_",),
    ),
    "coordinator": _of("coordinator", "group_", "txn_"),
    "commit": Room(
        tuple(f"pyspark_odradek/{name}.py" for name in COMMIT),
        (
            "component/commit",
            *(
                f"spark/test_{name}.py"
                for name in ("transaction", "output_lease", "checkpoint", "staging_files", "offsets", "marker_topic")
            ),
        ),
    ),
}
