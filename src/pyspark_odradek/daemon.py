"""Spark's daemon of Python workers, with what tasks of this package import loaded before they are forked.

A worker that Spark starts for a task, and lets go after a minute without one, then has nothing to import: that is a
quarter of a second of processor time each. And Spark's workers collect garbage after each task, which is 35 ms for what
is loaded; frozen, it is not looked at. `session` names this module in `spark.python.daemon.module`; Spark runs it
as `python -m pyspark_odradek.daemon pyspark.worker`.
"""

from __future__ import annotations

import gc
import runpy
from importlib import import_module

# The modules that tasks import first; and Spark's own worker, which the daemon would import only after the freeze.
LOADED = ("pyspark_odradek.source.readers", "pyspark_odradek.topic_sink.exact_sink", "pyspark.worker")

if __name__ == "__main__":
    for name in LOADED:
        import_module(name)
    gc.collect()
    gc.freeze()
    runpy.run_module("pyspark.daemon", run_name="__main__", alter_sys=True)
