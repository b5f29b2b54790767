"""Settings of the cleaner for all logs; those of a topic are in `LogConfig`."""

from __future__ import annotations

from odradek.settings.options import config, option


@config
class CleanerConfig:
    """The resources of the cleaner."""

    enable: bool = option("log.cleaner.enable", default=True, doc="Whether the log cleaner runs.")
    threads: int = option(
        "log.cleaner.threads",
        default=1,
        unit="count",
        doc="Number of logs cleaned concurrently, each by a process.",
    )
    max_bytes_per_second: float = option(
        "log.cleaner.io.max.bytes.per.second",
        default=1.7976931348623157e308,
        unit="bytes",
        doc="Maximum bytes per second that all cleanings together read and write.",
    )
    dedupe_buffer_bytes: int = option(
        "log.cleaner.dedupe.buffer.size",
        default=134_217_728,
        unit="bytes",
        doc="Memory for key tables of all cleanings together; a log with more keys is cleaned in several passes.",
    )
    buffer_load_factor: float = option(
        "log.cleaner.io.buffer.load.factor",
        default=0.9,
        doc="Maximum load of the key table.",
    )
    io_buffer_bytes: int = option(
        "log.cleaner.io.buffer.size",
        default=524_288,
        unit="bytes",
        doc="Read buffer of all cleanings together.",
    )
    backoff_ms: int = option(
        "log.cleaner.backoff.ms",
        default=15_000,
        unit="ms",
        doc="Pause of the cleaner when no log is dirty enough.",
    )

    @property
    def table_bytes(self) -> int:
        """The memory for the keys of one cleaning, in bytes."""
        return int(self.dedupe_buffer_bytes * min(1.0, max(0.0, self.buffer_load_factor))) // max(1, self.threads)

    @property
    def read_bytes(self) -> int:
        """The size of a read of one cleaning."""
        return max(1, self.io_buffer_bytes // max(1, self.threads))

    @property
    def pace_bytes_per_second(self) -> float:
        """The bytes per second of one cleaning."""
        return self.max_bytes_per_second / max(1, self.threads)
