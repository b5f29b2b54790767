"""Settings of the cleaner, which all logs share; a topic's own are in `LogConfig`."""

from __future__ import annotations

from odradek.common.config import config, option


@config
class CleanerConfig:
    """How much the cleaner may take of the machine."""

    enable: bool = option(
        "log.cleaner.enable", default=True, doc="Whether topics that ask for compaction are compacted."
    )
    threads: int = option(
        "log.cleaner.threads",
        default=1,
        unit="count",
        doc="Logs that are cleaned at a time, each by a process of its own.",
    )
    max_bytes_per_second: float = option(
        "log.cleaner.io.max.bytes.per.second",
        default=1.7976931348623157e308,
        unit="bytes",
        doc="What all cleanings together read and write in a second.",
    )
    dedupe_buffer_bytes: int = option(
        "log.cleaner.dedupe.buffer.size",
        default=134_217_728,
        unit="bytes",
        doc="Memory for the keys of all cleanings together; where it is short, a log is cleaned in several passes.",
    )
    buffer_load_factor: float = option(
        "log.cleaner.io.buffer.load.factor",
        default=0.9,
        doc="How full the memory for keys may become.",
    )
    io_buffer_bytes: int = option(
        "log.cleaner.io.buffer.size",
        default=524_288,
        unit="bytes",
        doc="What all cleanings together read at a time.",
    )
    backoff_ms: int = option(
        "log.cleaner.backoff.ms",
        default=15_000,
        unit="ms",
        doc="How long to wait before looking again, where no log was dirty enough.",
    )

    @property
    def table_bytes(self) -> int:
        """What the keys of one cleaning may take."""
        return int(self.dedupe_buffer_bytes * min(1.0, max(0.0, self.buffer_load_factor))) // max(1, self.threads)

    @property
    def read_bytes(self) -> int:
        """Of one read of one cleaning."""
        return max(1, self.io_buffer_bytes // max(1, self.threads))

    @property
    def pace_bytes_per_second(self) -> float:
        """Of one cleaning."""
        return self.max_bytes_per_second / max(1, self.threads)
