"""Spark's pipeline engine, in this process: a session, and the graph as Spark resolves it.

Spark accepts definitions over Spark Connect alone, and runs a graph once. Its public Python functions register the
files and run them. The Connect server is in our own JVM, so we can read data that Spark sends to no client: the
resolved graph with its columns, the folder of each checkpoint, the progress of queries, and the writer of each flow
with another trigger. These are internals of Spark (docs/adr/0009): only `plans`, `tables` and `running` use them too,
through this module.
"""

from __future__ import annotations

import contextlib
import json
import logging
import os
import secrets
import uuid
import warnings
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import py4j
from py4j.protocol import Py4JError

from pyspark_odradek.options import lowered
from pyspark_odradek.pipelines import PipelineError
from pyspark_odradek.pipelines.ends import End
from pyspark_odradek.pipelines.graph import SINK, TABLE, TEMPORARY, VIEW, Column, Flow, Graph, Node, sorted_graph
from pyspark_odradek.pipelines.plans import items, reads_of, state_of, texts, topics_of
from pyspark_odradek.pipelines.project import Project
from pyspark_odradek.pipelines.refusals import message_of, name_of, origin_of, plain_errors, refused_where, why

_CONNECT = "org.apache.spark.sql.connect.service"
_PLUGIN = "org.apache.spark.sql.connect.SparkConnectPlugin"
_AUTHENTICATE = "SPARK_CONNECT_AUTHENTICATE_TOKEN"


class Engine:
    """One Spark with a Connect server for this process alone; `stop` ends it."""

    def __init__(self, project: Project, *, master: str, log_file: str | None = None) -> None:
        """Start Spark. Raises PipelineError if this Spark has no pipelines."""
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
            raise PipelineError(f"Spark does not start with --master {master}: {message_of(error)}{where}") from None
        if log_file:
            log_py4j_to(log_file)
        self.jvm: Any = self.classic._jvm
        try:
            service = self.object_of(f"{_CONNECT}.SparkConnectService")
            port = service.localPort()
            os.environ["SPARK_CONNECT_MODE_ENABLED"] = "1"
            from pyspark.sql.connect.client.retries import DefaultPolicy
            from pyspark.sql.connect.session import SparkSession as ConnectSession

            # gRPC accepts this name alone, and no address, for a machine that needs no certificate.
            address = f"sc://localhost:{port}/;token={os.environ[_AUTHENTICATE]};session_id={uuid.uuid4()}"
            self.spark: Any = ConnectSession.builder.remote(address).getOrCreate()
            # By default a client retries for ten minutes; this server is in our own JVM, which does not come back.
            self.spark.client.set_retry_policies([DefaultPolicy(max_retries=4)])
            # The server creates its session at the first request.
            self.spark.conf.get("spark.sql.session.timeZone")
            key = self._class(f"{_CONNECT}.SessionKey")(self.spark._client._user_id or "", self.spark.session_id)
            self.holder = service.sessionManager().getIsolatedSessionIfPresent(key).get()
        except Exception as error:
            self.stop()
            raise PipelineError(
                f"Spark {_version()} has no pipelines as Spark 4.3 has them: {message_of(error)}"
            ) from None

    def stop(self) -> None:
        """End both sides of the session, and the JVM's work."""
        with contextlib.suppress(Exception), warnings.catch_warnings():  # the server may be gone before its client
            warnings.simplefilter("ignore")
            self.spark.stop()
        with contextlib.suppress(Py4JError, OSError):  # and so may the whole JVM
            self.classic.stop()

    @property
    def session(self) -> Any:
        """The session of the Connect server, in the JVM; it has the pipeline's catalog and confs."""
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
        """The name of a table for Spark's catalog."""
        option = self.object_of("scala.Option").apply(database)
        return self._class("org.apache.spark.sql.catalyst.TableIdentifier")(table, option)

    def always(self, value: Any) -> Any:
        """A constant Scala function of one argument."""
        return self.object_of("scala.collection.immutable.Map").empty().withDefaultValue(value)

    def load(self) -> Loaded:
        """Read the definition files. Raises PipelineError for an error in them."""
        from pyspark.pipelines.cli import register_definitions
        from pyspark.pipelines.spark_connect_graph_element_registry import SparkConnectGraphElementRegistry as Registry
        from pyspark.pipelines.spark_connect_pipeline import create_dataflow_graph

        project = self.project
        changeable = {c._1() for c in self.jvm.PythonSQLUtils.listRuntimeSQLConfigs()}
        with plain_errors():
            graph_id = create_dataflow_graph(
                self.spark,
                default_catalog=project.catalog,
                default_database=project.database,
                # Static confs were given to the session at its start; Spark's engine fails if they are set again.
                sql_conf={name: value for name, value in project.configuration.items() if name in changeable},
            )
        with refused_where(project.spec_path.parent):
            register_definitions(project.spec_path, Registry(self.spark, graph_id), project.spec, self.spark, graph_id)
        return Loaded(self, graph_id)


