"""Where an example with Spark runs: a cluster, a folder for tables and checkpoints, and a session."""

from __future__ import annotations

import argparse
import logging
import signal
import sys
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class Place(NamedTuple):
    """The Spark session, the cluster and the working folder of an example."""

    spark: SparkSession
    bootstrap: str
    folder: Path


def arguments(name: str, page: str | None) -> argparse.ArgumentParser:
    """The options that all of these examples have; `page` is the text of their help."""
    parser = argparse.ArgumentParser(
        prog=f"python -m examples.{name}", description=page, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--bootstrap", help="host:port of a cluster that runs already; a broker of its own otherwise")
    parser.add_argument("--folder", type=Path, help="keeps tables, checkpoints and the broker's data")
    return parser


@contextmanager
def place(name: str, given: argparse.Namespace) -> Iterator[Place]:
    """Start what is needed, and stop it at the end, also after Ctrl-C and a plain kill.

    Topics and checkpoints belong together: with one of them gone, a second run would start over and write all once
    more. So a broker of our own keeps its data in the folder, and for a cluster that stays the folder stays, too.
    """
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    with ExitStack() as stack:
        folder = given.folder or (Path("build/examples") / name if given.bootstrap else None)
        if folder is None:
            folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix=f"{name}-")))
        folder.mkdir(parents=True, exist_ok=True)
        bootstrap = given.bootstrap
        if bootstrap is None:
            from odradek.testing import EmbeddedBroker

            bootstrap = stack.enter_context(EmbeddedBroker(directory=folder / "broker")).bootstrap_servers
            print(f"a broker of its own at {bootstrap}", flush=True)
        from pyspark_odradek import session

        spark = session(name, log_file=folder / "spark.log")
        stack.callback(spark.stop)
        signal.signal(signal.SIGINT, _interrupt)  # Spark's own talks to the JVM in the midst of what we say to it
        yield Place(spark, bootstrap, folder)


def _interrupt(*_: object) -> None:
    """Ctrl-C: end in order, without the stacks that py4j prints of the calls that it ends."""
    logging.disable(logging.ERROR)
    raise KeyboardInterrupt
