"""The process that `odradek pipeline` starts, with the command and its options as one JSON object.

The options, their defaults and their help are those of `odradek.cli.pipeline`. An error that the user can correct is
printed as one line.
"""

from __future__ import annotations

import importlib.util
import json
import os
import re
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace as Options
from typing import Any

from pyspark_odradek.pipelines import EXIT_FAILED, PipelineError, report
from pyspark_odradek.pipelines.checkpoints import Checkpoints
from pyspark_odradek.pipelines.graph import SINK
from pyspark_odradek.pipelines.notes import GRAPH, STATUS, Notes
from pyspark_odradek.pipelines.project import Project, find_spec, init, load

OK, INTERRUPTED = 0, 130
NEEDED = ("pyspark", "grpc", "grpc_status", "google.rpc", "zstandard", "yaml", "pandas", "pyarrow")


def main(text: str) -> int:
    """Run one command; returns the exit code."""
    args = Options(**json.loads(text))
    try:
        if args.command == "init":
            return _init(args)
        _check_libraries()
        project = load(find_spec(args.spec, Path.cwd()))
        return int(
            {"status": _status, "graph": _graph, "validate": _validate, "run": _run}[args.command](args, project)
        )
    except PipelineError as error:
        return _failed(args, str(error), error.code)
    except KeyboardInterrupt:
        return INTERRUPTED
    except OSError as error:
        where = f"{error.filename}: " if error.filename else ""
        return _failed(args, f"{where}{error.strerror or error}")


def _failed(args: Options, said: str, code: int = EXIT_FAILED) -> int:
    """Print an error as the other commands do, in a line or as JSON; returns the exit code."""
    if args.json:
        sys.stderr.write(json.dumps({"error": said, "name": None, "exit_code": code}) + "\n")
    else:
        sys.stderr.write(f"odradek pipeline: {said}\n")
    return code


def _check_libraries() -> None:
    missing = [name for name in NEEDED if not _is_there(name)]
    if missing:
        raise PipelineError(f"pipelines need {', '.join(missing)}; pip install 'odradek[spark,pipelines]'")


def _is_there(name: str) -> bool:
    try:
        return importlib.util.find_spec(name) is not None
    except ModuleNotFoundError:  # of the package that it would be in
        return False


def _init(args: Options) -> int:
    folder = init(args.name, Path.cwd(), bootstrap=args.bootstrap_server, topic=args.topic)
    if args.json:
        _print(json.dumps({"folder": str(folder)}))
        return OK
    _print(
        f"Made {folder}. Next:\n"
        f"  odradek topics create --topic {args.topic} --bootstrap-server {args.bootstrap_server}\n"
        f"  cd {args.name} && odradek pipeline validate && odradek pipeline run"
    )
    return OK


def _status(args: Options, project: Project) -> int:
    notes = Notes(project.state)
    status, runner = notes.read(STATUS), notes.runner()
    if status is None:
        raise PipelineError(f"{project.name} has not run yet; `odradek pipeline run` runs it")
    if args.json:
        _print(json.dumps({**status, "process": runner}))
    else:
        _print(report.text_of(status, runner, now=time.time()))
    return OK


def _started(args: Options, project: Project) -> Any:
    from pyspark_odradek.pipelines.engine import Engine

    project.state.mkdir(parents=True, exist_ok=True)
    log_file = args.spark_log or str(project.state / "spark.log")
    return Engine(project, master=args.master, log_file=log_file)


def _graph(args: Options, project: Project) -> int:
    from pyspark_odradek.pipelines import picture
    from pyspark_odradek.pipelines.graph import text_of

    notes = Notes(project.state)
    if args.last:
        graph = notes.graph()
        if graph is None:
            raise PipelineError("no command has asked Spark for the graph yet; leave --last away")
    else:
        engine = _started(args, project)
        try:
            graph = engine.load().resolve()
        finally:
            engine.stop()
        notes.write(GRAPH, graph.as_json())
    if args.html is None:
        _print(json.dumps(graph.as_json()) if args.json else text_of(graph))
        return OK
    status = notes.read(STATUS) or {"flows": []}
    Path(args.html).write_text(picture.page(graph, report.by_target(status)), encoding="utf-8")
    address = Path(args.html).resolve().as_uri()
    _print(json.dumps({"html": address}) if args.json else address)
    return OK


