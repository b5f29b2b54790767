"""Spark's pipeline engine, in this process: a session, the graph as Spark resolves it, a run, and running on.

Spark takes definitions over Spark Connect alone, and runs a graph once. Its public Python functions register the files
and run them; that the Connect server lives in our own JVM lets us ask Spark for what it tells no client: the resolved
graph with its columns, where each flow has its checkpoint, the progress of its queries, and the writer of each flow
with another trigger. None of it is promised by Spark (docs/adr/0009): `plans`, `tables` and `running` ask for it, too,
by what is here, and no other module does.
"""

from __future__ import annotations

import contextlib
import io
import os
import secrets
import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pyspark_odradek.options import lowered
from pyspark_odradek.pipelines import PipelineError
from pyspark_odradek.pipelines.graph import SINK, TABLE, TEMPORARY, VIEW, Column, Flow, Graph, Node, sorted_graph
from pyspark_odradek.pipelines.plans import items, reads_of, state_of, texts
from pyspark_odradek.pipelines.project import Project

_GRAPH = "org.apache.spark.sql.pipelines.graph"
_CONNECT = "org.apache.spark.sql.connect.service"
_PLUGIN = "org.apache.spark.sql.connect.SparkConnectPlugin"
_TRACE = "Traceback (most recent call last):"
_AUTHENTICATE = "SPARK_CONNECT_AUTHENTICATE_TOKEN"


def first_line(text: object) -> str:
    """What Spark says, without stacks and codes; of an error that Python has raised below it, that error alone."""
    said = str(text)
    if _TRACE in said:
        raised = [line for line in said.rsplit(_TRACE, 1)[1].splitlines() if line[:1].strip()]
        kind, _, message = (raised[0] if raised else "").partition(": ")
        ours = kind.startswith("pyspark_odradek.")
        said = message if ours and message else f"{kind.rsplit('.', 1)[-1]}: {message}" if message else said
    for end in ("\n\tat ", "SQLSTATE:", "JVM stacktrace"):
        said = said.split(end)[0]
    return " ".join(said.split())


def spoken(error: BaseException) -> str:
    """The first line of an error, which for one of the JVM is not py4j's."""
    java = getattr(error, "java_exception", None)
    return first_line(error if java is None else java.getMessage() or java)


