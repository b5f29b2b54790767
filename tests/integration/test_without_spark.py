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
    script = "import sys; sys.modules['pyspark_odradek.source'] = None; import pyspark_odradek"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=120)
    assert "pip install" not in done.stderr
    assert "pyspark_odradek.source" in done.stderr.splitlines()[-1]
