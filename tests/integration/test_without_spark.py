"""The connector where Spark is not installed: one line that says what to install."""

from __future__ import annotations

import subprocess
import sys


def test_the_import_says_what_to_install() -> None:
    # None in sys.modules is how Python is made to find no such module.
    script = "import sys; sys.modules['pyspark'] = None; import pyspark_odradek"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=120)
    assert done.returncode == 1
    kind, _, said = done.stderr.splitlines()[-1].partition(": ")
    assert kind == "ModuleNotFoundError"  # which is an ImportError
    assert said == (
        "pyspark_odradek needs pyspark, which is not installed: pip install 'odradek[spark]', and Java 17 or newer"
    )
    assert "During handling" not in done.stderr, "one error, not two"


def test_an_older_spark_is_named() -> None:
    """Spark 3.5 has no such module."""
    script = "import sys; sys.modules['pyspark.sql.datasource'] = None; import pyspark_odradek"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=120)
    said = done.stderr.splitlines()[-1]
    assert said.endswith("pyspark_odradek needs Spark 4.0 or newer: older ones have no Python data sources")


def test_a_module_of_our_own_that_is_missing_is_no_matter_of_spark() -> None:
    script = "import sys; sys.modules['pyspark_odradek.data_source'] = None; import pyspark_odradek"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=120)
    assert "pip install" not in done.stderr
    assert "pyspark_odradek.data_source" in done.stderr.splitlines()[-1]


def test_a_plain_query_imports_the_packages_of_the_extra_spark_alone() -> None:
    """The modules that drivers and executors load to read and write topics import no package of another extra."""
    others = ("deltalake", "fastavro", "google", "grpc", "pandas", "psycopg", "pyiceberg", "sqlalchemy", "yaml")
    needed = ("daemon", "data_source", "writers", "session", "query_metrics")
    rooms = ("client", "record", "micro_batch", "source", "standby", "topic_sink", "values.decoding")
    script = f"""
import importlib, pkgutil, sys
sys.modules.update(dict.fromkeys({others}))
import pyspark_odradek
for name in {needed + rooms}:
    module = importlib.import_module(f"pyspark_odradek.{{name}}")
    for each in pkgutil.walk_packages(getattr(module, "__path__", []), module.__name__ + "."):
        importlib.import_module(each.name)
        print(each.name)
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    assert "pyspark_odradek.topic_sink.task_writers.sink" in done.stdout.splitlines()
