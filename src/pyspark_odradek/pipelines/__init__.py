"""Spark's Declarative Pipelines over topics, as `odradek pipeline` runs them.

The files of a pipeline are Spark's own: a spec and Python or SQL definitions, which `spark-pipelines` takes too. Here
they are registered with Spark's engine, which resolves the graph, makes the tables and runs the flows; `engine`,
`plans`, `tables` and `running` touch what is internal to Spark. Around it: checks before a start, running on
continuously, progress, the picture. Expectations, for definition files, are `pyspark_odradek.expectations`.
"""

from __future__ import annotations

EXIT_FAILED, EXIT_FENCED = 1, 6


class PipelineError(Exception):
    """An error that the user can correct: its text is one line, with the exit code of the command."""

    def __init__(self, message: str, *, code: int = EXIT_FAILED) -> None:
        super().__init__(message)
        self.code = code


__all__ = ["EXIT_FAILED", "EXIT_FENCED", "PipelineError"]