class Engine:
    """One Spark with a Connect server that only we may use. End it with `stop`."""

    def __init__(self, project: Project, *, master: str, log_file: str | None = None) -> None:
        """Start it. Raises PipelineError where Spark lacks what pipelines need."""
        self.project = project
        os.environ[_AUTHENTICATE] = secrets.token_hex(32)
        from pyspark_odradek.session import session

        settings = {
            "spark.sql.warehouse.dir": str(project.root / "warehouse"),
            **project.configuration,
            "spark.plugins": _PLUGIN,
            "spark.connect.grpc.binding.address": "127.0.0.1",
            "spark.connect.grpc.binding.port": "0",
            "spark.connect.authenticate.token": os.environ[_AUTHENTICATE],
            "spark.sql.artifact.isolation.enabled": "true",
            "spark.sql.artifact.isolation.alwaysApplyClassloader": "true",
            "spark.sql.connect.serverStacktrace.enabled": "false",
        }
        try:
            self.classic: Any = session(project.name, master=master, log_file=log_file, config=settings)
        except Exception as error:
            where = f"; {log_file} has Spark's own words" if log_file else ""
            raise PipelineError(f"Spark does not start with --master {master}: {spoken(error)}{where}") from None
        self.jvm: Any = self.classic._jvm
        try:
            service = self.object_of(f"{_CONNECT}.SparkConnectService")
            port = service.localPort()
            os.environ["SPARK_CONNECT_MODE_ENABLED"] = "1"
            from pyspark.sql.connect.session import SparkSession as ConnectSession

            # gRPC takes this name alone, and no number, for a machine that needs no certificate.
            address = f"sc://localhost:{port}/;token={os.environ[_AUTHENTICATE]};session_id={uuid.uuid4()}"
            self.spark: Any = ConnectSession.builder.remote(address).getOrCreate()
            # The server makes its side of a session at the first question.
            self.spark.conf.get("spark.sql.session.timeZone")
            key = self._class(f"{_CONNECT}.SessionKey")(self.spark._client._user_id or "", self.spark.session_id)
            self.holder = service.sessionManager().getIsolatedSessionIfPresent(key).get()
        except Exception as error:
            self.stop()
            raise PipelineError(f"Spark {_version()} has no pipelines as Spark 4.3 has them: {spoken(error)}") from None

    def stop(self) -> None:
        """End both sides of the session, and the JVM's work."""
        with contextlib.suppress(Exception):  # the server may be gone before its client
            self.spark.stop()
        self.classic.stop()

    @property
    def session(self) -> Any:
        """The server's own side of the session, in the JVM: what the pipeline's catalog and confs are."""
        return self.holder.session()

    def object_of(self, name: str) -> Any:
        """A Scala object."""
        return getattr(self._class(name + "$"), "MODULE$")

    def _class(self, name: str) -> Any:
        found = self.jvm
        for part in name.split("."):
            found = getattr(found, part)
        return found

    def listed(self, collection: Any) -> list[Any]:
        """A Scala collection as a list."""
        return list(self.jvm.scala.jdk.javaapi.CollectionConverters.asJava(collection))

    def identifier(self, table: str, database: str) -> Any:
        """A table's name as Spark's catalog takes it."""
        option = self.object_of("scala.Option").apply(database)
        return self._class("org.apache.spark.sql.catalyst.TableIdentifier")(table, option)

    def always(self, value: Any) -> Any:
        """A Scala function that answers the same whatever it is asked."""
        return self.object_of("scala.collection.immutable.Map").empty().withDefaultValue(value)

    def load(self) -> Loaded:
        """Read the definition files. Raises PipelineError for what they do wrong."""
        from pyspark.errors import PySparkException
        from pyspark.pipelines.cli import register_definitions
        from pyspark.pipelines.spark_connect_graph_element_registry import SparkConnectGraphElementRegistry
        from pyspark.pipelines.spark_connect_pipeline import create_dataflow_graph

        project = self.project
        changeable = {c._1() for c in self.jvm.PythonSQLUtils.listRuntimeSQLConfigs()}
        with refused_plainly():
            graph_id = create_dataflow_graph(
                self.spark,
                default_catalog=project.catalog,
                default_database=project.database,
                # What is fixed when a session starts has been given to it; Spark's engine fails where it is set again.
                sql_conf={name: value for name, value in project.configuration.items() if name in changeable},
            )
        registry = SparkConnectGraphElementRegistry(self.spark, graph_id)
        try:
            with contextlib.redirect_stderr(_Nowhere()), contextlib.redirect_stdout(_Nowhere()):
                register_definitions(project.spec_path, registry, project.spec, self.spark, graph_id)
        except PySparkException as error:
            raise PipelineError(_where(error, project) + first_line(error)) from None
        except SyntaxError as error:
            raise PipelineError(f"{error.filename}:{error.lineno}: {error.msg}") from None
        except Exception as error:
            raise PipelineError(f"{_where(error, project)}{type(error).__name__}: {first_line(error)}") from None
        return Loaded(self, graph_id)


class _Nowhere(io.StringIO):
    """Takes what Spark's loader says of each file that it reads."""

    def write(self, text: str) -> int:
        return len(text)


def _where(error: BaseException, project: Project) -> str:
    """The user's own line in a traceback, as `file:line: `."""
    found = ""
    trace = error.__traceback__
    while trace is not None:
        name = trace.tb_frame.f_code.co_filename
        if name.startswith(str(project.spec_path.parent)):
            found = f"{os.path.relpath(name, project.spec_path.parent)}:{trace.tb_lineno}: "
        trace = trace.tb_next
    return found


def _version() -> str:
    import pyspark

    return str(pyspark.__version__)


