"""`odradek pipeline`: Spark's Declarative Pipelines over topics.

The work is `pyspark_odradek.pipelines`, in a process of its own: the broker's package never imports Spark.
"""

from __future__ import annotations

import importlib.util
import json
import os
import sys
from pathlib import Path
from typing import Annotated

import typer

from odradek.cli.errors import CliError
from odradek.cli.output import JsonOption

app = typer.Typer(add_completion=False, no_args_is_help=True, help="Make, check, run and watch a pipeline of Spark's.")

SpecOption = Annotated[
    str | None,
    typer.Option("--spec", help="The spec or its folder; by default the nearest spark-pipeline.yml upwards."),
]
MasterOption = Annotated[str, typer.Option("--master", help="Where Spark runs, as Spark writes it.")]
LogOption = Annotated[
    str | None, typer.Option("--spark-log", help="Where Spark's own log goes; <storage>/_odradek/spark.log by default.")
]


def _hand_over(command: str, **options: object) -> None:
    """Replace this process by the one that runs Spark. Raises CliError if Spark is not installed."""
    if importlib.util.find_spec("pyspark") is None:
        raise CliError("pipelines need Spark; pip install 'odradek[spark,pipelines]', and Java 17 or newer")
    asked = json.dumps({"command": command, **options})
    sys.stdout.flush()
    os.execv(sys.executable, [sys.executable, "-m", "pyspark_odradek.pipelines", asked])  # noqa: S606 - no shell


@app.command()
def init(
    name: Annotated[str, typer.Argument(help="The pipeline's name, and that of its new folder.")],
    bootstrap_server: Annotated[str, typer.Option(help="The cluster that it reads.")] = "127.0.0.1:9092",
    topic: Annotated[str, typer.Option(help="The topic that it reads.")] = "visits",
    as_json: JsonOption = False,
) -> None:
    """Create a project that runs: a spec, a Python file and an SQL file."""
    _hand_over("init", name=name, bootstrap_server=bootstrap_server, topic=topic, json=as_json)


@app.command()
def validate(
    spec: SpecOption = None, as_json: JsonOption = False, master: MasterOption = "local[*]", spark_log: LogOption = None
) -> None:
    """Let Spark resolve the graph, and compare it with existing tables and checkpoints; nothing runs."""
    _hand_over("validate", spec=spec, json=as_json, master=master, spark_log=spark_log)


@app.command()
def graph(
    spec: SpecOption = None,
    html: Annotated[str | None, typer.Option("--html", help="Write a picture for the browser to this file.")] = None,
    as_json: JsonOption = False,
    last: Annotated[bool, typer.Option("--last", help="As the last command found it, without starting Spark.")] = False,
    master: MasterOption = "local[*]",
    spark_log: LogOption = None,
) -> None:
    """Print the graph, or draw it."""
    _hand_over("graph", spec=spec, html=html, json=as_json, last=last, master=master, spark_log=spark_log)


@app.command()
def run(
    spec: SpecOption = None,
    continuous: Annotated[bool, typer.Option("--continuous", help="Run on until it is ended.")] = False,
    trigger: Annotated[str, typer.Option(help="Time from batch to batch of a continuous run.")] = "1 second",
    refresh_views_every: Annotated[
        float, typer.Option(help="Seconds between two computations of materialized views in a continuous run.")
    ] = 60.0,
    refresh: Annotated[
        list[str] | None, typer.Option(help="Only these datasets, with commas between; may be given again.")
    ] = None,
    full_refresh: Annotated[
        list[str] | None, typer.Option(help="Empty these and their checkpoints first; as --refresh.")
    ] = None,
    full_refresh_all: Annotated[bool, typer.Option("--full-refresh-all", help="Empty all of them first.")] = False,
    metrics: Annotated[
        str | None, typer.Option(help="host:port at which lag, rates, durations and state of the flows are served.")
    ] = None,
    progress_to: Annotated[
        str | None, typer.Option(help="host:port,… of a cluster whose topic _odradek_pipelines gets the progress, too.")
    ] = None,
    command_config: Annotated[
        Path | None, typer.Option(help="Properties file by which --progress-to connects.", metavar="FILE")
    ] = None,
    as_json: JsonOption = False,
    force: Annotated[bool, typer.Option("--force", help="Start although something does not fit.")] = False,
    master: MasterOption = "local[*]",
    spark_log: LogOption = None,
) -> None:
    """Run once up to the present end of the sources, or continuously."""
    _hand_over(
        "run",
        spec=spec,
        continuous=continuous,
        trigger=trigger,
        refresh_views_every=refresh_views_every,
        refresh=refresh or [],
        full_refresh=full_refresh or [],
        full_refresh_all=full_refresh_all,
        metrics=metrics,
        progress_to=progress_to,
        command_config=None if command_config is None else str(command_config),
        json=as_json,
        force=force,
        master=master,
        spark_log=spark_log,
    )


@app.command()
def status(spec: SpecOption = None, as_json: JsonOption = False) -> None:
    """Show each flow: rows, lag, rate, batch duration, state size, expectations. Starts no Spark."""
    _hand_over("status", spec=spec, json=as_json)
