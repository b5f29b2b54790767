"""A run of a pipeline by Spark's engine, triggered or continuous, with its progress in the notes.

A triggered run creates or alters the tables, runs every streaming flow to the present end of its sources, and computes
every materialized view. A continuous run does the same, and then starts Spark's writer of each streaming flow again on
the same checkpoint, with a processing-time trigger; views are computed again when flows have read rows since, at most
once in `refresh_every_s`.
"""

from __future__ import annotations

import json
import queue
import re
import signal
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from typing import Any, TypeVar

from py4j.protocol import Py4JError

from pyspark_odradek.errors import DataLossError
from pyspark_odradek.last_words import has_raised, is_fenced
from pyspark_odradek.pipelines import EXIT_FAILED, EXIT_FENCED, PipelineError, tables
from pyspark_odradek.pipelines.checkpoints import Checkpoints
from pyspark_odradek.pipelines.engine import Engine, Loaded
from pyspark_odradek.pipelines.graph import TEMPORARY, VIEW, Graph
from pyspark_odradek.pipelines.notes import STATUS, Notes
from pyspark_odradek.pipelines.progress import Tally
from pyspark_odradek.pipelines.published import StatusWriter
from pyspark_odradek.pipelines.refusals import advised, first_line, is_passing, name_of, short
from pyspark_odradek.progress import read_progress
from pyspark_odradek.query_metrics import QueryMetrics

T = TypeVar("T")

CATCHING_UP, RUNNING, FINISHED, STOPPED, FAILED = "catching up", "running", "finished", "stopped", "failed"
LOOK_EVERY_S = 1.0
VIEW_S = 3.0  # supervisors wait ten seconds or longer for a process to end before they kill it
PAUSE_S = 5.0
STARTS = 3  # of a run that Spark gives up for a reason that passes
_ATTEMPTS = "spark.sql.pipelines.maxFlowRetryAttempts"
# Spark reports the state of a flow as a word in a sentence.
FLOW_EVENT = re.compile(
    r"Flow '?(?P<flow>.+?)'? (?:is |has )?(?P<word>[A-Z]{6,})\b(?P<rest>[^\n]*)(?:\nError: (?P<reason>.*))?", re.DOTALL
)
_STATUS = {
    "QUEUED": "waiting",
    "STARTING": "starting",
    "RUNNING": "running",
    "COMPLETED": "done",
    "SKIPPED": "skipped",
}


def is_final(reason: str) -> bool:
    """Whether a failed stream may not be started again.

    After a loss of records each start would fail again. If another driver has the checkpoint, a start would fence that
    driver, which would then fence this one.
    """
    return has_raised(reason, DataLossError) or is_fenced(reason)


class RetryPolicy:
    """Decides when a failed flow restarts: after growing pauses, a limited number of times without a batch between."""

    def __init__(self, attempts: int) -> None:
        self.left = self.attempts = attempts
        self.given_up = False
        self._at: float | None = None
        self._batches = -1

    def due(self, now: float, batches: int, *, final: bool = False) -> bool:
        """Whether a failed flow restarts now.

        Args:
            now: seconds, of a monotonic clock.
            batches: the number of batches that the flow has completed in all.
            final: the flow never restarts.
        """
        if final:
            self.given_up = True
            return False
        if self._at is None:
            if batches > self._batches:
                self.left = self.attempts
            self._batches = batches
            self.given_up = self.left <= 0
            self._at = now + PAUSE_S * (1 + self.attempts - self.left)
            self.left -= 1
        if self.given_up or now < self._at:
            return False
        self._at = None
        return True


def retry_transient(attempt: Callable[[int], T], say: Callable[[str], None], pause: Callable[[float], object]) -> T:
    """Call `attempt` with the number of earlier attempts, and retry if Spark failed for a transient reason.

    Args:
        pause: waits for a number of seconds.
    Raises:
        PipelineError: the reason of the last attempt, with advice.
    """
    number = 0
    while True:
        try:
            return attempt(number)
        except PipelineError as error:
            number += 1
            if number == STARTS or not is_passing(str(error)):
                raise PipelineError(advised(str(error)), code=error.code) from None
            say(f"starts again in {PAUSE_S * number:g} s after: {error}")
            pause(PAUSE_S * number)