@contextlib.contextmanager
def refused_plainly() -> Iterator[None]:
    """What Spark refuses, as one line."""
    from py4j.protocol import Py4JError
    from pyspark.errors import PySparkException

    try:
        yield
    except (Py4JError, PySparkException) as error:
        raise PipelineError(spoken(error)) from None


@dataclass
class Loaded:
    """Definitions that Spark's engine has; `resolve` asks it for the graph."""

    engine: Engine
    graph_id: str

    def resolve(self) -> Graph:
        """The graph with its columns, as Spark resolves and validates it. Raises PipelineError with Spark's reason."""
        engine = self.engine
        definitions = engine.holder.dataflowGraphRegistry().getDataflowGraphOrThrow(self.graph_id)
        with refused_plainly():
            resolved = definitions.toDataflowGraph().resolve(False)
            failed = engine.listed(resolved.resolutionFailedFlows())
            if failed:
                raise PipelineError(_why(engine, failed))
            resolved.validate(False)
        flows = [self._flow(flow) for flow in engine.listed(resolved.resolvedFlows())]
        columns = {flow.target: flow.columns for flow in flows}
        nodes = [
            Node(
                _short(table),
                TABLE if table.isStreamingTable() else VIEW,
                columns.get(_short(table), ())
                if table.specifiedSchema().isEmpty()
                else columns_of(table.specifiedSchema().get()),
                where=_origin(table),
            )
            for table in engine.listed(resolved.tables())
        ]
        nodes += [
            Node(_short(view), TEMPORARY, columns.get(_short(view), ()), where=_origin(view))
            for view in engine.listed(resolved.views())
        ]
        nodes += [
            Node(_short(sink), SINK, columns.get(_short(sink), ()), self._sink_detail(sink), _origin(sink))
            for sink in engine.listed(resolved.sinks())
        ]
        return sorted_graph(engine.project.name, nodes, flows)

    def _flow(self, flow: Any) -> Flow:
        plan = flow.df().queryExecution().analyzed()
        streaming = bool(flow.df().isStreaming())
        return Flow(
            name=name_of(flow.identifier()),
            target=name_of(flow.destinationIdentifier()),
            inputs=tuple(sorted(name_of(each) for each in self.engine.listed(flow.inputs()))),
            streaming=streaming,
            columns=columns_of(flow.schema()),
            reads=reads_of(plan),
            state=state_of(plan) if streaming else (),
        )

    def _sink_detail(self, sink: Any) -> str:
        options = lowered(texts(sink.options()))
        where = options.get("topic") or options.get("table") or options.get("path")
        return f"{sink.format()} {where}" if where else str(sink.format())


def columns_of(schema: Any) -> tuple[Column, ...]:
    """The columns of a schema in the JVM."""
    return tuple(
        Column(str(each.name()), str(each.dataType().simpleString()), bool(each.nullable())) for each in items(schema)
    )


def name_of(identifier: Any) -> str:
    """As people call it: without the catalog and the database where they are the default ones."""
    return str(identifier.unquotedString()).removeprefix("spark_catalog.").removeprefix("default.")


def _short(element: Any) -> str:
    return name_of(element.identifier())


def _origin(element: Any) -> str:
    path, line = element.origin().filePath(), element.origin().line()
    if path.isEmpty():
        return ""
    return Path(str(path.get())).name + (f":{line.get()}" if line.isDefined() else "")


def _why(engine: Engine, failed: list[Any]) -> str:
    """The reasons of flows that do not resolve; those that only wait for another one are left out."""
    told = []
    for flow in failed:
        for reason in engine.listed(flow.failure()):
            text = first_line(reason.getMessage())
            if "UnresolvedDatasetException" not in str(reason.getClass().getName()):
                where = _origin(flow)
                told.append(f"{where + ': ' if where else ''}{name_of(flow.identifier())}: {text}")
    return told[0] if told else f"{name_of(failed[0].identifier())} waits for what cannot be resolved"