def log_py4j_to(log_file: str | os.PathLike[str]) -> None:
    """Log messages of py4j to a file: it logs a trace of each call that the end of the JVM interrupts.

    py4j uses its own loggers and the root logger.
    """
    file = logging.FileHandler(log_file)
    folder = Path(py4j.__file__).parent

    def is_of_others(record: logging.LogRecord) -> bool:
        if Path(record.pathname).parent != folder:
            return True
        file.handle(record)
        return False

    logging.getLogger().addFilter(is_of_others)
    own = logging.getLogger("py4j")
    own.addHandler(file)
    own.propagate = False


def _version() -> str:
    import pyspark

    return str(pyspark.__version__)


@dataclass
class Loaded:
    """The definitions that Spark's engine has loaded; `resolve` returns their graph, and sets its `ends`."""

    engine: Engine
    graph_id: str
    ends: list[End] = field(default_factory=list)

    def resolve(self) -> Graph:
        """The graph with its columns, as Spark resolves and validates it. Raises PipelineError with Spark's reason."""
        engine = self.engine
        definitions = engine.holder.dataflowGraphRegistry().getDataflowGraphOrThrow(self.graph_id)
        with plain_errors():
            resolved = definitions.toDataflowGraph().resolve(False)
            failed = engine.listed(resolved.resolutionFailedFlows())
            if failed:
                raise PipelineError(why(engine.listed, failed))
            resolved.validate(False)
        self.ends = list(self._ends(resolved))
        flows = [self._flow(flow) for flow in engine.listed(resolved.resolvedFlows())]
        columns = {flow.target: flow.columns for flow in flows}
        nodes = [
            Node(
                _short(table),
                TABLE if table.isStreamingTable() else VIEW,
                columns.get(_short(table), ())
                if table.specifiedSchema().isEmpty()
                else columns_of(table.specifiedSchema().get()),
                where=origin_of(table),
            )
            for table in engine.listed(resolved.tables())
        ]
        nodes += [
            Node(_short(view), TEMPORARY, columns.get(_short(view), ()), where=origin_of(view))
            for view in engine.listed(resolved.views())
        ]
        nodes += [
            Node(_short(sink), SINK, columns.get(_short(sink), ()), self._sink_detail(sink), origin_of(sink))
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

    def _ends(self, resolved: Any) -> Iterator[End]:
        """The topics that flows read, and the sinks of our format that they write into."""
        sinks = {name_of(sink.identifier()): sink for sink in self.engine.listed(resolved.sinks())}
        views = {_short(view) for view in self.engine.listed(resolved.views())}
        for flow in self.engine.listed(resolved.resolvedFlows()):
            name, target = name_of(flow.identifier()), name_of(flow.destinationIdentifier())
            for options in topics_of(flow.df().queryExecution().analyzed()):
                yield End(name, options, is_view=target in views)
            sink = sinks.get(target)
            if sink is not None and str(sink.format()).lower() == "odradek":
                yield End(name, lowered(texts(sink.options())), json.loads(str(flow.schema().json())))

    def _sink_detail(self, sink: Any) -> str:
        options = lowered(texts(sink.options()))
        where = options.get("topic") or options.get("table") or options.get("path")
        return f"{sink.format()} {where}" if where else str(sink.format())


def columns_of(schema: Any) -> tuple[Column, ...]:
    """The columns of a schema in the JVM."""
    return tuple(
        Column(str(each.name()), str(each.dataType().simpleString()), bool(each.nullable())) for each in items(schema)
    )


def _short(element: Any) -> str:
    return name_of(element.identifier())