class Run:
    """One run of one graph."""

    def __init__(
        self,
        loaded: Loaded,
        graph: Graph,
        notes: Notes,
        say: Callable[[str], None],
        *,
        mode: str,
        metrics: QueryMetrics | None = None,
        published: StatusWriter | None = None,
    ) -> None:
        """`published` writes each status to a topic, too."""
        self.metrics, self.published = metrics, published
        self.loaded, self.graph, self.notes, self.say, self.mode = loaded, graph, notes, say, mode
        self.engine: Engine = loaded.engine
        views = {node.name for node in graph.nodes if node.kind == TEMPORARY}
        self.tallies = {
            flow.name: Tally(flow.name, flow.target, flow.streaming) for flow in graph.flows if flow.target not in views
        }
        self.started = time.time()
        self.writers: dict[str, Any] = {}
        self.last_report_times: dict[str, str] = {}
        self.failure = ""
        self.ends: Ends | None = None
        self.state = CATCHING_UP if mode == "continuous" else RUNNING

    def once(self, *, refresh: Sequence[str], full_refresh: Sequence[str], full_refresh_all: bool) -> None:
        """Run to the present end of the sources. Raises PipelineError with the reason of the first flow that failed.

        Spark restarts a failed flow, except one of `is_final`: that one ends the run. In a continuous run a signal ends
        this run, too, even while a view is computed.
        """
        from pyspark.errors import PySparkException
        from pyspark.pipelines.spark_connect_pipeline import start_run

        self.failure = ""
        # Spark stores the last run of a graph and starts no other while it does; continuous streams are not part of it.
        self.engine.holder.removeAllPipelineExecutions()
        try:
            answers = start_run(
                self.engine.spark,
                self.loaded.graph_id,
                full_refresh=list(full_refresh),
                full_refresh_all=full_refresh_all,
                refresh=list(refresh),
                dry=False,
                storage=self.engine.project.storage,
            )
            if not self._followed(event_messages(answers)):
                return
        except PySparkException as error:
            self._count_progress()
            raise PipelineError(self.failure or first_line(error)) from None
        self._count_progress()
        tables.store(self.engine, self.notes, self.graph)
        self.notes.begun(Checkpoints(self.engine.project.root / "_checkpoints"))
        ran = [tally for tally in self.tallies.values() if not refresh or tally.target in refresh]
        if any(tally.status in ("failed", "skipped") for tally in ran):
            raise PipelineError(self.failure or "a flow was left out")

    def _followed(self, messages: Iterable[str | None]) -> bool:
        """Handle the events of Spark's run until it ends; returns False where a signal ended it before."""
        noted = False
        for message in messages:
            if message is not None:
                if not noted:  # the tables are created before the first event of a flow
                    noted = True
                    tables.store(self.engine, self.notes, self.graph)
                    self.notes.store_flows(self.graph)
                self._handle_event(message)
            self._count_progress()
            if self.ends is not None and self.ends.is_overdue():
                self._end()
                return False
            self.write(self.state)
        return True

    def _handle_event(self, message: str) -> None:
        """Update a flow's status from the text of one event."""
        said = FLOW_EVENT.fullmatch(message)
        if said is None or (flow := short(said["flow"].replace("`", ""))) not in self.tallies:
            return
        tally = self.tallies[flow]
        if said["word"] == "FAILED":
            self._fail(tally, said["reason"] or "", will_be_restarted="not be restarted" not in said["rest"])
            return
        status = _STATUS.get(said["word"])
        if status == "done" and self._has_failed(flow):
            return  # Spark first reports the end of its query, and then that it failed
        if status is not None and status != tally.status:
            self._set_status(tally, status)
            if status in ("running", "done", "skipped"):
                self.say(f"{flow}: {status}")

    def _fail(self, tally: Tally, reason: str, *, will_be_restarted: bool) -> None:
        """Record that a flow has failed. Raises PipelineError where it may not restart."""
        self._set_status(tally, "failed", first_line(reason or "it failed"))
        self.failure = f"{tally.flow}: {tally.error}"
        if tally.streaming and is_final(reason):
            self._end()
            raise PipelineError(self.failure, code=_exit_code(reason))
        if will_be_restarted:
            self.say(f"{tally.flow}: tried again after: {tally.error}")

    def _end(self) -> None:
        """Stop all flows of Spark's run, in the pause before Spark restarts the failed one."""
        last = self._execution()
        if last is not None:
            with suppress(Py4JError):  # the last of its flows ends the run, which has no other event then
                last[1].stop()

    def _set_status(self, tally: Tally, status: str, error: str | None = None) -> None:
        """Set the status of a flow; the error of its last failure stays until `error` replaces it."""
        tally.status, tally.error = status, tally.error if error is None else error
        if self.metrics is None:
            return
        if status == "running":
            self.metrics.started(tally.flow)
        elif status in ("done", "failed"):
            self.metrics.ended(tally.flow, failed=status == "failed")

    def _has_failed(self, flow: str) -> bool:
        return any(
            name == flow
            and writer.isStreaming()
            and (query := writer.getStreamingQuery())
            and query.exception().isDefined()
            for name, writer in self._writers()
        )

    def _writers(self) -> list[tuple[str, Any]]:
        """The flow executions of the last run, by flow name; the objects are the JVM's."""
        last = self._execution()
        return (
            []
            if last is None
            else [(name_of(pair._1()), pair._2()) for pair in self.engine.listed(last[1].flowExecutions().toSeq())]
        )

    def _execution(self) -> Any:
        """The engine's last run as (context, graph execution) of the JVM; None before the first."""
        context = self.engine.holder.getPipelineExecution(self.loaded.graph_id)
        if context.isEmpty():
            return None
        execution = context.get().pipelineExecution().graphExecution()
        return None if execution.isEmpty() else (context.get(), execution.get())

    def _count_progress(self) -> None:
        """Count Spark's new progress reports of this run's queries."""
        for name, execution in {**dict(self._writers()), **self.writers}.items():
            if name in self.tallies and execution.isStreaming():
                query = execution.getStreamingQuery()
                if query is not None:
                    reports = self._new_reports(name, query)
                    for report in self.tallies[name].count_reports(reports):
                        if self.metrics is not None:
                            self.metrics.update(read_progress({**report, "name": name}))

    def _new_reports(self, name: str, query: Any) -> list[dict[str, Any]]:
        """The progress reports of a query since the last call, the oldest first; Spark keeps the last hundred."""
        reports = query.recentProgress()
        found: list[dict[str, Any]] = []
        for index in range(len(reports) - 1, -1, -1):
            if str(reports[index].timestamp()) <= self.last_report_times.get(name, ""):
                break
            found.append(json.loads(reports[index].json()))
        if found:
            self.last_report_times[name] = found[0]["timestamp"]
        return found[::-1]

    def run_continuously(self, ends: Ends, *, trigger: str, refresh_every_s: float) -> None:
        """Run the streaming flows after `once` until `ends` is set. Raises PipelineError where a flow fails for good.

        Args:
            ends: set by a signal.
            trigger: time from batch to batch, as Spark writes it, such as `1 second`.
            refresh_every_s: the least time between two computations of the materialized views.
        """
        last = self._execution()
        assert last is not None, "the run that makes the tables has been"
        context, execution = last
        graph = execution.graphForExecution()
        jvm = self.engine.jvm
        every = jvm.org.apache.spark.sql.streaming.Trigger.ProcessingTime(trigger)
        planner = jvm.org.apache.spark.sql.pipelines.graph.FlowPlanner(graph, context, self.engine.always(every))
        views = [node.name for node in self.graph.nodes if node.kind == VIEW]
        flows = {name_of(flow.identifier()): flow for flow in self.engine.listed(graph.materializedFlows())}
        streams = {name: flow for name, flow in flows.items() if flow.df().isStreaming()}

        def start(name: str) -> None:
            self.writers[name] = planner.plan(streams[name])
            self.writers[name].executeAsync()
            self._set_status(self.tallies[name], "running")

        try:
            for name in streams:
                start(name)
            self.state, self.ends, ends.at_once = RUNNING, ends, False
            self._watch(ends, start, views, refresh_every_s)
        finally:
            for writer in self.writers.values():
                writer.stop()

    def _watch(self, ends: Ends, start: Callable[[str], None], views: list[str], refresh_every_s: float) -> None:
        rows, refreshed = 0, time.monotonic()
        attempts = int(self.engine.session.conf().get(_ATTEMPTS, "2"))
        again = {name: RetryPolicy(attempts) for name in self.writers}
        self.say("running on; Ctrl-C ends it")
        while not ends.wait(LOOK_EVERY_S):
            self._count_progress()
            for name, writer in list(self.writers.items()):
                why = _why_ended(writer)
                if why is None:
                    continue
                if self._may_start_again(name, why, again[name]):
                    start(name)
            self.write(self.state)
            total = sum(tally.rows_read for tally in self.tallies.values())
            if views and total > rows and time.monotonic() - refreshed >= refresh_every_s:
                rows = total
                self._views(views)
                refreshed = time.monotonic()

    def _may_start_again(self, name: str, why: str, retries: RetryPolicy) -> bool:
        """Whether a failed flow restarts now. Raises PipelineError where it has failed for good."""
        tally = self.tallies[name]
        if tally.status != "failed":  # else it waits to be started again
            self._set_status(tally, "failed", first_line(why))
        if retries.due(time.monotonic(), tally.batches, final=is_final(why)):
            self.say(f"{name}: starts again after: {tally.error}")
            return True
        if retries.given_up:
            raise PipelineError(advised(f"{name}: {tally.error}"), code=_exit_code(why))
        return False

    def _views(self, views: list[str]) -> None:
        say, self.say = self.say, lambda text: None
        try:
            tables.refresh(self.engine, self.graph)
            self.once(refresh=views, full_refresh=[], full_refresh_all=False)
        finally:
            self.say = say

    def write(self, state: str, error: str = "") -> None:
        """Write the status that `odradek pipeline status` prints."""
        if state in (STOPPED, FAILED):
            for tally in self.tallies.values():
                tally.status = "stopped" if tally.status in ("starting", "running") else tally.status
        status = {
            "pipeline": self.graph.name,
            "mode": self.mode,
            "state": state,
            "started": self.started,
            "updated": time.time(),
            "error": error,
            "flows": [tally.as_json() for tally in self.tallies.values()],
        }
        self.notes.write(STATUS, status)
        if self.published is not None:
            self.published.put(status)


