"""The load generator: `load.c` over librdkafka, built once, one process a measurement."""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.interop.librdkafka_suite import sources
from tests.interop.packages import cache_folder, require_command, run_step

SOURCE = Path(__file__).with_name("load.c")


@dataclass(frozen=True, slots=True)
class LoadResult:
    """The generator's results; times in seconds, latencies in microseconds."""

    raw: Mapping[str, Any]
    size_bytes: int

    @property
    def records_per_s(self) -> float:
        """Acknowledged records per second; where the byte limit ended the run, over the span of acknowledgements."""
        return self._rate("acked", "acked_in_window", "ack_span_s")

    @property
    def read_per_s(self) -> float:
        """Records per second that a consumer was handed, from the first to the last of them."""
        return float(self.raw["read"] / max(self.raw["read_span_s"], 1e-6))

    @property
    def record_count(self) -> int:
        """Records that went through the broker: each one counts once for its way in and once for its way out."""
        return int(self.raw["acked"] + self.raw["read"])

    @property
    def moved_bytes(self) -> int:
        return self.record_count * self.size_bytes

    def percentile_us(self, what: str, percentile: str) -> float:
        """A percentile of `ack` or `read`."""
        return float(self.raw[f"{what}_us"][percentile])

    def _rate(self, total: str, in_window: str, span: str) -> float:
        if self.raw[span] < self.raw["window_s"] * 0.95:
            return float(self.raw[total] / max(self.raw[span], 1e-6))
        return float(self.raw[in_window] / self.raw["window_s"])


def build() -> Path:
    """The built generator; raises MissingError where librdkafka or a C compiler is missing."""
    library = sources()
    with cache_folder("bench") as folder:
        program = folder / "load"
        if not program.exists() or program.stat().st_mtime < SOURCE.stat().st_mtime:
            config = (library / "Makefile.config").read_text()
            libraries = " ".join(re.findall(r"^LIBS\+?=\s*(.*)$", config, re.MULTILINE)).split()
            archive = str(library / "src" / "librdkafka.a")
            command = [require_command("gcc"), "-O2", "-Wall", "-I", str(library / "src"), "-o", str(program)]
            run_step([*command, str(SOURCE), archive, *libraries], folder, folder / "built.txt", "gcc load.c")
        return program


def run_load(program: Path, mode: str, bootstrap: str, topic: str, options: Mapping[str, object]) -> LoadResult:
    """Run the generator once.

    Args:
        program: from `build`.
        mode: produce, consume, both, latency or first.
        bootstrap: the broker, host:port.
        topic: exists already.
        options: as `load.c` names them; `producer:NAME` and `consumer:NAME` are settings of librdkafka.

    Raises:
        AssertionError: the generator failed, or saw a record refused.
    """
    arguments = [f"{name}={value}" for name, value in options.items()]
    command = [str(program), mode, f"brokers={bootstrap}", f"topic={topic}", *arguments]
    timeout_s = max(120.0, float(str(options.get("seconds", 0))) + 30)
    done = subprocess.run(command, capture_output=True, text=True, timeout=timeout_s)
    assert done.returncode == 0, f"{' '.join(command)}\n{done.stderr[-2000:]}"
    raw = json.loads(done.stdout)
    assert raw["errors"] == 0, f"{raw['errors']} records failed: {done.stderr[-1000:]}"
    return LoadResult(raw, int(str(options.get("size", 1024))))


def own_cost(program: Path, size: int) -> LoadResult:
    """The generator's own limits and cost: against librdkafka's mock cluster, in its own process."""
    options = {"partitions": 3, "size": size, "seconds": 1.5, "producer:test.mock.num.brokers": 1}
    return run_load(program, "produce", "127.0.0.1:1", "mock", options)