def _judged(
    engine: Any, project: Project, renewed: set[str] | None, named: Sequence[str] = ()
) -> tuple[Any, Any, list[Any]]:
    """Load the pipeline and compare it with the tables and checkpoints; returns (loaded, graph, findings).

    Args:
        renewed: the nodes that the run recreates; None for all.
        named: the nodes that the run refreshes; they must be in the graph too.
    """
    from pyspark_odradek.pipelines import compatibility, ends, tables

    notes = Notes(project.state)
    tables.restore(engine, notes)
    loaded = engine.load()
    graph = loaded.resolve()
    notes.write(GRAPH, graph.as_json())
    there = Checkpoints(project.root / "_checkpoints")
    before = notes.flows_before(there)
    everything = {node.name for node in graph.nodes}
    unknown = sorted(({*named} if renewed is None else renewed | {*named}) - everything)
    if unknown:
        raise PipelineError(f"there is no {unknown[0]} to refresh; the pipeline has {', '.join(sorted(everything))}")
    recreated = everything if renewed is None else renewed
    findings = compatibility.compare(graph, tables.existing(engine, graph), before, recreated, notes.begun(there))
    standing = {
        flow.name: ends.CheckpointState(
            there.offsets(flow),
            compatibility.begin_again(flow, is_sink=graph.node(flow.target).kind == SINK),
        )
        for flow in graph.flows
        if flow.streaming and flow.target not in recreated
    }
    findings += ends.check_ends(loaded.ends, standing)
    return loaded, graph, sorted(findings, key=lambda finding: (not finding.stops, finding.subject))


def _validate(args: Options, project: Project) -> int:
    from pyspark_odradek.pipelines.graph import text_of

    engine = _started(args, project)
    try:
        _, graph, findings = _judged(engine, project, set())
    finally:
        engine.stop()
    stops = [finding for finding in findings if finding.stops]
    if args.json:
        rows = [{"subject": each.subject, "text": each.text, "stops": each.stops} for each in findings]
        _print(json.dumps({"graph": graph.as_json(), "findings": rows}))
        return EXIT_FAILED if stops else OK
    _print(text_of(graph))
    for finding in findings:
        _print(f"{'does not fit' if finding.stops else 'note'}: {finding}")
    if not stops:
        _print("valid: the graph resolves, and fits the tables and checkpoints that are there")
    return EXIT_FAILED if stops else OK


def _run(args: Options, project: Project) -> int:
    from pyspark_odradek.pipelines import running

    if not re.fullmatch(r"\d+ (millisecond|second|minute|hour)s?", args.trigger):
        raise PipelineError(
            f"--trigger {args.trigger!r}: a number and a unit, such as '500 milliseconds' or '1 second'"
        )
    args.refresh, args.full_refresh = _names(args.refresh), _names(args.full_refresh)
    if args.full_refresh_all and (args.refresh or args.full_refresh):
        raise PipelineError("--full-refresh-all is everything; leave --refresh and --full-refresh away")
    notes = Notes(project.state)
    with notes.alone(), _metrics(args.metrics) as metrics, _published(args) as published:
        engine = _started(args, project)
        try:
            with running.ended_by_signals() as ends:
                ended = _run_in(engine, args, project, ends, metrics, published)
        finally:
            engine.stop()
    status = notes.read(STATUS)
    _print(json.dumps(status) if args.json else report.text_of(status, None, now=time.time()))
    return ended


