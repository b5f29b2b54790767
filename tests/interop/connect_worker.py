"""A running worker of Kafka Connect, and its REST interface."""

from __future__ import annotations

import json
import subprocess
import urllib.request
from pathlib import Path
from typing import Any
from urllib.error import HTTPError

from tests.interop.maven import kafka_artifact
from tests.support.nodes.apache_kafka import find_java, kafka_libraries
from tests.support.nodes.node import free_port

CONFLICT = 409  # a rebalance is under way
WORKER = """bootstrap.servers={bootstrap}
listeners=http://127.0.0.1:{port}
group.id=connect-cluster
key.converter=org.apache.kafka.connect.storage.StringConverter
value.converter=org.apache.kafka.connect.storage.StringConverter
offset.storage.topic=connect-offsets
config.storage.topic=connect-configs
status.storage.topic=connect-status
offset.storage.replication.factor=1
config.storage.replication.factor=1
status.storage.replication.factor=1
offset.flush.interval.ms=500
exactly.once.source.support=enabled
"""


class Worker:
    """One running worker and its REST interface."""

    def __init__(self, folder: Path, bootstrap: str, *more_jars: Path) -> None:
        """
        Args:
            more_jars: folders of jars, of connectors and transformations.

        Raises:
            KafkaUnavailableError, MissingError: there is no Java, or no way to fetch the jars.
        """
        jars = ":".join(f"{lib}/*" for lib in (kafka_artifact("connect-file"), kafka_libraries(), *more_jars))
        self.port = free_port()
        self.output = folder / "connect.txt"
        properties = folder / "worker.properties"
        properties.write_text(WORKER.format(bootstrap=bootstrap, port=self.port))
        program = "org.apache.kafka.connect.cli.ConnectDistributed"
        self.command = [str(find_java()), "-Xmx400m", "-cp", jars, program, str(properties)]
        self.start()

    def start(self) -> None:
        with self.output.open("ab") as out:
            self.process = subprocess.Popen(self.command, stdout=out, stderr=out, stdin=subprocess.DEVNULL)

    def call(self, path: str, body: object = None) -> Any:
        """GET, or POST where there is a body; raises OSError while the worker is not ready."""
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(f"http://127.0.0.1:{self.port}{path}", data=data)
        request.add_header("Content-Type", "application/json")
        with urllib.request.urlopen(request, timeout=60) as answer:
            return json.loads(answer.read())

    def create(self, name: str, config: dict[str, str]) -> bool:
        """Make a connector; False while the worker is busy with the one before."""
        try:
            self.call("/connectors", {"name": name, "config": config})
        except HTTPError as error:
            if error.code != CONFLICT:
                raise
            return False
        return True

    def is_ready(self) -> bool:
        assert self.process.poll() is None, self.output.read_text()[-3000:]
        try:
            return isinstance(self.call("/connectors"), list)
        except OSError:
            return False

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()

    def stop(self) -> None:
        self.process.terminate()
        try:
            self.process.wait(30)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