def event_messages(answers: Iterable[Mapping[str, Any]]) -> Iterator[str | None]:
    """The text of each event of a run, and None for each second without one. Raises what `answers` raises.

    While it waited for Spark's next event, a caller could not report the progress of a long flow or handle signals.
    """
    events: queue.SimpleQueue[tuple[str | None, BaseException | None]] = queue.SimpleQueue()

    def listen() -> None:
        try:
            for answer in answers:
                if "pipeline_event_result" in answer:
                    events.put((str(answer["pipeline_event_result"].event.message), None))
            events.put((None, None))
        except BaseException as error:
            events.put((None, error))

    threading.Thread(target=listen, name="pipeline-events", daemon=True).start()
    while True:
        try:
            message, error = events.get(timeout=LOOK_EVERY_S)
        except queue.Empty:
            yield None
            continue
        if error is not None:
            raise error
        if message is None:
            return
        yield message


class Ends:
    """The handler of SIGINT and SIGTERM: it ends a triggered run at once, a continuous one after its batch."""

    def __init__(self) -> None:
        self._event = threading.Event()
        self._asked_at: float | None = None
        self.at_once = True

    def wait(self, seconds: float) -> bool:
        """Wait for a signal, at most `seconds`; returns whether one has come."""
        return self._event.wait(seconds)

    def is_overdue(self) -> bool:
        """Whether the signal came more than VIEW_S ago: then the run no longer waits for a view to be computed."""
        return self._asked_at is not None and time.monotonic() - self._asked_at > VIEW_S

    def __call__(self, number: int, frame: object) -> None:
        if self._asked_at is None:
            self._asked_at = time.monotonic()
        self._event.set()
        if self.at_once:
            raise KeyboardInterrupt


def _exit_code(reason: str) -> int:
    return EXIT_FENCED if is_fenced(reason) else EXIT_FAILED


def _why_ended(writer: Any) -> str | None:
    """The reason for which a flow's writer has ended; None while it runs."""
    reason = writer.exception()
    if reason.isDefined():
        return str(reason.get().getMessage())
    return "it ended" if writer.isCompleted() else None


@contextmanager
def ended_by_signals() -> Iterator[Ends]:
    """Handle SIGINT and SIGTERM in this context, entered after Spark has set a SIGINT handler of its own."""
    ends = Ends()
    before = {number: signal.signal(number, ends) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield ends
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