@contextmanager
def _metrics(address: str | None) -> Iterator[Any]:
    """Serve the metrics of a run at an address; None without an address. Raises PipelineError."""
    if address is None:
        yield None
        return
    from pyspark_odradek.errors import OptionError
    from pyspark_odradek.query_metrics import MetricsPage

    try:
        page = MetricsPage(None, address)
    except OptionError as error:
        raise PipelineError(f"--{error}") from None
    try:
        yield page.metrics
    finally:
        page.close()


@contextmanager
def _published(args: Options) -> Iterator[Any]:
    """The writer of a run's status to a topic; None without the option. Raises PipelineError."""
    if args.progress_to is None:
        yield None
        return
    from odradek.settings.properties import parse_properties
    from pyspark_odradek.pipelines.published import StatusWriter

    try:
        file = args.command_config
        properties = {} if file is None else parse_properties(Path(file).read_text(encoding="utf-8"))
    except ValueError:  # the invalid line may have a password
        raise PipelineError(f"--command-config {args.command_config}: write it as key=value lines") from None
    with StatusWriter(args.progress_to, properties, _say) as published:
        yield published


def _names(given: Sequence[str]) -> list[str]:
    """The names of a repeatable option; as with `spark-pipelines`, each value may be a list with commas."""
    return [name.strip() for each in given for name in each.split(",") if name.strip()]


def _run_in(engine: Any, args: Options, project: Project, ends: Any, metrics: Any = None, published: Any = None) -> int:
    """Check and run the pipeline, and write its final state; returns the exit code. Raises PipelineError."""
    from py4j.protocol import Py4JError

    from pyspark_odradek.pipelines import running
    from pyspark_odradek.pipelines.refusals import advised, message_of

    notes = Notes(project.state)
    loaded, graph = running.retry_transient(lambda _: _checked(engine, args, project), _say, ends.wait)
    mode = "continuous" if args.continuous else "triggered"
    run = running.Run(loaded, graph, notes, _say, mode=mode, metrics=metrics, published=published)

    def once(before: int) -> None:
        if before:  # the refresh was done before the first flow began
            run.once(refresh=[*args.refresh, *args.full_refresh], full_refresh=[], full_refresh_all=False)
        else:
            run.once(refresh=args.refresh, full_refresh=args.full_refresh, full_refresh_all=args.full_refresh_all)

    try:
        running.retry_transient(once, _say, ends.wait)
        if args.continuous:
            run.run_continuously(ends, trigger=args.trigger, refresh_every_s=args.refresh_views_every)
    except PipelineError as error:
        run.write(running.FAILED, str(error))
        raise
    except (Py4JError, ConnectionError) as error:
        log_file = args.spark_log or project.state / "spark.log"
        reason = (
            f"Spark's JVM has ended, or refused: {advised(message_of(error))}; {log_file} has its own words. Run it "
            "again: it goes on where it was, and reads nothing twice"
        )
        run.write(running.FAILED, reason)
        raise PipelineError(reason) from None
    except KeyboardInterrupt:
        run.write(running.STOPPED)
        return OK if args.continuous else INTERRUPTED
    run.write(running.STOPPED if args.continuous else running.FINISHED)
    return OK


def _checked(engine: Any, args: Options, project: Project) -> tuple[Any, Any]:
    """Load the pipeline; returns (loaded, graph). Raises PipelineError if it contradicts tables or checkpoints."""
    renewed = None if args.full_refresh_all else set(args.full_refresh)
    loaded, graph, findings = _judged(engine, project, renewed, args.refresh)
    for finding in findings:
        _say(f"{'does not fit' if finding.stops else 'note'}: {finding}")
    if any(finding.stops for finding in findings) and not args.force:
        raise PipelineError("nothing was started; fix the above, or pass --force to try")
    return loaded, graph


def _print(text: str) -> None:
    sys.stdout.write(text + "\n")


def _say(text: str) -> None:
    sys.stderr.write(text + "\n")
    sys.stderr.flush()


if __name__ == "__main__":
    code = main(sys.argv[1])
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)  # gRPC's threads of a session that was stopped would hold the process for seconds
